"""Split a task's texts into plants, held-out text and text to fit on; hide the plants in a pool of other text.

Three shortcuts are closed. Memory: plants and held-out texts have no near duplicates in each other
or in the text to fit on. Surface: target text is often tokenised, lower-cased, or has marked entities
and masked numbers, which a selector of n-grams would find, so all text is normalised. Length: every
piece of pool text is cut to the length of a plant, so that both have the same distribution of
lengths. No two pieces are of one document.
"""

import html
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.artifacts import Artifact, Draft, make, open_artifact
from dana.core.errors import ConfigError, DataError, suggestion
from dana.core.rng import generator
from dana.core.schemas import DOCUMENTS, Document, iterate_documents, write_parts
from dana.corpus.documents import Tally, document_tables, source_digests
from dana.corpus.inputs import Inputs
from dana.corpus.sources import find_files
from dana.corpus.text import MARKERS, distinct_rows, document_id, words
from dana.corpus.units import sentences
from dana.scoring.ranking.folds import groups_of
from dana.studies.comparison.settings import SOURCE
from dana.tasks.examples import card_texts, find_task, plain_texts

PLANTED = " (planted)"  # suffix of the source of a planted document; reports use it
MOST = 10_000  # texts of a task that are used, drawn at random: all pairs are compared in memory
LARGE = 10  # groups with more near duplicates are not planted
LEAST = 20  # fewest texts of each part, as many as scoring needs units
MOST_OTHERS = 6000  # pieces of pool text where no number is given
TOLERANCE = 0.2  # relative excess of length above which words are cut off the end of a piece
LOWER_CASED = 0.005  # share of capitals among letters below which a task counts as lower-cased
# Replacements in every text, in this order.
REPLACED = MARKERS + [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"``|''|[\"“”„«»]", " "),  # dropped: a spaced mark no longer tells its side
        (r"[’‘`´]", "'"),
        (r"@(?:\s*[.,]\s*@)*|\d+(?:\s?[.,]\s?\d+)*", "0"),  # rct writes "@" or "@.@" for a number
        (r"\s*(?:--+|–|—)\s*|\s+-\s+", " - "),
        (r"\s+", " "),
        (r"(?i:(?<=\w)\s+(?=(?:n't|'(?:s|re|ve|ll|d|m|t))\b))", ""),  # before clitics
        (r"\s+(?=[,.;:!?%)\]}])", ""),
        (r"(?<=[(\[{$])\s+", ""),
    )
]


def is_lower_cased(texts: Iterable[str]) -> bool:
    """Tell whether a task is distributed lower-cased: fewer than 5 in 1,000 letters are capitals."""
    letters = capitals = 0
    for text in texts:
        letters += sum(map(str.isalpha, text))
        capitals += sum(map(str.isupper, text))
    return capitals < LOWER_CASED * letters


def normalise_surface(text: str, lower: bool = False) -> str:
    """Remove the surface marks that distinguish target text from pool text; returns one line.

    Removes entity markers, tags, double quotation marks, a tokeniser's spaces around punctuation,
    and the last full stop, which a piece of pool text lacks once it is cut. Numbers become
    ``0``, dashes spaced hyphens. Accents stay.

    Args:
        text: Any text.
        lower: Lower-case all letters, for a task that is distributed lower-cased.
    """
    text = html.unescape(unicodedata.normalize("NFKC", text))
    for pattern, replacement in REPLACED:
        text = pattern.sub(replacement, text)
    text = text.strip().rstrip(" .!?;:,")
    return text.lower() if lower else text


