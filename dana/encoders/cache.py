"""Embedding cache around any encoder: vectors on disk by hash of text, rounded; only texts that are new are encoded.

``FOLDER/<fingerprint of encoder and rounding>/`` holds ``meta.json`` and ``vectors-<digest>.safetensors``: immutable
files of ``high`` and ``low`` (uint64, the halves of a text's digest, sorted by the first), ``checks`` (uint32, CRC-32
of each row, begun with its key) and ``rows`` (uint8, the packed vectors, end to end), memory-mapped. New rows are held
in memory and written every :data:`FLUSH` rows and at the end; a killed process loses at most those. A file gets its
name when it is whole and on the disk, so that any number of processes add at the same time without locks; a text that
two of them encoded is kept twice until a merge. :data:`FAN_IN` files of similar size become one, so there are O(log
rows) of them. A row whose checksum fails counts as missing, and the next merge drops it.

Vectors are rounded before they are returned, so a text has the same bits whether it was just encoded or read. The
geometry is not applied to them: it is fitted later, on each corpus.
"""

import shutil
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from dana.core.artifacts import fingerprint, read_json, write_json
from dana.core.config import require
from dana.core.errors import ArtifactError, DataError
from dana.core.files import file_digest, sync, text_digest
from dana.core.logging import get_logger
from dana.core.registry import ENCODERS
from dana.core.tensors import ArrayWriter, map_arrays
from dana.encoders.base import Encoder, encoder_identity

if TYPE_CHECKING:
    import torch
    from torch import Tensor

log = get_logger(__name__)

DTYPES = ("float16", "int8")
SCALE = 4  # bytes of an int8 row's float32 scale, behind its numbers
META = "meta.json"
PATTERN = "vectors-*.safetensors"
COLUMNS = {"high": "uint64", "low": "uint64", "checks": "uint32", "rows": "uint8"}
FLUSH = 1 << 16  # rows that wait in memory
FAN_IN = 8  # files of like size that are merged
BLOCK = 1 << 17  # rows that a merge holds at once
UNFINISHED = ".new-"  # how the folder of a file being written begins
STALE = 86400.0  # seconds after which such a folder is taken for that of a dead process

Columns = tuple[np.ndarray, ...]  # high, low, checks, rows of shape (rows, bytes)


@dataclass(frozen=True)
class StoredEncoder:
    """An encoder that encodes only what its cache lacks. Close it, or let it go, to write what is new.

    Attributes:
        encoder: Whose vectors these are.
        folder: The cache; several encoders share one. None keeps nothing, but rounds alike: the same bits and identity.
        dtype: ``float16`` or ``int8``: how vectors are rounded.
    """

    encoder: Encoder
    folder: Path | None
    dtype: str = "float16"

    def __post_init__(self) -> None:
        require(self.dtype in DTYPES, "dtype", self.dtype, f"one of {', '.join(DTYPES)}")

    def identity(self) -> dict[str, Any]:
        """The encoder's, and how its vectors are rounded; not where they are kept."""
        return {**encoder_identity(self.encoder), "stored": self.dtype}

    @cached_property
    def vectors(self) -> "VectorFolder":
        """This encoder's part of the cache."""
        about = {"encoder": encoder_identity(self.encoder), "dtype": self.dtype}
        vectors = VectorFolder(Path(self.folder or "") / fingerprint(self.identity()), about)
        weakref.finalize(self, _flush_last, vectors)  # also when the interpreter ends
        return vectors

    @cached_property
    def _device(self) -> "torch.device":
        """Where the encoder itself would have left its vectors."""
        from dana.core.device import find_device

        return find_device(getattr(self.encoder, "device", "cpu"))

    def encode(self, texts: Sequence[str]) -> "Tensor":
        """See :class:`dana.encoders.base.Encoder`. A text that comes twice is encoded once.

        Raises:
            DataError: If a vector is not finite in the cache's dtype.
            ArtifactError: If the cache cannot be written to.
        """
        if not texts:
            return self.encoder.encode(texts)
        if self.folder is None:
            return unpack_vectors(pack_vectors(self.encoder.encode(texts), self.dtype), self.dtype).to(self._device)
        keys = [text_digest(text) for text in texts]
        distinct = dict(zip(keys, texts, strict=True))
        places = {key: place for place, key in enumerate(distinct)}
        rows, known = self.vectors.find(list(distinct))
        if not known.all():
            missing = {key: distinct[key] for key, here in zip(distinct, known.tolist(), strict=True) if not here}
            with _kept(self.vectors.folder):  # a place that takes no file is noticed before hours of encoding
                pass
            fresh = pack_vectors(self.encoder.encode(list(missing.values())), self.dtype)
            self.vectors.add(list(missing), fresh)
            if known.any():
                rows[~known] = fresh
            else:
                rows = fresh
        return unpack_vectors(rows, self.dtype)[[places[key] for key in keys]].to(self._device)

    def close(self) -> None:
        """Write the rows that are in memory only; encoding may continue."""
        self.vectors.flush()


