"""``dana store``: what an embedding store holds, whether it is whole, and how to make it smaller."""

import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dana.artifacts import fingerprint
from dana.encoders.rounding import error_bound, unpack
from dana.encoders.segment import ASIDE, BLOCK, PATTERN, Segment, sync
from dana.encoders.store import META, halves, read_meta, stored_identity, text_key
from dana.errors import ArtifactError, ConfigError, DanaError, suggestion
from dana.registry import ENCODERS

PRUNED = ".pruned-"  # how the name of a shelf that is being removed begins
STALE = 3600.0  # seconds after which a file that was being written is a dead process's
# Another machine, device or batch gives other last digits than the encoder that filled the store.
SLACK = 1e-3


@dataclass(frozen=True)
class ShelfInfo:
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
class Verdict:
    """What :func:`verify` found of one shelf.

    Attributes:
        name: See :class:`ShelfInfo`.
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


def shelves(folder: Path) -> list[Path]:
    """The encoders' folders of a store.

    Raises:
        ArtifactError: If there is none.
    """
    found = sorted(path.parent for path in folder.glob(f"*/{META}") if not path.parent.name.startswith("."))
    if not found:
        raise ArtifactError(f"{folder}: no embedding store here; dana score --store DIR makes one")
    return found


def info(folder: Path) -> list[ShelfInfo]:
    """What a store holds, an encoder a row.

    Raises:
        ArtifactError: If it is no store, or a ``meta.json`` is damaged.
    """
    rows = []
    for shelf in shelves(folder):
        meta = read_meta(shelf)
        counts = [len(segment) for segment, _ in _opened(shelf) if segment]
        size = sum(path.stat().st_size for path in shelf.iterdir())
        rows.append(ShelfInfo(shelf.name, meta["spec"], meta["dtype"], meta["dims"], len(counts), sum(counts), size))
    return rows


def _opened(shelf: Path) -> Iterator[tuple[Segment | None, str]]:
    """Each segment, or None and what is wrong with it."""
    for path in sorted(shelf.glob(PATTERN)):
        with suppress(FileNotFoundError):  # merged by a running process since it was listed
            try:
                segment = Segment.open(path)
            except ArtifactError as error:
                yield None, str(error)
            else:
                yield segment, ""


def verify(folder: Path) -> list[Verdict]:
    """Read all of a store: digests, order of keys, checksums, finite values; encode a few texts again.

    Raises:
        ArtifactError: If it is no store.
    """
    return [_verify(shelf) for shelf in shelves(folder)]


def _verify(shelf: Path) -> Verdict:
    verdict = Verdict(shelf.name)
    try:
        meta = read_meta(shelf)
    except ArtifactError as error:
        verdict.problems.append(str(error))
        return verdict
    if fingerprint(stored_identity(meta["encoder"], meta["dtype"])) != shelf.name:
        verdict.problems.append(f"{shelf / META}: is not of the encoder that the folder's name stands for")
    whole = []
    for segment, problem in _opened(shelf):
        if segment is None:
            verdict.problems.append(problem)
            continue
        verdict.rows += len(segment)
        flaws = segment.flaws()
        if not _finite(segment, meta["dtype"]):
            flaws.append("a vector is not finite")
        verdict.problems.extend(f"{segment.path}: {flaw}" for flaw in flaws)
        whole.append(segment)
    _encode_again(whole, meta, verdict)
    return verdict


def _finite(segment: Segment, dtype: str) -> bool:
    parts = (unpack(segment.rows[start : start + BLOCK], dtype) for start in range(0, len(segment), BLOCK))
    return all(bool(torch.isfinite(part).all()) for part in parts)


def _encode_again(whole: Sequence[Segment], meta: dict[str, Any], verdict: Verdict) -> None:
    """Compare the texts that the segments carry with what their encoder says now."""
    try:
        encoder = ENCODERS.create(meta["spec"])
        if fingerprint(encoder.identity()) != fingerprint(meta["encoder"]):
            verdict.why_not = f"{meta['spec']} is another encoder now than the one that filled this"
            return
    except DanaError as error:
        verdict.why_not = str(error)
        return
    for segment in whole:
        keys = halves([text_key(text) for text in segment.sample])
        places = segment.find(keys)
        texts = [text for text, place in zip(segment.sample, places, strict=True) if place >= 0]
        if len(texts) < len(segment.sample):
            verdict.problems.append(f"{segment.path}: texts of its sample are not among its keys")
        if not texts:
            continue
        stored = unpack(segment.rows[places[places >= 0]], meta["dtype"])
        encoded = encoder.encode(texts).cpu()
        difference = (stored - encoded).abs()
        allowed = error_bound(encoded, meta["dtype"]) + SLACK * encoded.abs().max()
        if not bool((difference <= allowed).all()):
            verdict.problems.append(f"{segment.path}: vectors differ from what {meta['spec']} gives now")
        verdict.encoded += len(texts)
        verdict.difference = max(verdict.difference, float(difference.max()))


def prune(folder: Path, keep: Sequence[str] | None = None, max_bytes: int | None = None) -> int:
    """Make a store smaller, a whole file at a time, so that whatever stops it leaves a valid store.

    Files of dead processes and segments that cannot be opened always go.

    Args:
        folder: The store.
        keep: Ids (or how they begin) or specs of the encoders to keep; None keeps all.
        max_bytes: Drop the oldest segments, of any encoder, until the rest fits.

    Returns:
        Bytes freed.

    Raises:
        ConfigError: If a name in `keep` fits no encoder; nothing is touched.
        ArtifactError: If it is no store.
    """
    there = shelves(folder)
    kept = _named(there, keep) if keep is not None else there
    freed = 0
    for shelf in there:
        if shelf not in kept:
            shelf.rename(folder / f"{PRUNED}{shelf.name}-{secrets.token_hex(4)}")
    for leftover in folder.glob(f"{PRUNED}*"):
        freed += sum(path.stat().st_size for path in leftover.iterdir())
        shutil.rmtree(leftover)
    for shelf in kept:
        stale = [path for path in shelf.glob(f"{ASIDE}*") if time.time() - path.stat().st_mtime > STALE]
        whole = {segment.path for segment, _ in _opened(shelf) if segment}
        freed += _remove([*stale, *(path for path in shelf.glob(PATTERN) if path not in whole)])
    if max_bytes is not None:
        freed += _remove(_oldest(kept, max_bytes))
    for changed in [folder, *kept]:
        sync(changed)
    return freed


def _named(there: Sequence[Path], keep: Sequence[str]) -> list[Path]:
    specs = {shelf: read_meta(shelf)["spec"] for shelf in there}
    kept = []
    for name in keep:
        fits = [shelf for shelf in there if name and (shelf.name.startswith(name) or specs[shelf] == name)]
        if not fits:
            raise ConfigError(f"--keep {name}: no such encoder here{suggestion(name, [*specs.values()])}")
        kept.extend(fits)
    return list(dict.fromkeys(kept))


def _oldest(kept: Sequence[Path], max_bytes: int) -> list[Path]:
    """The oldest segments, as many as have to go for the rest to fit."""
    aged = sorted((path.stat().st_mtime_ns, path) for shelf in kept for path in shelf.glob(PATTERN))
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
