"""Cache the vectors of any encoder on disk by hash of text, rounded, so that only new texts are encoded.

``FOLDER/<fingerprint of encoder and rounding>/`` holds ``meta.json`` and
``vectors-<digest>.safetensors``: immutable files of ``high`` and ``low`` (uint64, the halves of a
text's digest, sorted by the first), ``checks`` (uint32, CRC-32 of each row, seeded with its key)
and ``rows`` (uint8, the packed vectors, end to end), memory-mapped. New rows wait in memory and are
written every :data:`FLUSH` rows and at the end; a killed process loses at most those. A file gets
its name once it is complete and on disk, so that any number of processes can add files at the same
time without locks; a text that two of them encode is stored twice until a merge. :data:`FAN_IN`
files of similar size are merged into one, so there are O(log rows) files. A row whose checksum
fails counts as missing, and the next merge drops it.

Vectors are rounded before they are returned, so a text has the same bits whether it was encoded or
read. They are stored without geometry, which is fitted later on each corpus.
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
SCALE = 4  # bytes of the float32 scale at the end of an int8 row
META = "meta.json"
PATTERN = "vectors-*.safetensors"
COLUMNS = {"high": "uint64", "low": "uint64", "checks": "uint32", "rows": "uint8"}
FLUSH = 1 << 16  # rows that wait in memory
FAN_IN = 8  # files of similar size that are merged into one
BLOCK = 1 << 17  # rows in memory during a merge
UNFINISHED = ".new-"  # prefix of the folder in which a file is written
STALE = 86400.0  # age in seconds at which such a folder is deleted as left by a dead process

Columns = tuple[np.ndarray, ...]  # high, low, checks, rows of shape (rows, bytes)

_OPEN: "weakref.WeakSet[VectorFolder]" = weakref.WeakSet()


@dataclass(frozen=True)
class StoredEncoder:
    """An encoder behind a cache: only texts that are missing are encoded. New rows are written when it is closed.

    Attributes:
        encoder: The encoder.
        folder: Folder of the cache, which encoders may share. None stores nothing but rounds: same
            bits and identity.
        dtype: Precision that vectors are rounded to, ``float16`` or ``int8``.
    """

    encoder: Encoder
    folder: Path | None
    dtype: str = "float16"

    def __post_init__(self) -> None:
        require(self.dtype in DTYPES, "dtype", self.dtype, f"one of {', '.join(DTYPES)}")

    def identity(self) -> dict[str, Any]:
        return {**encoder_identity(self.encoder), "stored": self.dtype}

    @cached_property
    def vectors(self) -> "VectorFolder":
        """This encoder's part of the cache."""
        meta = {"encoder": encoder_identity(self.encoder), "dtype": self.dtype}
        vectors = VectorFolder(Path(self.folder or "") / fingerprint(self.identity()), meta)
        weakref.finalize(self, _flush_last, vectors)  # also when the interpreter ends
        _OPEN.add(vectors)
        return vectors

    @cached_property
    def _device(self) -> "torch.device":
        """Device on which the encoder itself would return its vectors."""
        from dana.core.device import find_device

        return find_device(getattr(self.encoder, "device", "cpu"))

    def encode(self, texts: Sequence[str]) -> "Tensor":
        """Encode texts as :meth:`dana.encoders.base.Encoder.encode`; a repeated text is encoded once.

        Raises:
            DataError: If a vector is not finite in the cache's dtype.
            ArtifactError: If the cache cannot be written to.
        """
        if not texts:
            return self.encoder.encode(texts)
        if self.folder is None:
            return unpack_vectors(
                pack_vectors(self.encoder.encode(texts), self.dtype), self.dtype
            ).to(self._device)
        keys = [text_digest(text) for text in texts]
        distinct = dict(zip(keys, texts, strict=True))
        positions = {key: row for row, key in enumerate(distinct)}
        rows, is_stored = self.vectors.find(list(distinct))
        if not is_stored.all():
            missing = {
                key: distinct[key]
                for key, hit in zip(distinct, is_stored.tolist(), strict=True)
                if not hit
            }
            with _writing(
                self.vectors.folder
            ):  # fails before hours of encoding if the folder cannot be made
                pass
            fresh = pack_vectors(self.encoder.encode(list(missing.values())), self.dtype)
            self.vectors.add(list(missing), fresh)
            if is_stored.any():
                rows[~is_stored] = fresh
            else:
                rows = fresh
        return unpack_vectors(rows, self.dtype)[[positions[key] for key in keys]].to(self._device)

    def close(self) -> None:
        """Write the rows that are in memory only; encoding may continue."""
        self.vectors.flush()


