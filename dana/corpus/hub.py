"""Data sets of the Hub to records: pinned to a commit when first read, streamed, resumed after an interruption.

A run's folder remembers in ``revisions.json`` which commit a name stood for, so a rerun reads what was read before.
While a set is read its rows lie in ``hub-rows/`` there, 10,000 a file with the state of the stream behind them; they
are removed when the table made of them is whole.
"""

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any
from urllib.parse import quote, unquote

from dana.core.artifacts import fingerprint, read_json, write_json
from dana.core.config import require
from dana.core.errors import DanaError, DataError
from dana.core.files import temp_file
from dana.core.logging import get_logger
from dana.core.storage import error_line, is_url, with_retries
from dana.corpus.inputs import Record

log = get_logger(__name__)

HUB = "hf:"
FORM = "hf:org/name[@revision][:config][:split]"
COMMIT = re.compile(r"[0-9a-f]{40}")
FILE_URL = re.compile(r"hf://(datasets/|spaces/|models/|)([^/@]+/[^/@]+)(?:@(refs/(?:convert|pr)/[^/]+|[^/]+))?(/.*)")
REVISIONS, ROWS = "revisions.json", "hub-rows"
ROWS_AT_ONCE = 10_000
ENDED = {"ended": True}  # in place of the state of a stream


@dataclass(frozen=True)
class HubSet:
    """A data set of the Hub, pinned.

    Attributes:
        source: As it was named: ``hf:org/name[@revision][:config][:split]``.
        commit: What is read; empty for a local folder.
        rows: Folder that rows read so far are kept in; None for a local folder, which may change.
    """

    source: str
    commit: str
    rows: Path | None

    def __str__(self) -> str:
        return self.source


def _parsed(source: str) -> tuple[str, str, str | None, str]:
    """Name, revision, config and split."""
    name, *rest = source.removeprefix(HUB).split(":")
    name, at, revision = name.partition("@")
    named = bool(name.strip()) and bool(revision.strip()) == bool(at)
    require(named, "source", source, FORM)
    return name, revision, (rest[0] or None if rest else None), (rest[1] if len(rest) > 1 else "train")


def pin(source: str, run: Path) -> HubSet:
    """A data set at the commit that its revision stands for, asked once a run's folder.

    Raises:
        ConfigError: If the name is not of the form above.
        DataError: If the Hub has no such data set or revision, or cannot be asked.
    """
    name, revision, _, _ = _parsed(source)
    commit = "" if Path(name).exists() else _commit("dataset", name, revision, run, source)
    return HubSet(source, commit, run / ROWS / fingerprint([source, commit]) if commit else None)


def forget_rows(sources: Iterable[object]) -> None:
    """Remove the rows that were kept while data sets were read."""
    for rows in (source.rows for source in sources if isinstance(source, HubSet) and source.rows):
        rmtree(rows, ignore_errors=True)
        with suppress(OSError):  # of another set, or there was none
            rows.parent.rmdir()


def pin_url(url: str, run: Path) -> str:
    """A URL of files on the Hub (``hf://``) with the commit in it; any other URL as it is.

    Raises:
        DataError: See :func:`pin`.
    """
    found = FILE_URL.fullmatch(url)
    if found is None or (found[3] or "").startswith("~") or found[2].startswith("buckets/"):
        return url
    kind = {"datasets/": "dataset", "spaces/": "space"}.get(found[1], "model")
    commit = _commit(kind, found[2], unquote(found[3] or ""), run, url)
    return f"hf://{found[1]}{found[2]}@{quote(commit, safe='')}{found[4]}"


def _commit(kind: str, name: str, revision: str, run: Path, source: str) -> str:
    """The commit that a revision stands for: remembered by the run's folder, or asked of the Hub."""
    if COMMIT.fullmatch(revision):
        return revision
    path, key = run / REVISIONS, f"{kind}s/{name}@{revision or 'main'}"
    known = read_json(path) if path.is_file() else {}
    if key not in known:
        from huggingface_hub import HfApi

        found = with_retries(lambda: HfApi().repo_info(name, repo_type=kind, revision=revision or None), source)
        known[key] = str(found.sha)
        write_json(path, known)
        log.info("input     %s: commit %s, which %s remembers", source, known[key], path)
    return known[key]


def is_hub(source: object) -> bool:
    """Whether a source is a data set of the Hub, and no URL of a file there (``hf://``)."""
    return isinstance(source, HubSet) or (isinstance(source, str) and source.startswith(HUB) and not is_url(source))


def read_hub(source: str | HubSet) -> Iterator[Record]:
    """Stream a data set's rows; no code of the data set's is ever run.

    ``datasets`` asks again where the connection drops; where that fails or the process dies, a pinned set goes on at
    the last 10,000 rows.

    Raises:
        DataError: If it cannot be read.
    """
    try:
        for number, fields in enumerate(_rows(source), 1):
            yield Record(str(source), number, fields)
    except DanaError:
        raise
    except Exception as error:  # of any library that the dataset's format needs
        raise DataError(f"{source}: cannot be read: {error_line(error)}; a rerun goes on from here") from error


def _rows(source: str | HubSet) -> Iterator[dict[str, Any]]:
    """All rows: those read before from files, then the stream from the place behind them."""
    name, revision, config, split = _parsed(str(source))
    folder, state = None, None
    if isinstance(source, HubSet):
        folder, revision = source.rows, source.commit
    for part in sorted(folder.glob("*.json.gz")) if folder else ():
        content = json.loads(gzip.decompress(part.read_bytes()))
        state = content["state"]
        yield from content["rows"]
    if state == ENDED:
        return
    from datasets import load_dataset

    stream = load_dataset(name, config, split=split, streaming=True, revision=revision or None)
    if state is not None:
        stream.load_state_dict(state)
        log.info("input     %s: goes on after the rows that were read before", name)
    waiting: list[dict[str, Any]] = []
    for row in stream:
        waiting.append(dict(row))
        if len(waiting) == ROWS_AT_ONCE:
            folder = _keep(folder, waiting, stream.state_dict())
            waiting = []
        yield dict(row)
    _keep(folder, waiting, ENDED)


def _keep(folder: Path | None, rows: list[dict[str, Any]], state: dict[str, Any]) -> Path | None:
    """Write rows down; None where JSON would not give them back (dates, pictures): such sets begin anew."""
    if folder is None:
        return None
    try:
        text = json.dumps({"state": state, "rows": rows})
        if json.loads(text)["rows"] != rows:
            return None
    except (TypeError, ValueError):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    with temp_file(folder / f"{len(list(folder.glob('*.json.gz'))):06d}.json.gz") as temporary:
        temporary.write_bytes(gzip.compress(text.encode(), 1, mtime=0))
    return folder
