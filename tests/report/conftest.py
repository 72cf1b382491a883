"""A run's folder with made-up numbers: three sources, planted documents, four arms, two tasks."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dana.artifacts import make, write_json
from dana.schemas import DOCUMENTS, SCORES, WEIGHTS, write_parts

UNITS = 12  # in a document
SENTENCE = "Sentence number {} of document {} tells of <{}> & others. "
MEANS = {"web": 1.0, "law": 1.6, "python": 0.4, "target (planted)": -1.0}
ARMS = {"base": 0.70, "general": 0.705, "random": 0.71, "dana": 0.74}


def documents(count: int) -> list[dict[str, str]]:
    """Documents, sources in turn."""
    rows = []
    for number in range(count):
        source = list(MEANS)[number % len(MEANS)]
        text = "".join(SENTENCE.format(unit, number, source) for unit in range(UNITS)).strip()
        rows.append({"doc_id": f"d{number:05d}", "source": source, "text": text})
    return rows


def score_rows(rows: list[dict[str, str]], random: np.random.Generator, shift: float = 0.0) -> pa.Table:
    """A row a sentence; sources lie apart as in MEANS."""
    table = []
    for row in rows:
        place = 0
        for unit in range(UNITS):
            length = len(SENTENCE.format(unit, int(row["doc_id"][1:]), row["source"]).strip())
            score = float(MEANS.get(row["source"], -1.0) + shift + random.normal(0, 0.7))
            key = {"doc_id": row["doc_id"], "source": row["source"], "unit": unit}
            table.append({**key, "start": place, "end": place + length, "score": score})
            place += length + 1
    return pa.Table.from_pylist(table, schema=SCORES)


def write_ranking(run: Path) -> None:
    """Six detectors."""
    rows = [
        {
            "name": name, "f1_mean": f1, "f1_std": 0.012, "auroc_mean": f1 + 0.04, "auroc_std": 0.01,
            "ap_mean": f1 + 0.02, "best_f1_mean": f1 + 0.01, "stability": stability, "fit_s": 0.2,
            "score_s": 0.03, "n_seeds": 5,
        }
        for name, f1, stability in [
            ("knn", 0.921, 1.0), ("ocsvm", 0.914, 1.0), ("lof", 0.902, 0.98), ("pca", 0.880, 1.0),
            ("iforest", 0.861, 0.74), ("robust_covariance", 0.840, 0.97),
        ]
    ]  # fmt: skip
    content = {"detectors": rows, "chosen": "knn", "geometry": "center+l2", "encoder": "minilm", "seeds": 5}
    extra = {
        "counts": {"task_units": 900, "held_out": 90},
        "depends_on": {"seeds": 5},
        "versions": {"torch": "2.13.0"},
    }
    write_json(run / "ranking.json", {**content, **extra, "task": "toy", "fingerprint": "ab" * 16, "seconds": 31.5})


def write_selection(run: Path, count: int = 80) -> None:
    """corpus/, scores/ and weights/: the lowest fifth of the units is kept."""
    random = np.random.default_rng(0)
    rows = documents(count)
    scores = score_rows(rows, random)
    held_out = score_rows([{**row, "source": "task"} for row in documents(10)], random)

    def corpus(draft):
        write_parts([pa.Table.from_pylist(rows, schema=DOCUMENTS)], draft.path, DOCUMENTS)
        draft.counts.update(
            {"in": count + 3, "kept": count, "dropped": {"duplicate": 2}, "rejected": {"unreadable": 1}}
        )

    def scored(draft):
        write_parts([scores], draft.path, SCORES)
        pq.write_table(held_out, draft.path / "task.parquet")
        draft.counts["units"] = scores.num_rows

    def weighed(draft):
        values = scores["score"].to_numpy()
        weight = (values <= np.quantile(values, 0.2)).astype(np.float32)
        columns = [
            *(scores[name] for name in WEIGHTS.names[:5]),
            pa.array(np.zeros(len(values)), pa.int32()),
            weight,
        ]
        write_parts([pa.Table.from_arrays(columns, schema=WEIGHTS)], draft.path, WEIGHTS)
        draft.counts["units"] = {"in": len(values), "kept": int(weight.sum())}

    make(run / "corpus", "corpus", {"files": {"web.jsonl": "00"}}, corpus)
    make(run / "scores", "scores", {"selector": "knn"}, scored)
    make(run / "weights", "weights", {"settings": {"policy": "segments", "beta": 0.2, "gamma": 15}}, weighed)


def write_training(folder: Path, gain: float) -> None:
    """adapted/ with a training.jsonl whose task loss falls by `gain`."""
    lines = []
    for place in range(5):
        fall = gain * (1 - np.exp(-place)) / (1 - np.exp(-4))
        evaluation = {"kind": "evaluation", "step": 25 * place, "tokens": 200_000 * place}
        task = {"task_loss": 5.2 - fall, "task_loss_se": 0.03}
        general = {"general_loss": 5.0 - 0.3 * fall, "general_loss_se": 0.02}
        lines += [
            {"kind": "step", "step": 25 * place, "tokens": 1, "loss": 1.0},
            {**evaluation, **task, **general},
        ]

    def write(draft):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (draft.path / "training.jsonl").write_text(text, encoding="utf-8")

    make(folder, "model", {"settings": {"learning_rate": 5e-4}, "gain": gain}, write)


def write_results(
    run: Path, task: str = "toy", seeds: int = 5, arms: dict[str, float] | None = None, collapsed: str = "general"
) -> None:
    """finetune/TASK/ARM/metrics.json; one seed of the collapsed arm is degenerate."""
    random = np.random.default_rng(1)
    shared = random.normal(0, 0.01, seeds)
    for arm, mean in (arms or ARMS).items():
        scores = mean + shared + random.normal(0, 0.006, seeds)
        rows = [
            {
                "seed": seed,
                "score": float(score),
                "accuracy": float(score),
                "degenerate": arm == collapsed and seed == 3,
            }
            for seed, score in enumerate(scores)
        ]
        head = {"task": task, "version": 1, "metric": "macro_f1", "direction": "higher"}
        write_json(run / "finetune" / task / arm / "metrics.json", {**head, "seeds": rows, "ddof": 1, "n": seeds})


@pytest.fixture
def whole_run(tmp_path) -> Path:
    """Everything a run of several arms has."""
    run = tmp_path / "toy-run"
    write_ranking(run)
    write_selection(run)
    for arm, gain in {"general": 0.25, "random": 0.3, "dana": 0.6}.items():
        write_training(run / "arms" / arm / "adapted", gain)
    write_results(run)
    return run


@pytest.fixture
def write() -> dict[str, Callable[..., None]]:
    """Writers of the parts, for tests that need one of them."""
    return {
        "ranking": write_ranking,
        "selection": write_selection,
        "training": write_training,
        "results": write_results,
    }
