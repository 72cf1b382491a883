"""Scored documents in parts, one a task of another engine, on any fsspec file system; and the run that they make.

Of task 3: ``corpus/part-00003.parquet`` (:data:`dana.core.schemas.DOCUMENTS`), ``scores/part-00003.parquet``
(:data:`dana.core.schemas.SCORES`, a row group a shard) and, written last, ``tasks/00003.json``, which says of how many
tasks it is, by which selector it was scored, and the digests of both. Each is written under a name that
readers of tables pass over, and moved when whole. :func:`join_scores` makes a run of them.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.dirfs import DirFileSystem

from dana.core.artifacts import MANIFEST, META_DIR, Artifact, Draft, add_seal, get_notes, is_intact, make, open_artifact
from dana.core.config import require
from dana.core.errors import ArtifactError, DataError
from dana.core.files import check_digests, file_digest, text_digest
from dana.core.schemas import DOCUMENTS, SCORES, Document, iterate_documents
from dana.core.storage import is_url, open_file_system, with_retries
from dana.corpus.digests import DigestStore
from dana.corpus.documents import Tally, document_tables
from dana.scoring.saved_selector import LEARNED, SAVED
from dana.scoring.scoring import write_scores

TABLES = {"corpus": DOCUMENTS, "scores": SCORES}
TASKS = "tasks"
FORMAT = 1  # raise it when a reader of the old one would go wrong
AGAIN = "a rerun asks again"


def as_folder(place: Any) -> DirFileSystem:
    """The file system of a folder, in which names are relative to it.

    Args:
        place: A path, a URL of fsspec, or such a file system, as datatrove's ``DataFolder`` is one.

    Raises:
        ConfigError: If the URL's protocol is unknown or its package is missing, or it holds credentials.
    """
    if isinstance(place, DirFileSystem):
        return place
    fs, path = open_file_system(str(place)) if is_url(str(place)) else fsspec.url_to_fs(str(place))
    return DirFileSystem(path=path, fs=fs)


class PartWriter:
    """The two tables of one task, while they are written under other names."""

    def __init__(self, folder: DirFileSystem, rank: int) -> None:
        self.documents = self.blank = 0
        self._folder, tag = folder, uuid4().hex  # a task that was thought dead may still be writing
        self._files: dict[str, tuple[str, _Digested, pq.ParquetWriter]] = {}
        for table, schema in TABLES.items():
            aside = f"{table}/.part-{rank:05d}.parquet.{tag}"
            stream = _Digested(folder.open(aside, "wb"))
            writer = pq.ParquetWriter(stream, schema, compression="zstd", write_page_checksum=True)
            self._files[_part_name(table, rank)] = aside, stream, writer

    def add(self, documents: Sequence[Document], scores: pa.Table) -> None:
        """Write one shard, a row group of each table."""
        self.documents += len(documents)
        tables = (pa.concat_tables(document_tables(documents)), scores)
        for (_, _, writer), table in zip(self._files.values(), tables, strict=True):
            writer.write_table(table.combine_chunks(), row_group_size=max(1, table.num_rows))

    def move(self) -> dict[str, str]:
        """Give both their names; returns the digest of each by name."""
        for name, (aside, stream, writer) in self._files.items():
            writer.close()
            stream.close()
            self._folder.mv(aside, name)
        return {name: stream.digest.hexdigest() for name, (_, stream, _) in self._files.items()}

    def discard(self) -> None:
        """Leave nothing of what was not moved."""
        for aside, stream, writer in self._files.values():
            with suppress(Exception):  # what went wrong before is what is told
                writer.close()
                stream.close()
            with suppress(FileNotFoundError):
                self._folder.rm_file(aside)


class _Digested:
    """A file for pyarrow to write, with a digest of its bytes."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.digest = stream, blake2b(digest_size=16)

    def write(self, content: Any) -> int:
        self.digest.update(content)
        return self._stream.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def task_part(folder: DirFileSystem, rank: int, tasks: int, selector: str) -> Iterator[PartWriter]:
    """The part of one task: whole when the block ends, and nothing of it if anything was raised.

    What an earlier attempt left of the same task goes first.

    Args:
        folder: Of all parts, from :func:`as_folder`.
        rank: Of the task, from 0.
        tasks: How many there are.
        selector: Digest of the saved selector that scores.
    """
    for name in (*TABLES, TASKS):
        folder.makedirs(name, exist_ok=True)
    _clear(folder, rank)
    writer = PartWriter(folder, rank)
    try:
        yield writer
        about = {"format": FORMAT, "tasks": tasks, "selector": selector}
        about |= {"documents": writer.documents, "blank": writer.blank, "digests": writer.move()}
        aside = f"{TASKS}/.{rank:05d}.json.{uuid4().hex}"
        folder.pipe_file(aside, json.dumps(add_seal(about), indent=2).encode())
        folder.mv(aside, _record_name(rank))
    finally:
        writer.discard()


