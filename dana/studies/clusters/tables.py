"""Schema of the clusters table, and what the core is told of it."""

import pyarrow as pa

from dana.core.studies import StudyTable

# cluster: the most likely one, from 0.  responsibility: its probability, given the unit.
# log_density: natural logarithm of the mixture's density at the unit; the lower, the more of an outlier.
CLUSTERS = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("unit", pa.int32(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("cluster", pa.int32(), nullable=False),
        pa.field("responsibility", pa.float32(), nullable=False),
        pa.field("log_density", pa.float32(), nullable=False),
    ]
)


def _setting_of(section: str, rest: str) -> str | None:
    """The setting behind a key of the clusters' manifest."""
    names = {"clusters": f"clusters.{rest}", "selection": f"selection.{rest}", "general": "general"}
    return names.get(section, f"selection.{section}" if section in ("encoder", "geometry") else None)


TABLES = {"clusters": StudyTable(_setting_of, group="cluster")}
