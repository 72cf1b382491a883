"""``dana splits audit``: folders with train, dev and test text to a table of the lines that these share."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pandas as pd

from dana.core.artifacts import read_manifest, write_text
from dana.core.config import require
from dana.core.text_table import Value, aligned
from dana.studies.splits.aligned import check_sides
from dana.studies.splits.split_audit import audit_rows
from dana.studies.splits.split_folders import find_splits

OVERLAP = "overlap.csv"
Rows = list[dict[str, Any]]


def audit_folders(folders: Sequence[Path], sides: Sequence[str] | None = None, out: Path | None = None) -> Rows:
    """Overlap of splits that anybody made: :func:`dana.studies.splits.split_audit.audit_rows`, folder by folder.

    Args:
        folders: A domain's, or with one a domain: see :func:`dana.studies.splits.split_folders.find_splits`. Of
            several, the folder's name stands before the domain's.
        sides: Names of the sides; those of a folder that dana split are known.
        out: Folder for ``overlap.csv``.

    Raises:
        ConfigError: If `out` is a file.
        DataError: If a folder holds no splits, or text cannot be read.
    """
    require(out is None or not out.is_file(), "out", str(out), "a folder for the table")
    rows: Rows = []
    for folder in folders:
        named = sides or read_manifest(folder).get("depends_on", {}).get("sides")
        found = find_splits(folder, named)
        check_sides([text for splits in found.values() for text in splits.values()])
        before = f"{folder.resolve().name}/" if len(folders) > 1 and (folder.resolve().name,) != tuple(found) else ""
        rows += [{**row, "domain": f"{before}{row['domain']}"} for row in audit_rows(found)]
    if out is not None:
        write_text(out / OVERLAP, pd.DataFrame(rows).to_csv(index=False))
    return rows


def overlap_text(rows: Sequence[Mapping[str, Value]]) -> str:
    """Rows of an audit in the layout of the paper's Table 8: a line a domain, a column a side."""
    sides = list(dict.fromkeys(row["side"] for row in rows))
    lines: dict[tuple[Value, ...], dict[str, Value]] = {}
    for row in rows:
        heading = {"share of": f"{row['split']} in {row['within']}", "domain": row["domain"]}
        line = lines.setdefault(tuple(heading.values()), {**heading, **{str(side): None for side in sides}})
        line[str(row["side"])] = f"{row['shared']:,}/{row['lines']:,} ({row['share']:.2%})"
    return aligned(list(lines.values()))


def read_overlap(folder: Path) -> Rows:
    """The audit of an artifact, from its table."""
    table = pd.read_csv(folder / OVERLAP, dtype={"domain": str, "side": str}, keep_default_na=False)
    return cast(Rows, table.to_dict("records"))
