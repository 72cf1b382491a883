"""``dana splits``: aligned text by domain to train, dev and test that share no line, and the audit of such splits.

Lines become 64-bit hashes: equal lines have equal ones, so nothing that is kept repeats and nothing crosses, whatever
the hashes do. Two different lines that share a hash (a chance of 1e-5 among 14 million pairs, n² / 2⁶⁵ a side) only
cost the later one its place. Memory is 28 bytes a pair, however long the lines are.

The audit's layout is that of Table 8 of Aharoni and Goldberg 2020, which counts by one side; here each side is counted,
and either of them. Lines are equal if they are after :func:`dana.corpus.text.one_line`; an empty one is never shared.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
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
from dana.core.text_table import Value, aligned
from dana.studies.splits.aligned import AlignedText, Row, check_sides, find_splits

SPLITS = ("train", "dev", "test")
SIZES, OVERLAP = "sizes.csv", "overlap.csv"
EITHER = "either"
ROWS_PER_GROUP = 1 << 14
BLOCK = 1 << 14  # rows
EMPTY = 0  # stands for the hash of an empty line
Hashes = tuple[np.ndarray, ...]
Rows = list[dict[str, Any]]


class Outcome(IntEnum):
    """What becomes of a row. A row of one side is a source without a target."""

    TRAIN = 0
    SOURCE_REPEATED = 1  # these three are sums of bits: source seen, target seen
    TARGET_REPEATED = 2
    BOTH_REPEATED = 3
    BLANK = 4
    HELD_OUT_ELSEWHERE = 5  # in dev or test of another domain
    OVER_CAP = 6
    DEV = 7
    TEST = 8


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
    shown = [name for name in rows[0] if name in SPLITS or any(row[name] for row in rows)]
    return aligned([{name: row[name] for name in shown} for row in rows])


def assign_splits(domains: Mapping[str, Hashes], settings: SplitSettings) -> dict[str, np.ndarray]:
    """The :class:`Outcome` of each row of each domain, uint8 of shape (rows,).

    In each domain a row is kept if neither its source nor its target is in a row kept before it (greedy, in order).
    The kept rows with the smallest source hashes are test, the next ones dev, the rest is train, of which a cap takes
    the next ones again: so neither order nor machine decides what is drawn, and a cap changes neither dev nor test.
    A row whose source or target is in dev or test of another domain leaves.

    Args:
        domains: From :func:`hash_lines`, with one seed, all with as many sides.
        settings: Sizes.

    Raises:
        DataError: If a domain has too few rows for dev and test, or keeps none for train.
    """
    outcomes: dict[str, np.ndarray] = {}
    held_out: list[np.ndarray] = [np.empty(0, np.uint64)] * 2
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
        held_out = [np.append(old, new[outcome >= Outcome.DEV]) for old, new in zip(held_out, sides, strict=False)]
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
    for start in range(0, len(outcome), BLOCK):
        part = slice(start, start + BLOCK)
        for hashes, known in zip(sides, held_out, strict=False):
            met = (outcome[part] == Outcome.TRAIN) & pd.Series(hashes[part]).isin(known).to_numpy()
            outcome[part][met] = Outcome.HELD_OUT_ELSEWHERE
    return outcome == Outcome.TRAIN


def _ranked(hashes: np.ndarray, rows: np.ndarray, rank: int) -> int:
    """The hash, among those of some rows, below which so many of them are."""
    among = hashes[rows]
    among.partition(rank)
    return int(among[rank])


def keep_first(source: np.ndarray, target: np.ndarray | None = None) -> np.ndarray:
    """TRAIN for the rows that are kept, else why not: :class:`Outcome` as uint8 of shape (rows,).

    Args:
        source: Hashes, shape (rows,).
        target: Hashes, shape (rows,); None for rows of one side.
    """
    outcome = np.zeros(len(source), np.uint8)
    outcome[source == EMPTY] = Outcome.BLANK
    sources, targets = _repeated(source), np.zeros(len(source), np.int32)
    if target is not None:
        outcome[target == EMPTY] = Outcome.BLANK
        targets = _repeated(target)
    source_seen, target_seen = bytearray(sources.max(initial=0) + 1), bytearray(targets.max(initial=0) + 1)
    for start in range(0, len(source), BLOCK):
        part = slice(start, start + BLOCK)
        asked = np.flatnonzero(((sources[part] > 0) | (targets[part] > 0)) & (outcome[part] == Outcome.TRAIN))
        lines = (asked + start).tolist(), sources[part][asked].tolist(), targets[part][asked].tolist()
        for row, own, other in zip(*lines, strict=True):
            if seen := source_seen[own] + 2 * target_seen[other]:
                outcome[row] = seen
            else:
                source_seen[own], target_seen[other] = own > 0, other > 0
    return outcome


def _repeated(hashes: np.ndarray) -> np.ndarray:
    """A number above 0 for each line that occurs more than once, the same for equal lines, else 0: int32 (rows,)."""
    numbers = np.zeros(len(hashes), np.int32)
    first = hashes.view(np.uint8)[7::8] >> 4  # top four bits: a sixteenth of the rows is sorted at a time
    last = 0
    for sixteenth in range(16):
        rows = np.flatnonzero(first == sixteenth)
        _, line, counts = np.unique(hashes[rows], return_inverse=True, return_counts=True)
        often = counts > 1
        numbers[rows] = np.where(often, last + np.cumsum(often), 0)[line]
        last += int(often.sum())
    return numbers


def hash_blocks(rows: Iterable[Sequence[str]], seed: int = 0) -> Iterator[Hashes]:
    """Hash lines: 16,384 rows at a time, uint64 of shape (rows,) a side; an empty line is 0.

    Args:
        rows: One or two texts each, as :func:`dana.corpus.text.one_line` makes them.
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
    joined: list[bytearray] = []
    for block in hash_blocks(rows, seed):
        joined = joined or [bytearray() for _ in block]
        for whole, part in zip(joined, block, strict=True):
            whole += part.tobytes()
    return tuple(np.frombuffer(whole, "<u8") for whole in joined)


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


