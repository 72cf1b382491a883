"""Artifacts: folders with a manifest, written aside, committed by one rename, reused only if nothing changed.

An artifact is a folder with a ``__dana__/manifest.json``. The folder is built beside its final place and renamed
when whole, so a reader sees all of it or nothing, whenever the process dies. The manifest holds the
fingerprint of everything the content depends on (settings, inputs, dana's schema version), never of what
it must not depend on (workers, devices, paths of this machine).
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, is_dataclass
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, cast

from dana.core.errors import ArtifactError, Contradiction, nearest_path
from dana.core.files import aside, flaws, locked, replacing, room_for, seal, strangers, sync
from dana.core.launch import first, leads
from dana.core.logging import get_logger
from dana.core.registry import package_versions

log = get_logger(__name__)

SCHEMA = 2
# Pandas, pyarrow, Spark and datasets pass over a folder of such a name, so that they open a table's folder as it is.
OWN = "__dana__"
MANIFEST = f"{OWN}/manifest.json"
MANIFEST_KEYS = {"kind": str, "fingerprint": str, "depends_on": dict, "counts": dict, "seeds": dict, "files": dict}
HELD_BY_ALL = {*MANIFEST_KEYS, "schema", "versions", "seconds", "digest"}


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
    """A folder being written, with its ``__dana__/``; `counts`, `seeds` and `notes` go into the manifest."""

    path: Path
    counts: dict[str, Any] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)


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


def write_text(path: Path, text: str) -> None:
    """Write a whole file or nothing: aside first, then one rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write JSON that people read: indented, whole or not at all.

    Raises:
        ValueError: If a number is not finite, which JSON cannot hold; nothing is written.
    """
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=_plain) + "\n")


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """A JSON object with a digest of its own content, for :func:`is_sealed`."""
    return {**content, "digest": fingerprint(json.loads(canonical(content)))}


def is_sealed(content: dict[str, Any]) -> bool:
    """Whether what :func:`sealed` gave is as it was; True of what has no digest."""
    rest = {key: value for key, value in content.items() if key != "digest"}
    return "digest" not in content or fingerprint(rest) == content["digest"]


def read_json(path: Path) -> Any:
    """What :func:`write_json` wrote.

    Raises:
        ArtifactError: If it is missing or broken; names the line.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        said = error.strerror if isinstance(error, OSError) else error
        raise ArtifactError(f"{path}{line}: cannot be read: {said}") from error


def open_artifact(path: Path, kind: str, hint: str = "") -> Artifact:
    """Open a committed folder.

    Args:
        path: The folder.
        kind: What it must hold, for example ``scores``.
        hint: The command that makes one, shown when it is missing.

    Raises:
        ArtifactError: If there is no manifest, or it is of another kind or schema version, or a file is missing, cut
            short or not its own.
    """
    if not (path / MANIFEST).is_file():
        made_by = f"; make one with: {hint}" if hint else ""
        raise ArtifactError(f"{path}: no {kind} here (no {MANIFEST}){nearest_path(path)}{made_by}")
    manifest = read_manifest(path)
    if manifest["kind"] != kind:
        raise ArtifactError(f"{path}: holds {manifest['kind']!r}, not {kind!r}")
    files = manifest["files"]
    if flaw := next(chain(flaws(path, files, digests=False), strangers(path, files)), None):
        raise ArtifactError(
            f"{flaw}. dana verify {path} names all that is damaged; remove the folder and make it again"
        )
    return Artifact(path, manifest)


