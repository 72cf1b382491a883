"""``dana splits``: aligned text by domain to train, dev and test that share no line, and the audit of such splits.

Lines become 64-bit hashes: equal lines have equal ones, so nothing that is kept repeats and nothing crosses, whatever
the hashes do. Two different lines that share a hash (a chance of 1e-5 among 14 million pairs, n² / 2⁶⁵ a side) only
cost the later one its place. Memory is some 46 bytes a pair, however long the lines are.

The audit's layout is that of Table 8 of Aharoni and Goldberg 2020, which counts by one side; here each side is counted,
and either of them. Lines are equal if they are after :func:`dana.corpus.text.one_line`; an empty one is never shared.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from re import fullmatch
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import Artifact, Draft, make, read_manifest, write_text
from dana.core.config import require
from dana.core.errors import ConfigError, DataError
from dana.core.files import file_digest
from dana.core.logging import tracked
from dana.core.rng import derive_seed
from dana.core.text_table import aligned
from dana.studies.splits.aligned import AlignedText, Row, find_splits

SPLITS = ("train", "dev", "test")
SIZES, OVERLAP = "sizes.csv", "overlap.csv"
EITHER = "either"
BLOCK = 1 << 14  # rows
EMPTY = 0  # stands for the hash of an empty line
Hashes = tuple[np.ndarray, ...]


class Outcome(IntEnum):
    """What becomes of a row."""

    TRAIN = 0
    REPEATED = 1  # its source or its target is in a row that was kept before it
    BLANK = 2
    HELD_OUT_ELSEWHERE = 3  # in dev or test of another domain
    OVER_CAP = 4
    DEV = 5
    TEST = 6


@dataclass(frozen=True)
class SplitSettings:
    """Sizes of the splits of each domain.

    Attributes:
        dev: Rows.
        test: Rows.
        cap: At most so many rows of train; None for no limit.
        seed: Of the draw.
    """

    dev: int = 2000
    test: int = 2000
    cap: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("dev", "test", "cap"):
            rows = getattr(self, name)
            require(rows is None or rows > 0, name, rows, "at least 1")


def splits_stage(domains: Mapping[str, AlignedText], folder: Path, settings: SplitSettings) -> Artifact:
    """Split each domain and write ``NAME/{train,dev,test}.parquet``, ``sizes.csv`` and ``overlap.csv``.

    A Parquet file has ``line``, the row's place in its input from 1, and a column a side; rows are in the order of the
    input. The files are read twice. At last the written splits are audited. Same files and settings, same bytes.

    Args:
        domains: By name, all with the same sides.
        folder: The artifact's.
        settings: Sizes, cap and seed: see :func:`assign_splits`.

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
        hashes = {}
        for name, text in domains.items():
            rows = tracked(text.rows(), what=f"hashing {name}", unit="rows")
            hashes[name] = hash_lines((texts for _, texts in rows), settings.seed)
        outcomes = assign_splits(hashes, settings)
        for name, text in domains.items():
            rows = tracked(text.rows(), what=f"writing {name}", unit="rows")
            _write(draft.path / name, sides, rows, outcomes[name])
        if _digests(domains) != digests:
            raise DataError(f"{', '.join(domains)}: files changed while they were read; run the same again")
        sizes = count_outcomes(outcomes)
        draft.counts.update(sizes.sum().to_dict() | {"domains": sizes.to_dict("index")})
        draft.seeds["splits"] = settings.seed
        written = find_splits(draft.path, sides)
        overlap = audit_domains({name: written[name] for name in domains})
        for name, table in ((SIZES, sizes.reset_index()), (OVERLAP, overlap)):
            write_text(draft.path / name, table.to_csv(index=False))

    return make(folder, "splits", depends_on, write)


