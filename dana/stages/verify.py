"""``dana verify``: a folder to a line for each artifact below it, whole or damaged, by the digests of its files."""

import json
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dana.core.artifacts import MANIFEST, OWN, is_sealed, read_manifest
from dana.core.config import SETTINGS
from dana.core.errors import ArtifactError, ConfigError
from dana.core.files import flaws, strangers
from dana.core.logging import progress
from dana.encoders.cache import META, PATTERN, read_meta
from dana.stages.remember import remembered


@dataclass
class Verified:
    """One committed folder.

    Attributes:
        path: Where.
        kind: What it holds.
        files: How many were sealed.
        size: Their bytes, together.
        problems: A line a damaged file; empty if all is well.
    """

    path: Path
    kind: str = "?"
    files: int = 0
    size: int = 0
    problems: list[str] = field(default_factory=list)


def verify(folder: Path) -> Iterator[str]:
    """Check all that dana wrote below a folder: a line each, and one for each damaged, missing or unknown file.

    ``settings.yaml`` may be edited, so it only has to be readable. Reports have no digest; they are made again.

    Raises:
        ArtifactError: In the end, if anything is damaged, or if there is nothing to check.
    """
    found = verified(folder)
    for one in found:
        yield f"{'DAMAGED' if one.problems else 'ok':<8} {one.path} ({one.kind}: {one.files} files, {one.size:,} bytes)"
        yield from (f"         {problem}" for problem in one.problems)
    if damaged := sum(bool(one.problems) for one in found):
        raise ArtifactError(f"{folder}: {damaged} of {len(found)} folders are damaged, see above")


def verified(folder: Path) -> list[Verified]:
    """Read every file that a manifest below a folder names and compare its digest; what has none, by its own digest.

    Steps look only at presence, sizes and row counts when they open what another has left.

    Raises:
        ArtifactError: If there is no manifest at all.
    """
    opened = list(_opened(folder))
    if not opened:
        raise ArtifactError(f"{folder}: nothing made by dana there (no {MANIFEST})")
    with progress(what="verifying", unit="B", total=sum(found.size for found, _ in opened)) as bar:
        for found, seals in opened:
            for name, expected in seals.items():
                found.problems += flaws(found.path, {name: expected}, digests=True)
                bar.update(expected["bytes"])
            if seals:  # what opening a folder refuses is named in any case
                found.problems += [line for line in strangers(found.path, seals) if line not in found.problems]
    return [found for found, _ in opened]


def _opened(folder: Path) -> Iterator[tuple[Verified, dict[str, Any]]]:
    """Each committed folder and what its files must be; unreadable manifests are problems."""
    files = sorted(folder.rglob(MANIFEST))
    artifacts = {file.parent.parent for file in files}
    for file in files:
        path = file.parent.parent
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue  # being written, or left by a killed process
        try:
            manifest = read_manifest(path)
        except ArtifactError as error:
            yield Verified(path, problems=[str(error)]), {}
        else:
            found = _begun(path, manifest["kind"], manifest["files"])
            if not is_sealed(manifest):
                found.problems.append(f"{file}: its bytes are not those that were written")
            found.problems += _unknown(path, manifest["files"], artifacts - {path})
            yield found, manifest["files"]
    for file in sorted(folder.rglob("*-checkpoints/*/manifest.json")):
        try:
            seals = json.loads(file.read_text(encoding="utf-8"))["files"]
            yield _begun(file.parent, "checkpoint", seals), seals
        except (OSError, ValueError, KeyError, TypeError) as error:
            yield Verified(file.parent, "checkpoint", problems=[f"{file}: cannot be read: {error}"]), {}
    yield from _without_manifest(folder)


def _unknown(artifact: Path, sealed: Collection[str], others: set[Path]) -> Iterator[str]:
    """Files among those of an artifact that are neither sealed nor of another one below it, a line each.

    What begins with a dot, and :data:`dana.core.artifacts.OWN`, where steps remember things, is passed over.
    """
    for folder, below, names in os.walk(artifact):
        below[:] = sorted(name for name in below if name[0] != "." and name != OWN and Path(folder, name) not in others)
        for path in (Path(folder, name) for name in sorted(names) if name[0] != "."):
            if path.relative_to(artifact).as_posix() not in sealed:
                yield f"{path}: does not belong there"


def _without_manifest(folder: Path) -> Iterator[tuple[Verified, dict[str, Any]]]:
    """Settings of runs, which people edit, and folders of embeddings, whose files are named by their digests."""
    for file in sorted(folder.rglob(SETTINGS)):
        found = Verified(file, "settings", 1, file.stat().st_size)
        try:
            remembered(file.parent)
        except ConfigError as error:
            found.problems.append(str(error))
        yield found, {}
    for part in sorted({file.parent for file in folder.rglob(PATTERN) if (file.parent / META).is_file()}):
        seals = {
            file.name: {"bytes": file.stat().st_size, "digest": file.stem.partition("-")[2]}
            for file in part.glob(PATTERN)
        }
        found = _begun(part, "embeddings", seals)
        try:
            read_meta(part)
        except ArtifactError as error:
            found.problems.append(str(error))
        yield found, seals


def _begun(path: Path, kind: str, seals: dict[str, Any]) -> Verified:
    return Verified(path, kind, len(seals), sum(about["bytes"] for about in seals.values()))
