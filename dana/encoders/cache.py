"""Cache the vectors of any encoder on disk by hash of text, so that only new texts are encoded.

``FOLDER/<fingerprint of encoder and rounding>/`` holds ``meta.json``, which names the encoder, and
one SQLite file a process, to which only that process adds, with a table of keys (digests of texts),
rows (packed vectors) and checks (CRC-32 of key and row). All files that are there when the cache is
opened are read; a text that two processes encode at the same time is stored by both. New rows are
written at the end of each call; a killed process loses at most those of one. A file or a row that
is damaged counts as missing.

Vectors are rounded before they are returned, so a text has the same bits whether it was encoded or
read. They are stored without geometry, which is fitted later on each pool.
"""

import os
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zlib import crc32

import numpy as np

from dana.core.artifacts import fingerprint, write_json
from dana.core.config import require
from dana.core.errors import ArtifactError, DataError
from dana.core.files import text_digest
from dana.core.logging import get_logger
from dana.core.registry import ENCODERS
from dana.encoders.base import Encoder, encoder_identity

if TYPE_CHECKING:
    import torch
    from torch import Tensor

log = get_logger(__name__)

DTYPES = ("float16", "int8")
SCALE = 4  # bytes of the float32 scale at the end of an int8 row
META = "meta.json"
PATTERN = "vectors-*.sqlite"
TABLE = """
PRAGMA synchronous = OFF;  -- a kill is safe, and the checks find what a power cut leaves
CREATE TABLE IF NOT EXISTS vectors \
(key BLOB PRIMARY KEY, vector BLOB NOT NULL, crc INTEGER NOT NULL);
"""
KEYS_AT_ONCE = 500  # of a query
PATIENCE = 60.0  # seconds to wait for a process that is writing a file
MAKING = threading.Lock()  # of folders: threads of a process write under one temporary name


@dataclass(frozen=True)
class StoredEncoder:
    """An encoder behind a cache, which encodes only missing texts.

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
        return VectorFolder(Path(self.folder or "") / fingerprint(self.identity()), meta)

    @cached_property
    def _device(self) -> "torch.device":
        """Device on which the encoder itself would return its vectors."""
        from dana.core.device import find_device

        return find_device(getattr(self.encoder, "device", None) or "cpu")

    def encode(self, texts: Sequence[str]) -> "Tensor":
        """Encode texts as :meth:`dana.encoders.base.Encoder.encode` does.

        A repeated text is encoded once.

        Raises:
            DataError: If a vector is not finite in the cache's dtype.
            ArtifactError: If the cache cannot be written to.
        """
        if not texts:
            return self.encoder.encode(texts)
        if self.folder is None:
            rows = pack_vectors(self.encoder.encode(texts), self.dtype)
            return unpack_vectors(rows, self.dtype).to(self._device)
        keys = [text_digest(text) for text in texts]
        stored = self.vectors.find(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in stored}
        if missing:
            self.vectors.make_folder()  # it fails before hours of encoding
            rows = pack_vectors(self.encoder.encode(list(missing.values())), self.dtype)
            new = {key: row.tobytes() for key, row in zip(missing, rows, strict=True)}
            self.vectors.add(new)
            stored |= new
        joined = np.frombuffer(b"".join([stored[key] for key in keys]), dtype=np.uint8)
        return unpack_vectors(joined.reshape(len(keys), -1), self.dtype).to(self._device)


def create_encoder(spec: str, store: str | None = None, dtype: str = "float16") -> Encoder:
    """Create the encoder of a spec.

    Args:
        spec: The spec.
        store: Folder of a cache. None returns the encoder itself; an empty name puts it behind a
            cache that only rounds.
        dtype: Precision of the cache.
    """
    encoder: Encoder = ENCODERS.create(spec)
    if store is None:
        return encoder
    folder = Path(store) if store else None
    return StoredEncoder(encoder, folder, dtype)


def pack_vectors(vectors: "Tensor", dtype: str) -> np.ndarray:
    """Round vectors and pack each into a row of bytes, little-endian.

    float16 rounds to 11 significant bits. int8 scales by the row's largest absolute value over 127,
    so no value moves by more than 1/254 of the largest.

    Args:
        vectors: Shape (texts, dims).
        dtype: One of :data:`DTYPES`.

    Returns:
        uint8 of shape (texts, bytes).

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
    divisors = np.where(scales > 0, scales, 1)
    numbers = np.rint(exact / divisors).clip(-127, 127).astype(np.int8)
    return np.concatenate([numbers.view(np.uint8), payload.view(np.uint8)], axis=1)


