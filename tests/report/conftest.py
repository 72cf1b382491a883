"""Write a run's folder with made-up numbers: three sources, planted documents, four arms."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dana.core.artifacts import MANIFEST, make, write_json
from dana.core.schemas import DOCUMENTS, HELD_OUT_TASK, SCORES, WEIGHTS, write_parts
from dana.tasks.kinds.single_label import SingleLabel

UNITS = 12  # in a document
SENTENCE = "Sentence number {} of document {} tells of <{}> & others. "
MEANS = {"web": 1.0, "law": 1.6, "python": 0.4, "target (planted)": -1.0}
ARMS = {"base": 0.70, "general": 0.705, "random": 0.71, "dana": 0.74}


def edit_json(file: Path, **values: Any) -> None:
    """Replace keys of a JSON file."""
    write_json(file, {**json.loads(file.read_text()), **values})


def documents(count: int) -> list[dict[str, str]]:
    """Documents, sources in turn."""
    rows = []
    for number in range(count):
        source = list(MEANS)[number % len(MEANS)]
        text = "".join(SENTENCE.format(unit, number, source) for unit in range(UNITS)).strip()
        rows.append({"doc_id": f"d{number:05d}", "source": source, "text": text})
    return rows


def score_rows(rows: list[dict[str, str]], random: np.random.Generator) -> pa.Table:
    """One row per sentence; the scores of the sources differ as in MEANS."""
    table = []
    for row in rows:
        start = 0
        for unit in range(UNITS):
            end = start + len(SENTENCE.format(unit, int(row["doc_id"][1:]), row["source"]).strip())
            score = float(MEANS.get(row["source"], -1.0) + random.normal(0, 0.7))
            key = {"doc_id": row["doc_id"], "source": row["source"], "unit": unit}
            table.append({**key, "start": start, "end": end, "score": score})
            start = end + 1
    return pa.Table.from_pylist(table, schema=SCORES)


def write_ranking(run: Path) -> None:
    """Write a ranking of three detectors."""
    rows = [
        {
            "name": name, "f1_mean": f1, "f1_std": 0.012, "auroc_mean": f1 + 0.04, "ap_mean": f1 + 0.02,
            "stability": stability, "fit_s": 0.2, "score_s": 0.03,
        }
        for name, f1, stability in [("knn", 0.921, 1.0), ("pca", 0.880, 1.0), ("iforest", 0.861, 0.74)]
    ]  # fmt: skip

    def write(draft):
        draft.notes = {"detectors": rows, "chosen": "knn"}

    make(run / "ranking", "ranking", {"seeds": 5}, write)


def choice_notes() -> dict[str, Any]:
    """Return what ``auto`` writes into a manifest: three selectors and their fusion, which was chosen."""
    rows = [
        {
            "name": name, "ap": ap, "ap_low": ap - 0.02, "ap_high": ap + 0.02, "recall_5": ap - 0.1,
            "recall_20": ap + 0.05, "auroc": ap + 0.08, "weight": weight,
        }
        for name, ap, weight in [
            ("moore_lewis", 0.78, 0.4), ("lda", 0.81, 0.5), ("svm", 0.74, 0.1), ("fusion", 0.86, None),
        ]
    ]  # fmt: skip
    spec = "fusion:parts=moore_lewis+lda+svm,weights=0.4+0.5+0.1"
    return {"chosen": spec, "reason": "the fusion of all has average precision 0.860", "candidates": rows}


def write_selection(run: Path, count: int = 80, notes: dict[str, Any] | None = None) -> None:
    """Write corpus/, scores/ and weights/: the lowest fifth of the units is selected."""
    random = np.random.default_rng(0)
    rows = documents(count)
    scores = score_rows(rows, random)
    held_out = score_rows([{**row, "source": "task"} for row in documents(10)], random)

    def write_documents(draft):
        write_parts([pa.Table.from_pylist(rows, schema=DOCUMENTS)], draft.path, DOCUMENTS)
        draft.counts |= {"in": count + 3, "kept": count, "dropped": {"duplicate": 2}, "rejected": {"unreadable": 1}}

    def write_scores(draft):
        write_parts([scores], draft.path, SCORES)
        pq.write_table(held_out, draft.path / HELD_OUT_TASK)
        draft.counts["units"] = scores.num_rows
        draft.notes |= notes or {}

    def write_weights(draft):
        values = scores["score"].to_numpy()
        weight = (values <= np.quantile(values, 0.2)).astype(np.float32)
        columns = [*(scores[name] for name in WEIGHTS.names[:5]), pa.array(np.zeros(len(values)), pa.int32()), weight]
        write_parts([pa.Table.from_arrays(columns, schema=WEIGHTS)], draft.path, WEIGHTS)
        draft.counts["units"] = {"in": len(values), "kept": int(weight.sum())}

    make(run / "corpus", "corpus", {"files": {"web.jsonl": "00"}}, write_documents)
    make(run / "scores", "scores", {"selector": "knn"}, write_scores)
    make(run / "weights", "weights", {"settings": {"policy": "segments", "beta": 0.2, "gamma": 15}}, write_weights)


def write_training(folder: Path, gain: float) -> None:
    """Write a model's ``training.jsonl`` with five evaluations, in which the task loss falls by `gain`."""
    lines = []
    for index in range(5):
        fall = gain * (1 - np.exp(-index)) / (1 - np.exp(-4))
        evaluation = {"kind": "evaluation", "step": 25 * index, "tokens": 200_000 * index}
        losses = {"task_loss": 5.2 - fall, "general_loss": 5.0 - 0.3 * fall}
        lines += [
            {"kind": "step", "step": 25 * index, "tokens": 1, "loss": 1.0},
            {**evaluation, **losses, "task_loss_se": 0.03, "general_loss_se": 0.02},
        ]

    def write(draft):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (draft.path / "training.jsonl").write_text(text, encoding="utf-8")

    make(folder, "model", {"settings": {"learning_rate": 5e-4}, "gain": gain}, write)


