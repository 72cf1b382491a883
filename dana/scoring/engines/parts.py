"""Write scored documents on any fsspec file system, one part per task, and join them to a run.

A task is one of a pipeline. Task 3 writes ``pool/part-00003.parquet``
(:data:`dana.core.schemas.DOCUMENTS`), ``scores/part-00003.parquet``
(:data:`dana.core.schemas.SCORES`, one row group per shard) and last ``tasks/00003.json``: the
number of tasks, the selector's digest and the digests of both tables. Each file is written under a
hidden name and renamed when complete. :func:`join_scores` joins them.
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

from dana.core.artifacts import (
    MANIFEST,
    META_DIR,
    Artifact,
    Draft,
    get_notes,
    make,
    open_artifact,
)
from dana.core.config import require
from dana.core.errors import ArtifactError, DataError
from dana.core.files import file_digest, text_digest
from dana.core.schemas import DOCUMENTS, SCORES, Document, iterate_documents
from dana.core.storage import is_url, open_file_system, with_retries
from dana.corpus.digests import DigestStore
from dana.corpus.documents import Tally, document_tables
from dana.scoring.saved_selector import LEARNED, SAVED
from dana.scoring.scoring import write_scores
from dana.selectors.base import largest_score

TABLES = {"pool": DOCUMENTS, "scores": SCORES}
TASKS = "tasks"
FORMAT = 3  # raise it with every incompatible change
RECORD_KEYS = {
    "format",
    "tasks",
    "selector",
    "below",
    "documents",
    "blank",
    "foreign",
    "largest",
    "digests",
}
AGAIN = "run it again"
# Notes of scores that compare task text with pool text.
AGAINST_CHANCE = ("auroc", "auroc_low", "auroc_high", "length")


def as_folder(location: Any) -> DirFileSystem:
    """Open a folder as a file system with paths relative to it.

    Args:
        location: A path, a URL of fsspec, or such a file system, for example a ``DataFolder`` of
            datatrove.

    Raises:
        ConfigError: If the URL's protocol is unknown or its package is missing, or it holds
            credentials.
    """
    if isinstance(location, DirFileSystem):
        return location
    open_location = open_file_system if is_url(str(location)) else fsspec.url_to_fs
    fs, path = open_location(str(location))
    return DirFileSystem(path=path, fs=fs)


class PartWriter:
    """Writer of the two tables of one task, under hidden names until :meth:`move`."""

    def __init__(self, folder: DirFileSystem, rank: int) -> None:
        self.documents = 0
        self.blank = 0
        self.foreign = 0  # that were scored and left out
        self.largest: float | None = None  # score of a unit that is not short
        self._folder = folder
        tag = uuid4().hex  # an earlier attempt of the task may still be writing
        self._files: dict[str, tuple[str, _DigestStream, pq.ParquetWriter]] = {}
        for table, schema in TABLES.items():
            aside = f"{table}/.part-{rank:05d}.parquet.{tag}"
            stream = _DigestStream(folder.open(aside, "wb"))
            writer = pq.ParquetWriter(stream, schema, compression="zstd", write_page_checksum=True)
            self._files[_part_name(table, rank)] = (aside, stream, writer)

    def add(self, documents: Sequence[Document], scores: pa.Table) -> None:
        """Write one shard as a row group of each table; nothing if it has no document."""
        if not documents:
            return
        self.documents += len(documents)
        self.largest = _larger(self.largest, largest_score([scores]))
        tables = (pa.concat_tables(document_tables(documents)), scores)
        for (_, _, writer), table in zip(self._files.values(), tables, strict=True):
            writer.write_table(table.combine_chunks(), row_group_size=max(1, table.num_rows))

    def move(self) -> dict[str, str]:
        """Rename both files to their final names; return their digests by name."""
        digests = {}
        for name, (aside, stream, writer) in self._files.items():
            writer.close()
            stream.close()
            self._folder.mv(aside, name)
            digests[name] = stream.digest.hexdigest()
        return digests

    def discard(self) -> None:
        """Remove the files that were not moved."""
        for aside, stream, writer in self._files.values():
            with suppress(Exception):  # report the earlier error
                writer.close()
                stream.close()
            with suppress(FileNotFoundError):
                self._folder.rm_file(aside)


class _DigestStream:
    """A file that computes the digest of the bytes that pyarrow writes."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.digest = blake2b(digest_size=16)

    def write(self, content: Any) -> int:
        self.digest.update(content)
        written: int = self._stream.write(content)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def target_part(
    folder: DirFileSystem, rank: int, tasks: int, selector: str, below: float | None = None
) -> Iterator[PartWriter]:
    """Open the part of one task.

    It is complete when the block ends, and removed if the block raises. Files of an earlier attempt
    of the same task are removed first.

    Args:
        folder: Folder of all parts, from :func:`as_folder`.
        rank: Number of the task, from 0.
        tasks: Number of tasks.
        selector: Digest of the saved selector that scores.
        below: Threshold on the mean scores of the documents in the part; None for all documents.
    """
    for name in (*TABLES, TASKS):
        folder.makedirs(name, exist_ok=True)
    _clear(folder, rank)
    writer = PartWriter(folder, rank)
    try:
        yield writer
        record = {
            "format": FORMAT,
            "tasks": tasks,
            "selector": selector,
            "below": below,
            "documents": writer.documents,
            "blank": writer.blank,
            "foreign": writer.foreign,
            "largest": writer.largest,
            "digests": writer.move(),
        }
        aside = f"{TASKS}/.{rank:05d}.json.{uuid4().hex}"
        folder.pipe_file(aside, json.dumps(record, indent=2).encode())
        folder.mv(aside, _record_name(rank))
    finally:
        writer.discard()


