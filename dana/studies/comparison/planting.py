"""Planting: a task's texts to plants, held-out text and text to fit on; general text to a pool that hides the plants.

Plants and held-out texts share no near duplicate with each other or with the text to fit on, so a selector finds them
by what they are about and not by what it remembers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dana.core.errors import DataError
from dana.core.rng import generator
from dana.core.schemas import Document
from dana.corpus.text import document_id, words
from dana.scoring.ranking.folds import groups_of
from dana.studies.comparison.pieces import cut_to, documents_for, lengths_by_source, longest_for_all, shares_of
from dana.studies.comparison.surface import Surface

PLANTED = " (planted)"  # behind the source of a planted document, as reports know it
MOST = 10_000  # texts of a task that are looked at, drawn at random; comparing more with each other takes memory
LARGE = 10  # texts in a group of near duplicates from which on it is left to be fitted on
LEAST = 20  # texts that must be left of each part, as many as scoring needs units


@dataclass(frozen=True)
class Planting:
    """The texts of a task, parted; normalised (:class:`dana.studies.comparison.surface.Surface`).

    Attributes:
        plants: To be hidden in the pool, one of each group of near duplicates.
        held_out: For what is measured on held-out text; neither planted nor fitted on.
        fit: To fit on, in a seeded order; near duplicates among themselves are kept.
    """

    plants: tuple[Document, ...]
    held_out: tuple[Document, ...]
    fit: tuple[Document, ...]


def part_texts(texts: Sequence[Document], surface: Surface, plants: int, seed: int) -> Planting:
    """Part the texts of a task.

    Args:
        texts: The task's documents.
        surface: How they are normalised.
        plants: Plants wanted; no more than a quarter of the groups. Half as many texts are held out.
        seed: Decides who is what.

    Raises:
        DataError: If fewer than 20 texts are left for any part.
    """
    first: dict[str, Document] = {}
    for document in texts:
        text = surface.apply(document.text)
        if key := words(text):
            first.setdefault(key, replace(document, text=text))
    distinct = list(first.values())
    order = generator(seed, "comparison", "texts").permutation(len(distinct))[:MOST]
    chosen = [distinct[row] for row in order]
    if len(chosen) < 4 * LEAST:
        raise DataError(f"the task has {len(chosen)} distinct texts; a comparison needs at least {4 * LEAST}")
    groups = groups_of([document.text for document in chosen], [str(row) for row in range(len(chosen))])
    sizes = np.bincount(groups)
    shuffled = generator(seed, "comparison", "groups").permutation(sizes.size)
    # A large group comes last: planting one text of it would take all the others from the text to fit on.
    shuffled = shuffled[np.argsort(sizes[shuffled] > LARGE, kind="stable")]
    hidden = min(plants, sizes.size // 4)
    out = max(LEAST, hidden // 2)
    place = np.empty(sizes.size, dtype=np.int64)
    place[shuffled] = np.arange(sizes.size)
    _, firsts = np.unique(groups, return_index=True)
    parts = (
        [chosen[firsts[group]] for group in shuffled[:hidden]],
        [chosen[firsts[group]] for group in shuffled[hidden : hidden + out]],
        [document for document, group in zip(chosen, groups, strict=True) if place[group] >= hidden + out],
    )
    for name, part in zip(("plants", "held-out texts", "texts to fit on"), parts, strict=True):
        if len(part) < LEAST:
            raise DataError(f"the task's {len(chosen)} texts give {len(part)} {name}; at least {LEAST} are needed")
    return Planting(*map(tuple, parts))


def sample_fit(fit: Sequence[Document], size: int, seed: int) -> list[Document]:
    """Draw the texts that one selector of one seed is fitted on.

    Args:
        fit: Of a :class:`Planting`.
        size: How many.
        seed: The fit seed.

    Raises:
        DataError: If there are fewer.
    """
    if size > len(fit):
        raise DataError(f"the task has {len(fit):,} texts to fit on, not {size:,}")
    return [fit[row] for row in generator(seed, "comparison", "fit").permutation(len(fit))[:size]]


def pool_of(
    plants: Sequence[Document], general: Iterable[Document], surface: Surface, others: int, seed: int, language: str
) -> list[Document]:
    """Plants among pieces of general text in their lengths, sources sampled evenly, one piece a document at most.

    Plants that are longer than what every source can match (:func:`dana.studies.comparison.pieces.longest_for_all`) are
    cut to that. Plants and pieces are named by a hash of their text and stand in its order, so neither name nor place
    tells a plant; its source ends in ``(planted)``. A piece with the words of a plant, or of another piece, is left
    out.

    Args:
        plants: Of a :class:`Planting`.
        general: General documents, in memory at once.
        surface: How the plants were normalised.
        others: Pieces wanted.
        seed: Root seed.
        language: ISO 639-1 code.

    Raises:
        DataError: If there are too few documents.
    """
    by_source: dict[str, list[Document]] = {}
    for document in general:
        by_source.setdefault(document.source, []).append(document)
    sizes = {
        name: np.array([len(document.text.split()) for document in found], dtype=np.int64)
        for name, found in by_source.items()
    }
    shares = shares_of({name: len(found) for name, found in by_source.items()}, others)
    most = longest_for_all(sizes, shares)
    found = [
        replace(plant, text=cut_to(plant.text, most, language), source=f"{plant.source}{PLANTED}")
        if len(plant.text.split()) > most
        else replace(plant, source=f"{plant.source}{PLANTED}")
        for plant in plants
    ]
    taken = {words(plant.text) for plant in found}
    for source, wanted in lengths_by_source([len(plant.text.split()) for plant in found], shares, seed).items():
        for length, row in zip(wanted, documents_for(sizes[source], wanted, seed, source), strict=True):
            # Sentences end at capitals and digits of the text as it is, so it is cut before it is normalised.
            text = surface.apply(cut_to(by_source[source][row].text, int(length), language))
            if (key := words(text)) and key not in taken:
                taken.add(key)
                found.append(replace(by_source[source][row], text=text))
    named = [replace(document, doc_id=document_id("pool", document.text)) for document in found]
    return sorted({document.doc_id: document for document in named}.values(), key=lambda document: document.doc_id)
