"""Commit folders of files by one rename, and open those of the same settings and inputs."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dana.core.artifacts import list_differences, write_json
from dana.core.errors import Contradiction
from dana.core.files import sync, sync_folder, temp_dir
from dana.core.logging import get_logger
from dana.train.state import explain_write_errors

log = get_logger(__name__)

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class SealedFolder:
    """A folder that was committed whole.

    Attributes:
        path: The folder.
        manifest: The inputs it ``depends_on``, and notes.
    """

    path: Path
    manifest: dict[str, Any]


@dataclass(frozen=True)
class SealedFolders:
    """Folders of one piece of work, side by side.

    Attributes:
        folder: Their parent.
        depends_on: Settings and inputs; a folder made from others is refused.
    """

    folder: Path
    depends_on: dict[str, Any]

    def commit(self, name: str, write: Callable[[Path], None], notes: dict[str, Any]) -> None:
        """Write a folder aside and rename it to `name`, replacing an older folder.

        Args:
            name: Name of the folder.
            write: Writes the files into a given folder.
            notes: Further entries of the manifest.

        Raises:
            ArtifactError: If it cannot be written; an older folder stays.
        """
        final = self.folder / name
        with explain_write_errors(final):
            self.folder.mkdir(parents=True, exist_ok=True)
            with temp_dir(self.folder / "saving") as draft:
                write(draft)
                write_json(draft / MANIFEST, {"depends_on": self.depends_on, **notes})
                sync_folder(draft)
                shutil.rmtree(final, ignore_errors=True)
                draft.rename(final)
                sync(self.folder)

    def open(self, name: str) -> SealedFolder | None:
        """Open the folder of a name; None if there is none, or, with a warning, if its manifest is damaged.

        Raises:
            Contradiction: If it was made from other settings or inputs.
        """
        path = self.folder / name
        if not path.is_dir():
            return None
        try:
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            inputs = manifest["depends_on"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            why = f"its manifest has no {error}" if isinstance(error, KeyError) else error
            log.warning("%s is damaged (%s) and is not used", path, why)
            return None
        differences = "; ".join(list_differences(inputs, self.depends_on))
        if differences:
            raise Contradiction(self.folder, [differences])
        return SealedFolder(path, manifest)

    def remove(self) -> None:
        """Delete all folders and hidden leftovers, and the parent unless it holds files of somebody else."""
        for path in self.folder.glob("*"):
            if path.name.startswith(".") or (path / MANIFEST).is_file():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
        with suppress(OSError):
            self.folder.rmdir()
