"""Split parallel text into train, dev and test without common lines, and audit their overlap.

Lines are compared by 64-bit hashes. A collision of two different lines (probability n² / 2⁶⁵ per
side, 1e-5 for 14 million pairs) drops the later pair and can never leak one. Memory is about 46
bytes per pair, whatever the length of the lines.

The audit has the layout of Table 8 of Aharoni and Goldberg 2020, which counts one side; here each
side is counted, and either of them. Lines are compared after :func:`dana.corpus.text.one_line`;
empty lines are never shared.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from enum import IntEnum
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from re import fullmatch

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import Artifact, Draft, make, read_manifest, write_text
from dana.core.config import require
from dana.core.errors import ConfigError, DataError
from dana.core.logging import monitor
from dana.core.raw_files import RAW_FILES, RawFiles
from dana.core.rng import derive_seed
from dana.core.settings import Count, Int, settings_model
from dana.core.text_table import csv_text
from dana.studies.frame_text import frame_text
from dana.studies.splits.aligned import AlignedText, Row, find_splits

SPLITS = ("train", "dev", "test")
SIZES = "sizes.csv"
OVERLAP = "overlap.csv"
EITHER = "either"
BLOCK = 1 << 14  # rows
EMPTY = 0  # hash of an empty line
Hashes = tuple[np.ndarray, ...]


class Outcome(IntEnum):
    """Split of a row, or the reason why it is dropped."""

    TRAIN = 0
    REPEATED = 1  # its source or its target is in an earlier row that is kept
    BLANK = 2
    HELD_OUT_ELSEWHERE = 3  # a side is in dev or test of another domain
    OVER_CAP = 4
    DEV = 5
    TEST = 6


@settings_model
class SplitSettings:
    """Sizes of the splits of each domain.

    Attributes:
        dev: Rows of dev.
        test: Rows of test.
        cap: Maximum rows of train; None for no limit.
        seed: Seed of the draw of dev and test.
    """

    dev: Count = 2000
    test: Count = 2000
    cap: Count | None = None
    seed: Int = 0


def splits_stage(
    domains: Mapping[str, AlignedText], folder: Path, settings: SplitSettings
) -> Artifact:
    """Split each domain, and write the splits, their sizes and the audit of their overlap.

    They are ``NAME/{train,dev,test}.parquet``, ``sizes.csv`` and ``overlap.csv``. Parquet files
    have ``line`` (number of the row in its input, from 1) and one column per side, in the order of
    the input. The input is read twice; the written splits are audited.

    Args:
        domains: Text of each domain by name, all with the same sides.
        folder: Folder of the artifact.
        settings: Sizes, cap and seed, see :func:`assign_splits`.

    Raises:
        ConfigError: If a name is invalid as a folder, or a file is given twice.
        DataError: If text cannot be read, is not aligned, or has too few rows.
        ArtifactError: If the folder holds another artifact.
    """
    _check(domains)
    raw_files = RawFiles(folder)
    digests = {}
    for name, text in domains.items():
        digests[name] = [raw_files.digest(file) for file in text.files]
    sides = next(iter(domains.values())).sides
    depends_on = {
        "domains": digests,
        "order": list(domains),
        "sides": sides,
        **asdict(settings),
        "method": 1,
    }

    def write(draft: Draft) -> None:
        hashes = {}
        for name, text in domains.items():
            rows = monitor(text.rows(), what=f"hashing {name}", unit="rows")
            hashes[name] = hash_lines((texts for _, texts in rows), settings.seed)
        outcomes = assign_splits(hashes, settings)
        for name, text in domains.items():
            rows = monitor(text.rows(), what=f"writing {name}", unit="rows")
            _write(draft.path / name, sides, rows, outcomes[name])
        raw_files.check_unchanged()
        draft.notes[RAW_FILES] = raw_files.records()
        sizes = count_outcomes(outcomes)
        draft.counts.update(sizes.sum().to_dict() | {"domains": sizes.to_dict("index")})
        draft.seeds["splits"] = settings.seed
        splits = find_splits(draft.path, sides)
        overlap = audit_domains({name: splits[name] for name in domains})
        write_text(draft.path / SIZES, csv_text(sizes.reset_index()))
        write_text(draft.path / OVERLAP, csv_text(overlap))

    return make(folder, "splits", depends_on, write)


def count_outcomes(outcomes: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Count the rows of each domain: ``in`` (all), dropped by reason, then train, dev and test."""
    counts = {
        name: np.bincount(outcome, minlength=len(Outcome)) for name, outcome in outcomes.items()
    }
    columns = [outcome.name.lower() for outcome in Outcome]
    table = pd.DataFrame.from_dict(counts, orient="index", columns=columns).rename_axis("domain")
    table.insert(0, "in", table.sum(axis=1))
    reasons = [name for name in columns if name not in SPLITS]
    return table[["in", *reasons, *SPLITS]]


