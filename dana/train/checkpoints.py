"""Checkpoints that are whole or not there: written aside, hashed, renamed; the newest sound one is taken up."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dana.artifacts import differing, file_digest, write_json
from dana.errors import ArtifactError
from dana.logging import get_logger

log = get_logger(__name__)

MANIFEST = "manifest.json"
STATE = "state.safetensors"
RECORDS = "training.jsonl"
BEST = "best"


@dataclass(frozen=True)
class Saved:
    """A sound checkpoint.

    Attributes:
        path: Its folder.
        manifest: ``step``, ``files`` (bytes and digest of each), what it ``depends_on``, and the caller's notes.
    """

    path: Path
    manifest: dict[str, Any]


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run.

    Attributes:
        folder: Where they lie, a folder each: ``step-00000500``, and ``best``.
        depends_on: What the run is made from; a checkpoint of another run is refused.
        keep: Newest ones to keep.
    """

    folder: Path
    depends_on: dict[str, Any]
    keep: int

    def save(self, step: int, write: Callable[[Path], None], notes: dict[str, Any], best: bool = False) -> None:
        """Commit a checkpoint, then remove those that are older than the newest `keep` (but not this one).

        Args:
            step: Optimizer steps taken.
            write: Fills a folder.
            notes: What to find in the manifest again.
            best: Replace the best one instead of adding to the newest.
        """
        name = BEST if best else f"step-{step:08d}"
        with self._aside(name) as aside:
            write(aside)
            files = {path.name: _seal(path) for path in sorted(aside.iterdir())}
            manifest = {"step": step, "depends_on": self.depends_on, "files": files, **notes}
            write_json(aside / MANIFEST, manifest)
            _sync(aside)
            final = self.folder / name
            if final.exists():  # the best so far stays until the better one is whole
                shutil.rmtree(self.folder / f".{name}.old", ignore_errors=True)
                final.rename(self.folder / f".{name}.old")
            aside.rename(final)
            _sync(self.folder)
            shutil.rmtree(self.folder / f".{name}.old", ignore_errors=True)
        if not best:
            for old in self._newest_first()[max(1, self.keep) :]:
                shutil.rmtree(old)

    def newest(self) -> Saved | None:
        """The newest sound checkpoint, or else the best; broken ones are passed over with a warning.

        Raises:
            ArtifactError: If it is of another run; the difference is named.
        """
        for path in self._newest_first():
            if (saved := self._open(path)) is not None:
                return saved
        return self.best()

    def best(self) -> Saved | None:
        """The best so far, if there is a sound one."""
        for name in (BEST, f".{BEST}.old"):  # killed between two renames, the old one is still there
            if (self.folder / name).is_dir() and (saved := self._open(self.folder / name)) is not None:
                return saved
        return None

    def remove(self) -> None:
        """Forget them all."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _newest_first(self) -> list[Path]:
        return sorted(self.folder.glob("step-*"), reverse=True)

    def _open(self, path: Path) -> Saved | None:
        try:
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            for name, expected in manifest["files"].items():
                if (path / name).stat().st_size != expected["bytes"] or file_digest(path / name) != expected["digest"]:
                    raise OSError(f"{name} is not what was written")
        except (OSError, ValueError, KeyError) as error:
            log.warning("checkpoint %s is broken (%s); looking for an older one", path, error)
            return None
        differences = "; ".join(differing(manifest["depends_on"], self.depends_on))
        if differences:
            raise ArtifactError(
                f"{path} belongs to another run ({differences}). Take the settings and inputs back, "
                "start anew with execution.resume=never, or choose another folder"
            )
        return Saved(path, manifest)

    @contextmanager
    def _aside(self, name: str) -> Iterator[Path]:
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in self.folder.glob(".tmp-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        aside = self.folder / f".tmp-{name}.{os.getpid()}"
        aside.mkdir()
        try:
            yield aside
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _seal(path: Path) -> dict[str, Any]:
    """Size and digest of a file, once it is on the disk."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
    return {"bytes": path.stat().st_size, "digest": file_digest(path)}


def _sync(folder: Path) -> None:
    """Names in a folder survive a power cut only once the folder itself is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