def _write(folder: Path, sides: Sequence[str], rows: Iterator[Row], outcome: np.ndarray) -> None:
    """Write each row to the file of its split."""
    folder.mkdir()
    schema = pa.schema([pa.field("line", pa.int64(), False), *(pa.field(side, pa.string(), False) for side in sides)])
    waiting: dict[int, list[Row]] = {Outcome[split.upper()]: [] for split in SPLITS}
    with ExitStack() as open_files:
        writers = {}
        for split, code in zip(SPLITS, waiting, strict=True):
            writer = pq.ParquetWriter(folder / f"{split}.parquet", schema, compression="zstd", write_page_checksum=True)
            writers[code] = open_files.enter_context(writer)

        def flush(code: int) -> None:
            lines, texts = zip(*waiting[code], strict=True)
            writers[code].write_table(pa.table([pa.array(lines), *map(pa.array, zip(*texts, strict=True))], schema))
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
    numbers = {name: np.bincount(outcome, minlength=len(Outcome)) for name, outcome in outcomes.items()}
    whole, *parts = (_accounted(row) for row in (np.sum(list(numbers.values()), axis=0), *numbers.values()))
    return {**whole, "domains": dict(zip(numbers, parts, strict=True))}


def _accounted(row: np.ndarray) -> dict[str, Any]:
    of = {outcome.name.lower(): int(row[outcome]) for outcome in Outcome}
    kept = {split: of.pop(split) for split in SPLITS}
    return {"in": int(row.sum()), "kept": sum(kept.values()), **kept, "dropped": of}


def _size_rows(counts: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"domain": name, "in": of["in"], **of["dropped"], **{split: of[split] for split in SPLITS}}
        for name, of in counts["domains"].items()
    ]


