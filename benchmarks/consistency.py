"""Do a task's own texts without labels help a linear classifier of frozen vectors that has few labels?

    DANA_DATA=... python benchmarks consistency WORK [--sizes 100] [--adapted]

WORK is the folder of ``python benchmarks evidence``, whose texts are used; it is filled where it is empty.
Each arm gets the labels of the draws of the probe, and all training texts of the task without labels. No
arm sees a tested text before it predicts. Vectors and scores are kept in WORK/consistency, a file a task,
and are not made again.

Penalties are chosen as the probe chooses them, within the labels of draws. All else is fixed: a view, the
batch, the rate and the steps, dropout, sharpening and threshold, 20 and 10 neighbours, 128 components.

References:
    Berthelot et al. 2022, AdaMatch: a unified approach to semi-supervised learning and domain
    adaptation, section 3: distribution alignment and the relative threshold.
    Chen et al. 2023, SoftMatch: addressing the quantity-quality trade-off in semi-supervised learning,
    section 3: weights of a truncated Gaussian.
    Zhou et al. 2004, Learning with local and global consistency: label spreading.
    Ledoit and Wolf 2004, A well-conditioned estimator for large-dimensional covariance matrices.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.covariance import LedoitWolf
from sklearn.linear_model import LogisticRegression
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent / "evidence"))

from few_labels import ADAPTED
from plan import DRAWS, TASKS
from steps import TaskVectors
from texts import prepare_task, read_rows

from dana.core.artifacts import read_json, write_json
from dana.core.rng import generator
from dana.core.text_table import tabulate
from dana.encoders.transformer import TransformerEncoder
from dana.finetuning.probe import (
    INVERSE_PENALTIES,
    LEAST_PROBABILITY,
    MOST_STEPS,
    LabelledVectors,
    choose_strength,
    draw_labels,
    fold_numbers,
    group_numbers,
    probe_scores,
    text_keys,
)
from dana.finetuning.settings import ProbeSettings
from dana.models.folder import resolve_model
from dana.stages.probe import CHOOSING_DRAWS
from dana.tasks.examples import Example
from dana.tasks.kinds.single_label import SingleLabel

TEST_TEXTS = 1_000
VIEWS = 1  # of a training text
DELETED = (0.1, 0.3)  # share of the words of a view
DTYPE = "bfloat16"  # twice as fast as float32 on a CPU that has it; vectors differ by .006 of their length
STEPS = 200
RATE = 0.01
BATCH = 500  # texts without labels
DROPOUT = 0.1  # of the columns of a view
MOMENTUM = 0.9  # of running means
SHARPENING = 2.0  # exponent of the targets of AdaMatch, whose own targets are hard
THRESHOLD = 0.9  # of AdaMatch, relative to the mean confidence in labelled texts
DEVIATIONS = 2.0  # of SoftMatch: a weight falls to exp(-1/2) at so many parts of a deviation
UNSEEN_LOGIT = -10.0  # at the start, of a class that has no label
SPREADING = 0.8  # share that a text takes from its neighbours
SPREADING_NEIGHBOURS = 20
SMOOTHING = 0.5  # share of a vector that is its neighbours' mean
SMOOTHING_NEIGHBOURS = 10
COMPONENTS = 128
VIEW_SHRINKAGE = 0.1
METRICS = ("accuracy", "macro_f1")


@dataclass(frozen=True)
class Material:
    """A task's vectors, and those of the views of its training texts.

    Attributes:
        texts: Vectors and labels of the training texts, then of the tested texts.
        read_views: Gives the vectors of views, which are encoded when an arm asks for them, shape
            (views, training texts, width).
    """

    texts: TaskVectors
    read_views: Callable[[], np.ndarray]

    @property
    def count(self) -> int:
        """Number of training texts."""
        return len(self.texts.known.labels)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.texts.known.kind.outputs)

    def scaled(self) -> "Material":
        """Return the material standardised by all training texts."""
        train = self.texts.known.vectors
        mean = train.mean(0)
        scale = np.maximum(train.std(0), 1e-12)
        texts = self.with_vectors((self.texts.vectors - mean) / scale).texts
        return Material(texts, lambda: (self.read_views() - mean) / scale)

    def with_vectors(self, vectors: np.ndarray) -> "Material":
        """Return the material with other vectors of whole texts."""
        known = replace(self.texts.known, vectors=vectors[: self.count])
        return replace(self, texts=replace(self.texts, known=known, vectors=vectors))


Samples = list[np.ndarray]
Arm = Callable[[Material, Samples], list[np.ndarray]]


def delete_words(row: dict[str, str], number: int) -> str:
    """Delete 10 to 30 % of the words of a text at random; a text of which none is left is kept."""
    words = row["text"].split()
    random = generator(0, "consistency", row["id"], number)
    rate = random.uniform(*DELETED)
    ranks = random.random(len(words))
    kept = [word for word, rank in zip(words, ranks, strict=True) if rank >= rate]
    return " ".join(kept) or row["text"]


def encode_texts(model: str, texts: Sequence[str], file: Path) -> np.ndarray:
    """Encode texts if it is not done; return their vectors, which a file keeps."""
    if not file.is_file():
        encoder = TransformerEncoder.of_checkpoint(model, ProbeSettings().max_tokens)
        vectors = replace(encoder, dtype=DTYPE).encode(texts).float().cpu().numpy()
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, vectors)
    encoded: np.ndarray = np.load(file).astype(np.float64)
    return encoded


def encode_task(work: Path, task: str, model: str, base: str) -> Material:
    """Encode the texts of a task."""
    folder = work / "tasks" / task
    train = read_rows(folder / "train.jsonl")
    test = read_rows(folder / "test.jsonl")[:TEST_TEXTS]
    rows = [*train, *test]
    files = work / "consistency"
    vectors = encode_texts(model, [row["text"] for row in rows], files / f"{task}-{base}.npy")
    names = sorted({row["label"] for row in rows})
    kind = SingleLabel(tuple(names))
    labels = kind.gather([names.index(row["label"]) for row in rows])
    examples = [Example(row["id"], row["text"], 0, group=row["group"]) for row in train]
    known = LabelledVectors(
        vectors[: len(train)],
        labels[: len(train)],
        kind,
        "accuracy",
        text_keys(examples),
        group_numbers(examples),
    )

    def read_views() -> np.ndarray:
        texts = [delete_words(row, number) for number in range(VIEWS) for row in train]
        views = encode_texts(model, texts, files / f"{task}-{base}-views.npy")
        return views.reshape(VIEWS, len(train), -1)

    return Material(TaskVectors(known, vectors, labels), read_views)


def probed(
    texts: TaskVectors, samples: Samples, class_weight: str | None = None
) -> list[np.ndarray]:
    """Predict by a probe of each draw, as ``dana probe`` does."""
    known = replace(texts.known, class_weight=class_weight)
    strength = choose_strength(known, samples[:CHOOSING_DRAWS])
    tests = np.arange(len(known.labels), len(texts.labels))
    return [
        probe_scores(texts.vectors, texts.labels, known.kind, sample, tests, strength, class_weight)
        for sample in samples
    ]


def by_probe(material: Material, samples: Samples) -> list[np.ndarray]:
    """Predict without the texts that have no labels."""
    return probed(material.texts, samples)


def by_balanced_probe(material: Material, samples: Samples) -> list[np.ndarray]:
    """Predict without the texts that have no labels, the classes weighted alike."""
    return probed(material.texts, samples, "balanced")


def by_more_views(material: Material, samples: Samples) -> list[np.ndarray]:
    """Predict by a probe to which the views of the labelled texts are added."""
    scaled = material.scaled()
    return by_logistic_regression(scaled, samples, scaled.read_views())


def soft_weights(confidence: Tensor, labelled: Tensor) -> Tensor:
    """Weigh targets as SoftMatch: less, the farther their confidence is below the mean."""
    below = (confidence - confidence.mean(1, keepdim=True)).clamp(max=0)
    variance = confidence.var(1, keepdim=True) / DEVIATIONS**2
    return torch.exp(-(below**2) / (2 * variance + 1e-12))


def threshold_weights(confidence: Tensor, labelled: Tensor) -> Tensor:
    """Weigh targets as AdaMatch: one at a share of the mean confidence in labelled texts, else nothing."""
    return (confidence >= THRESHOLD * labelled.mean(1, keepdim=True)).float()


def no_weights(confidence: Tensor, labelled: Tensor) -> Tensor:
    """Weigh no target: a control that is trained alike and sees the views of labelled texts alone."""
    return torch.zeros_like(confidence)


def first_head(
    vectors: np.ndarray, labels: np.ndarray, classes: int, strength: float
) -> tuple[np.ndarray, np.ndarray]:
    """Fit logistic regression; return weights of shape (classes, width) and biases of shape (classes,)."""
    model = LogisticRegression(C=strength, max_iter=MOST_STEPS).fit(vectors, labels)
    coefficients = model.coef_
    intercepts = model.intercept_
    if len(model.classes_) == 2:  # one logit, of the second class
        coefficients = np.concatenate([-coefficients / 2, coefficients / 2])
        intercepts = np.concatenate([-intercepts / 2, intercepts / 2])
    weights = np.zeros((classes, vectors.shape[1]))
    biases = np.full(classes, UNSEEN_LOGIT)
    weights[model.classes_] = coefficients
    biases[model.classes_] = intercepts
    return weights, biases


def by_consistency(
    material: Material,
    samples: Samples,
    weigh: Callable[[Tensor, Tensor], Tensor],
    sharpening: float,
) -> list[np.ndarray]:
    """Train a linear head so that a view of a text gets the classes that its whole text gets.

    The heads of all draws are trained at once, from logistic regression. The targets of a batch are what
    a head gives the whole texts, multiplied by the classes' shares of labels over a running mean of their
    shares of predictions. The loss is that of the labelled texts or their views, plus that of the weighted
    targets, plus the penalty of the probe.

    Args:
        material: Vectors of the task.
        samples: Labelled rows of each draw, equally many.
        weigh: Gives weights of shape (draws, batch) by the confidence in the targets and that in the
            labelled texts, shape (draws, labels).
        sharpening: Exponent of the targets.

    Returns:
        Predictions of the tested texts for each draw.
    """
    scaled = material.scaled()
    known = scaled.texts.known
    strength = choose_strength(known, samples[:CHOOSING_DRAWS])
    heads = [
        first_head(known.vectors[sample], known.labels[sample], material.classes, strength)
        for sample in samples
    ]
    weights = torch.tensor(np.stack([head[0] for head in heads]), dtype=torch.float32)
    biases = torch.tensor(np.stack([head[1] for head in heads])[:, None], dtype=torch.float32)
    weights.requires_grad_()
    biases.requires_grad_()
    whole = torch.tensor(scaled.texts.vectors, dtype=torch.float32)
    views = torch.tensor(scaled.read_views(), dtype=torch.float32)
    every = torch.cat([whole[None, : material.count], views])
    rows = torch.tensor(np.stack(samples))
    classes = torch.tensor(known.labels)[rows]
    one_hot = torch.nn.functional.one_hot(classes, material.classes).float()
    shares = one_hot.mean(1, keepdim=True)
    predicted = shares
    labels = rows.shape[1]
    optimizer = torch.optim.Adam([weights, biases], lr=RATE)

    def logits(vectors: Tensor) -> Tensor:
        return vectors @ weights.transpose(1, 2) + biases

    for step in range(STEPS):
        random = generator(0, "consistency", "step", step)
        batch = torch.tensor(random.permutation(material.count)[:BATCH])
        with torch.no_grad():
            probabilities = logits(whole[batch]).softmax(2)
            now = probabilities.mean(1, keepdim=True)
            predicted = MOMENTUM * predicted + (1 - MOMENTUM) * now if step else now
            aligned = probabilities * shares / predicted.clamp(min=1e-6)
            aligned = aligned / aligned.sum(2, keepdim=True)
            in_labelled = logits(whole[rows]).softmax(2).amax(2)
            target_weights = weigh(aligned.amax(2), in_labelled)
            targets = aligned**sharpening
            targets = targets / targets.sum(2, keepdim=True)
        view = torch.tensor(random.integers(VIEWS, size=len(batch)))
        is_kept = torch.tensor(random.random((len(batch), whole.shape[1])) >= DROPOUT)
        strong = views[view, batch] * is_kept / (1 - DROPOUT)
        labelled_view = torch.tensor(random.integers(1 + VIEWS, size=tuple(rows.shape)))
        labelled = logits(every[labelled_view, rows]).log_softmax(2)
        loss_of_labelled = -(one_hot * labelled).sum(2).mean(1)
        loss_of_targets = -(targets * logits(strong).log_softmax(2)).sum(2)
        penalty = (weights**2).sum((1, 2)) / (2 * strength * labels)
        losses = loss_of_labelled + (target_weights * loss_of_targets).mean(1) + penalty
        optimizer.zero_grad()
        losses.sum().backward()
        optimizer.step()
    with torch.no_grad():
        return list(logits(whole[material.count :]).argmax(2).numpy())


def neighbours_of(material: Material, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the nearest training texts of every text, itself left out, and their cosines."""
    vectors = material.texts.vectors
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit[: material.count].T
    np.fill_diagonal(cosines, -np.inf)
    nearest = np.argpartition(-cosines, number, axis=1)[:, :number]
    return nearest, np.take_along_axis(cosines, nearest, 1)


