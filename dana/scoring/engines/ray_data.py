"""A saved selector over a Ray data set: rows with text to the same rows with scores, or to a row a unit."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dana.core.errors import DataError
from dana.core.schemas import SCORES, Document
from dana.corpus.text import document_id, normalise
from dana.corpus.unit_stream import units_of
from dana.scoring.engines.parcel import Parcel
from dana.scoring.engines.ray_cluster import ONE_THREAD, import_ray
from dana.scoring.saved_selector import SavedSelector
from dana.scoring.score_table import score_table

if TYPE_CHECKING:
    from ray.data import Dataset

SCORE, UNITS = "dana_score", "dana_units"  # columns that are added


def score_dataset(
    dataset: "Dataset",
    selector: str | Path,
    *,
    text_field: str = "text",
    id_field: str | None = None,
    units: bool = False,
    actors: int = 1,
    num_gpus: float = 0,
    batch_size: int = 1024,
) -> "Dataset":
    """Score the documents of a data set on a Ray cluster; nothing is computed before the result is read.

    Args:
        dataset: A row a document.
        selector: Folder of a saved selector, or of the run that fitted it, on this machine; it is sent to the workers.
        text_field: Column of the text.
        id_field: Column of each document's name; by default a hash of its text. It is the ``doc_id`` of the units, and
            matters where a selector was cross-fitted.
        units: A row a unit, with the columns of :data:`dana.core.schemas.SCORES`, instead of a row a document.
        actors: Workers, each with one CPU and one thread.
        num_gpus: Share of a GPU that each has.
        batch_size: Documents that are scored together. Another one, or another order, changes the last bits of the
            scores of detectors and selectors that multiply matrices.

    Returns:
        The rows with ``dana_score``, the mean anomaly score of the document's units (higher = more foreign to the
        task; null where it has none, as of blank text), and ``dana_units``, their number; columns of these names are
        replaced. Rows keep their order if Ray is told so (``DataContext.execution_options.preserve_order``).

    Raises:
        ArtifactError: If there is no saved selector.
        PluginError: If Ray is not installed.
        DataError: When the result is read, in Ray's own error: if a column is missing, or a text or id no string.
    """
    ray = import_ray()
    fields = {"text_field": text_field, "id_field": id_field, "units": units}
    return dataset.map_batches(
        DatasetWorker,
        fn_constructor_kwargs={"parcel": ray.put(Parcel.of(selector)), **fields},
        compute=ray.data.ActorPoolStrategy(size=actors),
        batch_format="pyarrow",
        batch_size=batch_size,
        num_cpus=1,
        num_gpus=num_gpus,
        runtime_env=ONE_THREAD,
    )


class DatasetWorker:
    """What runs in a worker: batches of rows to batches of scored rows."""

    def __init__(self, parcel: Any, text_field: str, id_field: str | None, units: bool) -> None:
        self.saved: SavedSelector = (parcel if isinstance(parcel, Parcel) else import_ray().get(parcel)).open()
        self.text_field, self.id_field, self.units = text_field, id_field, units

    def __call__(self, batch: pa.Table) -> pa.Table:
        """A row a document with its score, or a row a unit."""
        documents = self._documents(batch)
        if self.units:
            return pa.concat_tables([SCORES.empty_table(), *self.saved.tables(documents)]).combine_chunks()
        sums, counts = np.zeros(len(documents)), np.zeros(len(documents), dtype=np.int64)
        first = 0
        for part in units_of(documents, self.saved.splitter):
            scores = score_table(part, self.saved.fitted)["score"].to_numpy()
            np.add.at(sums, first + part.of, scores)
            np.add.at(counts, first + part.of, 1)
            first += len(part.documents)
        means = pa.array(sums / np.maximum(counts, 1), mask=counts == 0)
        kept = batch.drop_columns([name for name in (SCORE, UNITS) if name in batch.column_names])
        return kept.append_column(SCORE, means).append_column(UNITS, pa.array(counts))

    def _documents(self, batch: pa.Table) -> list[Document]:
        """The rows of a batch as documents.

        Raises:
            DataError: If a column is missing, or a text or id is no string.
        """
        texts = [normalise(text) for text in _strings(batch, self.text_field, "text_field")]
        if self.id_field is None:
            return [Document(document_id("", text), "", text) for text in texts]
        names = [normalise(name) for name in _strings(batch, self.id_field, "id_field")]
        return [Document(name or document_id("", text), "", text) for name, text in zip(names, texts, strict=True)]


def _strings(batch: pa.Table, column: str, key: str) -> list[str]:
    """A column of strings.

    Raises:
        DataError: If it is missing or holds something else.
    """
    if column not in batch.column_names:
        raise DataError(f"{key}={column!r}: the data set has the columns {', '.join(batch.column_names)}")
    values = batch[column].to_pylist()
    for row, value in enumerate(values):
        if not isinstance(value, str):
            raise DataError(f"{key}={column!r}: must be a string, row {row} of a batch has {value!r:.50}")
    return values
