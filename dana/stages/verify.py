"""``dana verify``: a folder to a line for each artifact below it, whole or damaged, by the digests of its files."""

import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from dana.core.artifacts import MANIFEST, META_DIR, is_intact, read_manifest
from dana.core.config import SETTINGS
from dana.core.errors import ArtifactError, ConfigError
from dana.core.files import Seals, find_damage, find_strays
from dana.core.logging import monitor
from dana.encoders.cache import META, PATTERN, read_meta
from dana.stages.remember import remembered

Sealed = tuple[Path, str, Seals, list[str]]  # a folder, its kind, its files, and what is wrong but for their bytes


def verify(folder: Path) -> Iterator[str]:
    """Check all that dana wrote below a folder: a line each, and one for each damaged, missing or unknown file.

    Every file that a manifest names is read and its digest compared; steps look only at presence, sizes and row counts
    when they open what another has left. ``settings.yaml`` may be edited, so it only has to be readable. Reports have
    no digest; they are made again.

    Raises:
        ArtifactError: In the end, if anything is damaged, or if there is nothing to check.
    """
    artifacts = [*_artifacts(folder), *_checkpoints(folder), *_settings(folder), *_embeddings(folder)]
    if not artifacts:
        raise ArtifactError(f"{folder}: nothing made by dana there (no {MANIFEST})")
    damaged = 0
    for path, kind, seals, problems in monitor(artifacts, what="verifying", unit="folders", total=len(artifacts)):
        problems += find_damage(path, seals, digests=True)
        if seals:  # what opening a folder refuses is named in any case
            problems += [line for line in find_strays(path, seals) if line not in problems]
        damaged += bool(problems)
        size = sum(about["bytes"] for about in seals.values())
        yield f"{'DAMAGED' if problems else 'ok':<8} {path} ({kind}: {len(seals)} files, {size:,} bytes)"
        yield from (f"         {problem}" for problem in problems)
    if damaged:
        raise ArtifactError(f"{folder}: {damaged} of {len(artifacts)} folders are damaged, see above")


def _artifacts(folder: Path) -> Iterator[Sealed]:
    """Folders with a manifest, but for those that are being written or were left by a killed process."""
    files = sorted(folder.rglob(MANIFEST))
    folders = {file.parent.parent for file in files}
    for file in files:
        path = file.parent.parent
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        try:
            manifest = read_manifest(path)
        except ArtifactError as error:
            yield path, "?", {}, [str(error)]
            continue
        problems = [] if is_intact(manifest) else [f"{file}: its bytes are not those that were written"]
        problems += _unknown(path, manifest["files"], folders - {path})
        yield path, manifest["kind"], manifest["files"], problems


def _unknown(artifact: Path, sealed: Collection[str], others: set[Path]) -> Iterator[str]:
    """Files among those of an artifact that are neither sealed nor of another one below it, a line each.

    What begins with a dot, and :data:`dana.core.artifacts.META_DIR`, where steps remember things, is passed over.
    """
    for folder, below, names in os.walk(artifact):
        below[:] = sorted(one for one in below if one[0] != "." and one != META_DIR and Path(folder, one) not in others)
        for path in (Path(folder, name) for name in sorted(names) if name[0] != "."):
            if path.relative_to(artifact).as_posix() not in sealed:
                yield f"{path}: does not belong there"


def _checkpoints(folder: Path) -> Iterator[Sealed]:
    for file in sorted(folder.rglob("*-checkpoints/*/manifest.json")):
        try:
            yield file.parent, "checkpoint", json.loads(file.read_text(encoding="utf-8"))["files"], []
        except (OSError, ValueError, KeyError, TypeError) as error:
            yield file.parent, "checkpoint", {}, [f"{file}: cannot be read: {error}"]


def _settings(folder: Path) -> Iterator[Sealed]:
    for file in sorted(folder.rglob(SETTINGS)):
        try:
            remembered(file.parent)
            yield file, "settings", {}, []
        except ConfigError as error:
            yield file, "settings", {}, [str(error)]


def _embeddings(folder: Path) -> Iterator[Sealed]:
    """Folders of embeddings, whose files are named by their digests."""
    for part in sorted({file.parent for file in folder.rglob(PATTERN) if (file.parent / META).is_file()}):
        seals = {
            file.name: {"bytes": file.stat().st_size, "digest": file.stem.partition("-")[2]}
            for file in part.glob(PATTERN)
        }
        try:
            read_meta(part)
            yield part, "embeddings", seals, []
        except ArtifactError as error:
            yield part, "embeddings", seals, [str(error)]