def by_spreading(material: Material, samples: Samples) -> list[np.ndarray]:
    """Spread the labels over the graph of the training texts; a tested text asks its neighbours."""
    count = material.count
    nearest, cosines = neighbours_of(material, SPREADING_NEIGHBOURS)
    edges = np.zeros((len(nearest), count))
    np.put_along_axis(edges, nearest, np.maximum(cosines, 0) ** 3, 1)
    graph = edges[:count] + edges[:count].T
    root = np.sqrt(graph.sum(1))
    spread = np.linalg.inv(np.eye(count) - SPREADING * graph / root / root[:, None])
    predictions = []
    for sample in samples:
        seeds = np.zeros((count, material.classes))
        seeds[sample, material.texts.labels[sample]] = 1
        found = spread @ seeds
        found *= seeds.sum(0) / np.maximum(found.sum(0), 1e-12)
        found /= np.maximum(found.sum(1, keepdims=True), 1e-12)
        predictions.append((edges[count:] @ found).argmax(1))
    return predictions


def by_smoothing(material: Material, samples: Samples) -> list[np.ndarray]:
    """Predict by a probe of vectors that are drawn to the mean of their nearest training texts."""
    nearest, _ = neighbours_of(material, SMOOTHING_NEIGHBOURS)
    vectors = material.texts.vectors
    means = vectors[nearest].mean(1)
    smooth = (1 - SMOOTHING) * vectors + SMOOTHING * means
    return probed(material.with_vectors(smooth).texts, samples)