def create_encoder(spec: str, store: str | None = None, dtype: str = "float16") -> Encoder:
    """The encoder of a spec, behind a cache where a folder is given; an empty name keeps nothing, but rounds."""
    encoder = ENCODERS.create(spec)
    return encoder if store is None else StoredEncoder(encoder, Path(store) if store else None, dtype)


def pack_vectors(vectors: "Tensor", dtype: str) -> np.ndarray:
    """Round to a packed row a vector, uint8 of shape (texts, bytes), little-endian.

    float16 rounds to 11 significant bits. int8 divides by the row's largest absolute number over 127, so no number
    moves by more than 1/254 of the largest.

    Args:
        vectors: Shape (texts, dims).
        dtype: One of :data:`DTYPES`.

    Raises:
        DataError: If a vector is not finite, or too large for the dtype.
    """
    exact = vectors.detach().cpu().float().contiguous().numpy()
    with np.errstate(over="ignore"):  # what overflows is refused below
        scales = np.abs(exact).max(1, initial=0, keepdims=True) / np.float32(127)
        kept = exact.astype("<f2") if dtype == "float16" else scales.astype("<f4")
    finite = np.isfinite(exact).all(1) & np.isfinite(kept).all(1)
    if not finite.all():
        raise DataError(f"vector {int(finite.argmin())} of the batch is not finite in {dtype}")
    if dtype == "float16":
        return kept.view(np.uint8)
    numbers = np.rint(exact / np.where(scales > 0, scales, 1)).clip(-127, 127).astype(np.int8)
    return np.concatenate([numbers.view(np.uint8), kept.view(np.uint8)], axis=1)


def unpack_vectors(rows: np.ndarray, dtype: str) -> "Tensor":
    """The vectors that :func:`pack_vectors` rounded to: float32 of shape (rows, dims)."""
    import torch

    rows = np.ascontiguousarray(rows)
    if dtype == "float16":
        return torch.from_numpy(rows.view("<f2").astype(np.float32))
    scales = np.ascontiguousarray(rows[:, -SCALE:]).view("<f4").astype(np.float32)
    return torch.from_numpy(rows[:, :-SCALE].view(np.int8) * scales)


def read_meta(folder: Path) -> dict[str, Any]:
    """Content of ``meta.json``: the encoder's identity, and the dtype.

    Raises:
        ArtifactError: If it is not there or is not what a cache writes.
    """
    about = read_json(folder / META)
    if not isinstance(about, dict) or about.get("dtype") not in DTYPES or "encoder" not in about:
        raise ArtifactError(f"{folder / META}: not the {META} of an embedding cache; remove {folder} to go on")
    return about