def unpack_vectors(rows: np.ndarray, dtype: str) -> "Tensor":
    """Unpack the rows of :func:`pack_vectors` into vectors, float32 of shape (rows, dims)."""
    import torch

    rows = np.ascontiguousarray(rows)
    if dtype == "float16":
        return torch.from_numpy(rows.view("<f2").astype(np.float32))
    scales = np.ascontiguousarray(rows[:, -SCALE:]).view("<f4").astype(np.float32)
    return torch.from_numpy(rows[:, :-SCALE].view(np.int8) * scales)


class VectorFolder:
    """The packed vectors of one encoder: a SQLite file a process.

    Args:
        folder: Folder, made when rows are added.
        meta: Content of ``meta.json``.
    """

    def __init__(self, folder: Path, meta: Mapping[str, Any]) -> None:
        self.folder = folder
        self._meta = dict(meta)
        self._lock = threading.Lock()
        self._own = folder / f"vectors-{os.getpid()}-{uuid4().hex[:12]}.sqlite"
        self._databases: dict[Path, sqlite3.Connection] = {}
        self._warned: set[Path] = set()
        for path in sorted(folder.glob(PATTERN)):
            try:
                self._databases[path] = _connect(path)
            except sqlite3.Error as error:
                self._warn(path, str(error))

    def find(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Look up keys in every file; return the rows that are stored."""
        rows: dict[bytes, bytes] = {}
        with self._lock:
            for path in list(self._databases):
                missing = [key for key in dict.fromkeys(keys) if key not in rows]
                for first in range(0, len(missing), KEYS_AT_ONCE):
                    rows |= self._select(path, missing[first : first + KEYS_AT_ONCE])
            return rows

    def _select(self, path: Path, keys: list[bytes]) -> dict[bytes, bytes]:
        """Read the rows of keys from a file. One that cannot be read is not asked again."""
        if path not in self._databases:
            return {}
        marks = ", ".join("?" * len(keys))
        query = f"SELECT key, vector, crc FROM vectors WHERE key IN ({marks})"
        try:
            found = self._databases[path].execute(query, keys).fetchall()
        except sqlite3.Error as error:
            self._warn(path, str(error))
            del self._databases[path]
            return {}
        good = {key: row for key, row, crc in found if _is_row(key, row, crc)}
        if len(good) < len(found):
            self._warn(path, f"{len(found) - len(good)} rows fail their checksum")
        return good

    def add(self, rows: Mapping[bytes, bytes]) -> None:
        """Write packed rows under the keys of their texts to this process's file.

        Raises:
            ArtifactError: If the folder cannot be written to.
        """
        self.make_folder()
        records = [(key, row, checksum(key, row)) for key, row in rows.items()]
        with self._lock:
            try:
                # The file is new, could not be read, or was removed with the cache.
                if self._own not in self._databases or not self._own.is_file():
                    _make_database(self._own)
                    self._databases[self._own] = _connect(self._own)
                    self._databases[self._own].executescript(TABLE)
                with self._databases[self._own] as database:
                    database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", records)
            except (sqlite3.Error, OSError) as error:
                raise self._write_error(str(error)) from error

    def make_folder(self) -> None:
        """Make the folder with its ``meta.json``.

        Raises:
            ArtifactError: If it cannot be made.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with MAKING:
                if not (self.folder / META).exists():
                    write_json(self.folder / META, self._meta)
        except OSError as error:
            raise self._write_error(error.strerror or str(error)) from error

    def _warn(self, path: Path, problem: str) -> None:
        """Warn of a damaged file, once."""
        if path not in self._warned:
            self._warned.add(path)
            log.warning("%s: %s; its texts are encoded again. Remove the file", path, problem)

    def _write_error(self, reason: str) -> ArtifactError:
        return ArtifactError(f"{self.folder}: cannot write the cache of embeddings: {reason}")


def _connect(path: Path) -> sqlite3.Connection:
    """Open a file of rows. Any thread may call it, because it holds the lock of the folder then."""
    return sqlite3.connect(path, timeout=PATIENCE, check_same_thread=False)


def _make_database(path: Path) -> None:
    """Make a file of rows, without any, if there is none.

    It gets its name when it has its table: other processes would take it for damaged before.
    """
    if path.is_file():
        return
    draft = path.with_suffix(".tmp")
    with closing(_connect(draft)) as database:
        database.executescript(TABLE)
    draft.replace(path)


def checksum(key: bytes, row: bytes) -> int:
    """Compute the CRC-32 of a key and its row."""
    return crc32(row, crc32(key))


def _is_row(key: Any, row: Any, crc: Any) -> bool:
    """Return whether a stored row is whole; types may differ where a file is damaged."""
    return isinstance(key, bytes) and isinstance(row, bytes) and checksum(key, row) == crc
