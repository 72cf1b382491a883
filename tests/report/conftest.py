"""Write a run's folder with made-up numbers: four sources, four arms."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dana.core.artifacts import MANIFEST, make, write_json
from dana.core.schemas import DOCUMENTS, HELD_OUT_TARGET, SCORES, WEIGHTS, write_parts
from dana.report.analysis import analyse
from dana.report.run import read_run
from dana.tasks.kinds.single_label import SingleLabel

UNITS = 12  # in a document
SENTENCE = "Sentence number {} of document {} tells of <{}> & others."
MEANS = {"web": 1.0, "law": 1.6, "python": 0.4, "science": -1.0}
ARMS = {"base": 0.70, "pool": 0.705, "random": 0.71, "dana": 0.74}


def edit_json(file: Path, **values: Any) -> None:
    """Replace keys of a JSON file."""
    write_json(file, {**json.loads(file.read_text()), **values})


def commit(folder, depends_on, write=lambda path: None, kind="", **notes):
    """Make an artifact, by default of the kind that its folder is called; `counts` and notes go into its manifest."""

    def fill(draft):
        draft.counts |= notes.pop("counts", {})
        draft.notes |= notes
        write(draft.path)

    make(folder, kind or folder.name, depends_on, fill)


def texts_and_scores(
    count: int, random: np.random.Generator, means: dict[str, float]
) -> tuple[pa.Table, pa.Table]:
    """Documents of the sources in turn, and one row per sentence with a score near the mean of its source."""
    texts, scores = [], []
    for number in range(count):
        source = list(means)[number % len(means)]
        key = {"doc_id": f"d{number:05d}", "source": source}
        sentences = [SENTENCE.format(unit, number, source) for unit in range(UNITS)]
        texts.append({**key, "text": " ".join(sentences)})
        start = 0
        for unit, sentence in enumerate(sentences):
            end = start + len(sentence)
            score = means[source] + random.normal(0, 0.7)
            span = {"start": start, "end": end}
            scores.append({**key, "unit": unit, **span, "score": score, "short": False})
            start = end + 1
    return pa.Table.from_pylist(texts, schema=DOCUMENTS), pa.Table.from_pylist(
        scores, schema=SCORES
    )


def write_ranking(run: Path) -> None:
    """Write a ranking of three detectors."""
    rows = []
    for name, f1, stability in [("knn", 0.921, 1.0), ("pca", 0.880, 1.0), ("iforest", 0.861, 0.74)]:
        measures = {"f1_mean": f1, "f1_std": 0.012, "auroc_mean": f1 + 0.04, "ap_mean": f1 + 0.02}
        rows.append(
            {"name": name, **measures, "stability": stability, "fit_s": 0.2, "score_s": 0.03}
        )
    commit(run / "ranking", {"seeds": 5}, detectors=rows, chosen="knn")


def choice_notes() -> dict[str, Any]:
    """Return what ``auto`` writes into a manifest: three selectors and their fusion, which was chosen."""
    rows, aps = (
        [],
        [
            ("moore_lewis", 0.78, 0.4),
            ("lda", 0.81, 0.5),
            ("svm", 0.74, 0.1),
            ("fusion", 0.86, None),
        ],
    )
    for name, ap, weight in aps:
        measures = {
            "ap": ap,
            "ap_low": ap - 0.02,
            "ap_high": ap + 0.02,
            "recall_5": ap - 0.1,
            "recall_20": ap + 0.05,
        }
        rows.append({"name": name, **measures, "auroc": ap + 0.08, "weight": weight})
    spec = "fusion:parts=moore_lewis+lda+svm,weights=0.4+0.5+0.1"
    return {
        "chosen": spec,
        "reason": "the fusion of all has average precision 0.860",
        "candidates": rows,
    }


def write_selection(run: Path, count: int = 80, **notes: Any) -> None:
    """Write pool/, scores/ and weights/: the lowest fifth of the units is selected."""
    random = np.random.default_rng(0)
    texts, scores = texts_and_scores(count, random, MEANS)
    _, held_out = texts_and_scores(10, random, {"target": -1.0})

    def write_scores(folder):
        write_parts([scores], folder, SCORES)
        pq.write_table(held_out, folder / HELD_OUT_TARGET)

    values = scores["score"].to_numpy()
    weight = (values <= np.quantile(values, 0.2)).astype(np.float32)
    columns = [
        *(scores[name] for name in WEIGHTS.names[:5]),
        pa.array(np.zeros(len(values)), pa.int32()),
        weight,
    ]
    weights = pa.Table.from_arrays(columns, schema=WEIGHTS)
    counts = {
        "in": count + 3,
        "kept": count,
        "dropped": {"duplicate": 2},
        "rejected": {"unreadable": 1},
    }
    files = {"files": {"web.jsonl": "00"}}
    commit(
        run / "pool", files, lambda folder: write_parts([texts], folder, DOCUMENTS), counts=counts
    )
    commit(
        run / "scores", {"selector": "knn"}, write_scores, counts={"units": len(values)}, **notes
    )
    settings = {"settings": {"policy": "segments", "beta": 0.2, "gamma": 15}}
    counts = {"units": {"in": len(values), "selected": int(weight.sum())}}
    commit(
        run / "weights",
        settings,
        lambda folder: write_parts([weights], folder, WEIGHTS),
        counts=counts,
    )


def write_training(folder: Path, gain: float) -> None:
    """Write a model's ``training.jsonl`` with five evaluations, in which the task loss falls by `gain`."""
    lines = []
    for index in range(5):
        fall = gain * (1 - np.exp(-index)) / (1 - np.exp(-4))
        losses = {"target_loss": 5.2 - fall, "pool_loss": 5.0 - 0.3 * fall, "target_loss_se": 0.03}
        losses |= {"pool_loss_se": 0.02}
        lines.append({"kind": "step", "step": 25 * index, "tokens": 1, "loss": 1.0})
        lines.append(
            {"kind": "evaluation", "step": 25 * index, "tokens": 200_000 * index, **losses}
        )
    text = "".join(json.dumps(line) + "\n" for line in lines)
    depends_on = {"settings": {"learning_rate": 5e-4}, "gain": gain}
    commit(folder, depends_on, lambda path: (path / "training.jsonl").write_text(text), "model")


