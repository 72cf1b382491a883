"""Score documents with a saved selector, or filter them, in a datatrove pipeline.

They are filtered by score or by weight. A step holds plain settings, so that it can be sent to
Slurm and Ray; each task opens selector and weights itself.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from fsspec.utils import infer_compression

from dana.core.artifacts import open_artifact
from dana.core.config import require
from dana.core.errors import ConfigError, DataError, PluginError
from dana.core.extras import install_command
from dana.core.rng import document_key
from dana.core.schemas import (
    DOCUMENTS_PER_SHARD,
    SCORES,
    WEIGHTS,
    Document,
    table_identity,
    whole_documents,
)
from dana.core.storage import check_url, is_url
from dana.corpus.parse import make_document
from dana.corpus.sources import stem
from dana.corpus.text import normalise, words
from dana.corpus.units import Span, sentences
from dana.scoring.engines.parts import PartWriter, join_scores, target_part
from dana.scoring.saved_selector import SavedSelector, load_selector

try:
    from datatrove.io import get_datafolder
    from datatrove.pipeline.base import PipelineStep
    from datatrove.pipeline.filters.base_filter import BaseFilter
    from datatrove.utils.word_tokenizers import WordTokenizer
except ImportError as error:
    raise PluginError(
        f"datatrove is not installed: {install_command('datatrove')} ({error})"
    ) from error

__all__ = [
    "DanaFilter",
    "DanaScore",
    "DanaWords",
    "RefuseEmpty",
    "check_compression",
    "document_cut",
    "join_scores",
]

# Keys of a document's metadata.
SCORE = "dana_score"
UNITS = "dana_units"
WEIGHT = "dana_weight"


def as_document(doc: Any) -> Document | None:
    """Convert a document of datatrove to one of dana; return None if its text is blank.

    The source is its metadata's ``source``, or the stem of its ``file_path``.

    Raises:
        DataError: If its text is not a string.
    """
    if not isinstance(doc.text, str):
        raise DataError(f"document {doc.id!r}: its text is {type(doc.text).__name__}, not a string")
    source = normalise(str(doc.metadata.get("source") or ""))
    source = source or stem(Path(str(doc.metadata.get("file_path") or "")))
    return make_document(doc.text, str(doc.id), source)


def check_compression(names: Iterable[str]) -> None:
    """Check that packed files can be read.

    Datatrove would read their bytes as text and skip every file.

    Raises:
        PluginError: If a file is packed by Zstandard, and the package zstandard is not installed.
    """
    for name in names:
        if name.endswith(".zst") and infer_compression(name) is None:
            raise PluginError(f"{name}: zstandard is not installed: {install_command('datatrove')}")


class RefuseEmpty(PipelineStep):  # type: ignore[misc]
    """Passes documents on, and refuses a task whose files hold none.

    datatrove's readers warn of a file that they cannot read, or of records without the text's
    field, and go on; the task would then count as done. Put this step behind the reader.
    """

    name = "Documents are there"
    type = "dana"

    def __init__(self, reader: Any) -> None:
        """Store the reader that the step stands behind: one of datatrove that reads a folder."""
        super().__init__()
        self.folder = reader.data_folder
        self.recursive = reader.recursive
        self.glob_pattern = reader.glob_pattern
        self.text_key = reader.text_key

    def run(self, data: Iterable[Any], rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Yield all documents.

        Raises:
            DataError: If there is none, and a file of the task is not empty.
            PluginError: See :func:`check_compression`; before any document is read.
        """
        names = self.folder.get_shard(
            rank, world_size, recursive=self.recursive, glob_pattern=self.glob_pattern
        )
        check_compression(names or ())
        is_empty = True
        for document in data:
            is_empty = False
            yield document
        if not is_empty:
            return
        for name in names or ():
            if self.folder.size(name):
                raise DataError(
                    f"{self.folder.path}/{name}: no document in the files of task {rank}, of which "
                    f"this is one; a document needs the field {self.text_key!r} with text in it"
                )


