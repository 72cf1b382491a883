"""Baselines: a constant prediction, TF-IDF and sentence vectors on a task, the last two with a linear model."""

import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import Artifact, Draft, make, write_json
from dana.core.logging import get_logger
from dana.core.registry import ENCODERS
from dana.core.scripts import TOKEN, has_unspaced
from dana.corpus.documents import source_digests
from dana.encoders.base import encode, encoder_identity, has_vectors
from dana.finetuning.probe import (
    LabelledVectors,
    choose_strength,
    in_key_order,
    probe_scores,
)
from dana.finetuning.results import METRICS, PREDICTIONS
from dana.finetuning.settings import FinetuneSettings
from dana.tasks.card import SPLITS, TaskCard, load_card
from dana.tasks.examples import Example, joined_texts, read_splits, subset
from dana.tasks.kinds import DEFAULT

log = get_logger(__name__)

VERSIONS = {"majority": 1, "tfidf": 1, "vectors": 2}  # of the numbers of each baseline
STRENGTHS = (0.1, 1.0, 10.0, 100.0)  # inverse strengths of the penalty, of which inner folds choose
INNER_FOLDS = 3


def baselines_stage(
    card: str,
    out: Path,
    settings: FinetuneSettings,
    names: Sequence[str],
    encoder: str,
    data: str | None = None,
    folds: int | None = None,
) -> Artifact:
    """Fit simple models to the training texts of a task and test them, as a baseline under every adapted model.

    Args:
        card: A task card's name or YAML file.
        out: Folder; each baseline gets ``NAME/metrics.json`` and ``NAME/predictions.parquet``.
        settings: Settings of fine-tuning, of which ``max_train`` and the names of fields are used.
        names: ``majority`` predictions always alike; ``tfidf`` and ``vectors`` are linear models (of
            classes: logistic regression), left out where each word has a label; ``vectors`` is the
            probe of :mod:`dana.finetuning.probe` on all training texts.
        encoder: Spec of the encoder of ``vectors``, which are left out if it is not installed.
        data: Folder with the card's data.
        folds: Number of folds that are tested, the first ones; None for a card without.

    Raises:
        ConfigError: If the card is unknown.
        DataError: If the data is missing or does not fit the card.
    """
    task = settings.fields_of(load_card(card))
    if task.label_kind.per_word:
        names = [name for name in names if name == "majority"]
    if not has_vectors(encoder):
        names = [name for name in names if name != "vectors"]
    identity = None
    if "vectors" in names:
        identity = encoder_identity(ENCODERS.create(encoder))
    depends_on = {
        "task": task.decisive,
        "data": source_digests(task.files(data, SPLITS)),
        "max_train": settings.max_train,
        "baselines": list(names),
        "encoder": identity,
        "version": max((VERSIONS[name] for name in names), default=1),
    }
    if task.partition:
        depends_on |= {"partition": task.partition, "folds": folds}

    def write(draft: Draft) -> None:
        tested = range(folds) if folds else [None]
        splits = [read_splits(task, data, fold) for fold in tested]
        for name in names:
            _write_baseline(draft.path / name, name, task, splits, settings.max_train, encoder)

    return make(out, "baselines", depends_on, write)


def baseline_scores(
    task: TaskCard, folds: list[dict[str, list[Example]]], max_train: int | None
) -> dict[str, float]:
    """Compute the scores of the baselines that need no encoder, by name.

    Args:
        task: The task.
        folds: Splits of each fold, all of which are tested; those of the task, if it has no folds.
        max_train: Number of training texts; None for all.
    """
    names = ("majority",) if task.label_kind.per_word else ("majority", "tfidf")
    return {name: _test_baseline(name, task, folds, max_train, "")[1] for name in names}


def _write_baseline(
    folder: Path,
    name: str,
    task: TaskCard,
    folds: list[dict[str, list[Example]]],
    max_train: int | None,
    encoder: str,
) -> None:
    table, score = _test_baseline(name, task, folds, max_train, encoder)
    metrics = {
        "task": task.name,
        "metric": task.metric,
        "direction": task.direction,
        "kind": task.kind,
        "labels": task.labels,
        "mean": score,
        "n": len(table),
        "folds": len(folds) if len(folds) > 1 else None,
    }
    folder.mkdir()
    pq.write_table(table, folder / PREDICTIONS, compression="zstd")
    write_json(folder / METRICS, metrics)


