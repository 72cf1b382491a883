"""Steps of a datatrove pipeline: documents to anomaly scores by a saved selector; documents kept by score or weight.

A step holds plain settings, so that it travels to Slurm and Ray; selector and weights are opened where it runs.
"""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dana.core.artifacts import open_artifact
from dana.core.config import require
from dana.core.errors import ConfigError, DataError, PluginError
from dana.core.rng import document_key
from dana.core.schemas import SCORES, WEIGHTS, Document, part_files, read_batches, table_identity
from dana.core.storage import check_url, is_url
from dana.corpus.sources import stem
from dana.corpus.text import document_id, normalise, words
from dana.corpus.units import Span, sentences
from dana.scoring.engines.parts import PartWriter, join_scores, task_part
from dana.scoring.saved_selector import SavedSelector, load_selector
from dana.scoring.sharded import DOCUMENTS_PER_SHARD

try:
    from datatrove.io import get_datafolder
    from datatrove.pipeline.base import PipelineStep
    from datatrove.pipeline.filters.base_filter import BaseFilter
    from datatrove.utils.word_tokenizers import WordTokenizer
except ImportError as error:
    raise PluginError(f"datatrove is not installed: pip install 'dana[datatrove]' ({error})") from error

__all__ = ["DanaFilter", "DanaScore", "DanaWords", "document_cut", "join_scores"]

SCORE, UNITS, WEIGHT = "dana_score", "dana_units", "dana_weight"  # keys of a document's metadata


def as_document(given: Any) -> Document | None:
    """A document of datatrove as dana reads it; None if its text is blank.

    The source is its metadata's ``source``, or the stem of its ``file_path``.

    Raises:
        DataError: If its text is no string.
    """
    if not isinstance(given.text, str):
        raise DataError(f"document {given.id!r}: its text is {type(given.text).__name__}, not a string")
    text = normalise(given.text)
    if not text:
        return None
    source = normalise(str(given.metadata.get("source") or ""))
    source = source or normalise(stem(Path(str(given.metadata.get("file_path") or ""))))
    return Document(normalise(str(given.id)) or document_id(source, text), source, text)


