"""Split a task's texts into plants and text to fit on, and hide the plants in a pool of other text.

Three shortcuts are closed. Memory: plants and held-out texts have no near duplicates in each other
or in the text to fit on. Surface: target text is often tokenised, lower-cased, or has marked
entities and masked numbers, which a selector of n-grams would find, so all text is normalised.
Length: every piece of pool text is cut to the length of a plant, so that both have the same
distribution of lengths. No two pieces are of one document.
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
REPLACED = [
    *MARKERS,
    # Double quotation marks are dropped: a spaced mark no longer tells its side.
    (re.compile(r"``|''|[\"“”„«»]"), " "),
    (re.compile(r"[’‘`´]"), "'"),
    # Numbers; rct writes "@" or "@.@" for one.
    (re.compile(r"@(?:\s*[.,]\s*@)*|\d+(?:\s?[.,]\s?\d+)*"), "0"),
    (re.compile(r"\s*(?:--+|–|—)\s*|\s+-\s+"), " - "),
    (re.compile(r"\s+"), " "),
    # Spaces before clitics, before closing and after opening marks.
    (re.compile(r"(?i:(?<=\w)\s+(?=(?:n't|'(?:s|re|ve|ll|d|m|t))\b))"), ""),
    (re.compile(r"\s+(?=[,.;:!?%)\]}])"), ""),
    (re.compile(r"(?<=[(\[{$])\s+"), ""),
]


def is_lower_cased(texts: Iterable[str]) -> bool:
    """Tell whether a task is distributed lower-cased: fewer than 5 in 1,000 letters are capital."""
    letters = 0
    capitals = 0
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
    rows = generator(0, "comparison", "texts").permutation(distinct)
    sample = [plain[row] for row in rows[:MOST]]
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
    _, first_of_group = np.unique(groups, return_index=True)
    fit_rows = np.flatnonzero(np.isin(groups, order[test_count:]))
    parts = {
        "plants": [sample[row] for row in first_of_group[order[:plant_count]]],
        "held_out": [sample[row] for row in first_of_group[order[plant_count:test_count]]],
        "fit": [sample[row] for row in fit_rows],
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
    order = generator(seed, "comparison", "fit").permutation(len(fit))
    return [fit[row] for row in order[:size]]


def shares_of(available: Mapping[str, int], count: int) -> dict[str, int]:
    """Distribute pieces over sources as evenly as their numbers of documents allow.

    A document gives one piece.

    Args:
        available: Number of documents of each source.
        count: Number of pieces in all.

    Raises:
        DataError: If there are fewer documents than pieces.
    """
    documents = sum(available.values())
    if documents < count:
        raise DataError(
            f"others={count}: must be at most {documents}, the number of pool documents"
        )
    shares: dict[str, int] = {}
    # The smallest source first: what it lacks is shared by the others.
    for source in sorted(available, key=lambda name: (available[name], name)):
        remaining = count - sum(shares.values())
        sources_left = len(available) - len(shares)
        shares[source] = min(available[source], round(remaining / sources_left))
    return shares


def choose_documents(sizes: np.ndarray, lengths: np.ndarray, source: str) -> np.ndarray:
    """Draw a document for each piece without replacement, among those that are long enough.

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
    # The longest piece first, as few documents are long enough for it.
    for piece in np.argsort(-lengths, kind="stable"):
        fits = free[order] & (sizes[order] >= lengths[piece])
        row = order[fits.argmax()] if fits.any() else np.where(free, sizes, -1).argmax()
        free[row] = False
        rows[piece] = row
    return rows


def cut_to(text: str, length: int, language: str = "en") -> str:
    """Cut a document to the run of sentences whose number of words is nearest to a target.

    Words are cut off the end if the run is over a fifth too long. Ties: the first run.

    Args:
        text: A document.
        length: Target number of words.
        language: ISO 639-1 code, for the splitter of sentences.
    """
    spans = sentences(text, language)
    if not spans:
        return text
    sizes = [len(text[start:end].split()) for start, end in spans]
    before = np.cumsum([0, *sizes])  # words before each sentence, and in all
    ends = np.searchsorted(before, before[:-1] + length).tolist()
    runs = []  # first sentence, and the one after the last
    for first, end in enumerate(ends):
        # The longest run that is shorter than the target, and the shortest that is not.
        for after in (end - 1, end):
            if first < after <= len(spans):
                runs.append((first, after))

    def distance(run: tuple[int, int]) -> tuple[bool, int]:
        first, after = run
        size = int(before[after] - before[first])
        return size < length * (1 - TOLERANCE), abs(size - length)

    first, after = min(runs, key=distance)
    piece = text[spans[first][0] : spans[after - 1][1]].split()
    if len(piece) > length * (1 + TOLERANCE):
        piece = piece[:length]
    return " ".join(piece)


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
    sizes = {name: _word_counts(by_source[name]) for name in sorted(by_source)}
    longest = min(_matched_length(sizes[name], shares[name]) for name in sizes)
    planted = []
    for plant in plants:
        text = cut_to(plant.text, longest, language)
        planted.append(replace(plant, source=f"{plant.source}{PLANTED}", text=text))
    lengths = np.sort(_word_counts(planted))
    wordings = {words(plant.text) for plant in planted}
    for source, source_sizes in sizes.items():
        piece_lengths = _piece_lengths(lengths, shares[source], source)
        rows = choose_documents(source_sizes, piece_lengths, source)
        for length, row in zip(piece_lengths.tolist(), rows, strict=True):
            document = by_source[source][row]
            # Cut before normalisation, which removes the capitals and digits that sentences are
            # split by.
            text = normalise_surface(cut_to(document.text, length, language), lower)
            wording = words(text)
            if wording and wording not in wordings:
                wordings.add(wording)
                planted.append(replace(document, text=text))
    by_id = {}
    for document in planted:
        doc_id = document_id("pool", document.text)
        by_id[doc_id] = replace(document, doc_id=doc_id)
    return [by_id[doc_id] for doc_id in sorted(by_id)]