def _larger(score: float | None, other: float | None) -> float | None:
    """Return the larger of two scores, of which one or both may be missing."""
    if score is None:
        return other
    if other is None:
        return score
    return max(score, other)


def _part_name(table: str, rank: int) -> str:
    return f"{table}/part-{rank:05d}.parquet"


def _record_name(rank: int) -> str:
    return f"{TASKS}/{rank:05d}.json"


def _clear(folder: DirFileSystem, rank: int) -> None:
    """Remove the files of an earlier attempt of a task, its record first."""
    paths = [_record_name(rank)]
    prefixes = {TASKS: f".{rank:05d}.json."}  # of files that were not renamed
    for table in TABLES:
        paths.append(_part_name(table, rank))
        prefixes[table] = f".part-{rank:05d}.parquet."
    for name, prefix in prefixes.items():
        for path in folder.ls(name, detail=False):
            if Path(path).name.startswith(prefix):
                paths.append(path)
    for path in paths:
        with suppress(FileNotFoundError):
            folder.rm_file(path)


def join_scores(parts: Any, run: str | Path, out: str | Path) -> Artifact:
    """Join the parts of ``DanaScore`` to a run that ``dana weigh`` can read.

    They are those of :class:`dana.scoring.engines.datatrove.DanaScore`. The pool has one part per
    task, in order, so its shards are those that the tasks scored. Documents are not deduplicated;
    do that in the pipeline, before scoring. The texts of all parts are copied here; of a pool that
    is too large for that, let ``DanaScore(below=...)`` write only the best.

    Args:
        parts: The step's ``output``: a path, a URL of fsspec, or such a file system.
        run: Folder of the run whose selector scored.
        out: Folder of the new run: ``target`` (a copy), ``pool`` and ``scores``.

    Returns:
        The scores.

    Raises:
        ArtifactError: If a task is missing, the number of tasks or the selector differs between
            tasks, a part is damaged, or `out` holds another run.
        ConfigError: If `out` is a URL, or the URL of the parts holds credentials.
        DataError: If two documents have the same id, there is none, or the parts cannot be read.
    """
    require(not is_url(str(out)), "out", out, "a local folder; copy it to a URL afterwards")
    scores = open_artifact(
        Path(run) / "scores", "scores", "dana score --task ... --pool ... --out DIR"
    )
    all_parts = _Parts.open(as_folder(parts), scores)
    target = open_artifact(Path(run) / "target", "target")

    def copy_target(draft: Draft) -> None:
        manifest = shutil.ignore_patterns(Path(MANIFEST).name)
        shutil.copytree(target.path, draft.path, dirs_exist_ok=True, ignore=manifest)
        draft.counts = target.manifest["counts"]
        draft.seeds = target.manifest["seeds"]
        draft.notes |= get_notes(target.manifest)

    make(Path(out) / "target", "target", target.manifest["depends_on"], copy_target)
    pool_parts = {"parts": all_parts.digests("pool")}
    pool = make(Path(out) / "pool", "pool", pool_parts, all_parts.write_corpus)
    depends_on = {
        **scores.manifest["depends_on"],
        "pool": pool.fingerprint,
        "parts": all_parts.digests("scores"),
    }

    def write(draft: Draft) -> None:
        all_parts.write_scores(draft, scores)

    return make(Path(out) / "scores", "scores", depends_on, write)


def _read_records(folder: DirFileSystem) -> dict[int, dict[str, Any]]:
    """Read the records of finished tasks by rank; a damaged record counts as missing."""
    if not folder.isdir(TASKS):
        return {}
    records = {}
    for path in folder.ls(TASKS, detail=False):
        name = Path(path).name
        if name.startswith(".") or not name.endswith(".json"):
            continue
        with suppress(ValueError):  # not JSON, or not a rank
            record = json.loads(folder.cat_file(f"{TASKS}/{name}"))
            if isinstance(record, dict) and record.keys() >= RECORD_KEYS:
                records[int(name.removesuffix(".json"))] = record
    return dict(sorted(records.items()))


