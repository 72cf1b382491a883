"""The splits artifact: aligned text by domain to train, dev and test as Parquet with no line shared, and its audit."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from re import fullmatch
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import Artifact, Draft, make, write_text
from dana.core.config import require
from dana.core.errors import ConfigError, DataError
from dana.core.files import file_digest
from dana.core.logging import tracked
from dana.core.text_table import aligned
from dana.studies.splits.aligned import AlignedText, Row, check_sides
from dana.studies.splits.audit_stage import OVERLAP
from dana.studies.splits.line_splits import Hashes, Outcome, SplitSettings, assign_splits, hash_lines
from dana.studies.splits.split_audit import SPLITS, audit_rows
from dana.studies.splits.split_folders import find_splits

SIZES = "sizes.csv"
ROWS_PER_GROUP = 1 << 14
KEPT = {split: int(Outcome[split.upper()]) for split in SPLITS}
DROPPED = [outcome for outcome in Outcome if outcome not in KEPT.values()]


def splits_stage(domains: Mapping[str, AlignedText], folder: Path, settings: SplitSettings) -> Artifact:
    """Split each domain and write ``NAME/{train,dev,test}.parquet``, ``sizes.csv`` and ``overlap.csv``.

    A Parquet file has ``line``, the row's place in its input from 1, and a column a side; rows are in the order of the
    input. The files are read twice. At last the written splits are audited. Same files and settings, same bytes.

    Args:
        domains: By name, all with the same sides.
        folder: The artifact's.
        settings: Sizes, cap and seed: see :func:`dana.studies.splits.line_splits.assign_splits`.

    Raises:
        ConfigError: If a name is no name for a folder, or a file is given twice.
        DataError: If text cannot be read, is not aligned, or is too little.
        ArtifactError: If the folder holds something else.
    """
    _check(domains)
    digests = _digests(domains)
    sides = next(iter(domains.values())).sides
    depends_on = {"domains": digests, "order": list(domains), "sides": sides, **asdict(settings), "method": 1}

    def write(draft: Draft) -> None:
        outcomes = assign_splits({name: _hashed(name, text, settings.seed) for name, text in domains.items()}, settings)
        for name, text in domains.items():
            rows = tracked(text.rows(), what=f"writing {name}", unit="rows")
            _write(draft.path / name, sides, rows, outcomes[name])
        draft.counts.update(_counts(outcomes))
        draft.seeds["splits"] = settings.seed
        if _digests(domains) != digests:
            raise DataError(f"{', '.join(domains)}: files changed while they were read; run the same again")
        written = find_splits(draft.path, sides)
        overlap = audit_rows({name: written[name] for name in domains})
        for name, table in ((SIZES, _size_rows(draft.counts)), (OVERLAP, overlap)):
            write_text(draft.path / name, pd.DataFrame(table).to_csv(index=False))

    return make(folder, "splits", depends_on, write)


def sizes_text(counts: Mapping[str, Any]) -> str:
    """A manifest's counts as a table: a line a domain and, of several, one of all; without columns of zeros."""
    rows = _size_rows(counts)
    if len(rows) > 1:
        rows.append({"domain": "all", **{name: sum(row[name] for row in rows) for name in rows[0] if name != "domain"}})
    shown = [name for name in rows[0] if name in ("train", "dev", "test") or any(row[name] for row in rows)]
    return aligned([{name: row[name] for name in shown} for row in rows])


def _check(domains: Mapping[str, AlignedText]) -> None:
    seen: dict[tuple[int, int], str] = {}
    for name, text in domains.items():
        fits = bool(fullmatch(r"[^\W_][\w+-]*", name)) and name not in SPLITS
        require(fits, "domain", name, "letters, digits, _, + and -, as it names a folder; not train, dev or test")
        for file in text.files:
            inode = file.stat().st_dev, file.stat().st_ino
            if inode in seen:
                raise ConfigError(f"{file} (domain {name}): the same file is given as {seen[inode]}")
            seen[inode] = f"{file} (domain {name})"
    check_sides(list(domains.values()))


def _digests(domains: Mapping[str, AlignedText]) -> dict[str, list[str]]:
    return {name: [file_digest(file) for file in text.files] for name, text in domains.items()}


def _hashed(name: str, text: AlignedText, seed: int) -> Hashes:
    rows = tracked(text.rows(), what=f"hashing {name}", unit="rows")
    return hash_lines((texts for _, texts in rows), seed)


def _write(folder: Path, sides: Sequence[str], rows: Iterator[Row], outcome: np.ndarray) -> None:
    """Write each row to the file of its split."""
    folder.mkdir()
    schema = pa.schema([pa.field("line", pa.int64(), False), *(pa.field(side, pa.string(), False) for side in sides)])
    waiting: dict[int, list[Row]] = {code: [] for code in KEPT.values()}
    with ExitStack() as open_files:
        files = {
            code: open_files.enter_context(
                pq.ParquetWriter(folder / f"{split}.parquet", schema, compression="zstd", write_page_checksum=True)
            )
            for split, code in KEPT.items()
        }

        def flush(code: int) -> None:
            lines, texts = zip(*waiting[code], strict=True)
            files[code].write_table(pa.table([pa.array(lines), *map(pa.array, zip(*texts, strict=True))], schema))
            waiting[code].clear()

        for row, code in zip(rows, outcome.tobytes(), strict=False):
            if code in waiting:
                waiting[code].append(row)
                if len(waiting[code]) == ROWS_PER_GROUP:
                    flush(code)
        for code in waiting:
            if waiting[code]:
                flush(code)


def _counts(outcomes: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Rows in = kept + dropped by reason, of all domains and of each."""
    by_domain = {}
    for name, outcome in outcomes.items():
        of = np.bincount(outcome, minlength=len(Outcome)).tolist()
        kept = {split: of[code] for split, code in KEPT.items()}
        dropped = {code.name.lower(): of[code] for code in DROPPED}
        by_domain[name] = {"in": len(outcome), "kept": sum(kept.values()), **kept, "dropped": dropped}
    whole = {key: sum(counts[key] for counts in by_domain.values()) for key in ("in", "kept", *KEPT)}
    dropped = {code.name.lower(): 0 for code in DROPPED}
    for counts in by_domain.values():
        dropped = {reason: count + counts["dropped"][reason] for reason, count in dropped.items()}
    return {**whole, "dropped": dropped, "domains": by_domain}


def _size_rows(counts: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"domain": name, "in": of["in"], **of["dropped"], **{split: of[split] for split in SPLITS}}
        for name, of in counts["domains"].items()
    ]
