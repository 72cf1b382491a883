"""Maintenance of an embedding store: list its encoders, check every byte, remove what is not wanted."""

import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.artifacts import fingerprint
from dana.core.errors import ArtifactError, ConfigError, DanaError, suggestion
from dana.core.files import sync, text_digest
from dana.core.registry import ENCODERS
from dana.encoders.base import encoder_identity
from dana.encoders.rounding import error_bound, stored_identity, unpack_vectors
from dana.encoders.segment import ASIDE, BLOCK, PATTERN, Segment
from dana.encoders.store import META, halves, read_meta

PRUNED = ".pruned-"  # prefix of a folder that is being removed
STALE = 3600.0  # seconds after which an unfinished file is taken for that of a dead process
# Another machine, device or batch gives other last digits than the encoder that filled the store.
SLACK = 1e-3


@dataclass(frozen=True)
class VectorFolderInfo:
    """One encoder's part of a store.

    Attributes:
        name: Its folder: the fingerprint of encoder and dtype.
        spec: How the encoder was named.
        dtype: How vectors are rounded.
        dims: Numbers of a vector.
        segments: Files.
        rows: Vectors; those that two processes encoded count twice until they are merged.
        size: Bytes on disk.
    """

    name: str
    spec: str
    dtype: str
    dims: int
    segments: int
    rows: int
    size: int


@dataclass
class VectorFolderCheck:
    """What :func:`verify_store` found of one encoder's vectors.

    Attributes:
        name: See :class:`VectorFolderInfo`.
        rows: Rows looked at.
        problems: One line each; empty if all is well.
        encoded: Sample texts that were encoded again.
        difference: Largest difference between a number stored and encoded again.
        why_not: Why no text was encoded again.
    """

    name: str
    rows: int = 0
    problems: list[str] = field(default_factory=list)
    encoded: int = 0
    difference: float = 0.0
    why_not: str = ""


def vector_folders(folder: Path) -> list[Path]:
    """The encoders' folders of a store.

    Raises:
        ArtifactError: If there is none.
    """
    found = sorted(path.parent for path in folder.glob(f"*/{META}") if not path.parent.name.startswith("."))
    if not found:
        raise ArtifactError(f"{folder}: no embedding store here; dana score --store DIR makes one")
    return found


def describe_store(folder: Path) -> list[VectorFolderInfo]:
    """What a store holds, an encoder a row.

    Raises:
        ArtifactError: If it is no store, or a ``meta.json`` is damaged.
    """
    rows = []
    for part in vector_folders(folder):
        meta = read_meta(part)
        counts = [len(segment) for segment, _ in _opened(part) if segment]
        size = sum(path.stat().st_size for path in part.iterdir())
        rows.append(
            VectorFolderInfo(part.name, meta["spec"], meta["dtype"], meta["dims"], len(counts), sum(counts), size)
        )
    return rows


def _opened(part: Path) -> Iterator[tuple[Segment | None, str]]:
    """Each segment, or None and what is wrong with it."""
    for path in sorted(part.glob(PATTERN)):
        with suppress(FileNotFoundError):  # merged by a running process since it was listed
            try:
                segment = Segment.open(path)
            except ArtifactError as error:
                yield None, str(error)
            else:
                yield segment, ""


def verify_store(folder: Path) -> list[VectorFolderCheck]:
    """Read all of a store: digests, order of keys, checksums, finite values; encode a few texts again.

    Raises:
        ArtifactError: If it is no store.
    """
    return [_verify(part) for part in vector_folders(folder)]


def _verify(part: Path) -> VectorFolderCheck:
    found = VectorFolderCheck(part.name)
    try:
        meta = read_meta(part)
    except ArtifactError as error:
        found.problems.append(str(error))
        return found
    if fingerprint(stored_identity(meta["encoder"], meta["dtype"])) != part.name:
        found.problems.append(f"{part / META}: is not of the encoder that the folder's name stands for")
    whole = []
    for segment, problem in _opened(part):
        if segment is None:
            found.problems.append(problem)
            continue
        found.rows += len(segment)
        flaws = segment.flaws()
        if not _finite(segment, meta["dtype"]):
            flaws.append("a vector is not finite")
        found.problems.extend(f"{segment.path}: {flaw}" for flaw in flaws)
        whole.append(segment)
    _encode_again(whole, meta, found)
    return found


def _finite(segment: Segment, dtype: str) -> bool:
    parts = (unpack_vectors(segment.rows[start : start + BLOCK], dtype) for start in range(0, len(segment), BLOCK))
    return all(bool(part.isfinite().all()) for part in parts)


