"""Parcels: a saved selector as bytes in memory, opened by workers on machines that do not have its folder."""

import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from dana.core.errors import ArtifactError
from dana.scoring.saved_selector import SavedSelector, load_selector, selector_place


@dataclass(frozen=True)
class Parcel:
    """A saved selector, and what a worker that shares a file system with the sender finds there.

    Attributes:
        files: Content by path below the selector's folder.
        store: Folder of the embedding store to encode through, where the worker sees it; else it goes without, and
            the vectors have the same bits.
        directory: The sender's working directory, which relative paths of checkpoints begin at.
    """

    files: dict[str, bytes]
    store: str | None
    directory: str

    @classmethod
    def of(cls, folder: str | Path, store: str | None = None) -> "Parcel":
        """Pack a selector's folder, or that of a run or of its scores.

        Raises:
            ArtifactError: If there is none.
        """
        place = selector_place(folder)
        files = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
        return cls(files, store and str(Path(store).absolute()), str(Path.cwd()))

    def open(self) -> SavedSelector:
        """The selector, loaded here.

        Raises:
            ArtifactError: If the code that scores is not what it was fitted with, as scores could differ a little; and
                whatever :func:`dana.scoring.saved_selector.load_selector` raises.
        """
        if Path(self.directory).is_dir():
            os.chdir(self.directory)
        store = self.store if self.store and Path(self.store).is_dir() else None
        with TemporaryDirectory(prefix="dana-selector-") as folder:
            for name, content in self.files.items():
                file = Path(folder, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            saved = load_selector(folder, store=store)
        if saved.other_code:
            raise ArtifactError(
                f"the selector was fitted by other code ({', '.join(saved.other_code)}); all machines need the same "
                "version of dana and of its plug-ins"
            )
        return saved
