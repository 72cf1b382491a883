"""Stream data sets of the Hub as records, pinned to a commit and resumed after an interruption.

The run's folder stores the commit of each name in ``revisions.json``, so that a rerun reads the
same data. While a data set is read, its rows are stored in ``hub-rows/`` there, 10,000 per file
with the state of the stream after them; they are removed when the table made of them is complete.
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
FILE_URL = re.compile(
    r"hf://(datasets/|spaces/|models/|)([^/@]+/[^/@]+)(?:@(refs/(?:convert|pr)/[^/]+|[^/]+))?(/.*)"
)
REVISIONS = "revisions.json"
ROWS = "hub-rows"
ROWS_AT_ONCE = 10_000
END_OF_STREAM = {"ended": True}  # stored in place of the state of a stream


@dataclass(frozen=True)
class HubSet:
    """A data set of the Hub, pinned to a commit.

    Attributes:
        source: Name given by the user: ``hf:org/name[@revision][:config][:split]``.
        commit: Commit that is read; empty for a local folder.
        rows: Folder of the rows read so far; None for a local folder, which may change.
    """

    source: str
    commit: str
    rows: Path | None

    def __str__(self) -> str:
        return self.source


def _parse_name(source: str) -> tuple[str, str, str | None, str]:
    """Parse a source into name, revision, config and split."""
    name, *parts = source.removeprefix(HUB).split(":")
    name, separator, revision = name.partition("@")
    is_named = bool(name.strip()) and bool(revision.strip()) == bool(separator)
    require(is_named and len(parts) <= 2, "source", source, FORM)
    config = None
    split = "train"
    if parts:
        config = parts[0] or None
    if len(parts) > 1:
        split = parts[1]
    return name, revision, config, split


def pin(source: str, run: Path) -> HubSet:
    """Pin a data set to the commit of its revision.

    The Hub is asked once; the run's folder stores the commit.

    Raises:
        ConfigError: If `source` is not of the form :data:`FORM`.
        DataError: If the Hub has no such data set or revision, or cannot be reached.
    """
    name, revision, _, _ = _parse_name(source)
    if Path(name).exists():
        return HubSet(source, "", None)
    commit = _commit("dataset", name, revision, run, source)
    return HubSet(source, commit, run / ROWS / fingerprint([source, commit]))


def forget_rows(sources: Iterable[object]) -> None:
    """Remove the rows stored while data sets were read."""
    for source in sources:
        if not isinstance(source, HubSet) or source.rows is None:
            continue
        rmtree(source.rows, ignore_errors=True)
        with suppress(OSError):  # it holds rows of another data set, or does not exist
            source.rows.parent.rmdir()


def pin_url(url: str, run: Path) -> str:
    """Pin a URL of files on the Hub (``hf://``) to a commit; return any other URL unchanged.

    Raises:
        DataError: See :func:`pin`.
    """
    match = FILE_URL.fullmatch(url)
    if match is None or (match[3] or "").startswith("~") or match[2].startswith("buckets/"):
        return url
    kind = {"datasets/": "dataset", "spaces/": "space"}.get(match[1], "model")
    commit = _commit(kind, match[2], unquote(match[3] or ""), run, url)
    return f"hf://{match[1]}{match[2]}@{quote(commit, safe='')}{match[4]}"


def _commit(kind: str, name: str, revision: str, run: Path, source: str) -> str:
    """Look up the commit of a revision, in the run's folder or else on the Hub."""
    if COMMIT.fullmatch(revision):
        return revision
    path = run / REVISIONS
    key = f"{kind}s/{name}@{revision or 'main'}"
    commits: dict[str, str] = read_json(path) if path.is_file() else {}
    if key in commits:
        return commits[key]
    from huggingface_hub import HfApi

    info = with_retries(
        lambda: HfApi().repo_info(name, repo_type=kind, revision=revision or None), source
    )
    commits[key] = str(info.sha)
    write_json(path, commits)
    log.info("input     %s: commit %s, stored in %s", source, commits[key], path)
    return commits[key]


def is_hub(source: object) -> bool:
    """Return True for a data set of the Hub; the URL of a file there (``hf://``) is none."""
    if isinstance(source, HubSet):
        return True
    return isinstance(source, str) and source.startswith(HUB) and not is_url(source)


def read_hub(source: str | HubSet) -> Iterator[Record]:
    """Stream the rows of a data set as records; code in the data set is never run.

    ``datasets`` retries after dropped connections. If that fails or the process dies, the next run
    resumes a pinned data set after the last 10,000 rows that were stored.

    Raises:
        DataError: If it cannot be read.
    """
    try:
        for number, fields in enumerate(_rows(source), 1):
            yield Record(str(source), number, fields)
    except DanaError:
        raise
    except Exception as error:  # raised by any library that reads the format
        raise DataError(
            f"{source}: cannot be read: {error_line(error)}; run it again to resume from here"
        ) from error


def _rows(source: str | HubSet) -> Iterator[dict[str, Any]]:
    """Stream all rows: the stored ones first, then the rest of the data set."""
    name, revision, config, split = _parse_name(str(source))
    folder = None
    if isinstance(source, HubSet):
        folder = source.rows
        revision = source.commit
    state = None  # of the stream, after the stored rows
    if folder is not None:
        for part in sorted(folder.glob("*.json.gz")):
            content = json.loads(gzip.decompress(part.read_bytes()))
            state = content["state"]
            yield from content["rows"]
    if state == END_OF_STREAM:
        return
    from datasets import load_dataset

    stream = load_dataset(name, config, split=split, streaming=True, revision=revision or None)
    if state is not None:
        stream.load_state_dict(state)
        log.info("input     %s: resumes after the rows that an earlier run has read", name)
    waiting: list[dict[str, Any]] = []
    for row in stream:
        waiting.append(dict(row))
        if len(waiting) == ROWS_AT_ONCE:
            folder = _store_rows(folder, waiting, stream.state_dict())
            waiting = []
        yield dict(row)
    _store_rows(folder, waiting, END_OF_STREAM)


def _store_rows(
    folder: Path | None, rows: list[dict[str, Any]], state: dict[str, Any]
) -> Path | None:
    """Store rows, and return their folder.

    Returns:
        The folder; None if JSON cannot represent the rows (dates, pictures). Such data sets start
        over after an interruption.
    """
    if folder is None:
        return None
    try:
        text = json.dumps({"state": state, "rows": rows})
        if json.loads(text)["rows"] != rows:
            return None
    except (TypeError, ValueError):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob("*.json.gz")))
    with temp_file(folder / f"{number:06d}.json.gz") as temporary:
        temporary.write_bytes(gzip.compress(text.encode(), 1, mtime=0))
    return folder
