"""Read the fine-tuning results of one arm on one task, and decide whether two arms can be compared.

Two arms compare if their settings, seeds, test examples and starting models agree. The model an arm
started from is traced through the digests of weights in the run's manifests.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.artifacts import MANIFEST
from dana.core.config import flatten
from dana.core.errors import ArtifactError
from dana.core.statistics import TwoLevel, two_level
from dana.report.files import RESULTS, read_columns, read_object, reading
from dana.report.page import plain_value
from dana.tasks.kinds import find_kind
from dana.tasks.kinds.base import Kind
from dana.tasks.kinds.single_label import SingleLabel
from dana.tasks.tables import data_warnings

PREDICTIONS = "predictions.parquet"
BASELINE_TITLES = {
    "majority": "constant prediction",
    "tfidf": "TF-IDF",
    "vectors": "sentence vectors",
}
OF_PHASE = ("learning_rate", "mask_rate", "schedule")  # what a phase may change beside its text
LONGEST = 24  # characters of a setting's value in a message
IN_RESULT = ("task", "preset", "settings")  # prefixes that messages omit

Weights = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Lineage:
    """Origin of a model.

    Attributes:
        parent: Weights that the last adaptation started from; empty if this run did not adapt the
            model.
        root: Weights that the first adaptation started from; the model's own if this run did not
            adapt it.
        settings: Settings of the last adaptation.
        tokens: Sum of the budgets in tokens of all adaptations from the root.
    """

    parent: Weights = frozenset()
    root: Weights = frozenset()
    settings: dict[str, Any] | None = None
    tokens: int = 0

    def roots_differ(self, other: "Lineage") -> bool:
        """Return True if the roots certainly differ; a Hub name and a folder may be the same model."""
        names = [{name for name, _ in lineage.root} for lineage in (self, other)]
        return names[0] == names[1] and self.root != other.root


@dataclass(frozen=True)
class Predictions:
    """Predictions on the test set, examples in the order of their ids.

    Attributes:
        ids: Example ids of shape (examples,).
        labels: Labels of shape (examples,): class numbers, or another value of the kind.
        predicted: Predicted labels of shape (models, examples): seeds in ascending order, or with
            folds one model per fine-tuning of a fold, each example answered by the model of its own
            fold.
        kind: Kind of label.
        folds: Fold of each example; None if every model was tested on all of them.
    """

    ids: np.ndarray
    labels: np.ndarray
    predicted: np.ndarray
    kind: Kind
    folds: np.ndarray | None = None


@dataclass(frozen=True)
class ArmResult:
    """Fine-tuning results of one arm on one task.

    Attributes:
        task: Name of the task.
        arm: Name of the arm.
        metric: Name of the metric.
        direction: ``higher`` or ``lower`` is better.
        scores: Score by seed, seeds in ascending order.
        collapsed_seeds: Seeds whose model predicts nearly the same label for every text.
        settings: Settings that decide the result, by dotted name; without model and seeds.
        predictions: Predictions on the test set.
        lineage: Origin of the model.
        adaptations: Number of adaptations, or folds, among which the seeds are divided evenly and
            in order.
        is_baseline: True for a simple model without adaptation and seeds (``baselines/TASK``).
        warnings: What of the task's data makes the scores mean less than they seem.
        horizon: Adaptations planned of a run that may stop early; 0 of others.
    """

    task: str
    arm: str
    metric: str
    direction: str
    scores: dict[int, float]
    collapsed_seeds: frozenset[int]
    settings: dict[str, Any]
    predictions: Predictions
    lineage: Lineage = field(default_factory=Lineage)
    adaptations: int = 1
    is_baseline: bool = False
    warnings: tuple[str, ...] = ()
    horizon: int = 0

    @property
    def seeds(self) -> list[int]:
        """Seeds in ascending order."""
        return list(self.scores)

    def on_texts(self, ids: np.ndarray) -> "ArmResult":
        """Return the result on those of its test texts that have one of some ids.

        Args:
            ids: Ids of texts; those that were not tested are left out.
        """
        parts = self.predictions
        rows = np.isin(parts.ids, ids)
        fewer = replace(
            parts,
            ids=parts.ids[rows],
            labels=parts.labels[rows],
            predicted=parts.predicted[:, rows],
            folds=None if parts.folds is None else parts.folds[rows],
        )
        return replace(self, predictions=fewer)

    @cached_property
    def influences(self) -> np.ndarray:
        """What each example adds to the score of each model, of shape (models, examples)."""
        parts = self.predictions
        return parts.kind.influences(parts.predicted, parts.labels, self.metric)

    @cached_property
    def estimate(self) -> TwoLevel:
        """Mean score and its error over models and examples; with folds, of the predictions of all folds pooled."""
        units = self.adaptations if self.adaptations > 1 else len(self.influences)
        return two_level(self.influences, units, self.predictions.folds)

    def on_folds_of(self, other: "ArmResult") -> "ArmResult":
        """Return the result on the texts of the folds that another was tested on, the same if it has no folds."""
        parts, folds = self.predictions, other.predictions.folds
        if parts.folds is None or folds is None:
            return self
        rows = np.isin(parts.folds, folds)
        parts = Predictions(
            parts.ids[rows],
            parts.labels[rows],
            parts.predicted[:, rows],
            parts.kind,
            parts.folds[rows],
        )
        return replace(self, predictions=parts)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the mean; NaN with one model, which says nothing about others."""
        return (
            self.estimate.interval
            if self.estimate.units > 1 or self.is_baseline
            else (math.nan, math.nan)
        )

    def unlike(self, other: "ArmResult") -> list[str]:
        """List why the two results cannot be compared, this result's value first; empty if they can."""
        pairs = [
            {"metric": result.metric, "direction": result.direction} for result in (self, other)
        ]
        if other.is_baseline:
            return _differences(*pairs) + self._unlike_test(other)
        reasons = (
            _differences(self.settings, other.settings)
            + self._unlike_lineage(other)
            + _differences(*pairs)
        )
        if self.seeds != other.seeds:
            reasons.append(f"seeds {_some(self.seeds)} against {_some(other.seeds)}")
        return reasons + self._unlike_test(other)

    def _unlike_lineage(self, other: "ArmResult") -> list[str]:
        """List certain differences of origin; the origin of a model adapted outside the run is unknown."""
        ours, rival = self.lineage, other.lineage
        reasons = []
        if (
            ours.parent and ours.parent == rival.parent
        ):  # adapted from one model: only the text should differ
            pair = (
                dict(flatten(_beside_text(lineage.settings or {}))) for lineage in (ours, rival)
            )
            reasons = [f"adapted with {difference}" for difference in _differences(*pair)]
        elif ours.tokens and rival.tokens and ours.tokens != rival.tokens:
            reasons = [f"adapted on {ours.tokens:,} tokens in all against {rival.tokens:,}"]
        if ours.parent and rival.parent and self.adaptations != other.adaptations:
            reasons.append(f"adaptations {self.adaptations} against {other.adaptations}")
        is_traced = all(result.lineage.parent or result.arm == "base" for result in (self, other))
        return (
            [*reasons, "they start from different models"]
            if is_traced and ours.roots_differ(rival)
            else reasons
        )

    def _unlike_test(self, other: "ArmResult") -> list[str]:
        ours, others = self.predictions, other.predictions
        if ours.kind.name != others.kind.name:
            return [f"{ours.kind.name} against {others.kind.name}"]
        if len(ours.kind.labels) != len(others.kind.labels):
            return [f"{len(ours.kind.labels)} classes against {len(others.kind.labels)}"]
        if not np.array_equal(ours.ids, others.ids):
            return [
                f"the test examples differ ({np.setxor1d(ours.ids, others.ids).size} are in only one)"
            ]
        if not np.array_equal(_folds(ours), _folds(others)):
            return ["the folds of the test examples differ"]
        mismatches = int((ours.labels != others.labels).sum())
        return [f"the labels of {mismatches} test examples differ"] if mismatches else []


