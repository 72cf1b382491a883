"""Planting: a task's texts to plants, held-out text and text to fit on; general text to a pool that hides the plants.

Plants and held-out texts share no near duplicate with each other or with the text to fit on, so a selector finds them
by what they are about and not by what it remembers. Both sides are normalised: task text is distributed tokenised, with
marked entities, with numbers replaced by ``@`` or lower-cased, and a selector of n-grams would find it by these marks
alone. A pool of whole documents among planted sentences would be told apart by length, so every piece of general text
is given the length of one plant, and the two distributions agree; no two pieces are of one document.
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
from dana.corpus.text import distinct_rows, document_id, words
from dana.corpus.units import sentences
from dana.scoring.ranking.folds import groups_of
from dana.studies.comparison.settings import SOURCE
from dana.tasks.examples import card_texts, find_task, plain_texts

PLANTED = " (planted)"  # behind the source of a planted document, as reports know it
MOST = 10_000  # texts of a task that are looked at, drawn at random; comparing more with each other takes memory
LARGE = 10  # texts in a group of near duplicates from which on it is left to be fitted on
LEAST = 20  # texts that must be left of each part, as many as scoring needs units
TOLERANCE = 0.2  # share of its length by which a piece may differ before words are cut off its end
LOWER_CASED = 0.005  # share of capitals among letters below which a set was lower-cased by whoever distributes it
# What is replaced in every text, in this order.
REPLACED = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"</?[A-Za-z][^<>]{0,60}>|\[/?E\d\]", " "),  # tags
        ("-LRB-", "("),
        ("-RRB-", ")"),
        ("-LSB-", "["),
        ("-RSB-", "]"),
        (r"<<|>>|\[\[|\]\]", " "),  # entity markers
        (r"``|''|[\"“”„«»]", " "),  # which side of a word a spaced mark belongs to is lost: all are dropped
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
    """Whether fewer than 5 in 1,000 letters of a task's texts are capitals."""
    letters = capitals = 0
    for text in texts:
        letters += sum(map(str.isalpha, text))
        capitals += sum(map(str.isupper, text))
    return capitals < LOWER_CASED * letters


def normalised(text: str, lower: bool = False) -> str:
    """A text on one line without the marks by which task text is told.

    Entity markers, tags and double quotation marks are removed, every number is ``0``, spaces that a tokeniser put
    around punctuation are taken out, dashes are spaced hyphens, accents and other letters stay. The last sentence
    loses its full stop: a piece of general text that was cut to a length has none.

    Args:
        text: Any.
        lower: Lower-case all letters, because the task is distributed so.
    """
    text = html.unescape(unicodedata.normalize("NFKC", text))
    for pattern, replacement in REPLACED:
        text = pattern.sub(replacement, text)
    text = text.strip().rstrip(" .!?;:,")
    return text.lower() if lower else text


