"""Units and a fitted selector to a table of anomaly scores, one row a unit, each score checked to be finite."""

from typing import Any

import numpy as np
import pyarrow as pa

from dana.core.errors import PluginError
from dana.core.origin import blamed
from dana.core.schemas import SCORES
from dana.corpus.unit_stream import Units
from dana.selectors.base import FittedSelector


def score_table(units: Units, fitted: FittedSelector) -> pa.Table:
    """Units and their scores, :data:`dana.core.schemas.SCORES`.

    Raises:
        PluginError: If the selector gives other than a finite number a unit.
    """
    name = type(fitted).__qualname__
    with blamed("selector", name, fitted):
        scores = np.asarray(fitted.score(units), dtype=np.float64)
    if scores.shape != (len(units),):
        raise PluginError(f"{name} gave scores of shape {scores.shape} for {len(units)} units")
    if not np.isfinite(scores).all():
        bad = np.flatnonzero(~np.isfinite(scores))
        where = f"unit {units.numbers[bad[0]]} of document {units.doc_ids[bad[0]]!r}"
        raise PluginError(f"{name} gave {scores[bad[0]]} for {where} ({bad.size} of {len(units)} are not finite)")
    return pa.Table.from_arrays([*key_columns(units), pa.array(scores)], schema=SCORES)


def key_columns(units: Units) -> list[Any]:
    """The columns that every table of units begins with: doc_id, source, unit, start, end."""
    of = pa.array(units.of)
    return [
        pa.array([document.doc_id for document in units.documents], pa.string()).take(of),
        pa.array([document.source for document in units.documents], pa.string()).take(of),
        pa.array(units.numbers),
        pa.array(units.starts),
        pa.array(units.ends),
    ]