def split_texts(
    texts: Sequence[Document], lower: bool, plants: int, task: str
) -> dict[str, list[Document]]:
    """Normalise the texts of a task and split them by groups of near duplicates.

    Args:
        texts: Documents of the task.
        lower: See :func:`normalise_surface`.
        plants: Number of plants, reduced to a quarter of the groups. Half as many texts are held
            out.
        task: Name of the task, for errors.

    Returns:
        ``plants`` to hide in the pool and ``held_out`` to measure on, one text of each group;
        ``fit`` to fit on, all texts of the other groups, in random order.

    Raises:
        DataError: If a part has fewer than 20 texts.
    """
    plain = [replace(document, text=normalise_surface(document.text, lower)) for document in texts]
    plain = [document for document in plain if words(document.text)]
    distinct = distinct_rows([document.text for document in plain])
    sample = [
        plain[row] for row in generator(0, "comparison", "texts").permutation(distinct)[:MOST]
    ]
    if len(sample) < 4 * LEAST:
        raise DataError(
            f"task {task}: expected at least {4 * LEAST} distinct texts, got {len(sample)}"
        )
    groups = groups_of([document.text for document in sample], range(len(sample)))
    sizes = np.bincount(groups)
    order = generator(0, "comparison", "groups").permutation(sizes.size)
    # Large groups last: planting one text would remove all the others from the text to fit on.
    order = order[np.argsort(sizes[order] > LARGE, kind="stable")]
    plant_count = min(plants, sizes.size // 4)
    test_count = plant_count + max(LEAST, plant_count // 2)
    _, firsts = np.unique(groups, return_index=True)
    remaining = np.isin(groups, order[test_count:])
    parts = {
        "plants": [sample[firsts[group]] for group in order[:plant_count]],
        "held_out": [sample[firsts[group]] for group in order[plant_count:test_count]],
        "fit": [document for document, is_left in zip(sample, remaining, strict=True) if is_left],
    }
    for name, part in parts.items():
        if len(part) < LEAST:
            problem = (
                f"expected at least {LEAST} texts for {name}, got {len(part)} of {len(sample)}"
            )
            raise DataError(f"task {task}: {problem}")
    return parts


def sample_fit(fit: Sequence[Document], size: int, seed: int) -> list[Document]:
    """Draw the texts that selectors are fitted on with one seed.

    Args:
        fit: Texts to fit on, from :func:`split_texts`.
        size: Number of texts.
        seed: Seed of the draw.
    """
    return [fit[row] for row in generator(seed, "comparison", "fit").permutation(len(fit))[:size]]


def shares_of(available: Mapping[str, int], count: int) -> dict[str, int]:
    """Distribute pieces over sources as evenly as their numbers of documents allow, one piece per document.

    Args:
        available: Number of documents of each source.
        count: Number of pieces in all.

    Raises:
        DataError: If there are fewer documents than pieces.
    """
    if sum(available.values()) < count:
        raise DataError(
            f"others={count}: must be at most {sum(available.values())}, the number of pool documents"
        )
    shares: dict[str, int] = {}
    for position, source in enumerate(sorted(available, key=lambda name: (available[name], name))):
        remaining = count - sum(shares.values())
        shares[source] = min(available[source], round(remaining / (len(available) - position)))
    return shares


def choose_documents(sizes: np.ndarray, lengths: np.ndarray, source: str) -> np.ndarray:
    """Draw a document for each piece, at random among those that are long enough, without replacement.

    Args:
        sizes: Words of each document of a source, int64 of shape (documents,).
        lengths: Words of each piece, int64 of shape (pieces,), with pieces <= documents.
        source: Name of the source, which decides the draw.

    Returns:
        Index of a document for each piece, int64 of shape (pieces,). If none is long enough, the
        longest one left.
    """
    order = generator(0, "comparison", "documents", source).permutation(sizes.size)
    free = np.ones(sizes.size, dtype=bool)
    rows = np.empty(lengths.size, dtype=np.int64)
    for piece in np.argsort(
        -lengths, kind="stable"
    ):  # the longest first: few documents are long enough
        fits = free[order] & (sizes[order] >= lengths[piece])
        row = order[fits.argmax()] if fits.any() else int(np.where(free, sizes, -1).argmax())
        free[row] = False
        rows[piece] = row
    return rows


def cut_to(text: str, length: int, language: str = "en") -> str:
    """Cut a document to the run of consecutive sentences whose number of words is nearest to a target.

    Words are cut off the end if the run is over a fifth too long. Ties: the first run.

    Args:
        text: A document.
        length: Target number of words.
        language: ISO 639-1 code, for the splitter of sentences.
    """
    spans = sentences(text, language)
    if not spans:
        return text
    before = np.cumsum(
        [0, *(len(text[start:end].split()) for start, end in spans)]
    )  # words before each sentence
    runs = [
        (first, last)
        for first, end in enumerate(np.searchsorted(before, before[:-1] + length).tolist())
        for last in (end - 1, end)  # the longest run that is shorter, and the shortest that is not
        if first < last <= len(spans)
    ]
    sizes = [before[last] - before[first] for first, last in runs]
    nearest = min(
        range(len(runs)),
        key=lambda row: (sizes[row] < length * (1 - TOLERANCE), abs(sizes[row] - length)),
    )
    first, last = runs[nearest]
    piece = text[spans[first][0] : spans[last - 1][1]].split()
    return " ".join(piece if len(piece) <= length * (1 + TOLERANCE) else piece[:length])


def planted_pool_of(
    plants: Sequence[Document],
    pool: Iterable[Document],
    lower: bool,
    others: int | None,
    language: str,
) -> list[Document]:
    """Mix plants with pieces of pool text of the same lengths, sampled evenly from the sources.

    Plants are cut to a length that every source can match: as many of its documents as it gives
    pieces, or half of them, are as long. Ids are hashes of the text and decide the order, so
    neither tells a plant; only its source does, which ends in ``(planted)``. Pieces with the words
    of a plant or of another piece are dropped.

    Args:
        plants: Plants, from :func:`split_texts`.
        pool: Pool documents; held in memory.
        lower: Lower-case the pieces, as the plants.
        others: Number of pieces; None takes :data:`MOST_OTHERS`, or as many as there are documents.
        language: ISO 639-1 code.

    Raises:
        DataError: If there are too few documents.
    """
    by_source: dict[str, list[Document]] = {}
    for document in pool:
        by_source.setdefault(document.source, []).append(document)
    available = {name: len(documents) for name, documents in by_source.items()}
    if others is None:
        others = min(MOST_OTHERS, sum(available.values()))
    shares = shares_of(available, others)
    sizes = {
        name: np.array([len(document.text.split()) for document in by_source[name]])
        for name in sorted(by_source)
    }
    length_limit = min(
        int(np.sort(size)[-max(1, min(shares[name], size.size // 2))])
        for name, size in sizes.items()
    )
    planted = [
        replace(
            plant,
            source=f"{plant.source}{PLANTED}",
            text=cut_to(plant.text, length_limit, language),
        )
        for plant in plants
    ]
    lengths = np.sort([len(plant.text.split()) for plant in planted])
    word_sets = {words(plant.text) for plant in planted}
    for source, documents in sizes.items():
        # Stratified sample of the plants' lengths, so that each source has their distribution.
        share = shares[source]
        quantiles = (
            np.arange(share) + generator(0, "comparison", "lengths", source).random(share)
        ) / max(1, share)
        piece_lengths = lengths[(quantiles * lengths.size).astype(np.int64)]
        rows = choose_documents(documents, piece_lengths, source)
        for length, row in zip(piece_lengths.tolist(), rows, strict=True):
            # Cut before normalisation, which removes the capitals and digits that sentences are
            # split by.
            text = normalise_surface(cut_to(by_source[source][row].text, length, language), lower)
            if (key := words(text)) and key not in word_sets:
                word_sets.add(key)
                planted.append(replace(by_source[source][row], text=text))
    by_id = {
        (doc_id := document_id("pool", document.text)): replace(document, doc_id=doc_id)
        for document in planted
    }
    return [by_id[doc_id] for doc_id in sorted(by_id)]


def plant_stage(
    task: str, pool: Path, folder: Path, plants: int, data: str | None, inputs: Inputs
) -> Artifact:
    """Split a task's texts into plants, held-out text and text to fit on, see :func:`split_texts`.

    Args:
        task: Name or file of a card (its training and development texts are used, never the test
            texts), a text file, glob or folder, or ``source:NAME``.
        pool: The pool, of which a source may be the task.
        folder: Folder of ``plants/``, ``held_out/`` and ``fit/``
            (:data:`dana.core.schemas.DOCUMENTS` each).
        plants: Number of plants.
        data: Folder of a card's data, if it is not under ``DANA_DATA``.
        inputs: How records of plain text become documents.
    """
    depends_on: dict[str, object] = {"task": task, "plants": plants}
    files: list[Any] = []
    card = None if task.startswith(SOURCE) else find_task(task)
    if task.startswith(SOURCE):
        depends_on["pool"] = open_artifact(pool, "pool").fingerprint
    else:
        files = card.files(data, ("train", "dev")) if card else find_files([task], pool.parent)
        depends_on |= {
            "files": source_digests(files),
            **(card.text_identity if card else inputs.identity()),
        }

    def write(draft: Draft) -> None:
        if task.startswith(SOURCE):
            documents, source = list(iterate_documents(pool)), task.removeprefix(SOURCE)
            texts = [document for document in documents if document.source == source]
            if not texts:
                near = suggestion(source, sorted({document.source for document in documents}))
                raise ConfigError(f"task 'source:{source}': unknown source of the pool{near}")
        else:
            fit, held_out = (
                card_texts(card, data) if card else plain_texts(files, inputs, 0, Tally())
            )
            texts = [*fit, *held_out]
        lower = is_lower_cased(document.text for document in texts)
        parts = split_texts(texts, lower, plants, task)
        for name, documents in parts.items():
            draft.counts[name] = write_parts(
                document_tables(documents), draft.path / name, DOCUMENTS
            )
        draft.counts["texts"] = len(texts)
        draft.notes["surface"] = {"lower": lower}

    return make(folder, "planting", depends_on, write)


def planted_pool_stage(
    planting: Path, pool: Path, folder: Path, others: int | None, language: str
) -> Artifact:
    """Write the pool, a pool of plants among pieces of pool text, see :func:`planted_pool_of`.

    Args:
        planting: Artifact of :func:`plant_stage`.
        pool: The pool.
        folder: Folder of ``part-*.parquet`` (:data:`dana.core.schemas.DOCUMENTS`).
        others: Number of pieces, see :func:`planted_pool_of`; a source that is the task gives none.
        language: ISO 639-1 code, for the splitter of sentences.

    Raises:
        DataError: If there are too few documents.
    """
    task, source_pool = open_artifact(planting, "planting"), open_artifact(pool, "pool")
    name = task.manifest["depends_on"]["task"]
    left_out = [name.removeprefix(SOURCE)] if name.startswith(SOURCE) else []
    depends_on = {
        "planting": task.fingerprint,
        "pool": source_pool.fingerprint,
        "others": others or MOST_OTHERS,
    }
    depends_on |= {"without": left_out, "language": language}

    def write(draft: Draft) -> None:
        documents = [
            document for document in iterate_documents(pool) if document.source not in left_out
        ]
        plants = list(iterate_documents(planting / "plants"))
        planted = planted_pool_of(
            plants, documents, task.manifest["surface"]["lower"], others, language
        )
        count = sum(document.source.endswith(PLANTED) for document in planted)
        draft.counts |= {"documents": len(planted), "plants": count, "others": len(planted) - count}
        write_parts(document_tables(planted), draft.path, DOCUMENTS)

    return make(folder, "pool", depends_on, write)


def fit_stage(planting: Path, folder: Path, size: int, seed: int) -> Artifact:
    """Draw the texts to fit on and write them as a task artifact, with the held-out text.

    Args:
        planting: Artifact of :func:`plant_stage`.
        folder: Folder of ``fit/`` and ``held_out/``.
        size: Number of texts to fit on.
        seed: Seed of the draw.
    """
    task = open_artifact(planting, "planting")
    name = task.manifest["depends_on"]["task"]
    depends_on = {"name": name, "planting": task.fingerprint, "size": size, "seed": seed}

    def write(draft: Draft) -> None:
        fit = sample_fit(list(iterate_documents(planting / "fit")), size, seed)
        for part, documents in (
            ("fit", fit),
            ("held_out", iterate_documents(planting / "held_out")),
        ):
            draft.counts[part] = write_parts(
                document_tables(documents), draft.path / part, DOCUMENTS
            )

    return make(folder, "target", depends_on, write)