def _part_name(table: str, rank: int) -> str:
    return f"{table}/part-{rank:05d}.parquet"


def _record_name(rank: int) -> str:
    return f"{TASKS}/{rank:05d}.json"


def _clear(folder: DirFileSystem, rank: int) -> None:
    """Remove what an earlier attempt left of a task: first of all what says that it is whole."""
    left = [_record_name(rank), *(_part_name(table, rank) for table in TABLES)]
    for place, begins in ((TASKS, f".{rank:05d}.json."), *((table, f".part-{rank:05d}.parquet.") for table in TABLES)):
        left += [path for path in folder.ls(place, detail=False) if Path(path).name.startswith(begins)]
    for path in left:
        with suppress(FileNotFoundError):
            folder.rm_file(path)


def join_scores(parts: Any, run: str | Path, out: str | Path) -> Artifact:
    """Make a run of the parts that :class:`dana.scoring.engines.datatrove.DanaScore` wrote; ``dana weigh OUT`` goes on.

    The corpus has a part a task, so that ``dana score`` cuts it into the shards that the tasks scored; its order is
    that of the tasks, and of each one's documents. Nothing is dropped: repeated texts are to be left out before.

    Args:
        parts: The step's ``output``: a path, a URL of fsspec, or such a file system.
        run: Folder of the run whose selector scored.
        out: Folder of the new run: ``task``, as it is there, ``corpus`` and ``scores``.

    Returns:
        The scores.

    Raises:
        ArtifactError: If a task is missing, was one of another number of tasks or of another selector, a part is
            damaged, or `out` holds something else.
        ConfigError: If `out` is a URL, or that of the parts holds credentials.
        DataError: If two documents have one name, or there is none; or if the parts' file system refuses.
    """
    require(not is_url(str(out)), "out", out, "a local folder; copy it to a URL when it is whole")
    fitted = open_artifact(Path(run) / "scores", "scores", "dana score --task ... --general ... --out DIR")
    learned = {name: about for name, about in fitted.manifest["files"].items() if name.startswith(f"{META_DIR}/")}
    check_digests(fitted.path, learned, f"score {run} again, or copy it again")
    found = _Parts.open(as_folder(parts), fitted)
    task = open_artifact(Path(run) / "task", "task")

    def copy_task(draft: Draft) -> None:
        manifest = shutil.ignore_patterns(Path(MANIFEST).name)
        shutil.copytree(task.path, draft.path, dirs_exist_ok=True, ignore=manifest)
        draft.counts, draft.seeds = task.manifest["counts"], task.manifest["seeds"]
        draft.notes |= get_notes(task.manifest)

    make(Path(out) / "task", "task", task.manifest["depends_on"], copy_task)
    corpus = make(Path(out) / "corpus", "corpus", {"parts": found.digests("corpus")}, found.write_corpus)
    depends_on = {**fitted.manifest["depends_on"], "general": corpus.fingerprint, "parts": found.digests("scores")}
    return make(Path(out) / "scores", "scores", depends_on, lambda draft: found.write_scores(draft, fitted))