def audit_folders(folders: Sequence[Path], sides: Sequence[str] | None = None, out: Path | None = None) -> Rows:
    """Overlap of splits that anybody made: :func:`audit_rows`, folder by folder.

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
    rows: Rows = []
    for folder in folders:
        domains = find_splits(folder, sides or read_manifest(folder).get("depends_on", {}).get("sides"))
        check_sides([text for splits in domains.values() for text in splits.values()])
        name = folder.resolve().name
        before = f"{name}/" if len(folders) > 1 and [name] != list(domains) else ""
        rows += [{**row, "domain": f"{before}{row['domain']}"} for row in audit_rows(domains)]
    if out is not None:
        write_text(out / OVERLAP, pd.DataFrame(rows).to_csv(index=False))
    return rows


def overlap_text(rows: Sequence[Mapping[str, Value]]) -> str:
    """Rows of an audit in the layout of the paper's Table 8: a line a domain, a column a side."""
    sides = list(dict.fromkeys(str(row["side"]) for row in rows))
    lines: dict[tuple[Value, ...], dict[str, Value]] = {}
    for row in rows:
        heading = {"share of": f"{row['split']} in {row['within']}", "domain": row["domain"]}
        line = lines.setdefault(tuple(heading.values()), {**heading, **dict.fromkeys(sides)})
        line[str(row["side"])] = f"{row['shared']:,}/{row['lines']:,} ({row['share']:.2%})"
    return aligned(list(lines.values()))


def read_overlap(folder: Path) -> Rows:
    """The audit of an artifact, from its table."""
    table = pd.read_csv(folder / OVERLAP, dtype={"domain": str, "side": str}, keep_default_na=False)
    return cast(Rows, table.to_dict("records"))


def audit_rows(domains: Mapping[str, Mapping[str, AlignedText]]) -> Rows:
    """A row a domain, split, split ``within`` which its lines were looked for, and side; streamed.

    Lines of dev and test are looked for in train, and those of test in dev. Of several domains they are then looked
    for in what all domains together have: ``any train``, ``any dev``. ``shared`` counts lines, repeated ones too, and
    ``share`` is in [0, 1]; of side ``either`` a pair counts whose source is a source there, or its target a target.
    Memory is 16 bytes a line of dev and test, however long train is.

    Args:
        domains: By name, then by split; train, and dev, test or both. All with as many sides.
    """
    lines = {
        (name, split): hash_lines(texts for _, texts in splits[split].rows())
        for name, splits in domains.items()
        for split in SPLITS[1:]
        if split in splits
    }
    known = [pd.Index(np.unique(np.concatenate(side))) for side in zip(*lines.values(), strict=True)]
    searched = {(name, "train"): _met(name, splits["train"], known) for name, splits in domains.items()} | lines
    rows: Rows = []
    for whole in (False, True) if len(domains) > 1 else (False,):
        for split, within in (("dev", "train"), ("test", "train"), ("test", "dev")):
            for name in domains:
                places = [(other, within) for other in (domains if whole else [name])]
                others = [searched[place] for place in places if place in searched]
                if (name, split) in lines and others:
                    about = {"domain": name, "split": split, "within": f"any {within}" if whole else within}
                    counts = _by_side(domains[name][split].sides, lines[name, split], others)
                    rows += [{**about, **count} for count in counts]
    return rows


def _met(name: str, train: AlignedText, known: Sequence[pd.Index]) -> Hashes:
    """Of the known hashes of each side, those that train has."""
    met = [np.zeros(len(hashes), bool) for hashes in known]
    rows = tracked(train.rows(), what=f"auditing {name}", unit="rows")
    for block in hash_blocks(texts for _, texts in rows):
        for seen, hashes, values in zip(met, known, block, strict=True):
            places = hashes.get_indexer(pd.Index(values))
            seen[places[places >= 0]] = True
    return tuple(hashes[seen].to_numpy() for hashes, seen in zip(known, met, strict=True))


def _by_side(names: Sequence[str], lines: Hashes, searched: Sequence[Hashes]) -> Iterator[dict[str, Value]]:
    """Counts of the lines that are in any of `searched`, by side and by either."""
    sides = [np.concatenate(side) for side in zip(*searched, strict=True)]
    shared = [(hashes != EMPTY) & np.isin(hashes, side) for hashes, side in zip(lines, sides, strict=True)]
    counts = dict(zip(names, shared, strict=True))
    if len(shared) > 1:
        counts[EITHER] = shared[0] | shared[1]
    for side, rows in counts.items():
        yield {"side": side, "lines": len(rows), "shared": int(rows.sum()), "share": float(rows.mean())}
