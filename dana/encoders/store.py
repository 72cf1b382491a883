"""Embedding store around any encoder: vectors on disk by hash of text, rounded; only unknown texts are encoded.

On disk, ``FOLDER/<fingerprint of encoder and dtype>/`` holds ``meta.json`` and immutable segments
(:mod:`dana.encoders.segment`). New rows are held in memory and written as a segment every :data:`FLUSH` rows and at
the end; a killed process loses at most those. Processes append at the same time without locks: segments have different
names, and a text that two of them encoded is stored twice until a merge. :data:`FAN_IN` segments of similar size are
merged, so there are O(log rows) of them.

Vectors are rounded before they are returned, so a text has the same bits whether it was just encoded or read. The
geometry is not applied to them: it is fitted later, on each corpus.
"""

import json
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dana.core.artifacts import fingerprint, write_json
from dana.core.config import require
from dana.core.errors import ArtifactError
from dana.core.files import text_digest
from dana.core.logging import get_logger
from dana.core.registry import ENCODERS
from dana.encoders.base import Encoder, encoder_identity
from dana.encoders.rounding import DTYPES, pack_vectors, row_bytes, stored_identity, unpack_vectors
from dana.encoders.segment import MOST_SAMPLES, PATTERN, Segment, merge_segments, write_segment

if TYPE_CHECKING:
    import torch
    from torch import Tensor

log = get_logger(__name__)

FLUSH = 1 << 16  # rows that wait in memory
FAN_IN = 8  # segments of like size that are merged
META = "meta.json"
SAMPLE_CHARACTERS = 1000  # only texts no longer than this are kept for re-encoding


@dataclass(frozen=True)
class StoredEncoder:
    """An encoder that encodes only what its store lacks. Close it, or let it go, to write what is new.

    Attributes:
        encoder: Whose vectors these are.
        folder: The store; several encoders share one.
        dtype: ``float16`` or ``int8``: how vectors are rounded.
        spec: How the encoder was named, so that ``dana store verify`` can make it again.
    """

    encoder: Encoder
    folder: Path
    dtype: str = "float16"
    spec: str = ""

    def __post_init__(self) -> None:
        require(self.dtype in DTYPES, "dtype", self.dtype, f"one of {', '.join(DTYPES)}")

    def identity(self) -> dict[str, Any]:
        """The encoder's, and how its vectors are rounded; not where they are kept."""
        return stored_identity(encoder_identity(self.encoder), self.dtype)

    @cached_property
    def vectors(self) -> "VectorFolder":
        """This encoder's part of the store."""
        about = {"encoder": encoder_identity(self.encoder), "dtype": self.dtype, "spec": self.spec}
        vectors = VectorFolder(Path(self.folder) / fingerprint(self.identity()), about)
        weakref.finalize(self, _flush_last, vectors)  # also when the interpreter ends
        return vectors

    @cached_property
    def _device(self) -> "torch.device":
        """Where the encoder itself would have left its vectors."""
        from dana.core.device import device_named

        return device_named(getattr(self.encoder, "device", "cpu"))

    def encode(self, texts: Sequence[str]) -> "Tensor":
        """See :class:`dana.encoders.base.Encoder`. A text that comes twice is encoded once.

        Raises:
            DataError: If a vector is not finite in the store's dtype.
            ArtifactError: If the store cannot be written to.
        """
        if not texts:
            return self.encoder.encode(texts)
        keys = [text_digest(text) for text in texts]
        distinct = dict(zip(keys, texts, strict=True))
        places = {key: place for place, key in enumerate(distinct)}
        rows, known = self.vectors.find(list(distinct))
        if not known.all():
            missing = {key: distinct[key] for key, here in zip(distinct, known.tolist(), strict=True) if not here}
            with _kept(self.vectors.folder):  # a place that takes no file is noticed before hours of encoding
                pass
            vectors = self.encoder.encode(list(missing.values()))
            fresh = pack_vectors(vectors, self.dtype)
            self.vectors.add(missing, fresh, vectors.shape[1])
            if known.any():
                rows[~known] = fresh
            else:
                rows = fresh
        return unpack_vectors(rows, self.dtype)[[places[key] for key in keys]].to(self._device)

    def close(self) -> None:
        """Write the rows that are in memory only; encoding may continue."""
        self.vectors.flush()


def create_encoder(spec: str, store: str | None = None, dtype: str = "float16") -> Encoder:
    """The encoder of a spec, behind a store where a folder is given."""
    encoder = ENCODERS.create(spec)
    return StoredEncoder(encoder, Path(store), dtype, spec) if store else encoder