def _word_counts(documents: Sequence[Document]) -> np.ndarray:
    return np.array([len(document.text.split()) for document in documents])


def _matched_length(sizes: np.ndarray, share: int) -> int:
    """Return the length that enough documents of a source have: its pieces, or half of them."""
    enough = max(1, min(share, sizes.size // 2))
    return int(np.sort(sizes)[-enough])


def _piece_lengths(lengths: np.ndarray, count: int, source: str) -> np.ndarray:
    """Draw the lengths of a source's pieces: a stratified sample of the plants' lengths.

    So each source has the distribution of the plants.

    Args:
        lengths: Words of each plant, ascending.
        count: Number of pieces.
        source: Name of the source, which decides the draw.
    """
    jitter = generator(0, "comparison", "lengths", source).random(count)
    quantiles = (np.arange(count) + jitter) / max(1, count)
    return lengths[(quantiles * lengths.size).astype(np.int64)]


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
    is_source = task.startswith(SOURCE)
    card = None if is_source else find_task(task)
    if is_source:
        depends_on["pool"] = open_artifact(pool, "pool").fingerprint
    elif card:
        files = card.files(data, ("train", "dev"))
        depends_on |= {"files": source_digests(files), **card.text_identity}
    else:
        files = find_files([task], pool.parent)
        depends_on |= {"files": source_digests(files), **inputs.identity()}

    def read_texts() -> list[Document]:
        if is_source:
            return _source_texts(pool, task.removeprefix(SOURCE))
        fit, held_out = card_texts(card, data) if card else plain_texts(files, inputs, 0, Tally())
        return [*fit, *held_out]

    def write(draft: Draft) -> None:
        texts = read_texts()
        lower = is_lower_cased(document.text for document in texts)
        parts = split_texts(texts, lower, plants, task)
        for name, documents in parts.items():
            tables = document_tables(documents)
            draft.counts[name] = write_parts(tables, draft.path / name, DOCUMENTS)
        draft.counts["texts"] = len(texts)
        draft.notes["surface"] = {"lower": lower}

    return make(folder, "planting", depends_on, write)


def _source_texts(pool: Path, source: str) -> list[Document]:
    """Read the documents of one source of a pool.

    Raises:
        ConfigError: If the pool has no such source.
    """
    documents = list(iterate_documents(pool))
    texts = [document for document in documents if document.source == source]
    if not texts:
        near = suggestion(source, sorted({document.source for document in documents}))
        raise ConfigError(f"task 'source:{source}': unknown source of the pool{near}")
    return texts


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
    task = open_artifact(planting, "planting")
    name = task.manifest["depends_on"]["task"]
    left_out = [name.removeprefix(SOURCE)] if name.startswith(SOURCE) else []
    depends_on = {
        "planting": task.fingerprint,
        "pool": open_artifact(pool, "pool").fingerprint,
        "others": others or MOST_OTHERS,
        "without": left_out,
        "language": language,
    }

    def write(draft: Draft) -> None:
        documents = [
            document for document in iterate_documents(pool) if document.source not in left_out
        ]
        plants = list(iterate_documents(planting / "plants"))
        lower = task.manifest["surface"]["lower"]
        planted = planted_pool_of(plants, documents, lower, others, language)
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
        parts: dict[str, Iterable[Document]] = {
            "fit": sample_fit(list(iterate_documents(planting / "fit")), size, seed),
            "held_out": iterate_documents(planting / "held_out"),
        }
        for name, documents in parts.items():
            tables = document_tables(documents)
            draft.counts[name] = write_parts(tables, draft.path / name, DOCUMENTS)

    return make(folder, "target", depends_on, write)