def answers_of(mean: float, seeds: int, collapsed_seed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return labels of 300 texts and answers of each seed, right with probability `mean`, on the same texts."""
    labels = np.arange(300) % 3
    luck = np.random.default_rng(1).random((seeds, labels.size))
    answers = np.where(luck < mean, labels, (labels + 1) % 3)
    if collapsed_seed is not None and collapsed_seed < seeds:
        answers[collapsed_seed] = 0
        answers[collapsed_seed, :2] = 1, 2  # two other answers are still a collapse
    return labels, answers


def write_results(
    run: Path,
    task: str = "toy",
    seeds: int = 8,
    arms: dict[str, float] | None = None,
    collapsed_arm: str = "",
    version: int = 1,
    **settings: int,
) -> None:
    """Write finetune/TASK/ARM as fine-tuning does; seed 3 of the collapsed arm answers one class but for two texts."""
    preset = {"epochs": 3, "learning_rate": 5e-5, "max_train": None, **settings}
    max_train = preset.pop("max_train")
    for arm, mean in (arms or ARMS).items():
        labels, answers = answers_of(mean, seeds, 3 if arm == collapsed_arm else None)
        [scores] = SingleLabel.from_count(3).scorer(answers, labels, "macro_f1")(np.ones((1, labels.size)))
        rows = [{"seed": seed, "score": float(score)} for seed, score in enumerate(scores)]
        metrics = {"task": task, "metric": "macro_f1", "direction": "higher", "seeds": rows}

        def write(draft, metrics=metrics, labels=labels, answers=answers):
            write_json(draft.path / "metrics.json", metrics)
            table = {
                "seed": np.repeat(np.arange(len(answers)), labels.size),
                "id": [f"t{number:03d}" for number in range(labels.size)] * len(answers),
                "label": np.tile(labels, len(answers)),
                "prediction": answers.ravel(),
                "probabilities": [[0.2, 0.3, 0.5]] * answers.size,
            }
            pq.write_table(pa.table(table), draft.path / "predictions.parquet")

        card = {"name": task, "version": version, "labels": ["a", "b", "c"], "data": {"test.jsonl": "cd" * 16}}
        depends_on = {"model": {"name": arm}, "task": card, "preset": {**preset, "seeds": list(range(seeds))}}
        make(run / "finetune" / task / arm, "finetune", {**depends_on, "max_train": max_train}, write)


@pytest.fixture
def whole_run(tmp_path) -> Path:
    """Write all parts of a run with several arms, with the same seconds and versions everywhere."""
    run = tmp_path / "toy-run"
    write_ranking(run)
    write_selection(run)
    for arm, gain in {"general": 0.25, "random": 0.3, "dana": 0.6}.items():
        write_training(run / "arms" / arm / "adapted", gain)
    write_results(run, collapsed_arm="general")
    for manifest in run.rglob(MANIFEST):
        edit_json(manifest, seconds=10.0, versions={"dana": "1.0", "numpy": "2.0"})
    return run


@pytest.fixture
def write() -> dict[str, Callable[..., None]]:
    """Return the writers of the parts, for tests that need one of them."""
    return {
        "ranking": write_ranking,
        "selection": write_selection,
        "choice": lambda run: write_selection(run, notes={"choice": choice_notes()}),
        "training": write_training,
        "results": write_results,
    }
