"""Check forecasts of learning curves: what 250 labels say of 500 and more, against what later labels gave.

    DANA_DATA=... python benchmarks learning_curves WORK [--adapted] [--draws 10]

WORK is the folder of ``python benchmarks evidence``, whose texts are used; it is filled where it is empty.
A case is a draw of labels of a task: 250 texts are what a user has, probed with 50, 100 and 200 of them in
ten draws and with all; the draw goes on to 500 and 1,000. Coverage is the share of cases whose later score
lies in the interval of 80 %. --adapted takes the first adapted model of each task in place of MiniLM, and
leaves out tasks whose pilot kept MiniLM; a model that is missing is made.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent / "evidence"))

from plan import MODEL, TASKS
from steps import TaskVectors, encode, first_adapted
from texts import prepare

from dana.core.artifacts import read_json, write_json
from dana.core.learning_curve import CurvePoint, forecast_gain
from dana.core.text_table import tabulate
from dana.finetuning.probe import choose_strength, draw_labels
from dana.models.folder import resolve_model
from dana.stages.probe import CHOOSING_DRAWS

KNOWN = 250
SIZES = (50, 100, 200)
LATER = (500, 1_000)
INNER_DRAWS = 10


def score(texts: TaskVectors, sample: np.ndarray) -> float:
    """Return the accuracy of a probe of a sample, with a penalty that it chooses by itself."""
    return accuracy(texts, sample, choose_strength(texts.known, [sample]))


def accuracy(texts: TaskVectors, sample: np.ndarray, strength: float) -> float:
    """Return the accuracy of a probe of a sample on the tested texts."""
    return float((texts.predict(sample, strength) == texts.tested_labels).mean())


def measure_cases(task: str, work: Path, model: str, draws: int) -> list[dict[str, Any]]:
    """Return for each draw of labels the points that are known, and the gains of later labels."""
    texts = encode(work, task, model)
    labelled = texts.known
    cases = []
    for draw in range(draws):
        known = draw_labels(labelled.keys, labelled.strata, KNOWN, draw)
        part = labelled.take(known)
        points = []
        for size in SIZES:
            samples = [
                known[draw_labels(part.keys, part.strata, size, inner, seed=draw + 1)]
                for inner in range(INNER_DRAWS)
            ]
            strength = choose_strength(labelled, samples[:CHOOSING_DRAWS])
            scores = [accuracy(texts, sample, strength) for sample in samples]
            points.append(
                CurvePoint(size, float(np.mean(scores)), float(np.std(scores, ddof=1)), INNER_DRAWS)
            )
        last = score(texts, known)
        points.append(CurvePoint(KNOWN, last, 0.0, 1))
        gains = {}
        for labels in LATER:
            if labels <= len(labelled.labels):
                sample = draw_labels(labelled.keys, labelled.strata, labels, draw)
                gains[labels] = score(texts, sample) - last
        points_as_rows = [asdict(point) for point in points]
        cases.append({"task": task, "draw": draw, "points": points_as_rows, "gains": gains})
    return cases


def forecasts_of(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each later number of labels of a case."""
    points = [CurvePoint(**point) for point in case["points"]]
    for labels, gain in case["gains"].items():
        forecast = forecast_gain(points, int(labels))
        assert forecast is not None, "250 labels and four points are enough"
        yield {
            "task": case["task"],
            "draw": case["draw"],
            "labels": int(labels),
            "gain": gain,
            "forecast": forecast.gain,
            "low": forecast.low,
            "high": forecast.high,
            "held": forecast.low <= gain <= forecast.high,
        }


def sentence_of(row: dict[str, Any]) -> str:
    """Say what a forecast of a case says, as a report does, and what came."""
    more = row["labels"] - KNOWN
    return (
        f"On {row['task']}, {more} more labels than these {KNOWN} would bring {row['forecast']:+.3f} "
        f"(80 % interval {row['low']:+.3f} to {row['high']:+.3f}). They brought {row['gain']:+.3f}."
    )


def cases_of(task: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the cases of a task, which are measured if that is not done; none without an adapted model."""
    name = "adapted" if args.adapted else MODEL
    file: Path = args.work / "learning-curves" / f"{task}-{name}.json"
    if not file.is_file():
        model = first_adapted(args.work, task) if args.adapted else resolve_model(MODEL)
        if model is None:
            return []
        write_json(file, measure_cases(task, args.work, str(model), args.draws))
    found: list[dict[str, Any]] = read_json(file)
    return found


def main() -> None:
    """Forecast and measure every case, write WORK/learning-curves.csv and print the coverage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--adapted", action="store_true", help="adapted models in place of MiniLM")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--tasks", nargs="+", default=[task.name for task in TASKS])
    args = parser.parse_args()
    prepare(args.work)
    rows = []
    for task in TASKS:
        if task.name in args.tasks:
            cases = cases_of(task.name, args)
            rows += [row for case in cases for row in forecasts_of(case)]
    for row in rows:
        if row["draw"] == 0:
            print(sentence_of(row))
    table = pd.DataFrame(rows)
    table.to_csv(args.work / "learning-curves.csv", index=False)
    table["width"] = table["high"] - table["low"]
    means = ["gain", "forecast", "width", "held"]
    for keys in (["task", "labels"], ["labels"]):
        print(
            tabulate(table.groupby(keys, sort=False)[means].mean().reset_index().to_dict("records"))
        )


if __name__ == "__main__":
    main()
