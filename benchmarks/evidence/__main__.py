"""Does adapting on chosen text pay? The experiment of docs/results/adaptation.md, resumable, and its tables.

    DANA_DATA=... python benchmarks evidence WORK [--questions primary dsir] [--minutes 140] [--jobs 2]
    python benchmarks evidence WORK --tables
    python benchmarks evidence WORK --select [--questions primary dsir]

Finished rows stand in docs/results/evidence/, a file for each task: what is there is not made again,
so a fresh clone goes on. WORK has texts, selections and models, and is made again where it is missing.

Rows of another device or base go to a folder of their own (--results), with the objectives that the
pilots of the committed rows chose. A WORK that packing.py unpacked has its own base, and no pool.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from loky import ProcessPoolExecutor
from packing import PACKED
from plan import (
    BASE,
    CHOSEN,
    DRY_TASK,
    MODEL,
    PILOT,
    RANDOM,
    SIZES,
    SMALL,
    TARGET_TEXTS,
    TASKS,
    VARIED_TASKS,
    Adaptation,
    averages,
    controls,
    forgetting,
    in_small,
    lengths,
    masked,
    objectives,
    own_parts,
    own_texts,
    paper,
    primary,
    rivals,
    small,
    tuned,
)
from rows import FOLDER, Results, choices_of
from steps import (
    adapted_rows,
    averaged_rows,
    base_rows,
    forgetting_rows,
    has_text,
    masked_rows,
    pilot,
    run_folder,
    select,
    tuned_rows,
)
from texts import prepare
from torch import cuda

from dana.core.artifacts import read_json


@dataclass(frozen=True)
class Question:
    """What is made to answer a question.

    Attributes:
        plan: Yields the models, each with the tasks that it is measured on, by the choices of pilots.
        make: Makes the rows of a model.
        measure: Measure of these rows.
        sizes: Numbers of labels that it needs.
    """

    plan: Callable[[dict[str, str]], Iterator[tuple[Adaptation, list[str]]]]
    make: Callable[[Path, Adaptation, Sequence[str]], "Rows"] = adapted_rows
    measure: str = "probe"
    sizes: tuple[int, ...] = SIZES


QUESTIONS = {
    "primary": Question(primary),
    "tuned": Question(tuned, tuned_rows, "finetune", (TARGET_TEXTS,)),
    "controls": Question(controls),
    "dsir": Question(rivals),
    "own": Question(own_texts),
    "own_parts": Question(own_parts),
    "masked": Question(masked, masked_rows),
    "paper": Question(paper),
    "lengths": Question(lengths),
    "small": Question(small),
    "objectives": Question(objectives),
    "forgetting": Question(forgetting, forgetting_rows),
    "averages": Question(averages, averaged_rows),
}
Rows = dict[str, list[dict[str, Any]]]
# Its name, and a function that returns the rows of some tasks.
Step = tuple[str, Callable[[], Rows | None]]


def setting_here(work: Path) -> dict[str, str]:
    """Return what the rows that are made here say of their device and their base."""
    setting = {}
    if cuda.is_available():
        setting["device"] = cuda.get_device_name()
    packed = work / PACKED
    if packed.is_file():
        setting["base"] = read_json(packed)["base"]
    return setting


def take_choices(results: Results) -> None:
    """Take the objectives that the pilots of the committed rows chose, where none are there.

    An objective is part of the question, as the selected text is: neither is measured again.
    """
    committed = Results()
    for task in TASKS:
        if results.find(task.name, arm=PILOT):
            continue
        for row in committed.find(task.name, arm=PILOT):
            taken = {"arm": PILOT, "choice": row["choice"], "trials": []}
            results.add(task.name, [taken])


def probe_base(work: Path, task: str) -> Rows:
    """Probe the base."""
    return {task: base_rows(work, task)}


def measure_base(work: Path, task: str) -> Rows:
    """Probe the base, and let a pilot choose the objective of a task."""
    choice = pilot(work, task)
    return {task: [*base_rows(work, task), {"arm": PILOT, **choice}]}


def is_known(results: Results, adaptation: Adaptation, task: str, question: Question) -> bool:
    """Return whether a task has all rows of a model that a question needs."""
    rows = results.find(
        task,
        arm=adaptation.arm_on(task),
        objective=adaptation.objective,
        index=adaptation.index,
        model=adaptation.model,
        steps=adaptation.steps,
        measure=question.measure,
    )
    return {row["size"] for row in rows} >= set(question.sizes)


def run_steps(
    steps: Iterable[Step],
    results: Results,
    jobs: int,
    deadline: float,
) -> bool:
    """Run steps side by side, each in a process, and write the rows of each as it ends.

    A step that fails says why, and the others go on: they do not read what it makes.

    Args:
        steps: A name and a function that returns the rows of some tasks, or None.
        results: What is written.
        jobs: Steps at a time.
        deadline: Time after which no step begins.

    Returns:
        Whether all were run, and none failed.
    """
    is_good = True
    running: dict[Future[Rows | None], tuple[str, float]] = {}
    rest = list(steps)
    with ProcessPoolExecutor(jobs) as pool:
        while rest or running:
            while rest and len(running) < jobs and time.monotonic() < deadline:
                name, step = rest.pop(0)
                running[pool.submit(step)] = (name, time.monotonic())
            if not running:
                break
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                name, began = running.pop(future)
                try:
                    found = future.result() or {}
                except (Exception, SystemExit) as error:  # the latter of a command that failed
                    print(f"{name} failed: {error}", flush=True)
                    is_good = False
                    continue
                for task, rows in found.items():
                    results.add(task, rows)
                print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    return is_good and not rest


def selections(work: Path, needed: Sequence[Adaptation]) -> list[Step]:
    """Return the steps that select the text of adaptations, each once."""
    steps = {}
    for one in needed:
        if one.arm == BASE:
            continue
        # Only random text is drawn anew for each adaptation; other text is selected once for a task, with seed 0.
        arm = one.text_arm
        index = one.index if arm == RANDOM else 0
        text = (one.task, arm, index, one.objective)
        folder = run_folder(work, *text)
        if not has_text(work, one):
            steps[folder] = (f"selection of {folder.name}", partial(_select, work, *text))
    return list(steps.values())


def _select(work: Path, task: str, arm: str, index: int, objective: str) -> None:
    select(work, task, arm, index, objective)


def missing_models(results: Results, question: Question) -> list[tuple[Adaptation, list[str]]]:
    """Return the models of a question, and their tasks, of which a row is missing."""
    missing = []
    for adaptation, tasks in question.plan(choices_of(results)):
        left = [task for task in tasks if not is_known(results, adaptation, task, question)]
        if left:
            missing.append((adaptation, left))
    return missing


def pilots(work: Path, results: Results, jobs: int, deadline: float) -> bool:
    """Probe the base and let pilots choose, where this is missing; return whether all is there."""
    names = [task.name for task in TASKS if not results.find(task.name, arm=PILOT)]
    chosen = [Adaptation(name, CHOSEN, "", 0) for name in names]
    if not run_steps(selections(work, chosen), results, jobs, deadline):
        return False
    steps = [(f"pilot of {name}", partial(measure_base, work, name)) for name in names]
    return run_steps(steps, results, jobs, deadline)


def bases(work: Path, results: Results, names: Sequence[str]) -> list[Step]:
    """Return the steps that probe the base on tasks where this is missing."""
    missing = [name for name in names if not results.find(name, arm=BASE, model=MODEL)]
    return [(f"base {name}", partial(probe_base, work, name)) for name in missing]


def answer(args: argparse.Namespace, results: Results, name: str, deadline: float) -> bool:
    """Make what is missing of a question; return whether all is there."""
    question = QUESTIONS[name]
    missing = missing_models(results, question)
    names = [task.name for task in TASKS]
    if args.dry:
        missing = in_small(missing)
        names = [DRY_TASK]
    absent = []
    if (args.work / PACKED).is_file():
        absent = [one for one, _ in missing if not has_text(args.work, one)]
        missing = [(one, tasks) for one, tasks in missing if has_text(args.work, one)]
    for one in absent:
        print(f"left out, its text is not packed: {one.task} {one.name}", flush=True)
    needed = [adaptation for adaptation, _ in missing]
    if not run_steps(selections(args.work, needed), results, args.jobs, deadline):
        return False
    steps = bases(args.work, results, names)
    steps += [
        (f"{name} {one.task} {one.name}", partial(question.make, args.work, one, tasks))
        for one, tasks in missing
    ]
    return run_steps(steps, results, args.jobs, deadline) and not absent


def planned_of(results: Results, names: Iterable[str]) -> list[Adaptation]:
    """Return all adaptations of some questions, also of those whose rows are there."""
    choices = choices_of(results)
    return [one for name in names for one, _ in QUESTIONS[name].plan(choices)]


def select_all(args: argparse.Namespace) -> bool:
    """Select the text of all adaptations of some questions; return whether all is there."""
    deadline = time.monotonic() + 60 * args.minutes
    prepare(args.work)
    results = Results(args.results)
    steps = selections(args.work, planned_of(results, args.questions))
    return run_steps(steps, results, args.jobs, deadline)


def experiment(args: argparse.Namespace) -> bool:
    """Make what is missing of the questions that were asked; return whether all is there."""
    results = Results(args.results, setting_here(args.work))
    deadline = time.monotonic() + 60 * args.minutes
    for one in TASKS:
        results.of(one.name)  # which refuses rows of another setting before anything is made
    if args.results.resolve() != FOLDER.resolve():
        take_choices(results)
    if not (args.work / PACKED).is_file():
        prepare(args.work)
    if not pilots(args.work, results, args.jobs, deadline):
        return False
    print(json.dumps(choices_of(results)), flush=True)
    if "small" in args.questions:
        for task in VARIED_TASKS:
            if not results.find(task, arm=BASE, model=SMALL):
                results.add(task, base_rows(args.work, task, SMALL))
    return all(answer(args, results, name, deadline) for name in args.questions)


def main() -> int:
    """Go on with the experiment, or print its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path, help="folder of texts, selections and models")
    parser.add_argument("--questions", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--minutes", type=float, default=140, help="after which no step begins")
    parser.add_argument("--jobs", type=int, default=2, help="steps side by side, one thread each")
    parser.add_argument(
        "--results", type=Path, default=FOLDER, help="folder of the rows, of one device and base"
    )
    parser.add_argument(
        "--select", action="store_true", help="select the text of the questions and end"
    )
    parser.add_argument(
        "--dry", action="store_true", help="one adaptation of each arm on one task, of two steps"
    )
    parser.add_argument("--tables", action="store_true", help="print the tables and end")
    parser.add_argument(
        "--write", action="store_true", help="write the tables and the figure of the pages too"
    )
    args = parser.parse_args()
    is_committed = args.results.resolve() == FOLDER.resolve()
    if args.write and not is_committed:
        parser.error(f"--write writes the pages from {FOLDER}, not from --results")
    if args.dry and is_committed:
        parser.error("--dry needs a folder for its rows: --results FOLDER")
    if not args.tables:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        is_whole = select_all(args) if args.select else experiment(args)
        print("whole" if is_whole else "not whole: the same command goes on")
    if args.select:
        return 0
    from pages import write_pages
    from verdicts import print_tables

    results = Results(args.results)
    print_tables(results)
    if args.write:
        write_pages(results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
