"""Find split and label of text files by the names of their folders.

They are ``LABEL/1.txt``, or ``train/LABEL/1.txt``.
"""

from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from dana.core.errors import DataError

# Names of folders, in lower case, and what they hold.
SPLITS = {
    "train": "train",
    "training": "train",
    "dev": "dev",
    "valid": "dev",
    "validation": "dev",
    "val": "dev",
    "test": "test",
    "testing": "test",
}
UNLABELLED = frozenset({"unsup", "unsupervised", "unlabelled", "unlabeled"})


class Place(NamedTuple):
    """What the folders of a file say of it.

    Attributes:
        split: ``train``, ``dev`` or ``test``; empty where no folder is a split.
        label: The label; None for a text without one.
    """

    split: str
    label: str | None


def find_places(folder: str, files: Sequence[PurePath]) -> list[Place]:
    """Find split and label of each file of a folder.

    The folders at the top are splits if all of them have names of splits and hold a folder per
    label. The other way round, ``LABEL/train/1.txt``, they are labels, and so are folders of which
    none has the name of a split. A folder ``unsup`` holds texts without a label.

    Args:
        folder: The folder, for messages.
        files: Its text files, relative to it, each in a folder.

    Raises:
        DataError: If names of splits may be labels; says how to decide it.
    """
    top_folders = {file.parts[0] for file in files}
    tops = sorted(top for top in top_folders if not _is_unlabelled(top))
    splits = [top for top in tops if top.lower() in SPLITS]
    with_folders = {file.parts[0] for file in files if len(file.parts) > 2}
    if not splits:
        return [_below_label(file) for file in files]
    if len(splits) < len(tops):
        if with_folders.isdisjoint(splits):
            return [_below_label(file) for file in files]
        others = ", ".join(top for top in tops if top not in splits)
        raise DataError(
            f"{folder}: {', '.join(splits)} may be splits, or labels like {others}. Splits: move "
            f"{others} out of it; labels: rename {splits[0]}, for example to {splits[0]}-texts"
        )
    for file in files:
        if len(file.parts) == 2 and not _is_unlabelled(file.parts[0]):
            raise DataError(
                f"{folder}: {file} is in a folder with the name of a split, but in none of a "
                f"label. Splits: move it to {file.parts[0]}/LABEL/{file.name}; labels: rename "
                f"{file.parts[0]}, for example to {file.parts[0]}-texts"
            )
    return [_below_split(file) for file in files]


def _below_label(file: PurePath) -> Place:
    """Read ``LABEL/1.txt`` or ``LABEL/train/1.txt``."""
    folders = file.parts[:-1]
    split = ""
    if len(folders) > 1:
        split = SPLITS.get(folders[1].lower(), "")
    if any(map(_is_unlabelled, folders[:2])):
        return Place(split, None)
    return Place(split, folders[0])


def _below_split(file: PurePath) -> Place:
    """Read ``train/LABEL/1.txt``; folders of unlabelled texts may lie beside the splits, too."""
    if _is_unlabelled(file.parts[0]):
        return Place("train", None)
    label = file.parts[1]
    return Place(SPLITS[file.parts[0].lower()], None if _is_unlabelled(label) else label)


def _is_unlabelled(name: str) -> bool:
    return name.lower() in UNLABELLED
