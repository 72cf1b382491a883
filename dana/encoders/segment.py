"""Segment of an embedding store: an immutable file of byte rows under sorted 16-byte keys, memory-mapped, checksummed.

A segment is a safetensors file: ``high`` and ``low`` (uint64, the halves of the keys, sorted
together), ``checks`` (uint32, CRC-32 of each row, begun with its key) and ``rows`` (uint8, one packed vector each). Its
name holds the digest of its bytes. It is written to a temporary file and renamed when whole. A row whose checksum fails
counts as missing: it is not returned, and the next merge drops it.
"""

import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from dana.core.errors import ArtifactError
from dana.core.files import file_digest, sync

PATTERN = "segment-*.safetensors"
ASIDE = ".segment-"  # how the name of a file being written begins
BLOCK = 1 << 17  # rows that a merge holds at once
MOST_SAMPLES = 8

Chunk = tuple[np.ndarray, np.ndarray]  # keys, uint64 (rows, 2); packed rows, uint8 (rows, width)


def checksums(keys: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """uint32 of shape (rows,): CRC-32 of each row, begun with its key, so that a row under another's key fails."""
    parts = np.ascontiguousarray(rows).view(f"V{rows.shape[1]}").ravel().tolist()
    begun = ((keys[:, 0] ^ keys[:, 1]) & np.uint64(0xFFFFFFFF)).tolist()
    return np.fromiter(map(crc32, parts, begun), np.uint32, len(parts))


@dataclass(frozen=True)
class Segment:
    """An opened, memory-mapped segment.

    Attributes:
        path: The file.
        high: First half of the keys, ascending, shape (rows,).
        low: Second half, ascending where the first is equal.
        checks: Checksums.
        rows: Packed vectors, shape (rows, width).
        sample: Some of the texts that were stored, for re-encoding.
    """

    path: Path
    high: np.ndarray
    low: np.ndarray
    checks: np.ndarray
    rows: np.ndarray
    sample: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.high)

    @classmethod
    def open(cls, path: Path) -> "Segment":
        """Map a file.

        Raises:
            ArtifactError: If its header or its size is not a segment's.
            FileNotFoundError: If a merge has replaced it.
        """
        try:
            mapped = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
            begins = 8 + int(mapped[:8].view("<u8")[0])
            header = json.loads(mapped[8:begins].tobytes())
            sample = tuple(json.loads(header.pop("__metadata__")["sample"]))
            count, width = header["rows"]["shape"]
            expected, size = _layout(count, width)
            if header != expected or len(mapped) != begins + size:
                raise ValueError("its header does not fit its size")
        except FileNotFoundError:
            raise
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise ArtifactError(f"{path}: not a whole segment ({error})") from error
        columns = {}
        for name, entry in header.items():
            first, last = (begins + offset for offset in entry["data_offsets"])
            columns[name] = mapped[first:last].view(_NUMPY[entry["dtype"]]).reshape(entry["shape"])
        return cls(path, columns["high"], columns["low"], columns["checks"], columns["rows"], sample)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Row of each key, int64, -1 where it is not here. O(keys × log rows).

        Args:
            keys: uint64 of shape (keys, 2).
        """
        found = np.full(len(keys), -1, dtype=np.int64)
        place = np.searchsorted(self.high, keys[:, 0])
        still = np.arange(len(keys))
        while still.size:  # a second round only where two keys share their first half
            still = still[place[still] < len(self)]
            still = still[self.high[place[still]] == keys[still, 0]]
            here = self.low[place[still]] == keys[still, 1]
            found[still[here]] = place[still[here]]
            still = still[~here]
            place[still] += 1
        return found

    def read(self, keys: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Packed rows at some places, and whether each one's checksum holds."""
        rows = self.rows[places]
        return rows, checksums(keys, rows) == self.checks[places]

    def flaws(self) -> list[str]:
        """What is wrong with it, if anything; reads all of it."""
        found = []
        digest = file_digest(self.path)
        if self.path.name != segment_name(digest):
            found.append(f"its bytes have digest {digest}, not that of its name")
        later = (self.high[1:] > self.high[:-1]) | ((self.high[1:] == self.high[:-1]) & (self.low[1:] > self.low[:-1]))
        if not later.all():
            found.append(f"keys are not ascending at row {int(later.argmin()) + 1}")
        bad = 0
        for start in range(0, len(self), BLOCK):
            places = slice(start, start + BLOCK)
            keys = np.stack([self.high[places], self.low[places]], axis=1)
            bad += int((checksums(keys, self.rows[places]) != self.checks[places]).sum())
        if bad:
            found.append(f"{bad} of {len(self)} rows fail their checksum")
        return found


_NUMPY = {"U64": "<u8", "U32": "<u4", "U8": "u1"}


