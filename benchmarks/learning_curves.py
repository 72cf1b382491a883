"""Check forecasts of learning curves: what 250 labels say of 500 and more, against what later labels gave.

    DANA_DATA=... python benchmarks learning_curves WORK [--model minilm] [--draws 10]

WORK is the folder of ``python benchmarks evidence``, whose texts are used; it is filled where it is empty.
A case is a draw of labels of a task: 250 texts are what a user has, probed with 50, 100 and 200 of them in
ten draws and with all; the draw goes on to 500 and 1,000. Coverage is the share of cases whose later score
lies in the interval of 80 %.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent / "evidence"))

from plan import TASKS
from steps import labelled_vectors
from texts import prepare_task

from dana.core.learning_curve import CurvePoint, forecast_gain
from dana.core.text_table import tabulate
from dana.finetuning.probe import choose_strength, draw_labels, probe_scores
from dana.models.folder import resolve_model

KNOWN = 250
SIZES = (50, 100, 200)
LATER = (500, 1_000)
INNER_DRAWS = 10


def score(texts, test, rows: np.ndarray, strength: float) -> float:
    """Return the accuracy of a probe that is fitted to some rows, on all test texts."""
    vectors = np.concatenate([texts.vectors, test.vectors])
    labels = np.concatenate([texts.labels, test.labels])
    tests = np.arange(len(texts.labels), len(labels))
    predictions = probe_scores(vectors, labels, texts.kind, rows, tests, strength)
    return float((predictions == test.labels).mean())


def cases_of(task: str, work: Path, model: str, draws: int) -> list[dict[str, object]]:
    """Return a row for each draw of labels and later number of labels."""
    texts, test = labelled_vectors(work, task, model)
    rows: list[dict[str, object]] = []
    for draw in range(draws):
        known = draw_labels(texts.keys, texts.strata, KNOWN, draw)
        part = texts.rows(known)
        points = []
        for size in SIZES:
            samples = [
                known[draw_labels(part.keys, part.strata, size, inner, seed=draw + 1)]
                for inner in range(INNER_DRAWS)
            ]
            strength = choose_strength(texts, samples[:3])
            scores = [score(texts, test, sample, strength) for sample in samples]
            points.append(
                CurvePoint(size, float(np.mean(scores)), float(np.std(scores, ddof=1)), INNER_DRAWS)
            )
        last = score(texts, test, known, choose_strength(texts, [known]))
        points.append(CurvePoint(KNOWN, last, float("nan"), 1))
        for labels in LATER:
            if labels > len(texts.labels):
                continue
            sample = draw_labels(texts.keys, texts.strata, labels, draw)
            gain = score(texts, test, sample, choose_strength(texts, [sample])) - last
            forecast = forecast_gain(points, labels)
            assert forecast is not None, "250 labels and four points are enough"
            rows.append(
                {
                    "task": task,
                    "draw": draw,
                    "labels": labels,
                    "gain": gain,
                    "forecast": forecast.gain,
                    "low": forecast.low,
                    "high": forecast.high,
                    "held": forecast.low <= gain <= forecast.high,
                }
            )
    return rows


def main() -> None:
    """Forecast and measure every case, write WORK/learning-curves.csv and print the coverage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--tasks", nargs="+", default=[task.name for task in TASKS])
    args = parser.parse_args()
    rows = []
    for task in TASKS:
        if task.name in args.tasks:
            prepare_task(task, args.work / "tasks" / task.name)
            rows += cases_of(task.name, args.work, resolve_model(args.model), args.draws)
            print(f"{task.name}: done", flush=True)
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
