"""Distil an adapted MiniLM into a smaller model: how much of the teacher's probe is left, by chosen and by random text?

    python benchmarks distillation WORK [--steps 150] [--minutes 140]

WORK is the folder of `benchmarks evidence`: its tasks, its text and the adapted models, which are the teachers.
Rows are appended to docs/results/distillation.jsonl; those that are there are not made again. Of each student
stands beside it what adapting it by the teacher's own objective gives, with equally many steps.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "evidence"))

from few_labels import ADAPTED
from plan import CHOSEN, RANDOM, SIZES, SMALL
from steps import probe, run_folder

from dana.core.text_table import tabulate
from dana.models.folder import resolve_model

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "distillation.jsonl"
TASKS = ("rct_sample", "csabstruct", "agnews")
TEXTS = (CHOSEN, RANDOM)
BASE = "base"
TEACHER = "teacher"
DISTILLED = "distill"


@dataclass(frozen=True)
class Model:
    """A model of the table.

    Attributes:
        task: Task that it is probed on.
        objective: How it was made; ``base``, or ``teacher`` for the adapted MiniLM.
        text: What it read, ``chosen`` or ``random``; empty for the base and the teacher.
        steps: Optimizer steps.
    """

    task: str
    objective: str
    text: str = ""
    steps: int = 0


def models(steps: int) -> Iterator[Model]:
    """Yield the models of all tasks: base, teacher, and two students on each text."""
    for task in TASKS:
        yield Model(task, BASE)
        yield Model(task, TEACHER)
        for text in TEXTS:
            yield Model(task, DISTILLED, text, steps)
            yield Model(task, objective_of(task), text, steps)


def teacher_of(work: Path, task: str) -> Path:
    """Return the folder of the adapted MiniLM of a task."""
    return work / "models" / task / ADAPTED[task]


def objective_of(task: str) -> str:
    """Return the objective by which a teacher was adapted."""
    return ADAPTED[task].split("-")[1]


def make(work: Path, model: Model) -> str:
    """Make a model, if it is not there; return its folder or name."""
    if model.objective == BASE:
        return resolve_model(SMALL)
    if model.objective == TEACHER:
        return str(teacher_of(work, model.task))
    name = f"{model.objective}-{model.text}-{model.steps}"
    folder = work / "distilled" / model.task / name
    if folder.is_dir():
        return str(folder)
    objective = model.objective
    if objective == DISTILLED:
        objective = f"{DISTILLED}:teacher={teacher_of(work, model.task)}"
    task = "" if model.text == RANDOM else model.task
    command = [
        *(sys.executable, "-m", "dana", "adapt", run_folder(work, task, model.text)),
        *("--model", SMALL, "--objective", objective, "--steps", model.steps, "--out", folder),
        *("--set", "adapt.max_tokens=128", "adapt.batch_size=64"),
        *("adapt.learning_rate=null", "adapt.evaluations=0"),
    ]
    subprocess.run([str(word) for word in command], check=True)
    return str(folder)


def read_results() -> list[dict[str, Any]]:
    """Read the rows that are there."""
    if not RESULTS.is_file():
        return []
    return [json.loads(line) for line in RESULTS.read_text(encoding="ascii").splitlines()]


def run(work: Path, steps: int, minutes: float) -> None:
    """Make what is missing."""
    known = [{name: row[name] for name in asdict(Model("", ""))} for row in read_results()]
    deadline = time.monotonic() + 60 * minutes
    for model in models(steps):
        if asdict(model) in known or time.monotonic() > deadline:
            continue
        folder = make(work, model)
        with RESULTS.open("a", encoding="ascii") as file:
            for row in probe(work, model.task, folder, SIZES):
                kept = {name: row[name] for name in ("size", "accuracy", "macro_f1")}
                file.write(json.dumps(asdict(model) | kept) + "\n")


def table() -> list[dict[str, str]]:
    """Return the accuracy of every model, and its share of the teacher's, a row for each."""
    rows = read_results()
    teachers = {
        (row["task"], row["size"]): row["accuracy"] for row in rows if row["objective"] == TEACHER
    }
    found: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in rows:
        key = (row["task"], row["objective"], row["text"], row["steps"])
        cells = {"task": row["task"], "model": row["objective"], "text": row["text"]}
        cells["steps"] = str(row["steps"] or "")
        cells = found.setdefault(key, cells)
        share = row["accuracy"] / teachers[row["task"], row["size"]]
        cells[f"{row['size']} labels"] = f"{row['accuracy']:.3f}"
        cells[f"of the teacher, {row['size']}"] = f"{share:.1%}"
    return list(found.values())


def main() -> None:
    """Go on with the measurements, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("work", type=Path, help="folder of `benchmarks evidence`")
    parser.add_argument("--steps", type=int, default=150, help="of every student")
    parser.add_argument("--minutes", type=float, default=140, help="after which nothing begins")
    parser.add_argument("--tables", action="store_true", help="print the table and end")
    args = parser.parse_args()
    if not args.tables:
        run(args.work, args.steps, args.minutes)
    print(tabulate(table()))


if __name__ == "__main__":
    main()