def part_texts(texts: Sequence[Document], lower: bool, plants: int, task: str) -> dict[str, list[Document]]:
    """Part the texts of a task and normalise them.

    Args:
        texts: The task's documents.
        lower: See :func:`normalised`.
        plants: Plants wanted; no more than a quarter of the groups. Half as many texts are held out.
        task: Its name, for errors.

    Returns:
        ``plants`` to be hidden in the pool, one of each group of near duplicates; ``held_out`` for what is measured on
        held-out text, neither planted nor fitted on; ``fit`` to fit on, in a seeded order, in which near duplicates
        among themselves are kept.

    Raises:
        DataError: If fewer than 20 texts are left for any part.
    """
    plain = [replace(document, text=normalised(document.text, lower)) for document in texts]
    plain = [document for document in plain if words(document.text)]
    distinct = distinct_rows([document.text for document in plain])
    chosen = [plain[row] for row in generator(0, "comparison", "texts").permutation(distinct)[:MOST]]
    if len(chosen) < 4 * LEAST:
        raise DataError(f"task {task}: {len(chosen)} distinct texts; a comparison needs at least {4 * LEAST}")
    groups = groups_of([document.text for document in chosen], range(len(chosen)))
    sizes = np.bincount(groups)
    shuffled = generator(0, "comparison", "groups").permutation(sizes.size)
    # A large group comes last: planting one text of it would take all the others from the text to fit on.
    shuffled = shuffled[np.argsort(sizes[shuffled] > LARGE, kind="stable")]
    hidden = min(plants, sizes.size // 4)
    used = hidden + max(LEAST, hidden // 2)
    _, firsts = np.unique(groups, return_index=True)
    rest = np.isin(groups, shuffled[used:])
    parts = {
        "plants": [chosen[firsts[group]] for group in shuffled[:hidden]],
        "held_out": [chosen[firsts[group]] for group in shuffled[hidden:used]],
        "fit": [document for document, is_left in zip(chosen, rest, strict=True) if is_left],
    }
    for name, part in parts.items():
        if len(part) < LEAST:
            problem = f"{len(chosen)} texts give {len(part)} for {name}; at least {LEAST} are needed"
            raise DataError(f"task {task}: {problem}")
    return parts


def sample_fit(fit: Sequence[Document], size: int, seed: int) -> list[Document]:
    """Draw the texts that one selector of one seed is fitted on.

    Args:
        fit: Of :func:`part_texts`.
        size: How many.
        seed: The fit seed.
    """
    return [fit[row] for row in generator(seed, "comparison", "fit").permutation(len(fit))[:size]]


def shares_of(available: Mapping[str, int], count: int) -> dict[str, int]:
    """Pieces of each source: as even as its documents allow, one piece a document; the others make up for a small one.

    Args:
        available: Documents of each source.
        count: Pieces in all.

    Raises:
        DataError: If there are fewer documents than pieces.
    """
    if sum(available.values()) < count:
        raise DataError(f"{sum(available.values()):,} general documents cannot give {count:,} pieces, one each")
    shares: dict[str, int] = {}
    for done, source in enumerate(sorted(available, key=lambda name: (available[name], name))):
        left = count - sum(shares.values())
        shares[source] = min(available[source], round(left / (len(available) - done)))
    return shares


def documents_for(sizes: np.ndarray, wanted: np.ndarray, source: str) -> np.ndarray:
    """Choose a document for every piece: at random among those that are long enough, each once.

    Args:
        sizes: Words of each document of a source, int64 of shape (documents,).
        wanted: Words of each piece, int64 of shape (pieces,), no more of them than documents.
        source: Its name, which decides the draw.

    Returns:
        int64 of shape (pieces,): a document's row for each piece. Where none is long enough, the longest left.
    """
    order = generator(0, "comparison", "documents", source).permutation(sizes.size)
    free = np.ones(sizes.size, dtype=bool)
    chosen = np.empty(wanted.size, dtype=np.int64)
    for piece in np.argsort(-wanted, kind="stable"):  # the longest first: few documents can hold them
        fits = free[order] & (sizes[order] >= wanted[piece])
        row = order[fits.argmax()] if fits.any() else int(np.where(free, sizes, -1).argmax())
        free[row] = False
        chosen[piece] = row
    return chosen


def cut_to(text: str, length: int, language: str = "en") -> str:
    """The run of consecutive sentences whose number of words is nearest to a given one.

    Where none is within a fifth of it, words are cut off the end of one that is longer. Of runs that are equally near
    the first is taken.

    Args:
        text: A document.
        length: Words wanted.
        language: ISO 639-1 code, for where sentences end.
    """
    spans = sentences(text, language)
    if not spans:
        return text
    before = np.cumsum([0, *(len(text[start:end].split()) for start, end in spans)])  # words before each sentence
    runs = [
        (first, last)
        for first, reached in enumerate(np.searchsorted(before, before[:-1] + length).tolist())
        for last in (reached - 1, reached)  # the longest run that is shorter, and the shortest that is not
        if first < last <= len(spans)
    ]
    sizes = [before[last] - before[first] for first, last in runs]
    nearest = min(range(len(runs)), key=lambda at: (sizes[at] < length * (1 - TOLERANCE), abs(sizes[at] - length)))
    first, last = runs[nearest]
    piece = text[spans[first][0] : spans[last - 1][1]].split()
    return " ".join(piece if len(piece) <= length * (1 + TOLERANCE) else piece[:length])


def pool_of(
    plants: Sequence[Document], general: Iterable[Document], lower: bool, others: int, language: str
) -> list[Document]:
    """Plants among pieces of general text in their lengths, sources sampled evenly, one piece a document at most.

    Plants are cut to what every source can match: so many of its documents as it gives pieces, or half of them, are as
    long. Plants and pieces are named by a hash of their text and stand in its order, so neither name nor place tells a
    plant; its source ends in ``(planted)``. A piece with the words of a plant, or of another piece, is left out.

    Args:
        plants: Of :func:`part_texts`.
        general: General documents, in memory at once.
        lower: How the plants were normalised.
        others: Pieces wanted.
        language: ISO 639-1 code.

    Raises:
        DataError: If there are too few documents.
    """
    by_source: dict[str, list[Document]] = {}
    for document in general:
        by_source.setdefault(document.source, []).append(document)
    shares = shares_of({name: len(documents) for name, documents in by_source.items()}, others)
    sizes = {name: np.array([len(document.text.split()) for document in by_source[name]]) for name in sorted(by_source)}
    most = min(int(np.sort(each)[-max(1, min(shares[name], each.size // 2))]) for name, each in sizes.items())
    pool = [
        replace(plant, source=f"{plant.source}{PLANTED}", text=cut_to(plant.text, most, language)) for plant in plants
    ]
    lengths = np.sort([len(plant.text.split()) for plant in pool])
    taken = {words(plant.text) for plant in pool}
    for source, documents in sizes.items():
        # Each source gets the plants' distribution of lengths: one from every stretch of its quantiles.
        share = shares[source]
        places = (np.arange(share) + generator(0, "comparison", "lengths", source).random(share)) / max(1, share)
        wanted = lengths[(places * lengths.size).astype(np.int64)]
        for length, row in zip(wanted.tolist(), documents_for(documents, wanted, source), strict=True):
            # Sentences end at capitals and digits of the text as it is, so it is cut before it is normalised.
            text = normalised(cut_to(by_source[source][row].text, length, language), lower)
            if (key := words(text)) and key not in taken:
                taken.add(key)
                pool.append(replace(by_source[source][row], text=text))
    named = {(doc_id := document_id("pool", document.text)): replace(document, doc_id=doc_id) for document in pool}
    return [named[doc_id] for doc_id in sorted(named)]


def plant_stage(task: str, corpus: Path, folder: Path, plants: int, data: str | None, inputs: Inputs) -> Artifact:
    """Part a task's texts and normalise them; see :func:`part_texts`.

    Args:
        task: A card's name or file, a text file, glob or folder, or ``source:NAME``. Of a card the training and
            development texts are taken, never the test texts.
        corpus: The general text, of which a source may be the task.
        folder: Where ``plants/``, ``held_out/`` and ``fit/`` go (:data:`dana.core.schemas.DOCUMENTS` each).
        plants: Plants wanted.
        data: Folder of a card's data, where it is not under ``DANA_DATA``.
        inputs: How records of plain text become documents.
    """
    depends_on: dict[str, object] = {"task": task, "plants": plants}
    files: list[Any] = []
    card = None if task.startswith(SOURCE) else find_task(task)
    if task.startswith(SOURCE):
        depends_on["general"] = open_artifact(corpus, "corpus").fingerprint
    else:
        files = card.files(data, ("train", "dev")) if card else find_files([task], corpus.parent)
        depends_on |= {"files": source_digests(files), **(card.text_identity if card else inputs.identity())}

    def write(draft: Draft) -> None:
        if task.startswith(SOURCE):
            documents, source = list(iterate_documents(corpus)), task.removeprefix(SOURCE)
            texts = [document for document in documents if document.source == source]
            if not texts:
                near = suggestion(source, sorted({document.source for document in documents}))
                raise ConfigError(f"source {source!r}: the general text has none of this name{near}")
        else:
            one, two = card_texts(card, data) if card else plain_texts(files, inputs, 0, Tally())
            texts = [*one, *two]
        lower = is_lower_cased(document.text for document in texts)
        parts = part_texts(texts, lower, plants, task)
        for name, documents in parts.items():
            draft.counts[name] = write_parts(document_tables(documents), draft.path / name, DOCUMENTS)
        draft.counts["texts"] = len(texts)
        draft.notes["surface"] = {"lower": lower}

    return make(folder, "planting", depends_on, write)


def pool_stage(planting: Path, corpus: Path, folder: Path, others: int, language: str) -> Artifact:
    """Hide the plants among pieces of general text in their lengths; the pool is a corpus like any other.

    Args:
        planting: Of :func:`plant_stage`.
        corpus: The general text.
        folder: Where ``part-*.parquet`` (:data:`dana.core.schemas.DOCUMENTS`) goes. The source of a plant ends in
            ``(planted)``.
        others: Pieces wanted; a source that is the task gives none.
        language: ISO 639-1 code, for where sentences end.

    Raises:
        DataError: If too few documents are left.
    """
    task, general = open_artifact(planting, "planting"), open_artifact(corpus, "corpus")
    named = task.manifest["depends_on"]["task"]
    left_out = [named.removeprefix(SOURCE)] if named.startswith(SOURCE) else []
    depends_on = {"planting": task.fingerprint, "general": general.fingerprint, "others": others}
    depends_on |= {"without": left_out, "language": language}

    def write(draft: Draft) -> None:
        kept = [document for document in iterate_documents(corpus) if document.source not in left_out]
        plants = list(iterate_documents(planting / "plants"))
        pool = pool_of(plants, kept, task.manifest["surface"]["lower"], others, language)
        planted = sum(document.source.endswith(PLANTED) for document in pool)
        draft.counts |= {"documents": len(pool), "plants": planted, "others": len(pool) - planted}
        write_parts(document_tables(pool), draft.path, DOCUMENTS)

    return make(folder, "corpus", depends_on, write)


def fit_stage(planting: Path, folder: Path, size: int, seed: int) -> Artifact:
    """Draw the texts to fit on, as a task artifact with the comparison's held-out text.

    Args:
        planting: Of :func:`plant_stage`.
        folder: Where ``fit/`` and ``held_out/`` go.
        size: Texts to fit on.
        seed: The fit seed.
    """
    task = open_artifact(planting, "planting")
    name = task.manifest["depends_on"]["task"]
    depends_on = {"name": name, "planting": task.fingerprint, "size": size, "seed": seed}

    def write(draft: Draft) -> None:
        fit = sample_fit(list(iterate_documents(planting / "fit")), size, seed)
        for part, documents in (("fit", fit), ("held_out", iterate_documents(planting / "held_out"))):
            draft.counts[part] = write_parts(document_tables(documents), draft.path / part, DOCUMENTS)

    return make(folder, "task", depends_on, write)