class DanaScore(PipelineStep):  # type: ignore[misc]
    """Writes ``dana_score``, the mean anomaly score of a document's units, and ``dana_units``, their number.

    Higher is more foreign to the task. Both are overwritten where they are there already; of blank text they are None
    and 0. Text is normalised and cut as ``dana score`` does, in shards of 1,024 documents that are not blank, so
    that the same documents in the same order have the same bits; the document's own text stays as it is.
    """

    name = "Anomaly scores"
    type = "dana"

    def __init__(self, selector: str | Path, output: Any = None, encoder: str | None = None) -> None:
        """Settings of the step; nothing is opened yet.

        Args:
            selector: Folder of a saved selector, or of the run that fitted it, as each task finds it.
            output: Where tables of documents and scores go, a part a task, for
                :func:`dana.scoring.engines.parts.join_scores`: a path, a URL, or what else is a folder to datatrove.
                None writes none.
            encoder: Spec of the same encoder, where its checkpoint lies elsewhere or a device is to be named.

        Raises:
            ConfigError: If the selector is at a URL, or that of the output holds credentials.
        """
        super().__init__()
        self.selector = _local("selector", selector)
        if is_url(str(output)):
            check_url(str(output))
        self.output = None if output is None else get_datafolder(str(output) if isinstance(output, Path) else output)
        self.encoder = encoder

    def run(self, data: Iterable[Any] | None, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Documents with their scores, in order, 1,024 in memory at a time.

        Raises:
            ArtifactError: If the selector is missing, damaged or of another encoder; before any document is read.
            DataError: If a document's text is no string.
        """
        saved = load_selector(self.selector, self.encoder)
        digest = saved.description["digest"]
        part = nullcontext() if self.output is None else task_part(self.output, rank, world_size, digest)
        with part as writer:
            for shard in _shards(data or ()):
                yield from self._scored(shard, saved, writer)

    def _scored(
        self, shard: list[tuple[Any, Document | None]], saved: SavedSelector, writer: PartWriter | None
    ) -> Iterator[Any]:
        documents = [document for _, document in shard if document is not None]
        with self.track_time("batch"):
            table = next(saved.tables(documents), SCORES.empty_table())
            if writer is not None:
                writer.add(documents, table)
                writer.blank += len(shard) - len(documents)
        found = _by_place(documents, table)
        for given, document in shard:
            mean, units = (None, 0) if document is None else next(found)
            if given.metadata.keys() & {SCORE, UNITS}:
                self.stat_update("scored_before")
            given.metadata |= {SCORE: mean, UNITS: units}
            self.stat_update("total" if units else "blank")
            yield given


def _shards(data: Iterable[Any]) -> Iterator[list[tuple[Any, Document | None]]]:
    """Documents as both read them, as many together as hold 1,024 that are not blank."""
    shard: list[tuple[Any, Document | None]] = []
    full = 0
    for given in data:
        document = as_document(given)
        shard.append((given, document))
        full += document is not None
        if full == DOCUMENTS_PER_SHARD:
            yield shard
            shard, full = [], 0
    if shard:
        yield shard


def _by_place(documents: list[Document], table: pa.Table) -> Iterator[tuple[float | None, int]]:
    """Mean score and number of the units of each document; a text without words may have no unit."""
    found = zip(*document_means(table, "score"), strict=True)
    name, mean, units = next(found, (None, 0.0, 0))
    for document in documents:
        if document.doc_id == name:
            yield float(mean), int(units)
            name, mean, units = next(found, (None, 0.0, 0))
        else:
            yield None, 0


class DanaFilter(BaseFilter):  # type: ignore[misc]
    """Keeps documents by their mean anomaly score, or by their weight."""

    name = "Relevance to the task"

    def __init__(
        self, below: float | None = None, weights: str | Path | None = None, exclusion_writer: Any = None
    ) -> None:
        """Settings of the step; exactly one of the first two.

        Args:
            below: Keep those whose ``dana_score`` is below it, as
                :func:`document_cut` takes it from a weighed run. Blank ones go.
            weights: Keep those with a weight above 0 in this weights folder, found by their names. All that have one
                get it as ``dana_weight``, the mean over their units.
            exclusion_writer: datatrove's, for the documents that go; ``filter_reason`` in their metadata says why.

        Raises:
            ConfigError: If none or both are given, the score is no finite number, or the weights are at a URL.
        """
        super().__init__(exclusion_writer)
        if (below is None) == (weights is None):
            raise ConfigError(f"below={below!r}, weights={weights!r}: give one of them")
        if below is not None:
            require(_is_number(below), "below", below, "a finite number")
        self.below = None if below is None else float(below)
        self.weights = None if weights is None else _local("weights", weights)

    def run(self, data: Iterable[Any], rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Documents that stay.

        Raises:
            ArtifactError: If the weights are missing or damaged; before any document is read.
            DataError: If a document has no ``dana_score`` and one is needed, or none of the task's documents has a
                weight.
        """
        if self.weights is None:
            yield from super().run(data, rank, world_size)
            return
        weights = document_weights(Path(self.weights))
        read = named = 0

        def weighed() -> Iterator[Any]:
            nonlocal read, named
            for given in data:
                document = as_document(given)
                weight = None if document is None else weights.get(np.uint64(document_key(document.doc_id)))
                read, named = read + (document is not None), named + (weight is not None)
                given.metadata[WEIGHT] = weight
                yield given

        yield from super().run(weighed(), rank, world_size)
        if read and not named:
            raise DataError(f"{self.weights}: none of the {read:,} documents of task {rank} has a weight there")

    def filter(self, doc: Any) -> bool | tuple[bool, str]:
        """Whether a document stays, or the reason for which it goes."""
        if self.weights is not None:
            weight = doc.metadata[WEIGHT]
            return True if weight else (False, "not_weighed" if weight is None else "weight_0")
        if SCORE not in doc.metadata:
            raise DataError(f"document {doc.id!r}: has no {SCORE}; put DanaScore before this step")
        score = doc.metadata[SCORE]
        if score is None:
            return False, "blank"
        if not _is_number(score):
            raise DataError(f"document {doc.id!r}: {SCORE} is {score!r}, not a finite number")
        return True if score < self.below else (False, "foreign")


def _local(key: str, folder: str | Path) -> str:
    require(not is_url(str(folder)), key, folder, "a local folder; copy it here first")
    return str(folder)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)