def _beside_text(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings of an adaptation without which text its phases read, in what order and by which optimizer."""
    phases = [{key: phase.get(key) for key in OF_PHASE} for phase in settings.get("phases") or ()]
    has_own = any(value is not None for phase in phases for value in phase.values())
    return {**settings, "phases": phases if has_own else None}


def _folds(predictions: Predictions) -> np.ndarray:
    return np.zeros(predictions.ids.size) if predictions.folds is None else predictions.folds


def _differences(settings: dict[str, Any], other_settings: dict[str, Any]) -> list[str]:
    pairs = [
        (name, settings.get(name), other_settings.get(name))
        for name in settings.keys() | other_settings.keys()
    ]
    return sorted(_difference(name, value, other) for name, value, other in pairs if value != other)


def _difference(name: str, value: Any, other: Any) -> str:
    parts = name.split(".", 1)
    name = parts[1] if parts[0] in IN_RESULT and len(parts) > 1 else name
    texts = [_in_words(one) for one in (value, other)]
    if name.startswith("data.") or max(map(len, texts)) > LONGEST:
        return f"{name.removeprefix('data.')} differs"
    return f"{name} {texts[0]} against {texts[1]}"


def _in_words(value: Any) -> str:
    """Format a setting as it is typed, and a list or dictionary without brackets."""
    if value is None:
        return "not recorded"
    return plain_value(value) if isinstance(value, dict | list) else str(value)


def _some(seeds: Sequence[int]) -> str:
    """Format seeds briefly: "0 to 7" or "1, 4, 9"."""
    if len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1:
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds[:6])) + (" …" if len(seeds) > 6 else "")


def weights(identity: Any) -> Weights:
    """Return the digests of the weight files in a model's identity; of a Hub model, its name."""
    files = identity.items() if isinstance(identity, dict) else ()
    return frozenset(
        (name, str(digest))
        for name, digest in files
        if name == "name" or name.endswith(".safetensors")
    )


def output_weights(manifest: dict[str, Any]) -> Weights:
    """Return the digests of the weights that a step wrote; empty if its manifest lists none."""
    if manifest.get("kind") != "model":
        return frozenset()
    return weights(manifest.get("weight_digests"))


def adaptations(manifests: Iterable[dict[str, Any]]) -> dict[Weights, Lineage]:
    """Map the weights of every model that a run adapted to its lineage."""
    lineages = {}
    for manifest in manifests:
        depends_on = manifest.get("depends_on")
        if isinstance(depends_on, dict) and "model" in depends_on:
            execution = manifest.get("execution")
            precision = (
                {"precision": execution.get("precision")} if isinstance(execution, dict) else {}
            )
            settings = {**(depends_on.get("settings") or {}), **precision}
            lineages[output_weights(manifest)] = Lineage(
                weights(depends_on["model"]), settings=settings
            )
    lineages.pop(frozenset(), None)  # of other steps, and of manifests that do not name their files
    return lineages


def trace(identity: Any, lineages: dict[Weights, Lineage]) -> Lineage:
    """Trace a model back to the model that the run started from."""
    digests = root = weights(identity)
    ancestors = set()
    while root in lineages and root not in ancestors:
        ancestors.add(root)
        root = lineages[root].parent
    tokens = sum((lineages[ancestor].settings or {}).get("tokens") or 0 for ancestor in ancestors)
    return replace(lineages.get(digests, Lineage()), root=root, tokens=tokens)


def read_arm_result(
    file: Path, arm: str, lineages: dict[Weights, Lineage] | None = None
) -> ArmResult:
    """Read one arm's results from ``metrics.json`` and the manifest and predictions beside it.

    Args:
        file: Path of ``metrics.json``.
        arm: Name of the arm.
        lineages: Lineages of the models that the run adapted, by their weights.

    Raises:
        ArtifactError: If a file is damaged, or metrics and predictions do not belong together.
    """
    metrics, manifest = read_object(file), read_object(file.parent / MANIFEST)
    with reading(file):
        rows = sorted(metrics["seeds"], key=lambda row: row["seed"])
        scores = {row["seed"]: float(row["score"]) for row in rows}
        units = {row["seed"]: row.get("adaptation", 0) for row in rows}
        card = manifest["depends_on"].get("task")
        if isinstance(card, dict) and card.get("labels"):
            metrics = {"labels": card["labels"], **metrics}
        predictions, collapses = _predictions(file.parent / PREDICTIONS, scores, units, metrics)
        leaves = flatten({**manifest["depends_on"], "precision": manifest.get("precision")})
        settings = {
            key: value
            for key, value in leaves
            if key.split(".")[0] != "model" and key != "preset.seeds"
        }
        lineage = trace(manifest["depends_on"].get("model"), lineages or {})
        head = str(metrics["task"]), arm, metrics["metric"], metrics["direction"]
        result = ArmResult(
            *head, scores, collapses, settings, predictions, lineage, len(set(units.values()))
        )
        return replace(result, warnings=tuple(data_warnings(metrics)))


def read_baseline(file: Path) -> ArmResult:
    """Read a baseline from ``metrics.json`` and the predictions beside it.

    Raises:
        ArtifactError: If a file is damaged.
    """
    metrics = read_object(file)
    table = read_columns(
        file.parent / PREDICTIONS, ("adaptation", "id", "label", "prediction")
    ).sort_by("id")
    with reading(file):
        kind = find_kind(metrics["kind"])(tuple(metrics["labels"]))
        labels, predicted = (kind.labels_from(table[name]) for name in ("label", "prediction"))
        folds = table["adaptation"].to_numpy() if metrics["folds"] else None
        parts = Predictions(table["id"].to_numpy(), labels, predicted[None], kind, folds)
        title = BASELINE_TITLES.get(file.parent.name, file.parent.name)
        head = metrics["task"], title, metrics["metric"], metrics["direction"]
        return ArmResult(*head, {}, frozenset(), {}, parts, is_baseline=True)


def _predictions(
    file: Path, scores: dict[int, float], units: dict[int, int], metrics: dict[str, Any]
) -> tuple[Predictions, frozenset[int]]:
    """Read the predictions, check that they give the scores of the metrics, and find the collapsed seeds.

    Args:
        file: Parquet file.
        scores: Score by seed.
        units: Adaptation or fold by seed.
        metrics: Content of ``metrics.json``.
    """
    table, metric = read_columns(file, ("seed", "id", "label", "prediction")), metrics["metric"]
    has_folds = bool(metrics.get("folds"))
    tests_of = units if has_folds else dict.fromkeys(scores, 0)
    groups = [
        [seed for seed in scores if tests_of[seed] == fold] for fold in set(tests_of.values())
    ]
    models = {seed: row for group in groups for row, seed in enumerate(group)}
    with reading(file):
        kind = _kind(file, metrics)
        numbers = np.array([models[seed] for seed in table["seed"].to_pylist()])
        order = np.lexsort((table["id"].to_numpy(), numbers))
        shape = len(set(models.values())), -1
        seeds, ids = (table[name].to_numpy()[order].reshape(shape) for name in ("seed", "id"))
        labels, predicted = (
            kind.labels_from(table[name])[order].reshape(shape) for name in ("label", "prediction")
        )
        tests = {seed: seeds[row] == seed for seed, row in models.items()}
        parts = {
            seed: (predicted[models[seed]][mask], labels[0][mask]) for seed, mask in tests.items()
        }
        again = [kind.score(part, actual, metric) for part, actual in parts.values()]
    matches = (ids == ids[0]).all() and (labels == labels[0]).all()
    if not (matches and np.allclose(again, [scores[seed] for seed in parts], rtol=1e-6, atol=1e-6)):
        mismatch = f"seeds, test examples or {metric} differ from those of {RESULTS}"
        raise ArtifactError(f"{file}: {mismatch}; run dana finetune again to rebuild {file.parent}")
    collapses = frozenset(seed for seed, part in parts.items() if kind.is_collapsed(*part, metric))
    folds = np.vectorize(units.get)(seeds[0]) if has_folds else None
    return Predictions(ids[0], labels[0], predicted, kind, folds), collapses


def _kind(file: Path, metrics: dict[str, Any]) -> Kind:
    if "kind" in metrics:
        return find_kind(metrics["kind"])(tuple(metrics.get("labels", ())))
    # Metrics of single-label classification name neither kind nor labels.
    count = len(read_columns(file, ("probabilities",))["probabilities"][0])
    labels = metrics.get("labels", ())
    if len(labels) == count:
        return SingleLabel(tuple(map(str, labels)))
    return SingleLabel.from_count(count)