def _check_record(
    location: str, rank: int, record: dict[str, Any], expected_record: dict[str, Any]
) -> None:
    """Check that a record is of its task, and of the pipeline and the selector of all others."""
    if any(_part_name(table, rank) not in record["digests"] for table in TABLES):
        raise ArtifactError(
            f"{location}: record of another task, {', '.join(record['digests'])}; remove it"
        )
    for key, value in expected_record.items():
        if record[key] != value:
            raise ArtifactError(
                f"{location}: expected {key} {value}, got {record[key]}; "
                "write one pipeline's output, by one selector, to one folder"
            )


@dataclass(frozen=True)
class _Parts:
    """The parts of all tasks.

    Attributes:
        folder: Folder of the parts.
        records: Record of each task, in order.
    """

    folder: DirFileSystem
    records: list[dict[str, Any]]

    @classmethod
    def open(cls, folder: DirFileSystem, scores: Artifact) -> "_Parts":
        """Read the records of all tasks.

        They must be of one pipeline and of the selector of `scores`.

        Raises:
            ArtifactError: Names a task that is missing or of another pipeline.
        """
        records = with_retries(lambda: _read_records(folder), folder.path, AGAIN)
        if not records:
            raise ArtifactError(
                f"{folder.path}: no scored parts here ({TASKS}/ is empty); "
                "DanaScore writes its output"
            )
        saved_selector = (scores.path / LEARNED / SAVED).read_text(encoding="utf-8")
        tasks = max(record["tasks"] for record in records.values())
        expected_record = {
            "format": FORMAT,
            "tasks": tasks,
            "below": records[min(records)]["below"],
            "selector": json.loads(saved_selector)["digest"],
        }
        for rank, record in records.items():
            _check_record(f"{folder.path}/{_record_name(rank)}", rank, record, expected_record)
        missing = sorted({*range(tasks)} - {*records})
        if missing:
            raise ArtifactError(
                f"{folder.path}: {len(missing)} of {tasks} tasks are not done, the first is "
                f"{missing[0]}; start the pipeline again to finish them"
            )
        return cls(folder, [*records.values()])

    def digests(self, table: str) -> list[str]:
        """Return the digests of the parts of ``pool`` or ``scores``, in order."""
        digests = []
        for rank, record in enumerate(self.records):
            digests.append(record["digests"][_part_name(table, rank)])
        return digests

    def write_corpus(self, draft: Draft) -> None:
        """Copy the documents of every task and count them."""
        tally = Tally()
        for rank, record in enumerate(self.records):
            self._fetch("pool", rank, draft.path / Path(_part_name("pool", rank)).name)
            tally.record_count += record["documents"] + record["blank"] + record["foreign"]
            for reason, key in (("empty", "blank"), ("foreign", "foreign")):
                if record[key]:
                    tally.drop_counts[reason] += record[key]
        with closing(DigestStore()) as names:
            for document in iterate_documents(draft.path):
                if names.add(text_digest(document.doc_id)) is not None:
                    raise DataError(
                        f"{self.folder.path}: two documents have the id {document.doc_id!r}"
                    )
                tally.add(document)
        if not tally.document_count:
            raise DataError(f"{self.folder.path}: no documents: {tally}")
        draft.counts.update(tally.as_dict())

    def write_scores(self, draft: Draft, scores: Artifact) -> None:
        """Write the scores of every task, in order."""
        largest = None
        for record in self.records:
            largest = _larger(largest, record["largest"])
        shards = self._shards(draft.path / META_DIR / "part.parquet")
        units = write_scores(draft, scores, shards, largest)
        if self.records[0]["below"] is not None:
            # Task text is compared with pool text of all scores, which these are not.
            of_sample = get_notes(scores.manifest)
            draft.notes |= {key: of_sample[key] for key in AGAINST_CHANCE if key in of_sample}
        counts = scores.manifest["counts"].items()
        draft.counts |= {name: count for name, count in counts if name != "short_units"}
        if "pool_units" in draft.counts:
            draft.counts["pool_units"] = units
        draft.counts["units"] = units
        draft.seeds = scores.manifest["seeds"]

    def _shards(self, path: Path) -> Iterator[pa.Table]:
        """Yield the shards of all tasks; `path` is a temporary file for one part at a time."""
        for rank in range(len(self.records)):
            self._fetch("scores", rank, path)
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                for group in range(file.num_row_groups):
                    yield file.read_row_group(group)
            path.unlink()

    def _fetch(self, table: str, rank: int, path: Path) -> None:
        """Copy a part to a local path and verify its digest."""
        name = _part_name(table, rank)
        url = f"{self.folder.path}/{name}"
        completion = f"completions/{rank:05d} of the executor's logging_dir"
        again = f"to run task {rank} again, remove {completion}"

        def copy() -> None:
            try:
                self.folder.get_file(name, str(path))
            except FileNotFoundError as error:
                raise ArtifactError(f"{url}: is missing; {again}") from error

        with_retries(copy, url, AGAIN)
        if file_digest(path) != self.records[rank]["digests"][name]:
            raise ArtifactError(f"{url}: damaged; {again}")