def document_means(table: pa.Table, column: str) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names of the documents of a table in order, mean of a column over each one's units, and their number.

    Args:
        table: A row a unit, every document's from its unit 0 on.
        column: ``score`` or ``weight``.
    """
    first = table["unit"].to_numpy() == 0
    of = np.cumsum(first) - 1
    units = np.bincount(of)
    sums = np.bincount(of, weights=table[column].to_numpy())  # in order: the same bits wherever a document lies
    return table["doc_id"].filter(pa.array(first)).to_pylist(), sums / units, units


def document_cut(run: str | Path) -> float:
    """The mean score below which the documents of a weighed run hold as many units as the weighing kept.

    What ``dana weigh`` kept is segments of documents, of a pool that it knew whole. For other documents, that come one
    by one, this is the nearest rule. Give it to :class:`DanaFilter`.

    Args:
        run: A run's folder, with ``scores`` and ``weights``.

    Raises:
        ArtifactError: If either is missing or damaged.
        ConfigError: If the weights are of other scores, or leave nothing out.
    """
    scores = open_artifact(Path(run) / "scores", "scores", "dana score --task ... --general ... --out DIR")
    weights = open_artifact(Path(run) / "weights", "weights", f"dana weigh {run}")
    if weights.manifest["depends_on"].get("scores") != scores.fingerprint:
        raise ConfigError(f"{weights.path} was not made from {scores.path}; weigh these scores first: dana weigh {run}")
    units = weights.manifest["counts"]["units"]
    if units["kept"] == units["in"]:
        raise ConfigError(f"{weights.path}: leaves nothing out; weigh with policy segments or sampled")
    found = [document_means(table, "score")[1:] for table in _whole_documents(scores.path, SCORES, "score")]
    means, sizes = (np.concatenate(of_all) for of_all in zip(*found, strict=True))
    order = np.argsort(means, kind="stable")
    kept = int(np.searchsorted(np.cumsum(sizes[order]), units["kept"], side="right"))
    return float(means[order[min(max(1, kept), means.size - 1)]])


def document_weights(folder: Path) -> pd.Series:
    """Mean weight of the units of each document, by a hash of its name; 16 bytes a document, up to 48 while it is read.

    The index is uint64, ascending; of 10^8 documents two have the same hash in one pool of 3,700.

    Args:
        folder: Of weights.

    Raises:
        ArtifactError: If it holds no weights, or is damaged.
        DataError: If two documents have one name.
    """
    table_identity(folder, WEIGHTS)
    hashes, weights = [np.zeros(0, np.uint64)], [np.zeros(0)]
    for table in _whole_documents(folder, WEIGHTS, "weight"):
        names, means, _ = document_means(table, "weight")
        hashes.append(np.fromiter(map(document_key, names), np.uint64, len(names)))
        weights.append(means)
    by_name = pd.Series(np.concatenate(weights), np.concatenate(hashes)).sort_index()
    if not by_name.index.is_unique:
        raise DataError(f"{folder}: two documents have one name; weights are found by it")
    return by_name


def _whole_documents(folder: Path, schema: pa.Schema, column: str) -> Iterator[pa.Table]:
    """Rows of a folder of scores or weights in order, cut between documents; nothing if it has none."""
    waiting = schema.empty_table().select(["doc_id", "unit", column])
    for part in part_files(folder):
        for batch in read_batches(part, waiting.column_names):
            waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch]).cast(waiting.schema)])
            starts = np.flatnonzero(waiting["unit"].to_numpy() == 0)
            if starts.size > 1:
                yield waiting.slice(0, int(starts[-1]))
                waiting = waiting.slice(int(starts[-1]))
    if waiting.num_rows:
        yield waiting


class DanaWords(WordTokenizer):  # type: ignore[misc]
    """Words and sentences of a language as dana finds them: for datatrove's MinHash without spaCy."""

    def __init__(self, language: str = "en") -> None:
        """Of a code of ISO 639-1, whose rules for the ends of sentences count."""
        super().__init__(language)

    def word_tokenize(self, text: str) -> list[str]:
        """Words in lower case, without marks."""
        return words(text).split()

    def span_tokenize(self, text: str) -> list[Span]:
        """Character spans of the sentences."""
        return sentences(text, self.language)

    def sent_tokenize(self, text: str) -> list[str]:
        """Sentences."""
        return [text[start:end] for start, end in self.span_tokenize(text)]