def _tasks_done(folder: DirFileSystem) -> dict[int, dict[str, Any]]:
    """What each task that is done has written of itself, by rank; one that is damaged counts as not done."""
    found = {}
    for path in folder.ls(TASKS, detail=False) if folder.isdir(TASKS) else []:
        name = Path(path).name
        if not name.startswith(".") and name.endswith(".json"):
            with suppress(ValueError):  # no JSON, or no number
                about = json.loads(folder.cat_file(f"{TASKS}/{name}"))
                if isinstance(about, dict) and "digest" in about and is_intact(about):
                    found[int(name.removesuffix(".json"))] = about
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class _Parts:
    """The parts of all tasks.

    Attributes:
        folder: Where they lie.
        records: What each task says of its own, in order.
    """

    folder: DirFileSystem
    records: list[dict[str, Any]]

    @classmethod
    def open(cls, folder: DirFileSystem, fitted: Artifact) -> "_Parts":
        """Find every task's, of one pipeline and the selector of `fitted`.

        Raises:
            ArtifactError: Naming what is missing or of another pipeline.
        """
        found = with_retries(lambda: _tasks_done(folder), folder.path, AGAIN)
        if not found:
            raise ArtifactError(f"{folder.path}: no scored parts here ({TASKS}/ is empty); DanaScore writes its output")
        wanted = {"format": FORMAT, "tasks": max(record["tasks"] for record in found.values())}
        wanted["selector"] = json.loads((fitted.path / LEARNED / SAVED).read_text(encoding="utf-8"))["digest"]
        for rank, record in found.items():
            place = f"{folder.path}/{_record_name(rank)}"
            if any(_part_name(table, rank) not in record["digests"] for table in TABLES):
                raise ArtifactError(f"{place}: is another task's record, {', '.join(record['digests'])}; remove it")
            for key, value in wanted.items():
                if record[key] != value:
                    differs = f"{place}: {key} is {record[key]}, not {value}"
                    raise ArtifactError(f"{differs}; write one pipeline's output, by one selector, to one folder")
        if missing := sorted({*range(wanted["tasks"])} - {*found}):
            raise ArtifactError(
                f"{folder.path}: {len(missing)} of {wanted['tasks']} tasks are not done, the first is {missing[0]}; "
                "start the pipeline again: it goes on with them"
            )
        return cls(folder, [*found.values()])

    def digests(self, table: str) -> list[str]:
        """Of the parts of ``corpus`` or ``scores``, in order."""
        return [record["digests"][_part_name(table, rank)] for rank, record in enumerate(self.records)]

    def write_corpus(self, draft: Draft) -> None:
        """Copy every task's documents, and count them."""
        tally = Tally()
        for rank, record in enumerate(self.records):
            self._fetch("corpus", rank, draft.path / Path(_part_name("corpus", rank)).name)
            tally.record_count += record["documents"] + record["blank"]
            if record["blank"]:
                tally.drop_counts["empty"] += record["blank"]
        with closing(DigestStore(draft.path)) as names:
            for document in iterate_documents(draft.path):
                digest = text_digest(document.doc_id)
                if names.get(digest) is not None:
                    raise DataError(f"{self.folder.path}: two documents are named {document.doc_id!r}")
                names.add(digest)
                tally.add(document)
        if not tally.document_count:
            raise DataError(f"{self.folder.path}: holds no document: {tally}")
        draft.counts.update(tally.as_dict())

    def write_scores(self, draft: Draft, fitted: Artifact) -> None:
        """Join every task's scores, in order."""
        units = write_scores(draft, fitted, self._shards(draft.path / META_DIR / "part.parquet"))
        draft.counts = {**fitted.manifest["counts"], "units": units}
        draft.seeds = fitted.manifest["seeds"]

    def _shards(self, place: Path) -> Iterator[pa.Table]:
        """Tables as the tasks scored them; one task's file at a time lies at `place`."""
        for rank in range(len(self.records)):
            self._fetch("scores", rank, place)
            with pq.ParquetFile(place, page_checksum_verification=True) as file:
                for group in range(file.num_row_groups):
                    yield file.read_row_group(group)
            place.unlink()

    def _fetch(self, table: str, rank: int, place: Path) -> None:
        """Copy a part to a local place, its bytes compared with their digest."""
        name = _part_name(table, rank)
        url = f"{self.folder.path}/{name}"
        again = f"let task {rank} run again: remove completions/{rank:05d} of the executor's logging_dir"

        def copy() -> None:
            try:
                self.folder.get_file(name, str(place))
            except FileNotFoundError as error:
                raise ArtifactError(f"{url}: is missing; {again}") from error

        with_retries(copy, url, AGAIN)
        if file_digest(place) != self.records[rank]["digests"][name]:
            raise ArtifactError(f"{url}: damaged; {again}")
