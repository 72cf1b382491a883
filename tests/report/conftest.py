"""A run's folder with made-up numbers: three sources, planted documents, four arms, two tasks."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dana.core.artifacts import make, write_json
from dana.core.schemas import DOCUMENTS, HELD_OUT_TASK, SCORES, WEIGHTS, write_parts
from dana.tasks.kinds.single_label import SingleLabel

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
    content = {"detectors": rows, "chosen": "knn", "geometry": "center+l2", "encoder": "minilm", "repetitions": 5}

    def write(draft):
        draft.counts = {"task_units": 900, "held_out": 90}
        draft.notes = {**content, "task": "toy"}

    make(run / "ranking", "ranking", {"seeds": 5}, write)


def choice_notes() -> dict:
    """Three selectors and their fusion, which was chosen, as ``auto`` notes them."""
    rows = [
        {
            "name": name, "ap": ap, "ap_low": ap - 0.02, "ap_high": ap + 0.02, "recall_5": ap - 0.1,
            "recall_20": ap + 0.05, "auroc": ap + 0.08, "weight": weight,
        }
        for name, ap, weight in [
            ("moore_lewis", 0.78, 0.4), ("lda", 0.81, 0.5), ("svm", 0.74, 0.1), ("fusion", 0.86, None),
        ]
    ]  # fmt: skip
    chosen = "fusion:parts=moore_lewis+lda+svm,weights=0.4+0.5+0.1"
    return {"chosen": chosen, "reason": "the fusion of all has average precision 0.860", "candidates": rows}


def write_selection(run: Path, count: int = 80, notes: dict | None = None) -> None:
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
        pq.write_table(held_out, draft.path / HELD_OUT_TASK)
        draft.counts["units"] = scores.num_rows
        draft.notes |= notes or {}

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


def predictions(mean: float, seeds: int, collapsed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Labels of 300 texts, and what each seed predicts: right as often as `mean` says, on the same texts in any arm."""
    labels = np.arange(300) % 3
    luck = np.random.default_rng(1).random((seeds, labels.size))
    predicted = np.where(luck < mean, labels, (labels + 1) % 3)
    if collapsed is not None and collapsed < seeds:
        predicted[collapsed] = 0
        predicted[collapsed, :2] = 1, 2  # stray predictions do not make it sound
    return labels, predicted


def write_results(
    run: Path,
    task: str = "toy",
    seeds: int = 8,
    arms: dict[str, float] | None = None,
    collapsed: str = "general",
    version: int = 1,
    **settings: int,
) -> None:
    """finetune/TASK/ARM as fine-tuning leaves it; seed 3 of the collapsed arm predicts one class but for two texts."""
    preset = {"epochs": 3, "learning_rate": 5e-5, "max_train": None, **settings}
    max_train = preset.pop("max_train")
    for arm, mean in (arms or ARMS).items():
        labels, predicted = predictions(mean, seeds, 3 if arm == collapsed else None)
        [scores] = SingleLabel.numbered(3).scorer(predicted, labels, "macro_f1")(np.ones((1, labels.size)))
        rows = [
            {"seed": seed, "score": float(score), "degenerate": False}  # as older runs say
            for seed, score in enumerate(scores)
        ]
        head = {"task": task, "version": version, "metric": "macro_f1", "direction": "higher"}
        used = {"settings": {**preset, "seeds": seeds, "max_train": max_train}, "ddof": 1, "n": seeds}

        def write(draft, head=head, rows=rows, used=used, labels=labels, predicted=predicted):
            write_json(draft.path / "metrics.json", {**head, **used, "seeds": rows})
            table = {
                "seed": np.repeat(np.arange(len(predicted)), labels.size),
                "id": [f"t{number:03d}" for number in range(labels.size)] * len(predicted),
                "label": np.tile(labels, len(predicted)),
                "prediction": predicted.ravel(),
                "probabilities": [[0.2, 0.3, 0.5]] * predicted.size,
            }
            pq.write_table(pa.table(table), draft.path / "predictions.parquet")

        card = {"name": task, "version": version, "labels": ["a", "b", "c"], "data": {"test.jsonl": "cd" * 16}}
        depends_on = {"model": {"name": arm}, "task": card, "preset": {**preset, "seeds": list(range(seeds))}}
        make(run / "finetune" / task / arm, "finetune", {**depends_on, "max_train": max_train}, write)


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
        "choice": lambda run: write_selection(run, notes={"choice": choice_notes()}),
        "training": write_training,
        "results": write_results,
    }
