"""Measure what a pilot of objectives chooses, for several standard errors k, against the best known from the test.

    DANA_DATA=... python benchmarks pilot OUT [--tasks ...] [--model dana-mini] [--draws 5]

Plan. For each task 3,200 documents are selected once. The base is adapted on them by each objective,
for 25 steps (what a pilot trains) and for 50 (what a choice is worth). For each draw of 100 and of 500
labels a pilot chooses by those labels alone, and each choice is worth what a probe of its longer
training, fitted to these labels, scores on up to 2,000 test texts. All draws share selection and
adaptations. Regret is the best worth less that of the choice. k is judged on each task as chosen on
the others. ``OUT/pilot.csv`` has a row for each task, size, draw and candidate, and ``OUT/regret.csv``
one for each task and k. Tasks that are done are not done again, so a stopped run goes on.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from objectives import dana, select_text

from dana.core.text_table import tabulate
from dana.encoders.transformer import TransformerEncoder
from dana.finetuning.pilot import LEAST_GAIN, NONE, judge
from dana.finetuning.probe import (
    LabelledVectors,
    choose_strength,
    cross_validated,
    draw_labels,
    group_numbers,
    probe_scores,
    text_keys,
)
from dana.stages.pilot import CANDIDATES, PILOT_STEPS
from dana.stages.probe import joined_texts, texts_apart
from dana.tasks.card import load_card
from dana.tasks.examples import read_splits, subset

TASKS = ("rct_sample", "csabstruct", "agnews", "chemprot", "sst2", "acl_arc")
SIZES = (100, 500)
STANDARD_ERRORS = (0.0, 0.5, 1.0)
STEPS = 50
TEST_TEXTS = 2_000


@dataclass(frozen=True)
class TaskVectors:
    """Vectors of the training and test texts of a task by one model.

    Attributes:
        train: The training texts that a draw may take.
        test: Vectors of test texts.
        labels: Their labels.
    """

    train: LabelledVectors
    test: np.ndarray
    labels: np.ndarray


def adapt(work: Path, task: str, model: str, objective: str, steps: int) -> str:
    """Adapt the base on the selected text, if it is not done yet; return the model's folder."""
    run = select_text(work, task, "selected", 0)
    out = work / task / "pilot" / f"{Path(model).name}-{objective}-{steps}"
    if not out.is_dir():
        settings = [
            "adapt.batch_size=64",
            "adapt.max_tokens=128",
            "adapt.evaluations=0",
        ]
        dana(
            *("adapt", run, "--model", model, "--objective", objective),
            *("--steps", steps, "--out", out, "--set", *settings),
        )
    return str(out)


def encode(task: str, model: str, draws: int) -> TaskVectors:
    """Encode the training texts of all draws, and test texts, none of a group that is tested."""
    card = load_card(task)
    kind = card.label_kind
    splits = read_splits(card)
    train, test, _ = texts_apart(splits["train"], subset(splits["test"], TEST_TEXTS))
    labels = kind.gather([example.label for example in train])
    nothing = np.zeros((len(train), 0))
    groups = group_numbers(train)
    every = LabelledVectors(nothing, labels, kind, card.metric, text_keys(train), groups)
    drawn = [draw_labels(every.keys, every.strata, max(SIZES), draw) for draw in range(draws)]
    rows = np.unique(np.concatenate(drawn))
    encoder = TransformerEncoder.of_checkpoint(model, 256)
    # Rows that no draw takes stay zero: a draw of all texts must number them alike.
    some = encoder.encode(joined_texts([train[row] for row in rows])).cpu().numpy()
    vectors = np.zeros((len(train), some.shape[1]), dtype=some.dtype)
    vectors[rows] = some
    known = LabelledVectors(vectors, labels, kind, card.metric, every.keys, groups)
    tested = encoder.encode(joined_texts(test)).cpu().numpy()
    return TaskVectors(known, tested, kind.gather([example.label for example in test]))


def worth(texts: TaskVectors, sample: np.ndarray) -> float:
    """Score a probe that is fitted to a draw of labels on the test texts."""
    part = texts.train.take(sample)
    vectors = np.concatenate([part.vectors, texts.test])
    labels = np.concatenate([part.labels, texts.labels])
    fitted = np.arange(len(sample))
    tested = np.arange(len(sample), len(labels))
    strength = choose_strength(part)
    predictions = probe_scores(vectors, labels, part.kind, fitted, tested, strength)
    return part.kind.score(predictions, texts.labels, part.metric)