def sizes_text(folder: Path) -> str:
    """Format the sizes of an artifact: one line per domain, and one of all if there are several."""
    table = pd.read_csv(folder / SIZES, dtype={"domain": str}, keep_default_na=False)
    table = table.set_index("domain")
    if len(table) > 1:
        table.loc["all"] = table.sum()
    return frame_text(table.reset_index())


def assign_splits(domains: Mapping[str, Hashes], settings: SplitSettings) -> dict[str, np.ndarray]:
    """Assign each row of each domain to a split, or to a reason why it is dropped.

    A row is kept if neither its source nor its target is in an earlier row that is kept. In the
    order of their source hashes, kept rows are test, dev, then train up to the cap: the draw
    depends on neither order nor machine, and a cap changes neither dev nor test. Rows whose source
    or target is in dev or test of another domain are dropped.

    Args:
        domains: Hashes of each domain from :func:`hash_lines`, all with one seed.
        settings: Sizes.

    Returns:
        :class:`Outcome` of each row by domain, uint8 of shape (rows,).

    Raises:
        DataError: If a domain has too few rows for dev and test, or none for train.
    """
    outcomes: dict[str, np.ndarray] = {}
    held_out = [np.empty(0, np.uint64), np.empty(0, np.uint64)]  # of the domains so far, by side
    for name, sides in domains.items():
        outcome = keep_first(*sides)
        outcomes[name] = outcome
        is_train = _train_mask(outcome, sides, held_out)
        candidates = int(is_train.sum())
        held_out_rows = settings.test + settings.dev
        if candidates <= held_out_rows:
            raise DataError(
                f"{name}: dev ({settings.dev:,}) and test ({settings.test:,}) leave no rows for"
                f" train: {candidates:,} of {len(outcome):,} rows have no repeated line; lower dev"
                " or test"
            )
        source = sides[0]
        first_of_train = _hash_at_rank(source, is_train, held_out_rows)
        first_of_dev = _hash_at_rank(source, is_train, settings.test)
        outcome[is_train & (source < first_of_train)] = Outcome.DEV
        outcome[is_train & (source < first_of_dev)] = Outcome.TEST
        is_held_out = outcome >= Outcome.DEV
        held_out = [
            np.append(hashes, side[is_held_out])
            for hashes, side in zip(held_out, sides, strict=True)
        ]
    for name, sides in domains.items():
        outcome = outcomes[name]
        is_train = _train_mask(outcome, sides, held_out)
        if not is_train.any():
            raise DataError(
                f"{name}: no rows are left for train, all are in dev or test of another domain"
            )
        if settings.cap is not None and is_train.sum() > settings.cap:
            first_over_cap = _hash_at_rank(sides[0], is_train, settings.cap)
            outcome[is_train & (sides[0] >= first_over_cap)] = Outcome.OVER_CAP
    return outcomes


def _train_mask(outcome: np.ndarray, sides: Hashes, held_out: Sequence[np.ndarray]) -> np.ndarray:
    """Mark rows with a side that is held out, in place; return the mask of the others in train."""
    for hashes, held_out_hashes in zip(sides, held_out, strict=True):
        is_held_out = pd.Series(hashes).isin(held_out_hashes).to_numpy()
        outcome[(outcome == Outcome.TRAIN) & is_held_out] = Outcome.HELD_OUT_ELSEWHERE
    mask: np.ndarray = outcome == Outcome.TRAIN
    return mask