class DanaScore(PipelineStep):  # type: ignore[misc]
    """Writes the mean anomaly score of a document's units, and their number, into its metadata.

    Their keys are ``dana_score`` and ``dana_units``. Higher is more foreign to the target text.
    Existing values are overwritten; a blank text has None and 0. Text is normalised and cut as by
    ``dana score``, in shards of 1,024 documents that are not blank, so scores of the same documents
    in the same order equal those of ``dana score`` bit for bit. The document's text does not
    change.
    """

    name = "Anomaly scores"
    type = "dana"

    def __init__(
        self,
        selector: str | Path,
        output: Any = None,
        encoder: str | None = None,
        below: float | None = None,
    ) -> None:
        """Store the settings of the step; the selector is opened in :meth:`run`.

        Args:
            selector: Folder of a saved selector, or of the run that fitted it; each task must find
                it at this path.
            output: Folder for tables of documents and scores, one part per task, for
                :func:`dana.scoring.engines.parts.join_scores`: a path, a URL or another folder of
                datatrove. None writes no tables.
            encoder: Spec of the same encoder, to set a device or another path of its checkpoint.
            below: The tables hold only documents whose ``dana_score`` is below it, for example
                :func:`document_cut` of a run; None takes all. The step yields all in any case.

        Raises:
            ConfigError: If the selector is at a URL, the output's URL holds credentials, or the
                threshold is not a finite number.
        """
        super().__init__()
        self.selector = _local("selector", selector)
        if is_url(str(output)):
            check_url(str(output))
        self.output = None
        if isinstance(output, Path):
            output = str(output)
        if output is not None:
            self.output = get_datafolder(output)
        self.encoder = encoder
        self.below = _threshold(below)

    def run(self, data: Iterable[Any] | None, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Yield documents with their scores, in order, with 1,024 in memory.

        Raises:
            ArtifactError: If the selector is missing, damaged or of another encoder; before any
                document is read.
            DataError: If a document's text is not a string.
        """
        selector = load_selector(self.selector, self.encoder)
        digest = selector.description["digest"]
        part: AbstractContextManager[PartWriter | None] = nullcontext()
        if self.output is not None:
            part = target_part(self.output, rank, world_size, digest, self.below)
        with part as writer:
            for shard in _shards(data or ()):
                yield from self._score_shard(shard, selector, writer)

    def _score_shard(
        self,
        shard: list[tuple[Any, Document | None]],
        selector: SavedSelector,
        writer: PartWriter | None,
    ) -> Iterator[Any]:
        """Yield the documents of a shard with their scores, and write them to the tables."""
        documents = [document for _, document in shard if document is not None]
        with self.track_time("batch"):
            table = next(selector.tables(documents), SCORES.empty_table())
            if writer is not None:
                writer.blank += len(shard) - len(documents)
                self._write(writer, documents, table)
        scores = _score_documents(documents, table)
        for doc, document in shard:
            mean: float | None = None
            units = 0
            if document is not None:
                mean, units = next(scores)
            if doc.metadata.keys() & {SCORE, UNITS}:
                self.stat_update("scored_before")
            doc.metadata |= {SCORE: mean, UNITS: units}
            self.stat_update("total" if units else "blank")
            yield doc

    def _write(self, writer: PartWriter, documents: list[Document], table: pa.Table) -> None:
        """Write the documents below the threshold to the tables; all of them if there is none."""
        kept_documents = documents
        kept_rows = table
        if self.below is not None:
            kept_documents, kept_rows = _below(self.below, documents, table)
            writer.foreign += len(documents) - len(kept_documents)
        writer.add(kept_documents, kept_rows)


def _shards(data: Iterable[Any]) -> Iterator[list[tuple[Any, Document | None]]]:
    """Yield documents of datatrove and of dana in shards of 1,024 that are not blank."""
    shard: list[tuple[Any, Document | None]] = []
    full = 0
    for doc in data:
        document = as_document(doc)
        shard.append((doc, document))
        full += document is not None
        if full == DOCUMENTS_PER_SHARD:
            yield shard
            shard = []
            full = 0
    if shard:
        yield shard


def _score_documents(
    documents: list[Document], table: pa.Table
) -> Iterator[tuple[float | None, int]]:
    """Yield mean score and number of units of each document.

    A document without a unit of enough words has no mean.
    """
    means = zip(*document_means(table, "score"), strict=True)
    name, mean, units = next(means, (None, 0.0, 0))
    for document in documents:
        if document.doc_id != name:
            yield None, 0
            continue
        score = float(mean) if np.isfinite(mean) else None
        yield score, int(units)
        name, mean, units = next(means, (None, 0.0, 0))


def _below(
    threshold: float, documents: list[Document], table: pa.Table
) -> tuple[list[Document], pa.Table]:
    """Keep the documents whose mean score is below a threshold, and their rows of the table."""
    names, means, units = document_means(table, "score")
    is_below = means < threshold
    kept_names = {name for name, is_kept in zip(names, is_below, strict=True) if is_kept}
    kept = [document for document in documents if document.doc_id in kept_names]
    return kept, table.filter(pa.array(np.repeat(is_below, units)))


class DanaFilter(BaseFilter):  # type: ignore[misc]
    """Selects documents by their mean anomaly score or by their weight."""

    name = "Relevance to the task"

    def __init__(
        self,
        below: float | None = None,
        weights: str | Path | None = None,
        exclusion_writer: Any = None,
    ) -> None:
        """Store the settings of the step; exactly one of `below` and `weights` is needed.

        Args:
            below: Threshold: select documents whose ``dana_score`` is below it, for example
                :func:`document_cut` of a run. Blank documents are dropped.
            weights: Folder of weights: select documents with a weight above 0 there, matched by id.
                Their metadata gets ``dana_weight``, the mean over their units.
            exclusion_writer: Writer of datatrove for dropped documents; their metadata has a
                ``filter_reason``.

        Raises:
            ConfigError: If none or both are set, the threshold is not a finite number, or the
                weights are at a URL.
        """
        super().__init__(exclusion_writer)
        if (below is None) == (weights is None):
            raise ConfigError(f"below={below!r}, weights={weights!r}: set exactly one of them")
        self.below = _threshold(below)
        self.weights = None if weights is None else _local("weights", weights)

    def run(self, data: Iterable[Any], rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Yield the selected documents.

        Raises:
            ArtifactError: If the weights are missing or damaged; before any document is read.
            DataError: If a document lacks the ``dana_score`` that is needed, or no document of the
                task has a weight.
        """
        if self.weights is None:
            yield from super().run(data, rank, world_size)
            return
        weights = document_weights(Path(self.weights))
        documents = 0
        matches = 0

        def add_weights() -> Iterator[Any]:
            nonlocal documents, matches
            for doc in data:
                document = as_document(doc)
                weight = None
                if document is not None:
                    documents += 1
                    weight = weights.get(np.uint64(document_key(document.doc_id)))
                if weight is not None:
                    matches += 1
                doc.metadata[WEIGHT] = weight
                yield doc

        yield from super().run(add_weights(), rank, world_size)
        if documents and not matches:
            raise DataError(
                f"{self.weights}: none of the {documents:,} documents of task {rank} "
                "has a weight there"
            )

    def filter(self, doc: Any) -> bool | tuple[bool, str]:
        """Return True to select a document, or False and the reason to drop it."""
        if self.weights is not None:
            weight = doc.metadata[WEIGHT]
            if weight is None:
                return False, "not_weighed"
            if not weight:
                return False, "weight_0"
            return True
        if SCORE not in doc.metadata:
            raise DataError(f"document {doc.id!r}: has no {SCORE}; put DanaScore before this step")
        score = doc.metadata[SCORE]
        if score is None:
            return False, "blank"
        if not _is_number(score):
            raise DataError(f"document {doc.id!r}: {SCORE} is {score!r}, not a finite number")
        if score < self.below:
            return True
        return False, "foreign"


def _local(key: str, folder: str | Path) -> str:
    """Return a folder as text; refuse a URL, which messages call by `key`."""
    require(not is_url(str(folder)), key, folder, "a local folder; copy it here first")
    return str(folder)


def _threshold(below: float | None) -> float | None:
    """Return a threshold on scores as a float."""
    if below is None:
        return None
    require(_is_number(below), "below", below, "a finite number")
    return float(below)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)


