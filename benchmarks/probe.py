"""Does adaptation change what a model knows of a task's classes? A linear classifier on frozen vectors says so exactly.

    DANA_DATA=... python benchmarks/probe.py chemprot base=dana-mini random=FOLDER dana=FOLDER --train 500 4000

Fine-tuning a small checkpoint on few texts has the luck of seeds in it. Here a text is the mean of a checkpoint's last
hidden states, nothing of which is trained, and a logistic regression tells classes apart: its regularisation is
chosen on the dev texts, test texts are scored once, and nothing is drawn but the training texts. What is left is the
luck of the test texts: the intervals, of 95 %, are a paired bootstrap over them, and the choice of training texts is
the one of ``dana finetune``'s max_train.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

STRENGTHS = tuple(10.0**power for power in range(-4, 2))  # C of scikit-learn: the inverse of the regularisation
DRAWS = 2_000


def probe(
    vectors: dict[str, np.ndarray], labels: dict[str, np.ndarray], measure: Callable[[np.ndarray, np.ndarray], float]
) -> tuple[np.ndarray, float]:
    """Test predictions of the strength that is best on dev, and that strength.

    Args:
        vectors: float32 of shape (texts, dims) by split.
        labels: int of shape (texts,) by split.
        measure: Score of predictions and labels, higher = better.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def fitted(strength: float) -> Any:
        model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=2_000))
        return model.fit(vectors["train"], labels["train"])

    models = {strength: fitted(strength) for strength in STRENGTHS}
    best = max(models, key=lambda strength: measure(models[strength].predict(vectors["dev"]), labels["dev"]))
    return models[best].predict(vectors["test"]), best


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row an arm, with its differences to the arms before it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", help="a task card with one label a text")
    parser.add_argument("arms", nargs="+", help="NAME=CHECKPOINT")
    parser.add_argument("--train", type=int, nargs="+", default=[500], help="training texts; more than there are: all")
    parser.add_argument("--max-tokens", type=int, default=128)
    given = parser.parse_args(arguments)
    from dana.encoders.transformer import TransformerEncoder
    from dana.models.shipped import located
    from dana.tasks.card import load_card
    from dana.tasks.examples import read_splits, subset

    card = load_card(given.task)
    splits = read_splits(card, os.environ["DANA_DATA"] + "/tasks")
    labels = {split: np.array([one.label for one in examples]) for split, examples in splits.items()}
    vectors = {}
    for name, checkpoint in (arm.split("=", 1) for arm in given.arms):
        encoder = TransformerEncoder(located(checkpoint), max_tokens=given.max_tokens)
        encoded = {split: encoder.encode([" ".join(one.texts) for one in splits[split]]) for split in splits}
        vectors[name] = {split: rows.numpy() for split, rows in encoded.items()}

    def measure(predicted: np.ndarray, true: np.ndarray) -> float:
        return card.target.scores(predicted, true)[card.metric]

    texts = len(labels["test"])
    draws = np.random.default_rng(0).multinomial(texts, np.full(texts, 1 / texts), size=DRAWS).astype(float)
    for size in given.train:
        chosen = {one.id for one in subset(splits["train"], size)}
        rows = np.array([one.id in chosen for one in splits["train"]])
        print(f"{given.task}: {rows.sum():,} training texts, {texts:,} test texts, {card.metric}")
        about = {**labels, "train": labels["train"][rows]}
        drawn: dict[str, np.ndarray] = {}
        for name, of in vectors.items():
            predicted, strength = probe({**of, "train": of["train"][rows]}, about, measure)
            drawn[name] = card.target.scorer(predicted[None], labels["test"], card.metric)(draws)[:, 0]
            line = f"  {name:<16} {measure(predicted, labels['test']):.4f}  C {strength:<7g}"
            for other in list(drawn)[:-1]:
                gain = drawn[name] - drawn[other]
                low, high = np.quantile(gain, (0.025, 0.975))
                line += f"   - {other}: {gain.mean():+.4f} ({low:+.4f} to {high:+.4f})"
            print(line, flush=True)


if __name__ == "__main__":
    main()