def by_components(material: Material, samples: Samples) -> list[np.ndarray]:
    """Predict by logistic regression on the first principal components of all training texts."""
    train = material.texts.known.vectors
    _, basis = np.linalg.eigh(np.cov(train.T))
    vectors = (material.texts.vectors - train.mean(0)) @ basis[:, -COMPONENTS:]
    return by_logistic_regression(material.with_vectors(vectors), samples)


def whitened(material: Material) -> np.ndarray:
    """Return the vectors, whitened by the shrunk covariance of all training texts."""
    estimate = LedoitWolf().fit(material.texts.known.vectors)
    return times_inverse_root(material.texts.vectors - estimate.location_, estimate.covariance_)


def by_whitening(material: Material, samples: Samples) -> list[np.ndarray]:
    """Predict by logistic regression on whitened vectors."""
    return by_logistic_regression(material.with_vectors(whitened(material)), samples)


def by_views_covariance(material: Material, samples: Samples) -> list[np.ndarray]:
    """Predict by logistic regression whose penalty is what views change: consistency in closed form."""
    train = material.texts.known.vectors
    changes = (material.read_views() - train).reshape(-1, train.shape[1])
    covariance = changes.T @ changes / len(changes)
    width = len(covariance)
    even = np.eye(width) * np.trace(covariance) / width
    shrunk = (1 - VIEW_SHRINKAGE) * covariance + VIEW_SHRINKAGE * even
    vectors = times_inverse_root(material.texts.vectors - train.mean(0), shrunk)
    return by_logistic_regression(material.with_vectors(vectors), samples)