def document_means(table: pa.Table, column: str) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Average a column over the units of each document.

    Short units count in no mean; that of a document of nothing else is infinite.

    Args:
        table: One row per unit, of whole documents.
        column: ``score`` or ``weight``.

    Returns:
        Ids of the documents in order, means, and numbers of units.
    """
    first = table["unit"].to_numpy() == 0
    document = np.cumsum(first) - 1
    units = np.bincount(document)
    values = table[column].to_numpy()
    counted = np.ones(values.size, dtype=bool)
    if "short" in table.column_names:
        counted = ~table["short"].to_numpy()
    # In order: the same bits wherever a document lies.
    sums = np.bincount(document, weights=np.where(counted, values, 0.0))
    sizes = np.bincount(document, weights=counted)
    means = np.full(units.size, np.inf)
    np.divide(sums, sizes, out=means, where=sizes > 0)
    doc_ids = table["doc_id"].filter(pa.array(first)).to_pylist()
    return doc_ids, means, units


def document_cut(run: str | Path) -> float:
    """Compute the threshold on mean scores that selects as many units as ``dana weigh`` did.

    ``dana weigh`` selects segments with the whole pool known. For a stream of other documents this
    threshold is the closest rule; use it as ``below`` of :class:`DanaFilter`.

    Args:
        run: Folder of a run, with ``scores`` and ``weights``.

    Raises:
        ArtifactError: If scores or weights are missing or damaged.
        ConfigError: If the weights are of other scores, or select everything.
    """
    scores = open_artifact(
        Path(run) / "scores", "scores", "dana score --task ... --pool ... --out DIR"
    )
    weights = open_artifact(Path(run) / "weights", "weights", f"dana weigh {run}")
    if weights.manifest["depends_on"].get("scores") != scores.fingerprint:
        raise ConfigError(
            f"{weights.path} was not made from {scores.path}; "
            f"weigh these scores first: dana weigh {run}"
        )
    units = weights.manifest["counts"]["units"]
    if units["selected"] == units["in"]:
        raise ConfigError(
            f"{weights.path}: all units are selected; weigh with policy segments or sampled"
        )
    means_of_tables = []
    sizes_of_tables = []
    for table in whole_documents(scores.path, ["doc_id", "unit", "score", "short"]):
        _, table_means, table_sizes = document_means(table, "score")
        means_of_tables.append(table_means)
        sizes_of_tables.append(table_sizes)
    means = np.concatenate(means_of_tables)
    sizes = np.concatenate(sizes_of_tables)
    order = np.argsort(means, kind="stable")
    units_so_far = np.cumsum(sizes[order])
    selected_count = int(np.searchsorted(units_so_far, units["selected"], side="right"))
    finite = int(np.isfinite(means).sum())
    place = min(max(1, selected_count), finite - 1)
    return float(means[order[place]])


def document_weights(folder: Path) -> pd.Series:
    """Average the weights of each document.

    Memory is 16 bytes per document, 48 while reading. A pool of 10^8 documents has a collision of
    hashes with probability 1 in 3,700.

    Args:
        folder: Folder of weights.

    Returns:
        The mean weights by a hash of the document's id: the index is uint64, ascending.

    Raises:
        ArtifactError: If it holds no weights, or is damaged.
        DataError: If two documents have the same id.
    """
    table_identity(folder, WEIGHTS)
    hashes = [np.zeros(0, np.uint64)]
    weights = [np.zeros(0)]
    for table in whole_documents(folder, ["doc_id", "unit", "weight"]):
        names, means, _ = document_means(table, "weight")
        hashes.append(np.fromiter(map(document_key, names), np.uint64, len(names)))
        weights.append(means)
    by_name = pd.Series(np.concatenate(weights), np.concatenate(hashes)).sort_index()
    if not by_name.index.is_unique:
        raise DataError(f"{folder}: two documents have the same id; weights are matched by id")
    return by_name


class DanaWords(WordTokenizer):  # type: ignore[misc]
    """Word tokenizer with dana's rules for words and sentences, for datatrove's MinHash.

    It needs no spaCy.
    """

    def __init__(self, language: str = "en") -> None:
        """Store the language, an ISO 639-1 code, which decides where sentences end."""
        super().__init__(language)

    def word_tokenize(self, text: str) -> list[str]:
        """Split a text into words, in lower case and without punctuation."""
        return words(text).split()

    def span_tokenize(self, text: str) -> list[Span]:
        """Return the character spans of the sentences."""
        return sentences(text, self.language)

    def sent_tokenize(self, text: str) -> list[str]:
        """Split a text into sentences."""
        return [text[start:end] for start, end in self.span_tokenize(text)]