def measure_task(args: argparse.Namespace, task: str) -> pd.DataFrame:
    """Return the rows of one task: a candidate of a draw of labels each."""
    short = {NONE: args.model}
    long = {NONE: args.model}
    for name in CANDIDATES:
        short[name] = adapt(args.out, task, args.model, name, PILOT_STEPS)
        long[name] = adapt(args.out, task, args.model, name, args.steps)
    piloted = {name: encode(task, model, args.draws) for name, model in short.items()}
    adapted = {name: encode(task, model, args.draws) for name, model in long.items()}
    base = piloted[NONE].train
    rows = []
    for size in SIZES:
        for draw in range(args.draws):
            sample = draw_labels(base.keys, base.strata, size, draw)
            predictions = {
                name: cross_validated(texts.train.take(sample)) for name, texts in piloted.items()
            }
            trials = judge(predictions, base.labels[sample], base.kind, base.metric)
            for trial in trials:
                row = {"task": task, "size": size, "draw": draw, "objective": trial.objective}
                row |= {"gain": trial.gain, "error": trial.error}
                rows.append(row | {"worth": worth(adapted[trial.objective], sample)})
    return pd.DataFrame(rows)


def choose(candidates: pd.DataFrame, standard_errors: float) -> str:
    """Choose an objective from the rows of a draw, as :mod:`dana.finetuning.pilot` does."""
    others = candidates[candidates["objective"] != NONE]
    bar = np.maximum(LEAST_GAIN, standard_errors * others["error"])
    better = others[others["gain"] >= bar]
    return NONE if better.empty else str(better.loc[better["gain"].idxmax(), "objective"])


def judge_errors(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each task and k: regret, share of right choices, gain over the base."""
    rows = []
    for (task, size, draw), candidates in table.groupby(["task", "size", "draw"], sort=False):
        worths = candidates.set_index("objective")["worth"]
        for k in STANDARD_ERRORS:
            choice = choose(candidates, k)
            row = {"task": task, "k": k, "size": size, "draw": draw, "choice": choice}
            row |= {"regret": worths.max() - worths[choice]}
            row |= {"right": float(worths[choice] == worths.max())}
            rows.append(row | {"over_none": worths[choice] - worths[NONE]})
    measures = ["regret", "right", "over_none"]
    return pd.DataFrame(rows).groupby(["task", "k"], sort=False)[measures].mean().reset_index()


def left_out(regrets: pd.DataFrame) -> list[dict[str, str | float]]:
    """For each task, choose k by the mean regret of the others, and return its regret on this one."""
    rows: list[dict[str, str | float]] = []
    for task in regrets["task"].unique():
        others = regrets[regrets["task"] != task].groupby("k")["regret"].mean()
        if others.empty:
            continue
        k = float(others.idxmin())
        own = regrets[(regrets["task"] == task) & (regrets["k"] == k)].iloc[0]
        rows.append({"task": task, "k": k, "regret": float(own["regret"])})
    return rows


def main() -> None:
    """Measure the tasks that are missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder of runs, models and tables")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--model", default="dana-mini")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--draws", type=int, default=5)
    args = parser.parse_args()
    file = args.out / "pilot.csv"
    tables = [pd.read_csv(file)] if file.is_file() else []
    done = {task for table in tables for task in table["task"]}
    for task in args.tasks:
        if task in done:
            continue
        tables.append(measure_task(args, task))
        table = pd.concat(tables, ignore_index=True)
        args.out.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".tmp")
        table.to_csv(draft, index=False)
        draft.replace(file)
        print(f"{task}: done", flush=True)
    regrets = judge_errors(pd.concat(tables, ignore_index=True))
    regrets.to_csv(args.out / "regret.csv", index=False)
    print(tabulate(regrets.to_dict("records")))
    rows = left_out(regrets)
    if rows:
        print(f"\nk chosen on the other tasks:\n{tabulate(rows)}")


if __name__ == "__main__":
    main()