def _test_baseline(
    name: str,
    task: TaskCard,
    folds: list[dict[str, list[Example]]],
    max_train: int | None,
    encoder: str,
) -> tuple[pa.Table, float]:
    """Test a baseline on each fold; return its predictions and the score of all of them together."""
    kind = task.label_kind
    tables = []
    for fold, split in enumerate(folds):
        test = split["test"]
        predictions = _predict(name, task, subset(split["train"], max_train), test, encoder)
        columns = {
            "adaptation": [fold] * len(test),
            "id": [example.id for example in test],
            "label": kind.label_column([example.label for example in test]),
            "prediction": kind.label_column(predictions),
        }
        tables.append(pa.table(columns))
    table = pa.concat_tables(tables)
    predicted = kind.labels_from(table["prediction"])
    score = kind.scores(predicted, kind.labels_from(table["label"]))[task.metric]
    log.info("baseline  %s %s: %s %.4f", task.name, name, task.metric, score)
    return table, score


def _predict(
    name: str, task: TaskCard, train: list[Example], test: list[Example], encoder: str
) -> list[Any]:
    """Fit a baseline to training examples and return its predictions for the test examples."""
    kind = task.label_kind
    labels: list[Any] = [row.label for row in train]
    if kind.per_word:
        [(tag, _)] = Counter(chain.from_iterable(labels)).most_common(1)
        return [(tag,) * size for size in kind.sizes([row.label for row in test])]
    [(most_frequent, count)] = Counter(labels).most_common(1)
    # Each inner fold needs a text of one class.
    divisible = count if task.kind == DEFAULT else len(labels)
    if name == "majority" or len(set(labels)) < 2 or divisible < INNER_FOLDS:
        constant = most_frequent if kind.has_labels else fmean(labels)
        return [constant] * len(test)
    if name == "vectors":
        return _probe(task, train, test, encoder)
    return _linear(task, _lines(train), labels, _lines(test))


def _lines(examples: Sequence[Example]) -> list[str]:
    """Return each text; of a pair both, on lines of their own."""
    return ["\n".join(example.texts) for example in examples]


def _probe(task: TaskCard, train: list[Example], test: list[Example], encoder: str) -> list[Any]:
    """Predict the labels of test texts by a probe of all training texts (:mod:`dana.finetuning.probe`)."""
    kind = task.label_kind
    train = in_key_order(train)
    count = len(train)
    texts = joined_texts([*train, *test])
    vectors = encode(ENCODERS.create(encoder), texts, encoder).cpu().numpy()
    labels = kind.gather([row.label for row in (*train, *test)])
    rows = np.arange(len(labels))
    strength = choose_strength(LabelledVectors.of_examples(task, train, vectors[:count]))
    predictions: list[Any] = probe_scores(
        vectors, labels, kind, rows[:count], rows[count:], strength, task.class_weight
    ).tolist()
    return predictions


def _linear(
    task: TaskCard, train: Sequence[str], labels: list[Any], test: Sequence[str]
) -> list[Any]:
    """Fit a linear model to words, its penalty chosen by folds of the training texts, and predict test texts."""
    loss_labels = task.label_kind.loss_labels(labels)
    predictions = fit_tfidf(task, train, np.squeeze(loss_labels)).predict(test)
    if predictions.ndim == 1:
        values: list[Any] = predictions.tolist()
        return values
    return [tuple(np.flatnonzero(row).tolist()) for row in predictions]


def fit_tfidf(task: TaskCard, texts: Sequence[str], targets: np.ndarray) -> Any:
    """Fit a linear model to words, its penalty chosen by folds of the texts.

    Args:
        task: The task, of classes, of several labels a text, or of numbers.
        texts: The training texts.
        targets: Class or number of each text, or rows of 0 and 1. Where no class has a text for
            each inner fold, the penalty is the usual one.

    Returns:
        A fitted pipeline of scikit-learn.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.model_selection import GridSearchCV
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    model: Any = OneVsRestClassifier(
        LogisticRegression(max_iter=1000, class_weight=task.class_weight)
    )
    grid: dict[str, Any] = {"onevsrestclassifier__estimator__C": STRENGTHS}
    if not task.label_kind.has_labels:
        model = Ridge()
        grid = {"ridge__alpha": [1 / strength for strength in STRENGTHS]}
    # The pattern keeps punctuation, so that no text is empty.
    pattern = TOKEN if any(map(has_unspaced, texts)) else r"\w+|[^\w\s]"
    words = TfidfVectorizer(token_pattern=pattern, ngram_range=(1, 2), sublinear_tf=True)
    pipe = make_pipeline(words, model)
    scoring = {"macro_f1": "f1_macro", "micro_f1": "f1_micro"}.get(task.metric)
    largest = len(texts)  # of a class, whose texts the inner folds share
    if task.kind == DEFAULT:
        largest = int(np.unique(targets, return_counts=True)[1].max())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes with few texts
        if largest < INNER_FOLDS:
            return pipe.fit(texts, targets)
        search = GridSearchCV(pipe, grid, scoring=scoring, cv=INNER_FOLDS)
        return search.fit(texts, targets).best_estimator_
