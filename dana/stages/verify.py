"""``dana files verify``: check every artifact below a folder by the digests of its files."""

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from dana.core.artifacts import (
    INVENTORY,
    MANIFEST,
    is_intact,
    read_inventory,
    read_manifest,
)
from dana.core.config import SETTINGS
from dana.core.errors import ArtifactError, ConfigError, nearest_path
from dana.core.files import Seals, find_damage, find_strays
from dana.core.known_sources import CACHE
from dana.core.logging import monitor
from dana.stages.remember import read_settings

RUN = "run"
FolderCheck = tuple[
    Path, str, Seals, list[str]
]  # folder, kind, digests of its files, problems known before reading


def verify(folder: Path) -> Iterator[str]:
    """Check all that dana wrote below a folder; yield a line per artifact and per damaged, missing or unknown file.

    A run's list of artifacts says which manifests, pages and settings it has; the digest of every
    file in a manifest is compared. Steps check only presence, sizes and row counts when they open
    an artifact.

    Raises:
        ArtifactError: At the end, if anything is damaged, or if there is nothing to check.
    """
    artifacts = [
        *_runs(folder),
        *_artifacts(folder),
        *_settings(folder),
    ]
    if not artifacts:
        problem = "" if folder.is_dir() else f"no such folder{nearest_path(folder)}"
        raise ArtifactError(f"{folder}: {problem or f'holds nothing made by dana (no {MANIFEST})'}")
    failures = 0
    for path, kind, seals, problems in monitor(
        artifacts, what="verifying", unit="folders", total=len(artifacts)
    ):
        problems += find_damage(path, seals, digests=True)
        if seals and kind != RUN:  # files that make opening the folder fail
            problems += [line for line in find_strays(path, seals) if line not in problems]
        failures += bool(problems)
        size = sum(seal["bytes"] for seal in seals.values())
        yield f"{'DAMAGED' if problems else 'ok':<8} {path} ({kind}: {len(seals)} files, {size:,} bytes)"
        yield from (f"         {problem}" for problem in problems)
    if failures:
        raise ArtifactError(
            f"{folder}: {failures} of {len(artifacts)} folders are damaged, see above"
        )


def _attempt(read: Callable[[Path], Any], path: Path) -> tuple[Any, list[str]]:
    """Return what a function reads and no problem, or nothing and its error."""
    try:
        return read(path), []
    except (ArtifactError, ConfigError) as error:
        return {}, [str(error)]


def _runs(folder: Path) -> Iterator[FolderCheck]:
    """Yield the folders of runs with the seals of their manifests and pages."""
    for file in sorted(filter(Path.is_file, folder.rglob(INVENTORY))):
        yield file.parent, RUN, *_attempt(read_inventory, file.parent)


def _artifacts(folder: Path) -> Iterator[FolderCheck]:
    """Yield folders with a manifest, without those that are being written or were left by a killed process."""
    inventory = {
        path / name
        for path, _, seals, _ in _runs(folder)
        for name in seals
        if name.endswith(MANIFEST)
    }
    files = sorted(
        {*folder.rglob(MANIFEST), *filter(Path.is_file, inventory)}
    )  # rglob follows no links
    folders = {file.parent.parent for file in files}
    for file in files:
        path = file.parent.parent
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        manifest, problems = _attempt(read_manifest, path)
        if manifest:
            problems = (
                []
                if is_intact(manifest)
                else [f"{file}: its bytes are not those that were written"]
            )
            problems += _unknown(path, manifest["files"], folders - {path})
        yield path, manifest.get("kind", "?"), manifest.get("files", {}), problems


def _unknown(artifact: Path, sealed_names: Collection[str], others: set[Path]) -> Iterator[str]:
    """Yield a line for each file of an artifact that neither its manifest nor an artifact below it lists.

    Hidden files are skipped.
    """
    names_known = {*sealed_names, MANIFEST, CACHE}
    for folder, below, names in os.walk(artifact):
        below[:] = sorted(one for one in below if one[0] != "." and Path(folder, one) not in others)
        for path in (Path(folder, name) for name in sorted(names) if name[0] != "."):
            if path.relative_to(artifact).as_posix() not in names_known:
                yield f"{path}: does not belong there"


def _settings(folder: Path) -> Iterator[FolderCheck]:
    for file in sorted(folder.rglob(SETTINGS)):
        yield file, "settings", {}, _attempt(read_settings, file.parent)[1]
