"""Distil an adapted MiniLM into smaller models: how much of the teacher's probe is left, by chosen and by random text?

    DANA_DATA=... python benchmarks distillation WORK [--arm chosen] [--students static distill objective]
    DANA_DATA=... python benchmarks distillation WORK --speed
    python benchmarks distillation WORK --tables

WORK is the folder of `benchmarks evidence`: its tasks, its text and the first adapted model of each task, which
is the teacher. Texts and teachers are made where they are missing.
The students are a static model (`dana distill TEACHER static`), dana-mini by the objective `distill`, and, without
a teacher, dana-mini by the objective that made the teacher, with equally many steps. Rows are appended to
docs/results/distillation.jsonl; those that are there are not made again.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import skops.io

sys.path.insert(0, str(Path(__file__).parent / "evidence"))

from plan import CHOSEN, DSIR, RANDOM, SIZES, SMALL, TARGET_TEXTS
from rows import Results, choices_of
from steps import encoder_of, first_adapted, probe, select
from texts import prepare, read_rows

from dana.core.text_table import tabulate
from dana.models.folder import resolve_model
from dana.stages.baselines import fit_tfidf
from dana.tasks.card import load_card

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "distillation.jsonl"
TASKS = ("rct_sample", "csabstruct", "agnews")
BASE = "base"
LARGE_BASE = "minilm"
TEACHER = "teacher"
STATIC = "static"
STATIC_OF_BASE = "static of minilm"  # whose teacher was not adapted
DISTILLED = "distill"
OBJECTIVE = "objective"
TFIDF = "TF-IDF"
STUDENTS = (STATIC, DISTILLED, OBJECTIVE)
SPEED_TEXTS = 2_000
ROUNDS = 5


@dataclass(frozen=True)
class Model:
    """A model of the table.

    Attributes:
        task: Task that it is probed on.
        objective: How it was made: ``base`` for dana-mini as it ships, ``minilm`` for MiniLM, ``teacher`` for
            the adapted MiniLM, ``static``, ``static of minilm``, or the name of an objective.
        text: What it read: ``chosen``, ``dsir`` or ``random``; empty for what was not adapted.
        steps: Optimizer steps.
        arm: Text that the teacher was adapted on; empty without a teacher.
    """

    task: str
    objective: str
    text: str = ""
    steps: int = 0
    arm: str = ""


def models(tasks: Sequence[str], arm: str, students: Sequence[str], steps: int) -> Iterator[Model]:
    """Yield the models of some tasks: bases, teacher, and the students on selected and on random text."""
    for task in tasks:
        yield Model(task, BASE)
        yield Model(task, LARGE_BASE)
        yield Model(task, TEACHER, arm, arm=arm)
        for text in (arm, RANDOM):
            if STATIC in students:
                yield Model(task, STATIC, text, arm=arm)
            if DISTILLED in students:
                yield Model(task, DISTILLED, text, steps, arm)
            if OBJECTIVE in students:
                yield Model(task, objective_of(task), text, steps)
        if STATIC in students:
            yield Model(task, STATIC_OF_BASE, arm)


def objective_of(task: str) -> str:
    """Return the objective by which a teacher was adapted: the one that the task's pilot chose."""
    return choices_of(Results())[task]


def make(work: Path, model: Model) -> str:
    """Make a model, if it is not there; return its folder or name."""
    if model.objective == BASE:
        return resolve_model(SMALL)
    if model.objective == LARGE_BASE:
        return resolve_model(LARGE_BASE)
    if model.objective == TEACHER:
        return str(first_adapted(work, model.task, model.arm))
    words = [model.objective, model.text, str(model.steps), model.arm]
    folder = work / "distilled" / model.task / "-".join(words).replace(" ", "-")
    if folder.is_dir():
        return str(folder)
    task = "" if model.text == RANDOM else model.task
    text = select(work, task, model.text)
    command: list[Any] = [sys.executable, "-m", "dana"]
    if model.objective == STATIC:
        teacher = first_adapted(work, model.task, model.arm)
        command += ["distill", teacher, STATIC, "--on", text, "--out", folder]
    elif model.objective == STATIC_OF_BASE:
        command += ["distill", resolve_model(LARGE_BASE), STATIC, "--on", text, "--out", folder]
    else:
        objective = model.objective
        if objective == DISTILLED:
            objective = f"{DISTILLED}:teacher={first_adapted(work, model.task, model.arm)}"
        command += ["adapt", text, "--model", SMALL, "--objective", objective]
        command += ["--steps", model.steps, "--out", folder]
        command += ["--set", "adapt.max_tokens=128", "adapt.batch_size=64"]
        command += ["adapt.learning_rate=null", "adapt.evaluations=0"]
    subprocess.run([str(word) for word in command], check=True)
    return str(folder)