def count_outcomes(outcomes: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Rows of each domain: ``in``, which is the sum of all others: dropped by reason, then train, dev and test."""
    counts = {name: np.bincount(outcome, minlength=len(Outcome)) for name, outcome in outcomes.items()}
    columns = [outcome.name.lower() for outcome in Outcome]
    table = pd.DataFrame.from_dict(counts, orient="index", columns=columns).rename_axis("domain")
    table.insert(0, "in", table.sum(axis=1))
    return table[["in", *(name for name in columns if name not in SPLITS), *SPLITS]]


def sizes_text(folder: Path) -> str:
    """The sizes of an artifact: a line a domain and, of several, one of all."""
    table = pd.read_csv(folder / SIZES, dtype={"domain": str}, keep_default_na=False).set_index("domain")
    if len(table) > 1:
        table.loc["all"] = table.sum()
    return aligned(cast(Any, table.reset_index().to_dict("records")))


def assign_splits(domains: Mapping[str, Hashes], settings: SplitSettings) -> dict[str, np.ndarray]:
    """The :class:`Outcome` of each row of each domain, uint8 of shape (rows,).

    In each domain a row is kept if neither its source nor its target is in a row kept before it (greedy, in order).
    The kept rows with the smallest source hashes are test, the next ones dev, the rest is train, of which a cap takes
    the next ones again: so neither order nor machine decides what is drawn, and a cap changes neither dev nor test.
    A row whose source or target is in dev or test of another domain leaves.

    Args:
        domains: From :func:`hash_lines`, with one seed.
        settings: Sizes.

    Raises:
        DataError: If a domain has too few rows for dev and test, or keeps none for train.
    """
    outcomes: dict[str, np.ndarray] = {}
    held_out = [np.empty(0, np.uint64)] * 2
    for name, sides in domains.items():
        outcome = outcomes[name] = keep_first(*sides)
        left = _left_for_train(outcome, sides, held_out)
        kept, drawn = int(left.sum()), settings.test + settings.dev
        if kept <= drawn:
            raise DataError(
                f"{name}: {kept:,} of {len(outcome):,} rows are kept (no line twice), and dev ({settings.dev:,})"
                f" and test ({settings.test:,}) would leave none for train; make these smaller"
            )
        outcome[left & (sides[0] < _ranked(sides[0], left, drawn))] = Outcome.DEV
        outcome[left & (sides[0] < _ranked(sides[0], left, settings.test))] = Outcome.TEST
        held_out = [np.append(old, new[outcome >= Outcome.DEV]) for old, new in zip(held_out, sides, strict=True)]
    for name, sides in domains.items():
        outcome = outcomes[name]
        left = _left_for_train(outcome, sides, held_out)
        if not left.any():
            raise DataError(f"{name}: all that is left for train is in dev or test of another domain")
        if settings.cap is not None and left.sum() > settings.cap:
            outcome[left & (sides[0] >= _ranked(sides[0], left, settings.cap))] = Outcome.OVER_CAP
    return outcomes


def _left_for_train(outcome: np.ndarray, sides: Hashes, held_out: Sequence[np.ndarray]) -> np.ndarray:
    """Which rows are in train, bool of shape (rows,), once those of which a side is held out are marked."""
    for hashes, known in zip(sides, held_out, strict=True):
        outcome[(outcome == Outcome.TRAIN) & pd.Series(hashes).isin(known).to_numpy()] = Outcome.HELD_OUT_ELSEWHERE
    return outcome == Outcome.TRAIN


def _ranked(hashes: np.ndarray, rows: np.ndarray, rank: int) -> int:
    """The hash, among those of some rows, below which so many of them are."""
    among = hashes[rows]
    among.partition(rank)
    return int(among[rank])


def keep_first(*sides: np.ndarray) -> np.ndarray:
    """TRAIN for the rows that are kept, else why not: :class:`Outcome` as uint8 of shape (rows,).

    Args:
        sides: Hashes of source and target, shape (rows,).
    """
    outcome = np.zeros(len(sides[0]), np.uint8)
    may_repeat = np.zeros(len(outcome), bool)
    for side in sides:
        outcome[side == EMPTY] = Outcome.BLANK
        ranked = np.sort(side)
        repeated = np.unique(ranked[1:][ranked[1:] == ranked[:-1]])
        del ranked
        may_repeat |= pd.Series(side).isin(repeated).to_numpy()
    rows = np.flatnonzero(may_repeat & (outcome == Outcome.TRAIN))
    source, target = (pd.factorize(side[rows])[0].data for side in sides)
    source_seen, target_seen = bytearray(len(rows)), bytearray(len(rows))
    for row, one, other in zip(rows.data, source, target, strict=True):
        if source_seen[one] or target_seen[other]:
            outcome[row] = Outcome.REPEATED
        else:
            source_seen[one] = target_seen[other] = 1
    return outcome


def hash_blocks(rows: Iterable[Sequence[str]], seed: int = 0) -> Iterator[Hashes]:
    """Hash lines: 16,384 rows at a time, uint64 of shape (rows,) a side; an empty line is 0.

    Args:
        rows: Two texts each, as :func:`dana.corpus.text.one_line` makes them.
        seed: With another, the hashes sort the same lines otherwise.
    """
    salt = derive_seed(seed, "splits").to_bytes(8, "little")

    def digest(text: str) -> bytes:
        return blake2b(text.encode(), digest_size=8, salt=salt).digest() if text else bytes(8)

    rows = iter(rows)
    while block := list(islice(rows, BLOCK)):
        yield tuple(np.frombuffer(b"".join(map(digest, side)), "<u8") for side in zip(*block, strict=True))


def hash_lines(rows: Iterable[Sequence[str]], seed: int = 0) -> Hashes:
    """All of :func:`hash_blocks`, shape (rows,) a side."""
    return tuple(map(np.concatenate, zip(*hash_blocks(rows, seed), strict=True)))


def _check(domains: Mapping[str, AlignedText]) -> None:
    for name in domains:
        fits = bool(fullmatch(r"[^\W_][\w+-]*", name)) and name not in SPLITS
        require(fits, "domain", name, "letters, digits, _, + and -, as it names a folder; not train, dev or test")
    files = [file.resolve() for text in domains.values() for file in text.files]
    if twice := [file for file in files if files.count(file) > 1]:
        raise ConfigError(f"{twice[0]}: the same file is given twice")


def _digests(domains: Mapping[str, AlignedText]) -> dict[str, list[str]]:
    return {name: [file_digest(file) for file in text.files] for name, text in domains.items()}


def _write(folder: Path, sides: Sequence[str], rows: Iterator[Row], outcome: np.ndarray) -> None:
    """Write each row to the file of its split; those of dev and test stay in memory until all are read."""
    folder.mkdir()
    schema = pa.schema([pa.field("line", pa.int64(), False), *(pa.field(side, pa.string(), False) for side in sides)])
    held_out: dict[str, list[pa.Table]] = {split: [schema.empty_table()] for split in SPLITS[1:]}
    options = {"compression": "zstd", "write_page_checksum": True}
    chosen = zip(rows, outcome.data, strict=False)
    with pq.ParquetWriter(folder / "train.parquet", schema, **options) as train:
        while block := list(islice(chosen, BLOCK)):
            lines, texts = zip(*(row for row, _ in block), strict=True)
            table = pa.table([pa.array(lines), *map(pa.array, zip(*texts, strict=True))], schema)
            codes = np.array([code for _, code in block])
            train.write_table(table.filter(codes == Outcome.TRAIN))
            for split, parts in held_out.items():
                parts.append(table.filter(codes == Outcome[split.upper()]))
    for split, parts in held_out.items():
        pq.write_table(pa.concat_tables(parts).combine_chunks(), folder / f"{split}.parquet", **options)


def audit_folders(folders: Sequence[Path], sides: Sequence[str] | None = None, out: Path | None = None) -> pd.DataFrame:
    """Overlap of splits that anybody made: :func:`audit_domains`, folder by folder.

    Args:
        folders: A domain's, or with one a domain: see :func:`dana.studies.splits.aligned.find_splits`. Of several, the
            folder's name stands before the domain's.
        sides: Names of the sides; those of a folder that dana split are known.
        out: Folder for ``overlap.csv``.

    Raises:
        ConfigError: If `out` is a file.
        DataError: If a folder holds no splits, or text cannot be read.
    """
    require(out is None or not out.is_file(), "out", str(out), "a folder for the table")
    tables = []
    for folder in folders:
        domains = find_splits(folder, sides or read_manifest(folder).get("depends_on", {}).get("sides"))
        name = folder.resolve().name
        table = audit_domains(domains)
        if len(folders) > 1 and [name] != list(domains):
            table["domain"] = f"{name}/" + table["domain"]
        tables.append(table)
    rows = pd.concat(tables, ignore_index=True)
    if out is not None:
        write_text(out / OVERLAP, rows.to_csv(index=False))
    return rows


def overlap_text(rows: pd.DataFrame) -> str:
    """An audit in the layout of the paper's Table 8: a line a domain, a column a side."""
    rows = rows.assign(**{"share of": rows["split"] + " in train"})
    rows["text"] = [f"{row.shared:,}/{row.lines:,} ({row.share:.2%})" for row in rows.itertuples()]
    table = rows.pivot_table("text", ["share of", "domain"], "side", aggfunc="first", sort=False, fill_value="")
    table = table.sort_index(level=0, sort_remaining=False, kind="stable")
    return aligned(cast(Any, table.reset_index().to_dict("records")))


def read_overlap(folder: Path) -> pd.DataFrame:
    """The audit of an artifact, from its table."""
    return pd.read_csv(folder / OVERLAP, dtype={"domain": str, "side": str}, keep_default_na=False)


def audit_domains(domains: Mapping[str, Mapping[str, AlignedText]]) -> pd.DataFrame:
    """A row a domain, split whose lines were looked for in train, and side; train is streamed.

    ``shared`` counts lines, repeated ones too, and ``share`` is in [0, 1]; of side ``either`` a pair counts whose
    source is a source there, or its target a target. Memory is 16 bytes a line of dev and test, however long train is.

    Args:
        domains: By name, then by split; train, and dev, test or both.
    """
    rows = []
    for name, splits in domains.items():
        lines = {
            split: hash_lines(texts for _, texts in splits[split].rows()) for split in SPLITS[1:] if split in splits
        }
        shared = {split: [np.zeros(len(side), bool) for side in sides] for split, sides in lines.items()}
        train = tracked(splits["train"].rows(), what=f"auditing {name}", unit="rows")
        for block in hash_blocks(texts for _, texts in train):
            for split, sides in lines.items():
                for is_shared, hashes, part in zip(shared[split], sides, block, strict=True):
                    is_shared |= pd.Series(hashes).isin(part).to_numpy()
        for split, sides in lines.items():
            source, target = (side & (hashes != EMPTY) for side, hashes in zip(shared[split], sides, strict=True))
            by_side = zip((*splits["train"].sides, EITHER), (source, target, source | target), strict=True)
            for side, is_shared in by_side:
                row = {"domain": name, "split": split, "side": side, "lines": is_shared.size}
                rows.append(row | {"shared": int(is_shared.sum()), "share": float(is_shared.mean())})
    return pd.DataFrame(rows)