def _layout(count: int, width: int) -> tuple[dict[str, dict[str, Any]], int]:
    """The safetensors header of a segment, without metadata, and the bytes that follow it."""
    header, offset = {}, 0
    columns = [("high", "U64", [count]), ("low", "U64", [count]), ("checks", "U32", [count])]
    for name, dtype, shape in [*columns, ("rows", "U8", [count, width])]:
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(_NUMPY[dtype]).itemsize
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    return header, offset


def segment_name(digest: str) -> str:
    """File name of the segment whose bytes have a digest."""
    return PATTERN.replace("*", digest)


def digest_of(path: Path) -> str:
    """Digest in the name of a segment."""
    before, _, after = PATTERN.partition("*")
    return path.name.removeprefix(before).removesuffix(after)


def write_segment(folder: Path, count: int, width: int, chunks: Iterable[Chunk], sample: Sequence[str]) -> Path:
    """Write a segment whole or not at all; equal content gives the same file.

    Args:
        folder: Where.
        count: Rows of all chunks together.
        width: Bytes of a row.
        chunks: Keys and rows, ascending by key over all chunks, no key twice.
        sample: Some of the texts, at most :data:`MOST_SAMPLES` are kept.

    Raises:
        ArtifactError: If the disk is full or the folder cannot be written to.
    """
    header, _ = _layout(count, width)
    about = {"__metadata__": {"sample": json.dumps(sorted(sample)[:MOST_SAMPLES])}}
    text = json.dumps({**about, **header}).encode()
    text += b" " * (-len(text) % 8)  # safetensors: the arrays begin at a multiple of 8
    aside = folder / f"{ASIDE}{secrets.token_hex(8)}"  # several processes write at once
    try:
        try:
            with aside.open("xb") as stream:
                stream.write(len(text).to_bytes(8, "little") + text)
                _write_columns(stream, {key: entry["data_offsets"][0] for key, entry in header.items()}, chunks)
            sync(aside)
            final = folder / segment_name(file_digest(aside))
            aside.replace(final)
        finally:
            aside.unlink(missing_ok=True)
        sync(folder)
    except OSError as error:
        raise ArtifactError(f"{folder}: cannot write a segment: {error.strerror}") from error
    return final


def _write_columns(stream: Any, offsets: dict[str, int], chunks: Iterable[Chunk]) -> None:
    """Each column of each chunk at its place. Not through a memory map: a full disk would kill the process."""
    begins = stream.tell()
    written = dict.fromkeys(offsets, 0)
    for keys, rows in chunks:
        parts = {"high": keys[:, 0], "low": keys[:, 1], "checks": checksums(keys, rows), "rows": rows}
        for name, part in parts.items():
            stream.seek(begins + offsets[name] + written[name])
            written[name] += stream.write(np.ascontiguousarray(part).data)


def merge_segments(folder: Path, segments: Sequence[Segment]) -> Path | None:
    """One segment of several, then remove them; rows that fail their checksum are dropped.

    A key's first good row wins. Memory is :data:`BLOCK` rows and their order, whatever the size: keys are hashes,
    so equal ranges of them hold about equally many rows.

    Returns:
        The new file; None if no good row was left.
    """
    width = segments[0].rows.shape[1]
    ranges = 1 + sum(map(len, segments)) // BLOCK

    def chunks() -> Iterator[Chunk]:
        return (_merged(segments, part, ranges) for part in range(ranges))

    count = sum(len(keys) for keys, _ in chunks())
    sample = [text for segment in segments for text in segment.sample]
    path = write_segment(folder, count, width, chunks(), sample) if count else None
    for segment in segments:
        if segment.path != path:
            with suppress(FileNotFoundError):
                segment.path.unlink()
    return path


def _merged(segments: Sequence[Segment], part: int, ranges: int) -> Chunk:
    """Good rows of one of the equal ranges of keys, ascending, each key once."""
    first = np.uint64((part << 64) // ranges)
    last = np.uint64((((part + 1) << 64) // ranges) - 1)
    keys, rows = [], []
    for segment in segments:
        places = slice(np.searchsorted(segment.high, first), np.searchsorted(segment.high, last, side="right"))
        its_keys = np.stack([segment.high[places], segment.low[places]], axis=1)
        its_rows = segment.rows[places]
        good = checksums(its_keys, its_rows) == segment.checks[places]
        keys.append(its_keys[good])
        rows.append(its_rows[good])
    all_keys, all_rows = np.concatenate(keys), np.concatenate(rows)
    order = np.lexsort((all_keys[:, 1], all_keys[:, 0]))  # stable: of equal keys the first segment's comes first
    all_keys = all_keys[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (all_keys[1:] != all_keys[:-1]).any(1)
    return all_keys[new], all_rows[order[new]]