def read_results() -> list[dict[str, Any]]:
    """Read the rows that are there."""
    if not RESULTS.is_file():
        return []
    return [json.loads(line) for line in RESULTS.read_text(encoding="ascii").splitlines()]


def run(work: Path, wanted: Sequence[Model], minutes: float) -> None:
    """Make what is missing."""
    known = [{name: row[name] for name in asdict(Model("", ""))} for row in read_results()]
    deadline = time.monotonic() + 60 * minutes
    for model in wanted:
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
        (row["task"], row["arm"], row["size"]): row["accuracy"]
        for row in rows
        if row["objective"] == TEACHER
    }
    found: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in rows:
        key = tuple(row[name] for name in asdict(Model("", "")))
        cells = {
            "task": row["task"],
            "model": row["objective"],
            "text": row["text"],
            "steps": str(row["steps"] or ""),
        }
        cells = found.setdefault(key, cells)
        size = row["size"]
        cells[f"{size} labels"] = f"{row['accuracy']:.3f}"
        teacher = teachers.get((row["task"], row["arm"], size))
        share = "" if teacher is None else f"{row['accuracy'] / teacher:.1%}"
        cells[f"of the teacher, {size}"] = share
    return list(found.values())


def speeds(work: Path, task: str, arm: str) -> list[dict[str, str]]:
    """Measure how many test texts of a task a model reads in a second, in turns; medians.

    Encoders give vectors. TF-IDF, fitted to 500 labels, gives labels.
    """
    folder = work / "tasks" / task
    texts = [row["text"] for row in read_rows(folder / "test.jsonl")][:SPEED_TEXTS]
    places = {
        TEACHER: make(work, Model(task, TEACHER, arm, arm=arm)),
        SMALL: make(work, Model(task, BASE)),
        STATIC: make(work, Model(task, STATIC, arm, arm=arm)),
    }
    readers: dict[str, Callable[[list[str]], Any]] = {}
    sizes = {}
    for name, place in places.items():
        readers[name] = encoder_of(place).encode
        sizes[name] = sum(file.stat().st_size for file in Path(place).glob("*.safetensors"))
    known = read_rows(folder / "train.jsonl")[:TARGET_TEXTS]
    card = load_card(str(folder / "card.yaml"))
    labels = np.array([card.labels.index(row["label"]) for row in known])
    words = fit_tfidf(card, [row["text"] for row in known], labels)
    readers[TFIDF] = words.predict
    sizes[TFIDF] = len(skops.io.dumps(words))
    seconds: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(ROUNDS):
        for name, read in readers.items():
            start = time.perf_counter()
            read(texts)
            seconds[name].append(time.perf_counter() - start)
    slowest = float(np.median(seconds[TEACHER]))
    rows = []
    for name in readers:
        median = float(np.median(seconds[name]))
        rows.append(
            {
                "model": name,
                "texts a second": f"{len(texts) / median:,.0f}",
                "ratio": f"{slowest / median:.1f}",
                "MB": f"{sizes[name] / 1e6:.1f}",
            }
        )
    return rows


def main() -> None:
    """Go on with the measurements, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("work", type=Path, help="folder of `benchmarks evidence`")
    parser.add_argument(
        "--arm", choices=[CHOSEN, DSIR], default=CHOSEN, help="text of the teachers"
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--students", nargs="+", choices=STUDENTS, default=list(STUDENTS))
    parser.add_argument("--steps", type=int, default=150, help="of every trained student")
    parser.add_argument("--minutes", type=float, default=140, help="after which nothing begins")
    parser.add_argument("--tables", action="store_true", help="print the table and end")
    parser.add_argument(
        "--speed",
        action="store_true",
        help="measure texts of the first task a second, one core, TF-IDF beside, and end",
    )
    args = parser.parse_args()
    if not args.tables:
        prepare(args.work)
    if args.speed:
        print(tabulate(speeds(args.work, args.tasks[0], args.arm)))
        return
    if not args.tables:
        wanted = models(args.tasks, args.arm, args.students, args.steps)
        run(args.work, list(wanted), args.minutes)
    print(tabulate(table()))


if __name__ == "__main__":
    main()
