"""Write, reuse and open artifacts: folders with a manifest that are committed by one rename.

An artifact is a folder with a ``__dana__/manifest.json``. It is written under a temporary name and
renamed when complete, so a reader sees all of it or nothing, even if the process dies. The manifest
holds all that the content depends on (settings, versions of components, fingerprints of inputs) and
its fingerprint, which counts nothing else (workers, devices, paths). An artifact is reused only if
its fingerprint is that of the command.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, is_dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from dana.core.errors import ArtifactError, Contradiction, nearest_path
from dana.core.files import (
    folder_lock,
    make_parent,
    paths_below,
    remove_leftovers,
    settle_remake,
    sync,
    sync_folder,
    temp_dir,
    temp_file,
)
from dana.core.launch import is_writer, on_rank_0
from dana.core.logging import get_logger
from dana.core.registry import package_versions

log = get_logger(__name__)

SCHEMA = 4
# pandas, pyarrow, Spark and datasets skip folders whose name begins with an underscore, so they
# read a table's folder.
META_DIR = "__dana__"
MANIFEST = f"{META_DIR}/manifest.json"
TABLES = "tables"  # in a manifest: the Parquet files of the folder
GIVEN = "given"  # in a manifest: settings that a command gave beside the run's recipe
UNFINISHED = (
    "-shards",
    "-seeds",
    "-checkpoints",
)  # ends of names of folders that are removed in the end
MANIFEST_KEYS = {
    "kind": str,
    "fingerprint": str,
    "depends_on": dict,
    "counts": dict,
    "seeds": dict,
}
STANDARD_KEYS = {*MANIFEST_KEYS, TABLES, "schema", "versions", "seconds"}


@dataclass(frozen=True)
class Artifact:
    """A committed folder and what its manifest says."""

    path: Path
    manifest: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """Hex digest of everything the content depends on."""
        digest: str = self.manifest["fingerprint"]
        return digest


@dataclass
class Draft:
    """An artifact while it is written; `counts`, `seeds` and `notes` go into the manifest."""

    path: Path
    counts: dict[str, Any] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    start: float = field(default_factory=time.monotonic)


def fingerprint(depends_on: Any) -> str:
    """Compute the hex digest of a value that JSON can hold, or of a dataclass.

    The order of keys does not matter.
    """
    return blake2b(canonical(depends_on).encode(), digest_size=16).hexdigest()


def canonical(value: Any) -> str:
    """Format a value as JSON with sorted keys, so that equal values give equal text."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """Convert a dataclass, a path or a number of numpy for JSON.

    Raises:
        TypeError: For anything else.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Path):
        return value.as_posix()
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with temp_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON atomically.

    Raises:
        ValueError: If a number is not finite, which JSON cannot hold; nothing is written.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=_plain)
    write_text(path, f"{text}\n")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        ArtifactError: If the file is missing or not JSON; names the line.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        reason = error.strerror if isinstance(error, OSError) else error
        raise ArtifactError(f"{path}{line}: cannot be read: {reason}") from error


def run_manifests(run: Path) -> list[Path]:
    """List the manifests of a run, without those of a run inside it and of what is not finished.

    A run inside it has ``steps`` of its own.
    """
    inner_runs = [steps.parent for steps in paths_below(run, "*/**/steps")]
    manifests = []
    for file in paths_below(run, f"**/{MANIFEST}"):
        is_inner = any(map(file.is_relative_to, inner_runs))
        folders = file.relative_to(run).parts
        is_unfinished = any(folder.endswith(UNFINISHED) for folder in folders)
        if not is_inner and not is_unfinished:
            manifests.append(file)
    return manifests