def read_meta(folder: Path) -> dict[str, Any]:
    """Content of ``meta.json``: encoder, dtype, spec, dims.

    Raises:
        ArtifactError: If it is not there or is not what a store writes.
    """
    path = folder / META
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
        row_bytes(int(meta["dims"]), meta["dtype"])
        stored_identity(meta["encoder"], meta["dtype"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{path}: not the {META} of a store: {error!r}; remove {folder} to go on") from error
    return meta


@contextmanager
def _kept(folder: Path) -> Iterator[None]:
    """Make a folder; an OSError inside becomes an ArtifactError that names it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise ArtifactError(f"{folder}: cannot keep a store here: {error.strerror}") from error


def _flush_last(vectors: "VectorFolder") -> None:
    """Write the rows in memory when the encoder is collected; a failure is a warning, because a store is a cache."""
    try:
        vectors.flush()
    except ArtifactError as error:
        log.warning("%s; what was encoded last will be encoded again", error)


class VectorFolder:
    """One encoder's vectors: memory-mapped segments in a folder, and rows in memory that are not written yet.

    Args:
        folder: Made when something is added.
        about: What ``meta.json`` says besides the dims.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.folder = folder
        self._about = dict(about)
        self._dims = 0  # 0 before the first row
        self._segments: dict[Path, Segment] = {}
        self._waiting: dict[bytes, bytes] = {}
        self._sample: list[str] = []
        self._warned: set[Path] = set()
        self._lock = threading.RLock()

    def find(self, keys: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Look keys up, in memory first, then on disk.

        Args:
            keys: Distinct, 16 bytes each.

        Returns:
            Packed rows, uint8 of shape (keys, width), and whether each is known; other rows are undefined.
        """
        with self._lock:
            if not self._dims and (self.folder / META).exists():
                self._dims = read_meta(self.folder)["dims"]
            rows = np.empty((len(keys), row_bytes(self._dims, self._about["dtype"])), dtype=np.uint8)
            known = np.zeros(len(keys), dtype=bool)
            for place, key in enumerate(keys if self._waiting else ()):
                if (row := self._waiting.get(key)) is not None:
                    rows[place], known[place] = np.frombuffer(row, dtype=np.uint8), True
            wanted = halves(keys)
            order = np.argsort(wanted[:, 0])  # ascending, so that the disk is read in one direction
            for segment in [*self._segments.values()]:
                self._fill(segment, wanted, order, rows, known)
            if not known.all() and self._dims:
                for segment in self._refresh():
                    self._fill(segment, wanted, order, rows, known)
            return rows, known

    def add(self, texts: Mapping[bytes, str], rows: np.ndarray, dims: int) -> None:
        """Keep packed rows, of vectors of some dims, under the keys of their texts."""
        with self._lock:
            self._dims = dims
            self._waiting.update(zip(texts, (row.tobytes() for row in rows), strict=True))
            room = MOST_SAMPLES - len(self._sample)
            short = (text for text in texts.values() if len(text) <= SAMPLE_CHARACTERS)
            self._sample.extend(text for text, _ in zip(short, range(room), strict=False))
            if len(self._waiting) >= FLUSH:
                self.flush()

    def flush(self) -> None:
        """Write the rows in memory as a segment, and merge segments of one size class.

        Raises:
            ArtifactError: If the folder cannot be written to.
        """
        with self._lock:
            if not self._waiting:
                return
            with _kept(self.folder):
                if not (self.folder / META).exists():
                    write_json(self.folder / META, {**self._about, "dims": self._dims})
            keys = sorted(self._waiting)
            width = row_bytes(self._dims, self._about["dtype"])
            rows = np.frombuffer(b"".join(self._waiting[key] for key in keys), dtype=np.uint8).reshape(-1, width)
            write_segment(self.folder, len(keys), width, [(halves(keys), rows)], self._sample)
            self._waiting.clear()
            self._sample.clear()
            self._merge_alike()

    def _merge_alike(self) -> None:
        """Merge the segments of one size class, powers of eight, once there are :data:`FAN_IN`."""
        self._refresh()
        classes: dict[int, list[Segment]] = {}
        for segment in self._segments.values():
            classes.setdefault(len(segment).bit_length() // 3, []).append(segment)
        for alike in classes.values():
            if len(alike) >= FAN_IN:
                merge_segments(self.folder, alike)
        self._refresh()

    def _refresh(self) -> list[Segment]:
        """Open new segments, forget merged ones; returns the new."""
        there = sorted(self.folder.glob(PATTERN))
        new = {}
        for path in there:
            if path in self._segments or path in self._warned:
                continue
            try:
                segment = Segment.open(path)
                if segment.rows.shape[1] != row_bytes(self._dims, self._about["dtype"]):
                    raise ArtifactError(f"{path}: rows of {segment.rows.shape[1]} bytes are not this encoder's")
                new[path] = segment
            except FileNotFoundError:
                continue  # merged by another process since it was listed
            except ArtifactError as error:
                self._warn(path, str(error))
        self._segments = {path: segment for path, segment in self._segments.items() if path in there} | new
        return list(new.values())

    def _fill(
        self, segment: Segment, wanted: np.ndarray, order: np.ndarray, rows: np.ndarray, known: np.ndarray
    ) -> None:
        """Take from a segment what is not known yet."""
        unknown = order[~known[order]]
        places = segment.find(wanted[unknown])
        unknown, places = unknown[places >= 0], places[places >= 0]
        if not len(places):
            return
        found, good = segment.read(wanted[unknown], places)
        rows[unknown[good]] = found[good]
        known[unknown[good]] = True
        if not good.all():
            self._warn(segment.path, f"{segment.path}: {int((~good).sum())} rows fail their checksum")

    def _warn(self, path: Path, problem: str) -> None:
        """Once a segment."""
        if path not in self._warned:
            self._warned.add(path)
            log.warning("%s; ignored, its texts are encoded again. See: dana store verify", problem)


def halves(keys: Sequence[bytes]) -> np.ndarray:
    """Keys as uint64 of shape (keys, 2) that sort as the bytes do."""
    return np.frombuffer(b"".join(keys), dtype=">u8").reshape(-1, 2).astype(np.uint64)