@contextmanager
def _kept(folder: Path) -> Iterator[None]:
    """Make a folder; an OSError inside becomes an ArtifactError that names it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise ArtifactError(f"{folder}: cannot keep vectors here: {error.strerror}") from error


def _flush_last(vectors: "VectorFolder") -> None:
    """Write the rows in memory when the encoder is collected; a failure is a warning, because this is a cache."""
    try:
        vectors.flush()
    except ArtifactError as error:
        log.warning("%s; what was encoded last will be encoded again", error)


class VectorFolder:
    """One encoder's vectors: memory-mapped files in a folder, and rows in memory that are not written yet.

    Args:
        folder: Made when something is added.
        about: What ``meta.json`` says.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.folder = folder
        self._about = dict(about)
        self._width = 0  # bytes of a row; 0 before the first
        self._files: dict[Path, Columns] = {}
        self._waiting: dict[bytes, bytes] = {}
        self._warned: set[Path] = set()
        self._lock = threading.RLock()

    def find(self, keys: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Look keys up, in memory first, then on disk. O(keys · log rows).

        Args:
            keys: Distinct, 16 bytes each.

        Returns:
            Packed rows, uint8 of shape (keys, bytes), and whether each is known; other rows are undefined.
        """
        with self._lock:
            self._refresh()
            rows = np.empty((len(keys), self._width), dtype=np.uint8)
            known = np.zeros(len(keys), dtype=bool)
            for place, key in enumerate(keys if self._waiting else ()):
                if (row := self._waiting.get(key)) is not None:
                    rows[place], known[place] = np.frombuffer(row, dtype=np.uint8), True
            wanted_high, wanted_low = _halves(keys)
            order = np.argsort(wanted_high)  # ascending, so that the disk is read in one direction
            for path, (high, low, checks, packed) in self._files.items():
                unknown = order[~known[order]]
                places = np.searchsorted(high, wanted_high[unknown]).clip(max=len(high) - 1)
                here = (high[places] == wanted_high[unknown]) & (low[places] == wanted_low[unknown])
                unknown, places = unknown[here], places[here]
                stored = packed[places]
                good = checksums(high[places], low[places], stored) == checks[places]
                rows[unknown[good]], known[unknown[good]] = stored[good], True
                if not good.all():
                    self._warn(path, f"{path}: {int((~good).sum())} rows fail their checksum")
            return rows, known

    def add(self, keys: Sequence[bytes], rows: np.ndarray) -> None:
        """Keep packed rows under the keys of their texts."""
        with self._lock:
            self._width = rows.shape[1]
            self._waiting.update(zip(keys, (row.tobytes() for row in rows), strict=True))
            if len(self._waiting) >= FLUSH:
                self.flush()

    def flush(self) -> None:
        """Write the rows in memory, and merge files of one size class, powers of eight, once there are :data:`FAN_IN`.

        Raises:
            ArtifactError: If the folder cannot be written to.
        """
        with self._lock:
            if not self._waiting:
                return
            with _kept(self.folder):
                if not (self.folder / META).exists():
                    write_json(self.folder / META, self._about)
                high, low = _halves(list(self._waiting))
                rows = np.frombuffer(b"".join(self._waiting.values()), dtype=np.uint8).reshape(len(high), -1)
                first = np.unique(high, return_index=True)[1]  # sorted; who shares a first half is encoded again
                high, low, rows = high[first], low[first], rows[first]
                self._write([(high, low, checksums(high, low, rows), rows)])
                self._waiting.clear()
                self._refresh()
                classes: dict[int, list[Path]] = {}
                for path, (high, *_) in self._files.items():
                    classes.setdefault(len(high).bit_length() // 3, []).append(path)
                for alike in classes.values():
                    if len(alike) >= FAN_IN:
                        self.merge(alike)

    def merge(self, paths: Sequence[Path]) -> None:
        """Make one file of several: of rows with one key the first whose checksum holds. Memory is :data:`BLOCK` rows.

        Keys are hashes, so equal ranges of them hold about equally many rows.
        """
        files = [self._files[path] for path in paths]
        ranges = 1 + sum(len(high) for high, *_ in files) // BLOCK
        edges = np.array([(part << 64) // ranges for part in range(1, ranges)], dtype=np.uint64)
        cuts = [[0, *np.searchsorted(high, edges).tolist(), len(high)] for high, *_ in files]

        def chunks() -> Iterator[Columns]:
            for part in range(ranges):
                pieces = [
                    [column[cut[part] : cut[part + 1]] for column in file]
                    for file, cut in zip(files, cuts, strict=True)
                ]
                high, low, checks, rows = (np.concatenate(column) for column in zip(*pieces, strict=True))
                good = checksums(high, low, rows) == checks
                first = np.unique(high[good], return_index=True)[1]
                yield tuple(column[good][first] for column in (high, low, checks, rows))

        merged = self._write(chunks())
        for path in paths:
            if path != merged:
                path.unlink(missing_ok=True)

    def _write(self, chunks: Iterable[Columns]) -> Path | None:
        """A file of columns, ascending over all chunks, whole or not at all; None if there is no row."""
        for leftover in self.folder.glob(f"{UNFINISHED}*"):
            if time.time() - leftover.stat().st_mtime > STALE:
                shutil.rmtree(leftover, ignore_errors=True)
        with TemporaryDirectory(prefix=UNFINISHED, dir=self.folder) as draft:
            file, count = Path(draft) / "vectors", 0
            writer = ArrayWriter(file, COLUMNS)
            for columns in chunks:
                writer.append(**dict(zip(COLUMNS, columns, strict=True)))
                count += len(columns[0])
            writer.close()
            final = self.folder / PATTERN.replace("*", file_digest(file))
            if count:
                file.replace(final)
        sync(self.folder)
        return final if count else None

    def _refresh(self) -> None:
        """Open new files, forget merged ones."""
        paths = sorted(self.folder.glob(PATTERN))
        self._files = {path: columns for path, columns in self._files.items() if path in paths}
        for path in paths:
            if path in self._files or path in self._warned:
                continue
            try:
                arrays = map_arrays(path)
                if {name: array.dtype.name for name, array in arrays.items()} != COLUMNS:
                    raise ArtifactError(f"{path}: has other columns than {', '.join(COLUMNS)}")
                high, low, checks, rows = (arrays[name] for name in COLUMNS)
                rows = rows.reshape(len(high), -1)
                self._width = self._width or rows.shape[1]
                if not len(high) == len(low) == len(checks) or rows.shape[1] != self._width:
                    raise ArtifactError(f"{path}: {len(high)} rows of {rows.shape[1]} bytes are not this encoder's")
                self._files[path] = high, low, checks, rows
            except (ArtifactError, ValueError) as error:
                if path.exists():  # else another process has merged it since it was listed
                    self._warn(path, str(error))

    def _warn(self, path: Path, problem: str) -> None:
        """Once a file."""
        if path not in self._warned:
            self._warned.add(path)
            log.warning("%s; ignored, its texts are encoded again. Remove the file, or look: dana verify", problem)


def checksums(high: np.ndarray, low: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """uint32 of shape (rows,): CRC-32 of each row, begun with its key, so that a row under another's key fails."""
    parts = np.ascontiguousarray(rows).view(f"V{rows.shape[1]}").ravel().tolist()
    begun = ((high ^ low) & np.uint64(0xFFFFFFFF)).tolist()
    return np.fromiter(map(crc32, parts, begun), np.uint32, len(parts))


def _halves(keys: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """First and second half of each key, uint64."""
    halves = np.frombuffer(b"".join(keys), dtype=">u8").reshape(-1, 2).astype(np.uint64)
    return halves[:, 0].copy(), halves[:, 1].copy()
