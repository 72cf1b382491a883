"""Artifacts that runs share: made once in a folder of theirs, found by fingerprint, hard-linked into each run.

``SHARE/<kind>/<fingerprint>/`` is an artifact like any other. A run's own folder has other names of the same files, so
it is whole by itself, wherever it is moved on that file system and whatever is removed of the shared folder; the space
is free when the last name is gone. Where a file cannot have two names, as on another file system, it is copied.
"""

import errno
import json
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import Any

from dana.core.artifacts import MANIFEST, Artifact, Draft, canonical, fingerprint, make, reused
from dana.core.files import aside, locked, room_for, sync
from dana.core.launch import first
from dana.core.logging import get_logger

log = get_logger(__name__)

NO_LINK = (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


def make_shared(
    path: Path, kind: str, depends_on: dict[str, Any], write: Callable[[Draft], None], share: Path | None
) -> Artifact:
    """Like :func:`dana.core.artifacts.make`, but found in, or made in, a folder that runs share, and linked to `path`.

    Of several runs that want the same at one time one makes it, and the others wait for as long as it lives.

    Args:
        path: Final folder, in the run.
        kind: What it holds.
        depends_on: What decides the content; equal values are one artifact.
        write: Fills the draft's folder.
        share: The shared folder; None shares nothing.

    Raises:
        ArtifactError: As `make` does; also if what is shared has lost a file or a file is cut short. It is made again
            only when its folder is removed.
    """
    if share is None:
        return make(path, kind, depends_on, write)
    wanted = json.loads(canonical(depends_on))

    def find() -> Artifact:
        with ExitStack() as held:
            if (there := reused(path, kind, wanted)) is not None:
                return there
            held.enter_context(room_for(path))
            held.enter_context(locked(path))
            if (there := reused(path, kind, wanted)) is not None:  # another process made it meanwhile
                return there
            made = make(share / kind / fingerprint(wanted), kind, depends_on, write, patience=inf)
            return _link(made, held.enter_context(aside(path)), path)

    return first(find)


def _link(made: Artifact, draft: Path, path: Path) -> Artifact:
    """Give the files of an artifact second names in a draft, and that its own name."""
    copied = sum(_second_name(made.path / name, draft / name) for name in [*made.manifest["files"], MANIFEST])
    for folder in [*(below for below in draft.rglob("*") if below.is_dir()), draft]:
        sync(folder)
    if path.exists():
        path.rmdir()
    draft.rename(path)
    sync(path.parent)
    said = f"copied   {path}, as {copied} of its files cannot be linked," if copied else f"linked   {path}"
    log.info("%-9s %s from %s", made.manifest["kind"], said, made.path)
    return Artifact(path, made.manifest)


def _second_name(file: Path, name: Path) -> bool:
    """A hard link; else a copy. Returns whether it had to be copied."""
    name.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, name)
    except OSError as error:
        if error.errno not in NO_LINK:
            raise
        shutil.copyfile(file, name)
        sync(name)
        return True
    return False
