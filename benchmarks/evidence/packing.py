"""Pack what adapting and probing read into one file, for a machine without the pool; and unpack it there.

    python benchmarks/evidence/packing.py FILE WORK [--texts N]

makes of a packed file a folder WORK in which `python benchmarks evidence WORK` adapts and probes. It has
no pool, so no text can be selected there. `python benchmarks/gpu/pack.py --evidence WORK` packs the file.

A document stands once, however many arms read it. Of an arm it is packed which sentences it reads.
"""

import argparse
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from eight_bits import DESCRIPTION, pack_model, unpack_model
from plan import MODEL, TASKS, Adaptation, primary, rivals
from rows import Results, choices_of
from steps import run_folder
from texts import read_rows, write_rows

from dana.core.artifacts import read_json, write_json
from dana.core.schemas import (
    DOCUMENTS,
    WEIGHTS,
    Document,
    iterate_documents,
    read_table,
    table_identity,
    write_parts,
)
from dana.corpus.documents import document_tables
from dana.models.folder import resolve_model
from dana.stages.texts import held_out_folders, held_out_stage

PACKED = "packed.json"  # of a WORK that was unpacked: what its base is
SPLITS = ("train.jsonl", "test.jsonl")
DOCUMENTS_FILE = "documents.jsonl"
ARMS_FILE = "arms.jsonl"
PLANS = {"primary": primary, "dsir": rivals}  # of the questions whose text is packed
STRONGEST: Final = 9  # compression: text of several arms is found again 64 MB later


@dataclass(frozen=True)
class Stretch:
    """Neighbouring sentences of a document that an arm reads.

    Attributes:
        document: Id of the document.
        first: Number of the first sentence.
        last: Number of the last.
    """

    document: str
    first: int
    last: int


def arms_of(questions: Iterable[str]) -> list[Adaptation]:
    """Return an adaptation for each text that questions need, by what the committed pilots chose."""
    choices = choices_of(Results())
    planned = [one for question in questions for one, _ in PLANS[question](choices)]
    texts = {run_folder(Path(), one.task, one.arm, one.index): one for one in planned}
    return list(texts.values())


def pack(work: Path, arms: Iterable[Adaptation], out: Path) -> None:
    """Pack tasks, base and the text of some arms.

    Args:
        work: Folder of texts and selections.
        arms: Adaptations, one for each text.
        out: File to write, ``.tar.xz``.

    Raises:
        ValueError: If two arms read different pools, or a sentence has a weight other than 0 and 1.
    """
    runs = [run_folder(work, one.task, one.arm, one.index) for one in arms]
    pools = {table_identity(run / "pool") for run in runs}
    if len(pools) != 1:
        raise ValueError(f"{work / 'runs'}: expected arms of one pool, found {len(pools)} pools")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for task in TASKS:
            for split in SPLITS:
                rows = read_rows(work / "tasks" / task.name / split)
                write_rows(folder / "tasks" / task.name / split, rows)
        pack_model(Path(resolve_model(MODEL)), folder / "bases" / MODEL)
        held_out = held_out_ids(runs[0] / "pool")
        _pack_arms(runs, held_out, folder)
        write_json(folder / PACKED, {"base": DESCRIPTION, "held_out": held_out})
        with tarfile.open(out, "w:xz", preset=STRONGEST) as archive:
            archive.add(folder, arcname=".")


def held_out_ids(pool: Path) -> list[str]:
    """Return the ids of the documents of a pool on which adapting measures its loss, and does not train."""
    with tempfile.TemporaryDirectory() as name:
        artifact = held_out_stage(pool, Path(name) / "held_out")
        return [document.doc_id for document in iterate_documents(artifact.path)]


def _pack_arms(runs: Sequence[Path], held_out: Sequence[str], folder: Path) -> None:
    """Write the documents that any run reads, with the places of their sentences, and what each run reads."""
    stretches = {run.name: read_stretches(run / "weights") for run in runs}
    selected = {one.document for some in stretches.values() for one in some}
    edges = read_edges(runs[0] / "weights", selected)
    needed = selected.union(held_out)
    documents = [
        {**asdict(document), "edges": edges.get(document.doc_id, [])}
        for document in iterate_documents(runs[0] / "pool")
        if document.doc_id in needed
    ]
    write_rows(folder / DOCUMENTS_FILE, documents)
    arms = []
    for run in runs:
        targets, _ = held_out_folders(run)
        places = [[one.document, one.first, one.last] for one in stretches[run.name]]
        texts = [asdict(document) for document in iterate_documents(targets)]
        arms.append({"name": run.name, "stretches": places, "targets": texts})
    write_rows(folder / ARMS_FILE, arms)


