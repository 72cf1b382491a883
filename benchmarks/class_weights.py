"""What balanced class weights change in the macro-F1 of TF-IDF with logistic regression.

    DANA_DATA=... python benchmarks class_weights

Each draw has the same training texts with balanced weights and without. In the first table the classes
of a draw have sizes in equal steps, from the largest to the smallest; which class is large is drawn, too.
In the second they have the sizes of a random draw. All test texts are predicted. About half an hour on
one core.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dana.core.rng import generator
from dana.core.text_table import tabulate
from dana.stages.baselines import fit_tfidf
from dana.tasks.card import TaskCard, load_card
from dana.tasks.examples import Example, read_split

TASKS = ("agnews", "sst2", "csabstruct", "rct_sample")
RATIOS = (1, 3, 10, 30)  # of the largest class to the smallest
NATURAL_TASKS = ("acl_arc", "rct_sample", "csabstruct", "chemprot")
SIZE = 400  # training texts of classes of chosen sizes
NATURAL_SIZE = 500


def sizes_in_steps(classes: int, ratio: int, total: int) -> np.ndarray:
    """Return sizes of classes from the largest to the smallest, in equal steps, that add up to about a total."""
    steps = np.linspace(ratio, 1, classes)
    return np.maximum(1, np.round(steps / steps.sum() * total)).astype(int)


def draw_of_sizes(
    labels: np.ndarray, sizes: Sequence[int], random: np.random.Generator
) -> np.ndarray:
    """Draw rows whose classes, in random order, have given sizes, or as many texts as there are."""
    rows = []
    for label, size in zip(random.permutation(np.unique(labels)), sizes, strict=True):
        rows.append(random.permutation(np.flatnonzero(labels == label))[:size])
    return np.concatenate(rows)


def macro_f1(card: TaskCard, train: Sequence[Example], test: Sequence[Example]) -> float:
    """Fit TF-IDF to training texts and return its macro-F1 on the test texts."""
    texts = ["\n".join(example.texts) for example in train]
    targets = np.array([example.label for example in train])
    model = fit_tfidf(card, texts, targets)
    predicted = model.predict(["\n".join(example.texts) for example in test])
    kind = card.label_kind
    truth = kind.gather([example.label for example in test])
    return kind.scores(kind.gather(predicted.tolist()), truth)["macro_f1"]


def compare(card: TaskCard, train: list[Example], test: list[Example]) -> tuple[float, float]:
    """Return macro-F1 without weights, and what balanced weights add to it."""
    plain = macro_f1(replace(card, class_weight=None), train, test)
    balanced = macro_f1(replace(card, class_weight="balanced"), train, test)
    return plain, balanced - plain


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=[*TASKS])
    parser.add_argument("--natural", nargs="*", default=[*NATURAL_TASKS])
    parser.add_argument("--draws", type=int, default=5)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for task in args.tasks:
        card = replace(load_card(task), metric="macro_f1")
        train = read_split(card, "train")
        test = read_split(card, "test")
        labels = np.array([example.label for example in train])
        for ratio in RATIOS:
            sizes = sizes_in_steps(len(card.labels), ratio, SIZE)
            results = []
            for draw in range(args.draws):
                random = generator(draw, "class weights", task, str(ratio))
                chosen = draw_of_sizes(labels, sizes, random)
                results.append(compare(card, [train[row] for row in chosen], test))
            rows.append(row_of(task, ratio, results))
            print(tabulate(rows[-1:]), flush=True)
    natural: list[dict[str, Any]] = []
    for task in args.natural:
        card = replace(load_card(task), metric="macro_f1")
        train = read_split(card, "train")
        test = read_split(card, "test")
        results = []
        ratios = []
        for draw in range(args.draws):
            random = generator(draw, "class weights", task)
            chosen = [train[row] for row in random.permutation(len(train))[:NATURAL_SIZE]]
            counts = np.unique([example.label for example in chosen], return_counts=True)[1]
            ratios.append(counts.max() / counts.min())
            results.append(compare(card, chosen, test))
        natural.append(row_of(task, round(float(np.median(ratios))), results))
    for table in (rows, natural):
        if table:
            print(tabulate(table))


def row_of(task: str, ratio: int, results: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return a row of a table: means over draws, and on how many of them weights gained."""
    plain, gains = np.array(results).T
    return {
        "task": task,
        "largest to smallest": ratio,
        "macro-F1 without weights": round(float(plain.mean()), 3),
        "weights add": round(float(gains.mean()), 3),
        "gains": f"{(gains > 0).sum()} of {len(gains)}",
    }


if __name__ == "__main__":
    main()