def create_encoder(spec: str, store: str | None = None, dtype: str = "float16") -> Encoder:
    """Create the encoder of a spec, behind a cache if `store` names a folder; an empty name only rounds."""
    encoder = ENCODERS.create(spec)
    return (
        encoder if store is None else StoredEncoder(encoder, Path(store) if store else None, dtype)
    )


def pack_vectors(vectors: "Tensor", dtype: str) -> np.ndarray:
    """Round vectors and pack each into a row of bytes, uint8 of shape (texts, bytes), little-endian.

    float16 rounds to 11 significant bits. int8 scales by the row's largest absolute value over 127,
    so no value moves by more than 1/254 of the largest.

    Args:
        vectors: Shape (texts, dims).
        dtype: One of :data:`DTYPES`.

    Raises:
        DataError: If a vector is not finite, or too large for the dtype.
    """
    exact = vectors.detach().cpu().float().contiguous().numpy()
    with np.errstate(over="ignore"):  # overflow is refused below
        scales = np.abs(exact).max(1, initial=0, keepdims=True) / np.float32(127)
        payload = exact.astype("<f2") if dtype == "float16" else scales.astype("<f4")
    finite = np.isfinite(exact).all(1) & np.isfinite(payload).all(1)
    if not finite.all():
        raise DataError(f"vector {int(finite.argmin())} of the batch is not finite in {dtype}")
    if dtype == "float16":
        return payload.view(np.uint8)
    numbers = np.rint(exact / np.where(scales > 0, scales, 1)).clip(-127, 127).astype(np.int8)
    return np.concatenate([numbers.view(np.uint8), payload.view(np.uint8)], axis=1)


def unpack_vectors(rows: np.ndarray, dtype: str) -> "Tensor":
    """Unpack the rows of :func:`pack_vectors` into vectors, float32 of shape (rows, dims)."""
    import torch

    rows = np.ascontiguousarray(rows)
    if dtype == "float16":
        return torch.from_numpy(rows.view("<f2").astype(np.float32))
    scales = np.ascontiguousarray(rows[:, -SCALE:]).view("<f4").astype(np.float32)
    return torch.from_numpy(rows[:, :-SCALE].view(np.int8) * scales)


def read_meta(folder: Path) -> dict[str, Any]:
    """Read ``meta.json``: the encoder's identity and the dtype, whose fingerprint is the folder's name.

    Raises:
        ArtifactError: If the file is missing, changed or not of a cache.
    """
    meta = read_json(folder / META)
    encoder, dtype = (
        (meta.get("encoder"), meta.get("dtype")) if isinstance(meta, dict) else (None, None)
    )
    if not isinstance(encoder, dict) or fingerprint({**encoder, "stored": dtype}) != folder.name:
        raise ArtifactError(
            f"{folder / META}: not the {META} of a cache of embeddings; remove {folder}, run it again"
        )
    return meta


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Make a folder, and turn an OSError inside into an ArtifactError that names it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise ArtifactError(
            f"{folder}: cannot write the cache of embeddings: {error.strerror}"
        ) from error


def flush_all() -> None:
    """Write the rows that all caches of this process hold in memory only, before what depends on them is committed."""
    for vectors in list(_OPEN):
        vectors.flush()


def _flush_last(vectors: "VectorFolder") -> None:
    """Write the rows in memory when the encoder is garbage collected; a failure is a warning, as this is a cache."""
    try:
        vectors.flush()
    except ArtifactError as error:
        log.warning("%s; the last texts will be encoded again", error)