def _hash_at_rank(hashes: np.ndarray, rows: np.ndarray, rank: int) -> int:
    """Return the hash of the given rank, from 0, among those of some rows (bool mask)."""
    return int(np.partition(hashes[rows], rank)[rank])


def keep_first(*sides: np.ndarray) -> np.ndarray:
    """Keep the first row of each line, greedily.

    Args:
        sides: Hashes of source and target, shape (rows,) each.

    Returns:
        :class:`Outcome` of each row, uint8 of shape (rows,): TRAIN for a row that is kept, else
        REPEATED or BLANK.
    """
    outcome = np.zeros(len(sides[0]), np.uint8)
    may_repeat = np.zeros(len(outcome), bool)
    for side in sides:
        outcome[side == EMPTY] = Outcome.BLANK
        sorted_hashes = np.sort(side)
        repeats = np.unique(sorted_hashes[1:][sorted_hashes[1:] == sorted_hashes[:-1]])
        del sorted_hashes
        may_repeat |= pd.Series(side).isin(repeats).to_numpy()
    rows = np.flatnonzero(may_repeat & (outcome == Outcome.TRAIN))
    # Numbers of the distinct lines; a Python loop is fastest over buffers and bytes.
    source, target = (pd.factorize(side[rows])[0].data for side in sides)
    source_seen = bytearray(len(rows))
    target_seen = bytearray(len(rows))
    for row, source_number, target_number in zip(rows.data, source, target, strict=True):
        if source_seen[source_number] or target_seen[target_number]:
            outcome[row] = Outcome.REPEATED
        else:
            source_seen[source_number] = 1
            target_seen[target_number] = 1
    return outcome


def hash_lines(rows: Iterable[Sequence[str]], seed: int = 0) -> Hashes:
    """Hash lines, uint64 of shape (rows,) per side; an empty line is 0.

    Args:
        rows: Two texts each, cleaned by :func:`dana.corpus.text.one_line`.
        seed: Seed of the hashes, which decides their order.
    """
    salt = derive_seed(seed, "splits").to_bytes(8, "little")
    sides = (bytearray(), bytearray())
    for texts in rows:
        for side, text in zip(sides, texts, strict=True):
            digest = bytes(8)
            if text:
                digest = blake2b(text.encode(), digest_size=8, salt=salt).digest()
            side.extend(digest)
    return tuple(np.frombuffer(side, "<u8") for side in sides)


def _check(domains: Mapping[str, AlignedText]) -> None:
    """Refuse names that are no folder's, and a file that is given twice."""
    remedy = "letters, digits, _, + and - (it names a folder), not train, dev or test"
    for name in domains:
        is_folder_name = bool(fullmatch(r"[^\W_][\w+-]*", name)) and name not in SPLITS
        require(is_folder_name, "domain", name, remedy)
    files = [file.resolve() for text in domains.values() for file in text.files]
    for file in files:
        if files.count(file) > 1:
            raise ConfigError(f"{file}: the same file is given twice")


def _write(folder: Path, sides: Sequence[str], rows: Iterator[Row], outcome: np.ndarray) -> None:
    """Write each row to the file of its split.

    Rows of dev and test stay in memory until all are read.
    """
    folder.mkdir()
    texts = [pa.field(side, pa.string(), False) for side in sides]
    schema = pa.schema([pa.field("line", pa.int64(), False), *texts])
    held_out: dict[str, list[pa.Table]] = {split: [schema.empty_table()] for split in SPLITS[1:]}
    options = {"compression": "zstd", "write_page_checksum": True}
    rows_with_outcome = zip(rows, outcome.data, strict=False)
    with pq.ParquetWriter(folder / "train.parquet", schema, **options) as train:
        while block := list(islice(rows_with_outcome, BLOCK)):
            block_rows, codes = zip(*block, strict=True)
            table = _table_of(block_rows, schema)
            block_outcome = np.array(codes)
            train.write_table(table.filter(block_outcome == Outcome.TRAIN))
            for split, parts in held_out.items():
                parts.append(table.filter(block_outcome == Outcome[split.upper()]))
    for split, parts in held_out.items():
        table = pa.concat_tables(parts).combine_chunks()
        pq.write_table(table, folder / f"{split}.parquet", **options)