def read_manifest(folder: Path) -> dict[str, Any]:
    """A folder's manifest, whatever its kind; empty if it has none.

    Raises:
        ArtifactError: If it is not what :func:`make` writes, or of another schema version.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    manifest = read_json(path)
    if not isinstance(manifest, dict):
        raise ArtifactError(
            f"{path}: holds a {type(manifest).__name__}, not a manifest; remove {folder}, make it again"
        )
    if manifest.get("schema") != SCHEMA:
        raise ArtifactError(f"{folder}: schema {manifest.get('schema')}, this dana reads {SCHEMA}; make it again")
    for key, allowed in MANIFEST_KEYS.items():
        if not isinstance(manifest.get(key), allowed):
            raise ArtifactError(
                f"{path}: {key!r} is {manifest.get(key)!r}; not a manifest; remove {folder}, make it again"
            )
    return manifest


def make(
    path: Path,
    kind: str,
    depends_on: dict[str, Any],
    write: Callable[[Draft], None],
) -> Artifact:
    """Return the artifact at ``path``, writing it first unless it is there with the same fingerprint.

    One process writes: of the processes of a launch the first, for which the others wait; another command is refused
    while this one writes (:func:`dana.core.files.locked`). The folder gets its name when all is on the disk.

    Args:
        path: Final folder.
        kind: What it holds.
        depends_on: Settings, input fingerprints and seeds that decide the content; shown on a mismatch.
        write: Fills the draft's folder.

    Raises:
        ArtifactError: If the folder holds the outcome of other settings; both sides are shown and
            nothing is touched. If another process goes on writing it, or the disk is full.
    """
    return first(lambda: make_together(path, kind, depends_on, cast(Any, write)))


def make_together(
    path: Path,
    kind: str,
    depends_on: dict[str, Any],
    write: Callable[[Draft | None], None],
) -> Artifact:
    """Like :func:`make`, of work that all processes of a launch do together, such as training.

    Args:
        path: Final folder.
        kind: What it holds.
        depends_on: What decides the content.
        write: Called by every process: by the first with the draft, whose folder it fills, by the others with None.
    """
    wanted = json.loads(canonical(depends_on))
    with ExitStack() as held:
        if (artifact := first(lambda: reused(path, kind, wanted) or _claim(path, kind, wanted, held))) is not None:
            return artifact
        draft = Draft(held.enter_context(aside(path))) if leads() else None
        if draft is not None:
            (draft.path / OWN).mkdir()
        write(draft)
        return first(lambda: _commit(path, kind, wanted, draft))


def _claim(path: Path, kind: str, wanted: dict[str, Any], held: ExitStack) -> Artifact | None:
    """Hold the lock of a folder; what another process made of it while this one waited, if that is the same."""
    held.enter_context(room_for(path))
    held.enter_context(locked(path))
    return reused(path, kind, wanted)


def reused(path: Path, kind: str, wanted: dict[str, Any]) -> Artifact | None:
    """What is there already, if it is the same; None if nothing is there. Another thing is an ArtifactError."""
    if (path / MANIFEST).is_file():
        existing = open_artifact(path, kind)
        if existing.fingerprint == fingerprint(wanted):
            log.info("%-9s reused   %s", kind, path)
            return existing
        raise Contradiction(path, differing(existing.manifest["depends_on"], wanted))
    if path.exists() and not path.is_dir():
        raise ArtifactError(f"{path}: is a file, and a folder is to be written; choose another name")
    if path.exists() and any(path.iterdir()):
        raise ArtifactError(f"{path}: not empty and not made by dana; choose another folder")
    return None


def _commit(path: Path, kind: str, wanted: dict[str, Any], draft: Draft | None) -> Artifact:
    """Write the manifest of a full draft and give it its name."""
    assert draft is not None
    manifest = {
        "kind": kind,
        "schema": SCHEMA,
        "fingerprint": fingerprint(wanted),
        "depends_on": wanted,
        "counts": draft.counts,
        "seeds": draft.seeds,
        **draft.notes,
        "files": seal(draft.path),
        "versions": package_versions(),
        "seconds": round(time.monotonic() - draft.began, 3),
    }
    write_json(draft.path / MANIFEST, sealed(manifest))
    if path.exists():
        path.rmdir()
    draft.path.rename(path)
    sync(path.parent)
    log.info("%-9s written  %s  (%.1f s)", kind, path, manifest["seconds"])
    return open_artifact(path, kind)


def notes_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """What a stage noted in a manifest, without what every manifest holds."""
    return {name: value for name, value in manifest.items() if name not in HELD_BY_ALL}


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
