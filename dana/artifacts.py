"""What a stage leaves on disk: written aside, committed by one rename, reused only if nothing changed.

An artifact is a folder with a ``manifest.json``. The folder is built beside its final place and renamed
when whole, so a reader sees all of it or nothing, whenever the process dies. The manifest holds the
fingerprint of everything the content depends on (settings, inputs, dana's schema version), never of what
it must not depend on (workers, devices, paths of this machine).
"""

import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dana.errors import ArtifactError
from dana.logging import get_logger

log = get_logger(__name__)

SCHEMA = 1
MANIFEST = "manifest.json"
RECORDED_PACKAGES = (
    "dana",
    "torch",
    "transformers",
    "accelerate",
    "scikit-learn",
    "pyod",
    "numpy",
    "sentencex",
    "datasketch",
)


@dataclass(frozen=True)
class Artifact:
    """A committed folder and what its manifest says."""

    path: Path
    manifest: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """Hex digest of everything the content depends on."""
        return self.manifest["fingerprint"]


@dataclass
class Draft:
    """A folder being written; `counts`, `seeds` and `notes` go into the manifest."""

    path: Path
    counts: dict[str, Any] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


def fingerprint(depends_on: Any) -> str:
    """Hex digest of a JSON-able value (or dataclass); key order does not matter."""
    return blake2b(canonical(depends_on).encode(), digest_size=16).hexdigest()


def canonical(value: Any) -> str:
    """JSON with sorted keys, so that equal values give equal text."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Path):
        return value.as_posix()
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def file_digest(path: Path) -> str:
    """Hex digest of a file's bytes; a moved file keeps its digest."""
    digest = blake2b(digest_size=16)
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a whole file or nothing: aside first, then one rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with aside.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    aside.replace(path)


def write_json(path: Path, value: Any) -> None:
    """Write JSON that people read: indented, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, default=_plain) + "\n")


def read_json(path: Path) -> Any:
    """What :func:`write_json` wrote.

    Raises:
        ArtifactError: If it is missing or broken.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path}: cannot be read: {error}") from error


def open_artifact(path: Path, kind: str, hint: str = "") -> Artifact:
    """Open a committed folder.

    Args:
        path: The folder.
        kind: What it must hold, for example ``scores``.
        hint: The command that makes one, shown when it is missing.

    Raises:
        ArtifactError: If there is no manifest, or it is of another kind or schema version.
    """
    manifest_path = path / MANIFEST
    if not manifest_path.is_file():
        raise ArtifactError(f"{path}: no {kind} here (no {MANIFEST})" + (f"; make one with: {hint}" if hint else ""))
    manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
    if manifest.get("kind") != kind:
        raise ArtifactError(f"{path}: holds {manifest.get('kind')!r}, not {kind!r}")
    if manifest.get("schema") != SCHEMA:
        raise ArtifactError(f"{path}: schema {manifest.get('schema')}, this dana reads {SCHEMA}; make it again")
    return Artifact(path, manifest)


def read_manifest(folder: Path) -> dict[str, Any]:
    """A folder's manifest, whatever its kind; empty if it has none."""
    path = folder / MANIFEST
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def make(path: Path, kind: str, depends_on: dict[str, Any], write: Callable[[Draft], None]) -> Artifact:
    """Return the artifact at ``path``, writing it first unless it is there with the same fingerprint.

    Args:
        path: Final folder.
        kind: What it holds.
        depends_on: Settings, input fingerprints and seeds that decide the content; shown on a mismatch.
        write: Fills the draft's folder.

    Raises:
        ArtifactError: If the folder holds the outcome of other settings; both sides are shown and
            nothing is touched.
    """
    wanted = json.loads(canonical(depends_on))
    if (path / MANIFEST).is_file():
        existing = open_artifact(path, kind)
        if existing.fingerprint == fingerprint(wanted):
            log.info("%-9s reused   %s", kind, path)
            return existing
        differences = "; ".join(differing(existing.manifest["depends_on"], wanted))
        raise ArtifactError(f"{path} was made from something else ({differences}). Remove it or choose another folder")
    if path.exists() and any(path.iterdir()):
        raise ArtifactError(f"{path}: not empty and not made by dana; choose another folder")
    started = time.monotonic()
    with _aside(path) as folder:
        draft = Draft(folder)
        write(draft)
        manifest = {
            "kind": kind,
            "schema": SCHEMA,
            "fingerprint": fingerprint(wanted),
            "depends_on": wanted,
            "counts": draft.counts,
            "seeds": draft.seeds,
            **draft.notes,
            "versions": package_versions(),
            "seconds": round(time.monotonic() - started, 3),
        }
        write_json(folder / MANIFEST, manifest)
        if path.exists():
            path.rmdir()
        folder.rename(path)
    log.info("%-9s written  %s  (%.1f s)", kind, path, manifest["seconds"])
    return open_artifact(path, kind)


@contextmanager
def _aside(path: Path) -> Iterator[Path]:
    """A fresh folder beside ``path``, removed on any error; leftovers of dead processes go first."""
    made = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob(f".{path.name}.tmp-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    folder = path.parent / f".{path.name}.tmp-{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        if folder.exists():
            shutil.rmtree(folder)
            if made and not any(path.parent.iterdir()):
                path.parent.rmdir()


def differing(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """Name each key whose value differs, with both values, depth first."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from differing(old.get(key), new.get(key), f"{where}.{key}" if where else key)
    elif old != new:
        yield f"{where}: {_short(old)} there, {_short(new)} now"


def _short(value: Any, limit: int = 60) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def package_versions() -> dict[str, str]:
    """Versions of the packages that decide results, and of Python."""
    found = {"python": platform.python_version()}
    for name in RECORDED_PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