def _encode_again(whole: Sequence[Segment], meta: dict[str, Any], found: VectorFolderCheck) -> None:
    """Compare the texts that the segments carry with what their encoder says now."""
    try:
        encoder = ENCODERS.create(meta["spec"])
        if fingerprint(encoder_identity(encoder)) != fingerprint(meta["encoder"]):
            found.why_not = f"{meta['spec']} is another encoder now than the one that filled this"
            return
    except DanaError as error:
        found.why_not = str(error)
        return
    for segment in whole:
        keys = halves([text_digest(text) for text in segment.sample])
        places = segment.find(keys)
        texts = [text for text, place in zip(segment.sample, places, strict=True) if place >= 0]
        if len(texts) < len(segment.sample):
            found.problems.append(f"{segment.path}: texts of its sample are not among its keys")
        if not texts:
            continue
        stored = unpack_vectors(segment.rows[places[places >= 0]], meta["dtype"])
        encoded = encoder.encode(texts).cpu()
        difference = (stored - encoded).abs()
        allowed = error_bound(encoded, meta["dtype"]) + SLACK * encoded.abs().max()
        if not bool((difference <= allowed).all()):
            found.problems.append(f"{segment.path}: vectors differ from what {meta['spec']} gives now")
        found.encoded += len(texts)
        found.difference = max(found.difference, float(difference.max()))


@dataclass(frozen=True)
class Pruned:
    """What :func:`prune_store` removed.

    Attributes:
        encoders: Encoders that were not to be kept.
        oldest: Segments that did not fit.
        damaged: Segments that could not be opened.
        unfinished: Files that dead processes left.
        freed: Bytes of all these together.
    """

    encoders: int
    oldest: int
    damaged: int
    unfinished: int
    freed: int


def prune_store(folder: Path, keep: Sequence[str] | None = None, max_bytes: int | None = None) -> Pruned:
    """Make a store smaller, a whole file at a time, so that whatever stops it leaves a valid store.

    Files of dead processes and segments that cannot be opened always go.

    Args:
        folder: The store.
        keep: Ids (or how they begin) or specs of the encoders to keep; None keeps all.
        max_bytes: Drop the oldest segments, of any encoder, until the rest fits.

    Raises:
        ConfigError: If a name in `keep` fits no encoder; nothing is touched.
        ArtifactError: If it is no store.
    """
    there = vector_folders(folder)
    kept = _named(there, keep) if keep is not None else there
    for part in there:
        if part not in kept:
            part.rename(folder / f"{PRUNED}{part.name}-{secrets.token_hex(4)}")
    freed = 0
    for leftover in folder.glob(f"{PRUNED}*"):
        freed += sum(path.stat().st_size for path in leftover.iterdir())
        shutil.rmtree(leftover)
    unfinished, damaged = [], []
    for part in kept:
        unfinished += [path for path in part.glob(f"{ASIDE}*") if time.time() - path.stat().st_mtime > STALE]
        whole = {segment.path for segment, _ in _opened(part) if segment}
        damaged += [path for path in part.glob(PATTERN) if path not in whole]
    freed += _remove([*unfinished, *damaged])
    oldest = _oldest(kept, max_bytes) if max_bytes is not None else []
    freed += _remove(oldest)
    for changed in [folder, *kept]:
        sync(changed)
    return Pruned(len(there) - len(kept), len(oldest), len(damaged), len(unfinished), freed)


def _named(there: Sequence[Path], keep: Sequence[str]) -> list[Path]:
    specs = {part: read_meta(part)["spec"] for part in there}
    kept = []
    for name in keep:
        fits = [part for part in there if name and (part.name.startswith(name) or specs[part] == name)]
        if not fits:
            raise ConfigError(f"--keep {name}: no such encoder here{suggestion(name, [*specs.values()])}")
        kept.extend(fits)
    return list(dict.fromkeys(kept))


def _oldest(kept: Sequence[Path], max_bytes: int) -> list[Path]:
    """The oldest segments, as many as have to go for the rest to fit."""
    aged = sorted((path.stat().st_mtime_ns, path) for part in kept for path in part.glob(PATTERN))
    sizes = np.array([path.stat().st_size for _, path in aged], dtype=np.int64)
    left = sizes.sum() - np.cumsum(sizes) + sizes  # what is left if this one is the first to stay
    return [path for (_, path), size in zip(aged, left, strict=True) if size > max_bytes]


def _remove(paths: Sequence[Path]) -> int:
    freed = 0
    for path in paths:
        with suppress(FileNotFoundError):
            freed += path.stat().st_size
            path.unlink()
    return freed


def parse_bytes(text: str) -> int:
    """Read ``500M``, ``200G``, ``2T`` or a number of bytes; powers of 1,000.

    Raises:
        ConfigError: If it is none of these.
    """
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    try:
        size = float(number) * {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[unit]
        if not 0 <= size < 2**63:
            raise ValueError
    except (KeyError, ValueError) as error:
        raise ConfigError(f"--max-bytes {text}: must be a size such as 500M, 200G or 2T") from error
    return int(size)