def read_stretches(weights: Path) -> list[Stretch]:
    """Return the selected sentences of a table of weights, neighbours together.

    Raises:
        ValueError: If a weight is neither 0 nor 1.
    """
    table = read_table(weights, ["doc_id", "unit", "weight"])
    values = table["weight"].to_numpy()
    if not np.isin(values, (0, 1)).all():
        raise ValueError(f"{weights}: only weights of 0 and 1 can be packed")
    rows = table.filter(values > 0)
    pairs = zip(rows["doc_id"].to_pylist(), rows["unit"].to_pylist(), strict=True)
    # Numbers that follow one another differ from their positions by the same.
    neighbours = groupby(enumerate(pairs), lambda row: (row[1][0], row[1][1] - row[0]))
    stretches = []
    for (document, _), group in neighbours:
        units = [unit for _, (_, unit) in group]
        stretches.append(Stretch(document, units[0], units[-1]))
    return stretches


def read_edges(weights: Path, documents: set[str]) -> dict[str, list[int]]:
    """Return where the sentences of some documents begin and end, each as the distance from the edge before."""
    table = read_table(weights, ["doc_id", "start", "end"])
    ids = table["doc_id"].to_pylist()
    places = zip(ids, table["start"].to_pylist(), table["end"].to_pylist(), strict=True)
    edges = {}
    for document, rows in groupby(places, lambda row: row[0]):
        if document in documents:
            both = [edge for _, start, end in rows for edge in (start, end)]
            edges[document] = np.diff(both, prepend=0).tolist()
    return edges


def unpack(file: Path, work: Path, texts: int | None = None) -> None:
    """Unpack a file into a new folder, in which adapting finds the runs, the tasks and the base.

    Args:
        file: What :func:`pack` wrote.
        work: New folder.
        texts: Most texts of each split of a task; None takes all.
    """
    with tarfile.open(file) as archive:
        archive.extractall(work, filter="data")
    unpack_model(work / "bases" / MODEL)
    if texts is not None:
        for path in sorted((work / "tasks").glob("*/*.jsonl")):
            write_rows(path, read_rows(path)[:texts])
    rows = read_rows(work / DOCUMENTS_FILE)
    held_out_ids = set(read_json(work / PACKED)["held_out"])
    held_out = [_document(row) for row in rows if row["doc_id"] in held_out_ids]
    for arm in read_rows(work / ARMS_FILE):
        run = work / "runs" / arm["name"]
        targets, general = held_out_folders(run)
        _write_documents([Document(**row) for row in arm["targets"]], targets)
        _write_documents(held_out, general)
        stretches = [Stretch(*values) for values in arm["stretches"]]
        selected = {one.document for one in stretches}
        read = [row for row in rows if row["doc_id"] in selected]
        _write_documents([_document(row) for row in read], run / "pool")
        write_parts([_weights(read, stretches)], run / "weights", WEIGHTS)


def _document(row: dict[str, Any]) -> Document:
    return Document(row["doc_id"], row["source"], row["text"])


def _write_documents(documents: Iterable[Document], folder: Path) -> None:
    write_parts(document_tables(documents), folder, DOCUMENTS)


def _weights(rows: Sequence[dict[str, Any]], stretches: Sequence[Stretch]) -> pa.Table:
    """Return the weights of all sentences of some documents: 1 in a stretch, else 0."""
    places: dict[str, list[Stretch]] = {}
    for one in stretches:
        places.setdefault(one.document, []).append(one)
    tables = []
    for row in rows:
        edges = np.cumsum(row["edges"])
        count = len(edges) // 2
        segments = np.full(count, -1)
        for number, one in enumerate(places[row["doc_id"]]):
            segments[one.first : one.last + 1] = number
        columns = {
            "doc_id": [row["doc_id"]] * count,
            "source": [row["source"]] * count,
            "unit": np.arange(count),
            "start": edges[0::2],
            "end": edges[1::2],
            "segment": segments,
            "weight": np.float32(segments >= 0),
        }
        tables.append(pa.table(columns).cast(WEIGHTS))
    return pa.concat_tables(tables)


def main() -> None:
    """Unpack a file into a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="what was packed")
    parser.add_argument("work", type=Path, help="folder to make of it")
    parser.add_argument("--texts", type=int, help="most texts of each split of a task")
    args = parser.parse_args()
    unpack(args.file, args.work, args.texts)


if __name__ == "__main__":
    main()