def predictions_of(
    mean: float, seeds: int, collapsed_seed: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels of 300 texts and answers of each seed, right with probability `mean`, on the same texts."""
    labels = np.arange(300) % 3
    luck = np.random.default_rng(1).random((seeds, labels.size))
    predictions = np.where(luck < mean, labels, (labels + 1) % 3)
    if collapsed_seed is not None and collapsed_seed < seeds:
        predictions[collapsed_seed] = 0
        predictions[collapsed_seed, :2] = 1, 2  # two other answers are still a collapse
    return labels, predictions


def write_results(run, task="toy", seeds=8, collapsed_arm="", version=1, arms=ARMS, **settings):
    """Write finetune/TASK/ARM as fine-tuning does; seed 3 of the collapsed arm answers one class but for two texts."""
    preset = {"epochs": 3, "learning_rate": 5e-5, "seeds": list(range(seeds)), **settings}
    max_train = preset.pop("max_train", None)
    card = {
        "name": task,
        "version": version,
        "labels": ["a", "b", "c"],
        "data": {"test.jsonl": "cd" * 16},
    }
    for arm, mean in arms.items():
        labels, predictions = predictions_of(mean, seeds, 3 if arm == collapsed_arm else None)
        [scores] = SingleLabel.from_count(3).scorer(predictions, labels, "macro_f1")(
            np.ones((1, labels.size))
        )
        kind = SingleLabel(("a", "b", "c"))
        rows = [
            {
                "seed": seed,
                "score": float(score),
                "degenerate": kind.is_collapsed(predictions[seed], labels, "macro_f1"),
            }
            for seed, score in enumerate(scores)
        ]
        head = {"task": task, "metric": "macro_f1", "direction": "higher"}
        head |= {"kind": kind.name, "labels": kind.labels, "folds": None, "adaptations": 1}
        metrics = {**head, "seeds": rows}
        columns = {"adaptation": np.zeros(predictions.size, dtype=np.int64)}
        columns |= {"seed": np.repeat(np.arange(seeds), labels.size)}
        columns |= {
            "id": [f"t{number:03d}" for number in range(labels.size)] * seeds,
            "label": np.tile(labels, seeds),
        }
        columns |= {
            "prediction": predictions.ravel(),
            "probabilities": [[0.2, 0.3, 0.5]] * predictions.size,
        }

        def write(folder, metrics=metrics, columns=columns):
            write_json(folder / "metrics.json", metrics)
            pq.write_table(pa.table(columns), folder / "predictions.parquet")

        depends_on = {
            "model": {"name": arm},
            "task": card,
            "preset": preset,
            "max_train": max_train,
        }
        commit(run / "finetune" / task / arm, depends_on, write, "finetune")


@pytest.fixture(scope="session")
def shared_run(tmp_path_factory) -> Path:
    """All parts of a run with several arms, with the same seconds and versions everywhere; tests leave it as it is."""
    run = tmp_path_factory.mktemp("report") / "toy-run"
    write_ranking(run)
    write_selection(run)
    for arm, gain in {"pool": 0.25, "random": 0.3, "dana": 0.6}.items():
        write_training(run / "arms" / arm / "adapted", gain)
    write_results(run, collapsed_arm="pool")
    for manifest in run.rglob(MANIFEST):
        edit_json(manifest, seconds=10.0, versions={"dana": "1.0", "numpy": "2.0"})
    return run


@pytest.fixture(scope="session")
def frames(shared_run):
    return read_run(shared_run)


@pytest.fixture(scope="session")
def tables(frames):
    """Tables of the run's report by name."""
    return analyse(frames).tables


@pytest.fixture
def whole_run(shared_run, tmp_path) -> Path:
    """A copy of the run that a test may change."""
    return shutil.copytree(shared_run, tmp_path / "toy-run")
