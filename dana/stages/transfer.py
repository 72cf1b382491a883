"""``dana push`` and ``dana pull``: what dana wrote here to a URL, and from a URL to here, file by file.

Object stores have neither locks nor renames. So a push writes a journal, every file but the first part of each table,
these first parts, and the manifest at last. In place of a first part stands until then a file that no reader of Parquet
opens: what was pushed in part opens neither with dana nor with pandas.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from dana.core.artifacts import MANIFEST, MANIFEST_KEYS, OWN, canonical, is_sealed, open_artifact, read_manifest
from dana.core.config import SETTINGS, require
from dana.core.errors import ArtifactError
from dana.core.files import replacing, room_for, sync
from dana.core.locks import locked
from dana.core.logging import get_logger, progress
from dana.core.seals import flaws, refuse_damage
from dana.core.storage import BLOCK, RemoteFile, below, files_below, list_url, remove_remote, write_remote
from dana.core.urls import check_url, is_url, place_of

log = get_logger(__name__)

JOURNAL = f"{OWN}/push.json"
FIRST = "part-00000.parquet"
UNFINISHED = b"Not a table yet: dana push writes this one, and its first part comes last.\n"
GOES_ON = "run it again: it goes on with the files that are missing"


def push(folder: Path, url: str) -> Iterator[str]:
    """Copy an artifact, or every artifact of a run and its settings, to a URL; a line each.

    A file that an earlier push has written, and nobody since, is passed over; of what was pushed whole only sizes are
    compared, as its bytes would have to be fetched (:func:`pull` does). Checkpoints and embeddings stay here.

    Args:
        folder: An artifact, or a run's folder.
        url: Where it goes; of a run each artifact goes below it, by its name.

    Raises:
        ConfigError: If it is no URL, holds credentials, or is within the folder.
        ArtifactError: If there is nothing to push, a file is damaged, or something else is at the URL.
        DataError: If the file system refuses, or the connection goes on dropping.
    """
    _check(url)
    if url.startswith("memory:"):
        log.warning("%s: is in the memory of this process, gone when it ends", url)
    within = url.startswith("file:") and Path(place_of(url).path).resolve().is_relative_to(folder.resolve())
    require(not within, "URL", url, f"a place outside {folder}")
    found = [file.parent.parent for file in sorted(folder.rglob(MANIFEST))]
    found = [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    if not found:
        raise ArtifactError(f"{folder}: nothing made by dana there (no {MANIFEST})")
    for path in found:
        place = url if path == folder else below(url, path.relative_to(folder).as_posix())
        yield f"{_push_one(path, place)} {place}"
    if (folder / SETTINGS).is_file():
        write_remote(below(url, SETTINGS), folder / SETTINGS, GOES_ON)


def _check(url: str) -> None:
    require(is_url(url), "URL", url, "a URL, such as s3://bucket/name")
    check_url(url)


def _push_one(folder: Path, url: str) -> str:
    manifest = open_artifact(folder, read_manifest(folder)["kind"]).manifest
    seals, there = manifest["files"], _own_files(url)
    if {MANIFEST, JOURNAL} <= there.keys() and _is_torn(there[MANIFEST]):
        remove_remote(there.pop(MANIFEST).url)  # killed in its last step
    if MANIFEST in there:
        _refuse_another(_manifest_at(there[MANIFEST]), manifest, url)
        if name := next((name for name in seals if name not in there or there[name].size != seals[name]["bytes"]), ""):
            raise ArtifactError(f"{below(url, name)}: is not what was pushed; remove {url} and push again")
        if JOURNAL in there:  # killed between its last two steps
            remove_remote(below(url, JOURNAL))
        return "was there"
    done = _done_before(folder, url, there, manifest)
    firsts = [name for name in seals if PurePosixPath(name).name == FIRST]
    others = [name for name in seals if name not in firsts]
    if any(name not in done for name in others):
        done = {name: about for name, about in done.items() if name in others}
    _note(url, manifest, done)
    for name in firsts:
        if name not in done:
            write_remote(below(url, name), UNFINISHED, GOES_ON)
    with progress(what=f"pushing {folder.name}", unit="B", total=_bytes(seals)) as bar:
        for name in [*others, *firsts]:
            if name not in done:
                refuse_damage(folder, {name: seals[name]}, "it is not pushed")
                write_remote(below(url, name), folder / name, GOES_ON)
                done[name] = {"digest": seals[name]["digest"], "there": _identity(below(url, name))}
                _note(url, manifest, done)
            bar.update(seals[name]["bytes"])
    _check_alone(url, done)
    write_remote(below(url, MANIFEST), folder / MANIFEST, GOES_ON)
    remove_remote(below(url, JOURNAL))
    return "pushed"


def _is_torn(file: RemoteFile) -> bool:
    """Whether a manifest is not whole, as a file system leaves it that writes in place."""
    try:
        _manifest_at(file)
    except ArtifactError:
        return True
    return False


def _own_files(url: str) -> dict[str, RemoteFile]:
    """The files below a URL that are not of another artifact below it."""
    there = files_below(url)
    ends = (f"/{MANIFEST}", f"/{JOURNAL}")
    others = tuple({name[: -len(end)] + "/" for name in there for end in ends if name.endswith(end)})
    return {name: file for name, file in there.items() if not name.startswith(others)}


def _done_before(folder: Path, url: str, there: dict[str, RemoteFile], manifest: dict[str, Any]) -> dict[str, Any]:
    """What an earlier push of this artifact has written that is still so, by the journal it left."""
    if not there:
        return {}
    journal = _journal(there[JOURNAL], manifest) if JOURNAL in there else {}
    if journal.get("fingerprint") != manifest["fingerprint"]:
        raise ArtifactError(f"{url}: not empty, and not what a push of {folder} has left; choose another URL")
    if strange := sorted(there.keys() - manifest["files"].keys() - {JOURNAL}):
        raise ArtifactError(f"{below(url, strange[0])}: is not of {folder}; remove it, or choose another URL")
    return {
        name: about
        for name, about in journal["files"].items()
        if name in there
        and about["digest"] == manifest["files"].get(name, {}).get("digest")
        and about["there"] == there[name].identity
    }


def _journal(file: RemoteFile, manifest: dict[str, Any]) -> dict[str, Any]:
    """What an earlier push noted; where it was killed while it wrote that, what one that wrote no file would have."""
    try:
        journal = json.loads(_read(file))
        if isinstance(journal, dict) and isinstance(journal.get("files"), dict):
            return journal
    except ValueError:
        pass
    log.warning("%s: is damaged, as a push leaves it that is killed while it writes it; all files are sent again", file)
    return {"fingerprint": manifest["fingerprint"], "files": {}}


def _note(url: str, manifest: dict[str, Any], done: dict[str, Any]) -> None:
    journal = {"fingerprint": manifest["fingerprint"], "files": done}
    write_remote(below(url, JOURNAL), canonical(journal).encode(), GOES_ON)


def _identity(url: str) -> str:
    return list_url(url).files[0].identity


def _check_alone(url: str, done: dict[str, Any]) -> None:
    """Two that push to one place find each other out before either says that the table is whole."""
    there = _own_files(url)
    there.pop(JOURNAL, None)
    for name in sorted(there.keys() | done.keys()):
        if name not in done or name not in there or there[name].identity != done[name]["there"]:
            raise ArtifactError(f"{below(url, name)}: was written by somebody else meanwhile; push again when they end")


def pull(url: str, folder: Path) -> Iterator[str]:
    """Copy what was pushed to a URL into a local folder; a line each.

    Every byte is compared with the digest in the manifest. Killed, the same command goes on with the missing files.

    Args:
        url: Of an artifact, or of a run.
        folder: Where it goes.

    Raises:
        ConfigError: If it is no URL, or holds credentials.
        ArtifactError: If nothing finished is at the URL, something else is in the folder, or a file is damaged; or if
            an artifact would take the place of the working directory.
        DataError: If the file system refuses, or the connection goes on dropping.
    """
    _check(url)
    there = files_below(url)
    begun = sorted(name for name in there if f"/{name}".endswith(f"/{JOURNAL}"))
    if begun := [name for name in begun if name.removesuffix(JOURNAL) + MANIFEST not in there]:
        place = below(url, begun[0].removesuffix(JOURNAL)).rstrip("/")
        raise ArtifactError(f"{place}: was pushed in part; run dana push again")
    found = sorted(name.removesuffix(MANIFEST) for name in there if f"/{name}".endswith(f"/{MANIFEST}"))
    if not found:
        raise ArtifactError(f"{url}: nothing that dana push wrote there (no {MANIFEST})")
    for place in found:
        files = {name.removeprefix(place): file for name, file in there.items() if name.startswith(place)}
        yield f"{_pull_one(files, folder / _inside(place))} {folder / place}"
    if SETTINGS in there and not (folder / SETTINGS).exists():
        _fetch(there[SETTINGS], folder / SETTINGS)


def _pull_one(there: dict[str, RemoteFile], folder: Path) -> str:
    manifest = _manifest_at(there[MANIFEST])
    with room_for(folder), locked(folder):
        if here := read_manifest(folder):
            _refuse_another(here, manifest, str(folder))
            return "was there"
        if folder.exists() and any(folder.iterdir()):
            raise ArtifactError(f"{folder}: not empty, and not made by dana; choose another folder")
        aside = folder.with_name(f".{folder.name}.pulled")
        for stray in [path for path in aside.rglob("*") if path.is_file()]:
            if stray.relative_to(aside).as_posix() not in manifest["files"]:
                stray.unlink()
        with progress(what=f"pulling {folder.name}", unit="B", total=_bytes(manifest["files"])) as bar:
            for name, about in manifest["files"].items():
                _pull_file(name, there, aside, manifest)
                bar.update(about["bytes"])
        _fetch(there[MANIFEST], aside / MANIFEST)
        read_manifest(aside)
        sync(aside)
        if folder.exists():
            folder.rmdir()
        aside.rename(folder)
        sync(folder.parent)
    return "pulled"


def _bytes(seals: dict[str, Any]) -> int:
    return sum(about["bytes"] for about in seals.values())


def _pull_file(name: str, there: dict[str, RemoteFile], aside: Path, manifest: dict[str, Any]) -> None:
    """One file into the folder aside, unless it is there whole."""
    expected = {name: manifest["files"][name]}
    path = aside / _inside(name)
    if not next(flaws(aside, expected, digests=True), None):
        return
    place = there[MANIFEST].url.removesuffix(MANIFEST)
    if name not in there:
        raise ArtifactError(f"{place}{name}: is missing; remove {place} and push again")
    _fetch(there[name], path)
    if next(flaws(aside, expected, digests=True), None):
        path.unlink()
        raise ArtifactError(f"{there[name]}: is not what was pushed; remove {place} and push again")


def _inside(name: str) -> PurePosixPath:
    """A place below a folder, as a manifest or a listing names it, which must not lead out of it."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ArtifactError(f"{name!r}: a file's place in a manifest must lie below its folder")
    return path


def _fetch(file: RemoteFile, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as stream, file.open() as source:
        shutil.copyfileobj(source, stream, BLOCK)


def _read(file: RemoteFile) -> bytes:
    with file.open() as stream:
        return stream.read()


def _manifest_at(file: RemoteFile) -> dict[str, Any]:
    """A manifest at a URL.

    Raises:
        ArtifactError: If it is damaged, or none.
    """
    try:
        manifest = json.loads(_read(file))
        whole = isinstance(manifest, dict) and is_sealed(manifest)
        whole = whole and all(isinstance(manifest.get(key), allowed) for key, allowed in MANIFEST_KEYS.items())
    except ValueError as error:
        raise ArtifactError(f"{file}: not a manifest: {error}") from error
    if not whole:
        place = file.url.removesuffix(MANIFEST)
        raise ArtifactError(f"{file}: its bytes are not those that were written; remove {place} and push again")
    return manifest


def _refuse_another(there: dict[str, Any], wanted: dict[str, Any], place: str) -> None:
    if any(there[key] != wanted[key] for key in ("kind", "fingerprint", "files")):
        raise ArtifactError(f"{place}: holds other {there['kind']}; remove it, or choose another place")