class VectorFolder:
    """The vectors of one encoder: memory-mapped files in a folder, and rows in memory that are not written yet.

    Args:
        folder: Folder, made when rows are added.
        meta: Content of ``meta.json``.
    """

    def __init__(self, folder: Path, meta: Mapping[str, Any]) -> None:
        self.folder = folder
        self._meta = dict(meta)
        self._width = 0  # bytes of a row; 0 before the first
        self._files: dict[Path, Columns] = {}
        self._waiting: dict[bytes, bytes] = {}
        self._warned: set[Path] = set()
        self._lock = threading.RLock()

    def find(self, keys: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Look up keys, in memory first, then on disk. O(keys · log rows).

        Args:
            keys: Distinct keys of 16 bytes.

        Returns:
            Packed rows, uint8 of shape (keys, bytes), and a mask of those that are stored; the
            others are undefined.
        """
        with self._lock:
            self._refresh()
            rows = np.empty((len(keys), self._width), dtype=np.uint8)
            is_stored = np.zeros(len(keys), dtype=bool)
            for number, key in enumerate(keys if self._waiting else ()):
                if (row := self._waiting.get(key)) is not None:
                    rows[number], is_stored[number] = np.frombuffer(row, dtype=np.uint8), True
            key_high, key_low = _halves(keys)
            order = np.argsort(key_high)  # ascending, so that the disk is read in one direction
            for path, (high, low, checks, vectors) in self._files.items():
                missing = order[~is_stored[order]]
                positions = np.searchsorted(high, key_high[missing]).clip(max=len(high) - 1)
                hits = (high[positions] == key_high[missing]) & (low[positions] == key_low[missing])
                missing, positions = missing[hits], positions[hits]
                candidates = vectors[positions]
                good = checksums(high[positions], low[positions], candidates) == checks[positions]
                rows[missing[good]], is_stored[missing[good]] = candidates[good], True
                if not good.all():
                    self._warn(path, f"{path}: {int((~good).sum())} rows fail their checksum")
            return rows, is_stored

    def add(self, keys: Sequence[bytes], rows: np.ndarray) -> None:
        """Store packed rows under the keys of their texts."""
        with self._lock:
            self._width = rows.shape[1]
            self._waiting.update(zip(keys, (row.tobytes() for row in rows), strict=True))
            if len(self._waiting) >= FLUSH:
                self.flush()

    def flush(self) -> None:
        """Write the rows in memory, then merge files of one size class (a power of 8) once there are :data:`FAN_IN`.

        Raises:
            ArtifactError: If the folder cannot be written to.
        """
        with self._lock:
            if not self._waiting:
                return
            with _writing(self.folder):
                if not (self.folder / META).exists():
                    write_json(self.folder / META, self._meta)
                high, low = _halves(list(self._waiting))
                rows = np.frombuffer(b"".join(self._waiting.values()), dtype=np.uint8).reshape(
                    len(high), -1
                )
                # Sorted; texts with an equal first half are encoded again.
                first = np.unique(high, return_index=True)[1]
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
        """Merge files into one. Of rows with one key, the first with a valid checksum is used.

        Keys are hashes, so equal ranges of keys have about equally many rows: memory is some
        :data:`BLOCK` rows.
        """
        files = [self._files[path] for path in paths]
        ranges = 1 + sum(len(high) for high, *_ in files) // BLOCK
        edges = np.array([(part << 64) // ranges for part in range(1, ranges)], dtype=np.uint64)
        cuts = [[0, *np.searchsorted(high, edges).tolist(), len(high)] for high, *_ in files]

        def chunks() -> Iterator[Columns]:
            for part in range(ranges):
                bounds = [slice(*cut[part : part + 2]) for cut in cuts]
                pieces = [
                    [column[rows] for column in file]
                    for file, rows in zip(files, bounds, strict=True)
                ]
                high, low, checks, rows = (
                    np.concatenate(column) for column in zip(*pieces, strict=True)
                )
                good = checksums(high, low, rows) == checks
                first = np.unique(high[good], return_index=True)[1]
                yield tuple(column[good][first] for column in (high, low, checks, rows))

        result = self._write(chunks())
        for path in paths:
            if path != result:
                path.unlink(missing_ok=True)

    def _write(self, chunks: Iterable[Columns]) -> Path | None:
        """Write a file atomically from chunks of columns, ascending over all chunks; return None if there is no row."""
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
        """Open new files and forget merged ones."""
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
                    raise ArtifactError(
                        f"{path}: {len(high)} rows of {rows.shape[1]} bytes are not this encoder's"
                    )
                self._files[path] = high, low, checks, rows
            except (ArtifactError, ValueError) as error:
                if path.exists():  # else another process has merged it since it was listed
                    self._warn(path, str(error))

    def _warn(self, path: Path, problem: str) -> None:
        if path not in self._warned:
            self._warned.add(path)
            log.warning(
                "%s; ignored, its texts are encoded again. Remove it, or try dana files verify",
                problem,
            )


def checksums(high: np.ndarray, low: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Compute the CRC-32 of each row, seeded with its key so that it fails under another key; uint32."""
    parts = np.ascontiguousarray(rows).view(f"V{rows.shape[1]}").ravel().tolist()
    seeds = ((high ^ low) & np.uint64(0xFFFFFFFF)).tolist()
    return np.fromiter(map(crc32, parts, seeds), np.uint32, len(parts))


def _halves(keys: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Split each key into its first and second half, uint64."""
    halves = np.frombuffer(b"".join(keys), dtype=">u8").reshape(-1, 2).astype(np.uint64)
    return halves[:, 0].copy(), halves[:, 1].copy()
