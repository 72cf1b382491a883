"""Does adapting on chosen text pay? The experiment of docs/results/adaptation.md, resumable, and its tables.

    DANA_DATA=... python benchmarks evidence WORK [--questions primary dsir] [--minutes 140] [--jobs 2]
    python benchmarks evidence WORK --tables

Finished rows stand in docs/results/evidence/, a file for each task: what is there is not made again,
so a fresh clone goes on. WORK has texts, selections and models, and is made again where it is missing.
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
from plan import (
    BASE,
    CHOSEN,
    PILOT,
    SIZES,
    SMALL,
    TARGET_TEXTS,
    TASKS,
    VARIED_TASKS,
    Adaptation,
    controls,
    forgetting,
    masked,
    own_texts,
    primary,
    rivals,
    tuned,
    variants,
)
from rows import Results
from steps import (
    adapted_rows,
    base_rows,
    forgetting_rows,
    masked_rows,
    pilot,
    run_folder,
    select,
    tuned_rows,
)
from texts import prepare_pool, prepare_task

from dana.finetuning.pilot import NONE


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
    "masked": Question(masked, masked_rows),
    "variants": Question(variants),
    "forgetting": Question(forgetting, forgetting_rows),
}
Rows = dict[str, list[dict[str, Any]]]


def prepare(work: Path) -> None:
    """Write the texts of all tasks and the pool, if they are missing."""
    folders = [work / "tasks" / task.name for task in TASKS]
    for task, folder in zip(TASKS, folders, strict=True):
        prepare_task(task, folder)
    prepare_pool(folders, work / "pool.jsonl")


def measure_base(work: Path, task: str) -> Rows:
    """Probe the base, and let a pilot choose the objective of a task."""
    choice = pilot(work, task)
    return {task: [*base_rows(work, task), {"arm": PILOT, **choice}]}


def choices_of(results: Results) -> dict[str, str]:
    """Return what pilots chose by task, without those that chose none."""
    found = {task.name: results.find(task.name, arm=PILOT) for task in TASKS}
    chosen = {task: rows[0]["choice"] for task, rows in found.items() if rows}
    return {task: choice for task, choice in chosen.items() if choice != NONE}


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
    steps: Iterable[tuple[str, Callable[[], Rows | None]]],
    results: Results,
    jobs: int,
    deadline: float,
) -> bool:
    """Run steps side by side, each in a process, and write the rows of each as it ends.

    Args:
        steps: A name and a function that returns the rows of some tasks, or None.
        results: What is written.
        jobs: Steps at a time.
        deadline: Time after which no step begins.

    Returns:
        Whether all were run.
    """
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
                for task, rows in (future.result() or {}).items():
                    results.add(task, rows)
                print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    return not rest


def selections(work: Path, needed: Sequence[Adaptation]) -> list[tuple[str, Callable[[], None]]]:
    """Return the steps that select the text of adaptations, each once."""
    steps = {}
    for one in needed:
        if one.arm == BASE:
            continue
        text = (one.task, one.arm, one.index, one.objective)
        folder = run_folder(work, *text)
        if not (folder / "weights").is_dir():
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


def answer(args: argparse.Namespace, results: Results, name: str, deadline: float) -> bool:
    """Make what is missing of a question; return whether all is there."""
    question = QUESTIONS[name]
    missing = missing_models(results, question)
    needed = [adaptation for adaptation, _ in missing]
    if not run_steps(selections(args.work, needed), results, args.jobs, deadline):
        return False
    steps = [
        (f"{name} {one.task} {one.name}", partial(question.make, args.work, one, tasks))
        for one, tasks in missing
    ]
    return run_steps(steps, results, args.jobs, deadline)


def experiment(args: argparse.Namespace) -> bool:
    """Make what is missing of the questions that were asked; return whether all is there."""
    results = Results()
    deadline = time.monotonic() + 60 * args.minutes
    prepare(args.work)
    if not pilots(args.work, results, args.jobs, deadline):
        return False
    print(json.dumps(choices_of(results)), flush=True)
    if "variants" in args.questions:
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
    parser.add_argument("--tables", action="store_true", help="print the tables and end")
    parser.add_argument(
        "--write", action="store_true", help="write the tables and the figure of the pages too"
    )
    args = parser.parse_args()
    if not args.tables:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        is_whole = experiment(args)
        print("whole" if is_whole else "not whole: the same command goes on")
    from pages import write_pages
    from verdicts import print_tables

    results = Results()
    print_tables(results)
    if args.write:
        write_pages(results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
