"""Checkpoint folders: written aside, hashed and renamed; opens the newest whose digests are right."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dana.core.artifacts import differing, write_json
from dana.core.errors import ArtifactError
from dana.core.files import aside, sync
from dana.core.logging import get_logger
from dana.core.seals import flaws, seal

log = get_logger(__name__)

MANIFEST = "manifest.json"
STATE = "state.safetensors"
RECORDS = "training.jsonl"
BEST = "best"


@dataclass(frozen=True)
class Saved:
    """A checkpoint whose files have the digests that were written.

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
        otherwise: What to do with those of another run, beside taking back its settings and inputs.
    """

    folder: Path
    depends_on: dict[str, Any]
    keep: int
    otherwise: str = "start anew with execution.resume=never, or choose another folder"

    def save(self, step: int, write: Callable[[Path], None], notes: dict[str, Any], best: bool = False) -> None:
        """Commit a checkpoint, then remove those that are older than the newest `keep` (but not this one).

        Args:
            step: Optimizer steps taken.
            write: Fills a folder.
            notes: What to find in the manifest again.
            best: Replace the best one instead of adding to the newest.

        Raises:
            ArtifactError: If the disk does not take it; the older ones stay.
        """
        name = BEST if best else f"step-{step:08d}"
        final = self.folder / name
        with written_whole(final):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write(final, write, {"step": step, "depends_on": self.depends_on, **notes})
        if not best:
            for old in self._newest_first()[max(1, self.keep) :]:
                shutil.rmtree(old)

    def _write(self, final: Path, write: Callable[[Path], None], about: dict[str, Any]) -> None:
        with aside(self.folder / "saving") as draft:
            write(draft)
            write_json(draft / MANIFEST, {**about, "files": seal(draft)})
            before = final.with_name(f".{final.name}.old")
            if final.exists():  # the best so far stays until the better one is whole
                shutil.rmtree(before, ignore_errors=True)
                final.rename(before)
            draft.rename(final)
            sync(self.folder)
            shutil.rmtree(before, ignore_errors=True)

    def newest(self) -> Saved | None:
        """The sound checkpoint of the latest step, the best included; broken ones are passed over with a warning.

        Raises:
            ArtifactError: If it is of another run; the difference is named.
        """
        best = self.best()
        newest = next((saved for path in self._newest_first() if (saved := self._open(path)) is not None), None)
        if best is None or newest is None:
            return newest or best
        return best if best.manifest["step"] > newest.manifest["step"] else newest

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
            for flaw in flaws(path, manifest["files"], digests=True):
                raise OSError(flaw)
            _, made_from = int(manifest["step"]), manifest["depends_on"]
        except KeyError as error:
            log.warning("checkpoint %s is broken (its manifest has no %s); looking for an older one", path, error)
            return None
        except (OSError, ValueError, TypeError) as error:
            log.warning("checkpoint %s is broken (%s); looking for an older one", path, error)
            return None
        differences = "; ".join(differing(made_from, self.depends_on))
        if differences:
            raise ArtifactError(
                f"{path} belongs to another run ({differences}). Take the settings and inputs back, {self.otherwise}"
            )
        return Saved(path, manifest)


@contextmanager
def written_whole(path: Path) -> Iterator[None]:
    """Turn what a full disk or a folder that cannot be written raises into one line.

    Raises:
        ArtifactError: Naming the path and the reason.
    """
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0]
        raise ArtifactError(
            f"{path}: cannot be written ({reason}); make room and run the same command, it goes on from the last "
            "checkpoint"
        ) from error