def by_discriminant(material: Material, samples: Samples) -> list[np.ndarray]:
    """Predict by the nearest mean of a class among whitened vectors, with the classes' shares of labels."""
    vectors = whitened(material)
    tests = vectors[material.count :]
    labels = material.texts.labels
    predictions = []
    for sample in samples:
        present, counts = np.unique(labels[sample], return_counts=True)
        means = np.stack([vectors[sample][labels[sample] == one].mean(0) for one in present])
        scores = tests @ means.T - 0.5 * (means**2).sum(1) + np.log(counts / len(sample))
        predictions.append(present[scores.argmax(1)])
    return predictions


def times_inverse_root(vectors: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Multiply vectors by the inverse square root of a symmetric matrix."""
    values, basis = np.linalg.eigh(matrix)
    return vectors @ (basis / np.sqrt(values)) @ basis.T


def by_logistic_regression(
    material: Material, samples: Samples, views: np.ndarray | None = None
) -> list[np.ndarray]:
    """Predict by logistic regression that does not standardise its columns, with a chosen penalty.

    The vectors are divided by one number, so that their columns have a mean variance of one.

    Args:
        material: Vectors of the task.
        samples: Labelled rows of each draw.
        views: Vectors of views that are fitted to as well, shape (views, training texts, width); a text
            and its views have the weight of one text.

    Returns:
        Predictions of the tested texts for each draw.
    """
    scale = np.sqrt(material.texts.known.vectors.var(0).mean())
    vectors = material.texts.vectors / scale
    labels = material.texts.labels
    versions = vectors[None, : material.count]
    if views is not None:
        versions = np.concatenate([versions, views / scale])

    def fit(rows: np.ndarray, strength: float) -> Any:
        copies = len(versions)
        model = LogisticRegression(C=strength, max_iter=MOST_STEPS)
        return model.fit(
            np.concatenate(versions[:, rows]),
            np.tile(labels[rows], copies),
            sample_weight=np.full(copies * len(rows), 1 / copies),
        )

    losses = np.zeros(len(INVERSE_PENALTIES))
    for sample in samples[:CHOOSING_DRAWS]:
        part = material.texts.known.take(sample)
        folds = fold_numbers(part.keys, part.strata, part.groups)
        for fold in np.unique(folds):
            others = sample[folds == fold]
            for number, strength in enumerate(INVERSE_PENALTIES):
                model = fit(sample[folds != fold], strength)
                probabilities = model.predict_proba(vectors[others])
                is_actual = model.classes_ == labels[others, None]
                of_actual = np.maximum((probabilities * is_actual).sum(1), LEAST_PROBABILITY)
                losses[number] -= np.log(of_actual).sum()
    best = INVERSE_PENALTIES[int(losses.argmin())]
    tests = vectors[material.count :]
    return [fit(sample, best).predict(tests) for sample in samples]


SUPERVISED = "supervised"
ARMS: dict[str, Arm] = {
    SUPERVISED: by_probe,
    "classes alike": by_balanced_probe,
    "one scale": by_logistic_regression,
    "views of labelled": by_more_views,
    "trained, no targets": lambda *given: by_consistency(*given, no_weights, 1.0),
    "SoftMatch": lambda *given: by_consistency(*given, soft_weights, 1.0),
    "AdaMatch": lambda *given: by_consistency(*given, threshold_weights, SHARPENING),
    "views' covariance": by_views_covariance,
    "spreading": by_spreading,
    "smoothing": by_smoothing,
    "components": by_components,
    "whitening": by_whitening,
    "discriminant": by_discriminant,
}


def measure(
    material: Material, size: int, arms: Sequence[str], known: dict[str, Any]
) -> dict[str, Any]:
    """Return the accuracy and macro-F1 of each draw by arm: what is known, and arms that are not."""
    texts = material.texts
    keys = texts.known.keys
    samples = [draw_labels(keys, texts.known.strata, size, draw) for draw in range(DRAWS)]
    found = dict(known)
    for name in arms:
        if name in found:
            continue
        predictions = ARMS[name](material, samples)
        kind = texts.known.kind
        found[name] = {
            metric: [kind.score(row, texts.tested_labels, metric) for row in predictions]
            for metric in METRICS
        }
    return found


def table(results: dict[str, dict[str, Any]], metric: str) -> list[dict[str, str]]:
    """Return a row for each arm: what it adds on each task with the deviation over draws, and the mean.

    The first row has the scores to which the others add. An arm that was not run on a task has no mean.
    """
    first = {task: np.array(scores[SUPERVISED][metric]) for task, scores in results.items()}
    of_first = {task: f"{values.mean():.3f}" for task, values in first.items()}
    mean = np.mean([values.mean() for values in first.values()])
    rows = [{"arm": SUPERVISED, **of_first, "mean": f"{mean:.3f}"}]
    for name in ARMS:
        found = {
            task: np.array(scores[name][metric]) - first[task]
            for task, scores in results.items()
            if name in scores
        }
        if name == SUPERVISED or not found:
            continue
        row = {"arm": name} | dict.fromkeys(results, "") | {"mean": ""}
        for task, values in found.items():
            row[task] = f"{values.mean():+.3f} ±{values.std(ddof=1):.3f}"
        if len(found) == len(results):
            row["mean"] = f"{np.mean([values.mean() for values in found.values()]):+.3f}"
        rows.append(row)
    return rows


def main() -> None:
    """Measure what is missing, and print a table for each size and metric."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("work", type=Path, help="folder of `benchmarks evidence`")
    parser.add_argument("--tasks", nargs="+", default=[task.name for task in TASKS])
    parser.add_argument("--sizes", nargs="+", type=int, default=[100])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument(
        "--adapted", action="store_true", help="from adapted models, where there are"
    )
    args = parser.parse_args()
    base = "adapted" if args.adapted else "minilm"
    folder = args.work / "consistency"
    for size in args.sizes:
        results = {}
        for task in TASKS:
            is_wanted = task.name in args.tasks and (not args.adapted or task.name in ADAPTED)
            if not is_wanted:
                continue
            model = resolve_model("minilm")
            if args.adapted:
                model = str(args.work / "models" / task.name / ADAPTED[task.name])
            prepare_task(task, args.work / "tasks" / task.name)
            file = folder / f"{task.name}-{base}-{size}.json"
            known = read_json(file) if file.is_file() else {}
            if not known.keys() >= {SUPERVISED, *args.arms}:
                material = encode_task(args.work, task.name, model, base)
                known = measure(material, size, [SUPERVISED, *args.arms], known)
                write_json(file, known)
            results[task.name] = known
        for metric in METRICS:
            print(f"\n{base}, {size} labels, {metric}: gains over {SUPERVISED}")
            print(tabulate(table(results, metric)))


if __name__ == "__main__":
    main()