def open_artifact(path: Path, kind: str, hint: str = "") -> Artifact:
    """Open an artifact.

    Args:
        path: The folder.
        kind: Required kind, for example ``scores``.
        hint: The command that makes one, shown if it is missing.

    Raises:
        ArtifactError: If there is no manifest, its kind or schema version is another, or a table is
            missing.
    """
    if not (path / MANIFEST).is_file():
        settle_remake(path)
    if not (path / MANIFEST).is_file():
        advice = f"; make one with: {hint}" if hint else ""
        raise ArtifactError(f"{path}: no {kind} here (no {MANIFEST}){nearest_path(path)}{advice}")
    manifest = read_manifest(path)
    if manifest["kind"] != kind:
        raise ArtifactError(f"{path}: holds {manifest['kind']!r}, not {kind!r}")
    check_tables(path, manifest)
    return Artifact(path, manifest)


def check_tables(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Check that no table of an artifact is missing, as in a folder that was copied in part.

    Without this, what reads a table part by part would take the others for the whole.

    Args:
        folder: Folder of the artifact.
        manifest: Its manifest; one of an earlier version lists no tables, and none is missed.

    Raises:
        ArtifactError: Names the first file that is missing.
    """
    for name in manifest.get(TABLES, []):
        if not (folder / name).is_file():
            raise ArtifactError(
                f"{folder / name}: is missing, although the folder was written with it; copy the "
                f"whole folder again, or remove {folder} and run its command again"
            )


def _list_tables(folder: Path) -> list[str]:
    """List the Parquet files of a folder, by their paths in it."""
    files = sorted(folder.rglob("*.parquet"))
    return [file.relative_to(folder).as_posix() for file in files]


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a folder's manifest of any kind; empty if it has none.

    Raises:
        ArtifactError: If it is not a manifest, or of another schema version.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        manifest = read_json(path)
    except ArtifactError as error:
        advice = f"copy the whole folder again, or remove {folder} and run its command again"
        raise ArtifactError(f"{error}; {advice}") from error
    remedy = f"not a manifest; remove {folder} and run its command again"
    if not isinstance(manifest, dict):
        raise ArtifactError(f"{path}: holds a {type(manifest).__name__}, {remedy}")
    if manifest.get("schema") != SCHEMA:
        raise ArtifactError(
            f"{folder}: schema {manifest.get('schema')}, expected {SCHEMA}; make it again"
        )
    for key, kind in MANIFEST_KEYS.items():
        if not isinstance(manifest.get(key), kind):
            raise ArtifactError(f"{path}: {key!r} is {manifest.get(key)!r}, {remedy}")
    return manifest


def make(
    path: Path,
    kind: str,
    depends_on: dict[str, Any],
    write: Callable[[Draft], None],
    remake: bool = False,
) -> Artifact:
    """Open the artifact at ``path`` if it has the same fingerprint, else write it.

    The first process of a launch writes while the others wait. Other commands are refused meanwhile
    (:func:`dana.core.files.folder_lock`). The folder is renamed to ``path`` after all of it is on
    disk.

    Args:
        path: Final folder.
        kind: Kind of artifact, for example ``scores``.
        depends_on: Settings, versions of components, input fingerprints and seeds that decide the
            content; shown on a mismatch.
        write: Fills the draft's folder.
        remake: Replace an artifact of this kind that was made from other settings. It stays until
            the new one is complete.

    Raises:
        ArtifactError: If the folder was made from other settings, which are shown, and it is left
            unchanged; if another process does not stop writing it; or if the disk is full.
    """

    def write_first(draft: Draft | None) -> None:
        assert draft is not None
        write(draft)

    return on_rank_0(lambda: make_on_all_ranks(path, kind, depends_on, write_first, remake))


def make_on_all_ranks(
    path: Path,
    kind: str,
    depends_on: dict[str, Any],
    write: Callable[[Draft | None], None],
    remake: bool = False,
) -> Artifact:
    """Like :func:`make`, for work of all processes of a launch, such as training.

    Args:
        path: Final folder.
        kind: Kind of artifact.
        depends_on: All that decides the content.
        write: Called on every process: on the first with the draft to fill, on the others with
            None.
        remake: See :func:`make`.
    """
    inputs = json.loads(canonical(depends_on))
    with ExitStack() as stack:

        def find_or_lock() -> Artifact | None:
            settle_remake(path)
            existing = find_reusable(path, kind, inputs, remake)
            if existing is not None:
                remove_leftovers(path)
                return existing
            refuse_inside_artifact(path)
            stack.enter_context(make_parent(path))
            stack.enter_context(folder_lock(path))
            return find_reusable(path, kind, inputs, remake)  # another process may have made it

        artifact = on_rank_0(find_or_lock)
        if artifact is not None:
            return artifact
        draft = None
        if is_writer():
            workspace = stack.enter_context(temp_dir(path))
            draft = Draft(workspace / "new")
            (draft.path / META_DIR).mkdir(parents=True)
        write(draft)
        return on_rank_0(lambda: _commit(path, kind, inputs, draft))


def refuse_inside_artifact(path: Path) -> None:
    """Refuse a folder inside an artifact, which would be part of that one.

    Args:
        path: Folder or file that is to be written.

    Raises:
        ArtifactError: If a folder above it is an artifact.
    """
    for folder in path.parents:
        if (folder / MANIFEST).is_file():
            raise ArtifactError(
                f"{path}: is in {folder}, which would be damaged; choose another folder"
            )


def find_reusable(
    path: Path, kind: str, inputs: dict[str, Any], remake: bool = False
) -> Artifact | None:
    """Return the artifact at ``path`` if it has the same fingerprint, or None if it is to be made.

    Args:
        path: The folder.
        kind: Kind of artifact.
        inputs: All that decides the content, as JSON reads it.
        remake: Whether an artifact of other settings is to be made again.

    Raises:
        ArtifactError: If anything else is there.
    """
    if (path / MANIFEST).is_file():
        existing = open_artifact(path, kind)
        if existing.fingerprint == fingerprint(inputs):
            log.info("%-9s reused   %s", kind, path)
            return existing
        if remake:
            return None
        raise Contradiction(path, list_differences(existing.manifest["depends_on"], inputs))
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise ArtifactError(f"{path}: is a file or a link, not a folder; choose another path")
    if path.exists() and any(path.iterdir()):
        raise ArtifactError(f"{path}: not empty and not made by dana; choose another folder")
    return None


def _commit(path: Path, kind: str, inputs: dict[str, Any], draft: Draft | None) -> Artifact:
    """Write the manifest of a complete draft and rename its folder."""
    assert draft is not None
    tables = _list_tables(draft.path)
    manifest = {
        "kind": kind,
        "schema": SCHEMA,
        "fingerprint": fingerprint(inputs),
        "depends_on": inputs,
        "counts": draft.counts,
        "seeds": draft.seeds,
        **draft.notes,
        **({TABLES: tables} if tables else {}),
        "versions": package_versions(),
        "seconds": round(time.monotonic() - draft.start, 3),
    }
    write_json(draft.path / MANIFEST, manifest)
    sync_folder(draft.path)
    if path.exists():  # empty, or of other settings: removed with the draft's temporary folder
        path.rename(draft.path.with_name("old"))
    draft.path.rename(path)
    sync(path.parent)
    log.info("%-9s written  %s  (%.1f s)", kind, path, manifest["seconds"])
    return open_artifact(path, kind)


def get_notes(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a manifest that the stage added, without the standard ones."""
    return {name: value for name, value in manifest.items() if name not in STANDARD_KEYS}


def list_differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """Yield each key whose value differs, with both values, depth first."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            place = f"{where}.{key}" if where else key
            yield from list_differences(old.get(key), new.get(key), place)
    elif old != new:
        yield f"{where}: {_short(old)} there, {_short(new)} now"


def _short(value: Any, limit: int = 60) -> str:
    """Write a value, cut at some characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) <= limit:
        return text
    return text[: limit - 1] + "…"
