"""Scored parts of another engine's tasks to a run: task, corpus and scores as ``dana score`` leaves them."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.dirfs import DirFileSystem

from dana.core.artifacts import MANIFEST, OWN, Artifact, Draft, make, notes_of, open_artifact, read_json
from dana.core.config import require
from dana.core.errors import ArtifactError, DataError
from dana.core.files import file_digest, text_digest
from dana.core.schemas import iterate_documents
from dana.core.seals import refuse_damage
from dana.core.urls import attempt, is_url
from dana.corpus.documents import Tally
from dana.corpus.seen import Seen
from dana.scoring.engines.scored_parts import FORMAT, TABLES, TASKS, as_folder, part_name, record_name, tasks_done
from dana.scoring.saved_selector import LEARNED, SAVED
from dana.scoring.scoring import write_scores

AGAIN = "a rerun asks again"


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
    own = {name: about for name, about in fitted.manifest["files"].items() if name.startswith(f"{OWN}/")}
    refuse_damage(fitted.path, own, f"score {run} again, or copy it again")
    found = _Parts.open(as_folder(parts), fitted)
    target = Path(out)
    task = open_artifact(Path(run) / "task", "task")
    make(target / "task", "task", task.manifest["depends_on"], lambda draft: _copy(task, draft))
    corpus = make(target / "corpus", "corpus", {"parts": found.digests("corpus")}, found.write_corpus)
    depends_on = {**fitted.manifest["depends_on"], "general": corpus.fingerprint, "parts": found.digests("scores")}
    return make(target / "scores", "scores", depends_on, lambda draft: found.write_scores(draft, fitted))


def _copy(artifact: Artifact, draft: Draft) -> None:
    """Fill a draft with what an artifact holds."""
    shutil.copytree(artifact.path, draft.path, dirs_exist_ok=True, ignore=_without_manifest)
    draft.counts, draft.seeds = artifact.manifest["counts"], artifact.manifest["seeds"]
    draft.notes |= notes_of(artifact.manifest)


def _without_manifest(folder: str, names: list[str]) -> list[str]:
    name = Path(MANIFEST).name
    return [name] if Path(folder).name == OWN and name in names else []


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
        found = attempt(lambda: tasks_done(folder), folder.path, "read", AGAIN)
        if not found:
            raise ArtifactError(f"{folder.path}: no scored parts here ({TASKS}/ is empty); DanaScore writes its output")
        wanted = {"format": FORMAT, "tasks": max(record["tasks"] for record in found.values())}
        wanted["selector"] = read_json(fitted.path / LEARNED / SAVED)["digest"]
        for rank, record in found.items():
            place = f"{folder.path}/{record_name(rank)}"
            if any(part_name(table, rank) not in record["files"] for table in TABLES):
                raise ArtifactError(f"{place}: is another task's record, {', '.join(record['files'])}; remove it")
            for key, value in wanted.items():
                if record[key] != value:
                    said = f"{place}: {key} is {record[key]}, not {value}"
                    raise ArtifactError(f"{said}; write one pipeline's output, by one selector, to one folder")
        if missing := sorted({*range(wanted["tasks"])} - {*found}):
            raise ArtifactError(
                f"{folder.path}: {len(missing)} of {wanted['tasks']} tasks are not done, the first is {missing[0]}; "
                "start the pipeline again: it goes on with them"
            )
        return cls(folder, [*found.values()])

    def digests(self, table: str) -> list[str]:
        """Of the parts of ``corpus`` or ``scores``, in order."""
        return [record["files"][part_name(table, rank)]["digest"] for rank, record in enumerate(self.records)]

    def write_corpus(self, draft: Draft) -> None:
        """Copy every task's documents, and count them."""
        tally = Tally()
        for rank, record in enumerate(self.records):
            self._fetch("corpus", rank, draft.path / Path(part_name("corpus", rank)).name)
            tally.read += record["documents"] + record["blank"]
            if record["blank"]:
                tally.dropped["empty"] += record["blank"]
        with closing(Seen(draft.path)) as names:
            for document in iterate_documents(draft.path):
                digest = text_digest(document.doc_id)
                if names.get(digest) is not None:
                    raise DataError(f"{self.folder.path}: two documents are named {document.doc_id!r}")
                names.add(digest)
                tally.keep(document)
        if not tally.kept:
            raise DataError(f"{self.folder.path}: holds no document: {tally}")
        draft.counts.update(tally.as_dict())

    def write_scores(self, draft: Draft, fitted: Artifact) -> None:
        """Join every task's scores, in order."""
        units = write_scores(draft, fitted, self._shards(draft.path / OWN / "part.parquet"))
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
        name = part_name(table, rank)

        def copy() -> None:
            try:
                self.folder.get_file(name, str(place))
            except FileNotFoundError as error:
                raise ArtifactError(f"{self.folder.path}/{name}: is missing; {self._again(rank)}") from error

        attempt(copy, f"{self.folder.path}/{name}", "read", AGAIN)
        if file_digest(place) != self.records[rank]["files"][name]["digest"]:
            raise ArtifactError(f"{self.folder.path}/{name}: damaged; {self._again(rank)}")

    def _again(self, rank: int) -> str:
        return f"let task {rank} run again: remove completions/{rank:05d} of the executor's logging_dir"
