"""Keep models that are put together on this machine in the user's cache."""

import os
from collections.abc import Callable
from pathlib import Path

from dana.core.files import folder_lock, make_parent

PATIENCE = 600.0  # seconds to wait for another process that makes the same folder


def cache_path(name: str, sha256: str) -> Path:
    """Return the path of a model in the user's cache, whether it is there or not.

    Args:
        name: Name of the model.
        sha256: Digest of what it is made of; its first eight digits stand in the path.
    """
    cache_folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache_folder) / "dana" / f"{name}-{sha256[:8]}"


def make_once(folder: Path, make: Callable[[Path], None]) -> None:
    """Make a folder, unless another process was first.

    Args:
        folder: Its path (:func:`cache_path`).
        make: Writes the folder at that path, under another name until it is whole.

    Raises:
        ArtifactError: If it cannot be written, or another process makes it for too long.
    """
    with make_parent(folder), folder_lock(folder, PATIENCE):
        if not folder.is_dir():
            make(folder)