def _table_of(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Make a table of rows: the line, and one column per side."""
    lines, texts = zip(*rows, strict=True)
    columns = [lines, *zip(*texts, strict=True)]
    return pa.table([pa.array(column) for column in columns], schema)


def audit_folders(
    folders: Sequence[Path], sides: Sequence[str] | None = None, out: Path | None = None
) -> pd.DataFrame:
    """Audit the overlap of existing splits, folder by folder, see :func:`audit_domains`.

    Args:
        folders: Folders of domains, see :func:`dana.studies.splits.aligned.find_splits`. If there
            are several, the folder's name is prefixed to the domain's.
        sides: Names of the sides; not needed for folders that dana wrote.
        out: Folder for ``overlap.csv``.

    Returns:
        The table of :func:`audit_domains`.

    Raises:
        ConfigError: If `out` is a file.
        DataError: If a folder has no splits, or text cannot be read.
    """
    require(out is None or not out.is_file(), "out", str(out), "a folder for the table")
    tables = []
    for folder in folders:
        folder_sides = sides
        if not folder_sides:
            folder_sides = read_manifest(folder).get("depends_on", {}).get("sides")
        domains = find_splits(folder, folder_sides)
        name = folder.resolve().name
        table = audit_domains(domains)
        if len(folders) > 1 and [name] != list(domains):
            table["domain"] = f"{name}/" + table["domain"]
        tables.append(table)
    rows = pd.concat(tables, ignore_index=True)
    if out is not None:
        write_text(out / OVERLAP, csv_text(rows))
    return rows


def overlap_text(rows: pd.DataFrame) -> str:
    """Format an audit as the paper's Table 8: one line per domain, one column per side."""
    rows = rows.assign(**{"share of": rows["split"] + " in train"})
    rows["text"] = [f"{row.shared:,}/{row.lines:,} ({row.share:.2%})" for row in rows.itertuples()]
    table = rows.pivot_table(
        "text", ["share of", "domain"], "side", aggfunc="first", sort=False, fill_value=""
    )
    table = table.sort_index(level=0, sort_remaining=False, kind="stable")
    return frame_text(table.reset_index())


def read_overlap(folder: Path) -> pd.DataFrame:
    """Read the audit of an artifact."""
    return pd.read_csv(folder / OVERLAP, dtype={"domain": str, "side": str}, keep_default_na=False)


def audit_domains(domains: Mapping[str, Mapping[str, AlignedText]]) -> pd.DataFrame:
    """Count the lines of dev and test that are also in train.

    Memory is 17 bytes per pair, whatever the length of the lines.

    Args:
        domains: Text by domain, then by split: train, and dev, test or both.

    Returns:
        One row per domain, split and side: domain, split, side, lines, shared (lines that are in
        train, with repeats), share (in [0, 1]). Side ``either`` counts pairs with a shared source
        or a shared target.
    """
    rows = []
    for name, splits in domains.items():
        hashes = {}
        for split in SPLITS:
            if split in splits:
                pairs = monitor(splits[split].rows(), what=f"auditing {name}", unit="rows")
                hashes[split] = hash_lines(texts for _, texts in pairs)
        train = hashes.pop("train")
        source_side, target_side = splits["train"].sides
        for split, held_out in hashes.items():
            source, target = map(_are_in, held_out, train)
            by_side = {source_side: source, target_side: target, EITHER: source | target}
            for side, is_shared in by_side.items():
                row = {
                    "domain": name,
                    "split": split,
                    "side": side,
                    "lines": is_shared.size,
                    "shared": int(is_shared.sum()),
                    "share": float(is_shared.mean()),
                }
                rows.append(row)
    return pd.DataFrame(rows)


def _are_in(held_out: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Tell which hashes of held-out lines are in training text, but for empty lines.

    The table that looks hashes up holds those of the held-out lines, which are few.
    """
    common = train[pd.Series(train).isin(held_out)]
    shared: np.ndarray = np.isin(held_out, common) & (held_out != EMPTY)
    return shared
