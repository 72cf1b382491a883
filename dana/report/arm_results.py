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
from dana.core.statistics import TwoLevel, two_level
from dana.report.files import read_columns, read_object, reading
from dana.report.page import plain_value
from dana.tasks.kinds import find_kind, within_range
from dana.tasks.kinds.base import Kind
from dana.tasks.tables import data_warnings

PREDICTIONS = "predictions.parquet"
BASELINE_TITLES = {
    "majority": "constant prediction",
    "tfidf": "TF-IDF",
    "vectors": "sentence vectors",
}
PHASE_KEYS = ("learning_rate", "mask_rate", "schedule")  # what a phase may change beside its text
LONGEST_VALUE = 24  # characters of a setting's value in a message
OMITTED_PREFIXES = ("task", "preset", "settings")  # prefixes that messages omit

# The weights of a model: name and digest of each file, or ("name", NAME) of a Hub model.
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
        """Return whether the roots certainly differ.

        A Hub name and a folder may be the same model, so roots are compared only if their files have
        the same names.
        """
        files = {name for name, _ in self.root}
        other_files = {name for name, _ in other.root}
        return files == other_files and self.root != other.root


@dataclass(frozen=True)
class Predictions:
    """Predictions on the test set, examples in the order of their ids.

    Attributes:
        ids: Example ids of shape (examples,).
        labels: Labels of shape (examples,): class numbers, or another value of the kind.
        predicted: Predicted labels of shape (models, examples). Without folds, row i has the
            predictions of seed i. With folds, row i has, for each example, the prediction of
            fine-tuning i of the example's fold.
        kind: Kind of label.
        folds: Fold of each example; None if every model was tested on all of them.
    """

    ids: np.ndarray
    labels: np.ndarray
    predicted: np.ndarray
    kind: Kind
    folds: np.ndarray | None = None

    def subset(self, is_kept: np.ndarray) -> "Predictions":
        """Return the predictions on some of the examples.

        Args:
            is_kept: Whether to keep each example, bool of shape (examples,).
        """
        return replace(
            self,
            ids=self.ids[is_kept],
            labels=self.labels[is_kept],
            predicted=self.predicted[:, is_kept],
            folds=None if self.folds is None else self.folds[is_kept],
        )


@dataclass(frozen=True)
class ArmResult:
    """Fine-tuning results of one arm on one task.

    Attributes:
        task: Name of the task.
        arm: Name of the arm.
        metric: Name of the metric.
        direction: ``higher`` or ``lower`` is better.
        scores: Score by seed, seeds in ascending order.
        collapsed_seeds: Seeds whose model collapsed on the test texts
            (:meth:`dana.tasks.kinds.base.Kind.is_collapsed`).
        settings: Settings that decide the result, by dotted name; without model and seeds.
        predictions: Predictions on the test set.
        lineage: Origin of the model.
        adaptations: Number of adaptations, or folds, among which the seeds are divided evenly and
            in order.
        is_baseline: True for a simple model without adaptation and seeds (``baselines/TASK``).
        warnings: Reasons in the task's data why the scores say less than they seem to.
        horizon: Number of adaptations planned in a run that may stop early; 0 in any other run. The
            reader of the run sets it.
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
        """Return the result with the predictions on the test texts of some ids only.

        ``scores`` and ``collapsed_seeds`` stay those of all texts.

        Args:
            ids: Ids of texts; those that were not tested are left out.
        """
        is_kept = np.isin(self.predictions.ids, ids)
        return replace(self, predictions=self.predictions.subset(is_kept))

    @cached_property
    def influences(self) -> np.ndarray:
        """What each example adds to the score of each model, of shape (models, examples)."""
        predictions = self.predictions
        return predictions.kind.influences(predictions.predicted, predictions.labels, self.metric)

    @cached_property
    def estimate(self) -> TwoLevel:
        """Mean score and its error over models and examples.

        With folds, the score is that of the predictions of all folds pooled.
        """
        units = self.adaptations
        if units == 1:  # then each fine-tuning is a unit
            units = len(self.influences)
        # With folds the folds are the units, and this number is not used.
        return two_level(self.influences, units, self.predictions.folds)

    def on_folds_of(self, other: "ArmResult") -> "ArmResult":
        """Return the result with the predictions on the texts of the folds that another was tested on.

        ``scores`` and ``collapsed_seeds`` stay those of all texts. If one of the two has no folds, it
        is this result.
        """
        folds = self.predictions.folds
        other_folds = other.predictions.folds
        if folds is None or other_folds is None:
            return self
        is_kept = np.isin(folds, other_folds)
        return replace(self, predictions=self.predictions.subset(is_kept))

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the mean, within the scores that the metric can have.

        NaN with one model, which says nothing about others.
        """
        estimate = self.estimate
        if estimate.units > 1 or self.is_baseline:
            return within_range(self.metric, estimate.interval, estimate.texts)
        return math.nan, math.nan

    def unlike(self, other: "ArmResult") -> list[str]:
        """List why the two results cannot be compared; empty if they can.

        Each reason gives the value of this result first.
        """
        reasons = []
        if not other.is_baseline:
            reasons += _differences(self.settings, other.settings)
            reasons += self._unlike_lineage(other)
        reasons += _differences(self._measure(), other._measure())
        if not other.is_baseline and self.seeds != other.seeds:
            reasons.append(f"seeds {_brief(self.seeds)} against {_brief(other.seeds)}")
        return reasons + self._unlike_test(other)

    def _measure(self) -> dict[str, Any]:
        """Return what the scores measure."""
        return {"metric": self.metric, "direction": self.direction}

    def _unlike_lineage(self, other: "ArmResult") -> list[str]:
        """List the differences of origin that are sure.

        The origin of a model that was adapted outside the run is unknown.
        """
        ours = self.lineage
        theirs = other.lineage
        reasons = []
        if ours.parent and ours.parent == theirs.parent:
            # Both were adapted from one model, so only the text should differ.
            our_settings = dict(flatten(_beside_text(ours.settings or {})))
            their_settings = dict(flatten(_beside_text(theirs.settings or {})))
            differences = _differences(our_settings, their_settings)
            reasons = [f"adapted with {difference}" for difference in differences]
        # From different models the settings of the last adaptation may differ, but not the amount of
        # text from the root on.
        elif ours.tokens and theirs.tokens and ours.tokens != theirs.tokens:
            reasons = [f"adapted on {ours.tokens:,} tokens in all against {theirs.tokens:,}"]
        if ours.parent and theirs.parent and self.adaptations != other.adaptations:
            reasons.append(f"adaptations {self.adaptations} against {other.adaptations}")
        is_traced = all(result.lineage.parent or result.arm == "base" for result in (self, other))
        if is_traced and ours.roots_differ(theirs):
            reasons.append("they start from different models")
        return reasons

    def _unlike_test(self, other: "ArmResult") -> list[str]:
        """List the first difference between the test sets; empty if they are the same."""
        ours = self.predictions
        theirs = other.predictions
        if ours.kind.name != theirs.kind.name:
            return [f"{ours.kind.name} against {theirs.kind.name}"]
        if len(ours.kind.labels) != len(theirs.kind.labels):
            return [f"{len(ours.kind.labels)} classes against {len(theirs.kind.labels)}"]
        if not np.array_equal(ours.ids, theirs.ids):
            in_one = np.setxor1d(ours.ids, theirs.ids).size
            return [f"the test examples differ ({in_one} are in only one)"]
        if not np.array_equal(_folds(ours), _folds(theirs)):
            return ["the folds of the test examples differ"]
        mismatches = int((ours.labels != theirs.labels).sum())
        if mismatches:
            return [f"the labels of {mismatches} test examples differ"]
        return []


def _beside_text(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of an adaptation without the shares of text of its phases.

    Of each phase only :data:`PHASE_KEYS` are left, and ``phases`` is None if no phase sets any of
    these.
    """
    phases = []
    for phase in settings.get("phases") or ():
        phases.append({key: phase.get(key) for key in PHASE_KEYS})
    own_values = [value for phase in phases for value in phase.values()]
    has_own = any(value is not None for value in own_values)
    return {**settings, "phases": phases if has_own else None}


def _folds(predictions: Predictions) -> np.ndarray:
    """Return the fold of each example; 0 for all without folds."""
    return np.zeros(predictions.ids.size) if predictions.folds is None else predictions.folds


def _differences(settings: dict[str, Any], other_settings: dict[str, Any]) -> list[str]:
    """Describe the settings that differ, in alphabetical order."""
    differences = []
    for name in settings.keys() | other_settings.keys():
        value = settings.get(name)
        other = other_settings.get(name)
        if value != other:
            differences.append(_difference(name, value, other))
    return sorted(differences)


def _difference(name: str, value: Any, other: Any) -> str:
    """Describe a setting that differs, without values if one is long or the setting is of the data."""
    prefix, _, rest = name.partition(".")
    if prefix in OMITTED_PREFIXES and rest:
        name = rest
    text = _in_words(value)
    other_text = _in_words(other)
    if name.startswith("data.") or max(len(text), len(other_text)) > LONGEST_VALUE:
        return f"{name.removeprefix('data.')} differs"
    return f"{name} {text} against {other_text}"


def _in_words(value: Any) -> str:
    """Format a setting for a message: None as "not recorded", lists and dictionaries without brackets."""
    if value is None:
        return "not recorded"
    if isinstance(value, dict | list):
        return plain_value(value)
    return str(value)


def _brief(seeds: Sequence[int]) -> str:
    """Format seeds briefly: "0 to 7", "1, 4, 9", or the first five, the last and their number."""
    if len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1:
        return f"{seeds[0]} to {seeds[-1]}"
    if len(seeds) <= 6:
        return ", ".join(map(str, seeds))
    first = ", ".join(map(str, seeds[:5]))
    return f"{first} … {seeds[-1]} ({len(seeds)} in all)"


def weight_digests(identity: Any) -> Weights:
    """Return the weights of a model.

    Args:
        identity: Name and digest of each file of a model, or ``name`` and ``commit`` of a Hub model;
            anything else gives an empty set.
    """
    if not isinstance(identity, dict):
        return frozenset()
    digests = set()
    for name, digest in identity.items():
        if name == "name" or name.endswith(".safetensors"):
            digests.add((name, str(digest)))
    return frozenset(digests)


def output_weights(manifest: dict[str, Any]) -> Weights:
    """Return the digests of the weights that a step wrote; empty if its manifest lists none."""
    if manifest.get("kind") != "model":
        return frozenset()
    return weight_digests(manifest.get("weight_digests"))


def lineages_by_weights(manifests: Iterable[dict[str, Any]]) -> dict[Weights, Lineage]:
    """Map the weights of every model that a run adapted to the parent and the settings of its adaptation.

    :func:`trace` adds root and tokens.
    """
    lineages: dict[Weights, Lineage] = {}
    for manifest in manifests:
        depends_on = manifest.get("depends_on")
        if not isinstance(depends_on, dict) or "model" not in depends_on:
            continue
        settings = dict(depends_on.get("settings") or {})
        execution = manifest.get("execution")
        if isinstance(execution, dict):
            settings["precision"] = execution.get("precision")
        parent = weight_digests(depends_on["model"])
        lineages[output_weights(manifest)] = Lineage(parent, settings=settings)
    # Other steps write no weights, and some manifests do not name their files.
    lineages.pop(frozenset(), None)
    return lineages


def trace(identity: Any, lineages: dict[Weights, Lineage]) -> Lineage:
    """Trace a model back to the model that the run started from.

    Args:
        identity: See :func:`weight_digests`.
        lineages: Result of :func:`lineages_by_weights`.
    """
    digests = weight_digests(identity)
    root = digests
    ancestors = set()
    tokens = 0
    # A model that was adapted from itself, or from its own descendant, would never end.
    while root in lineages and root not in ancestors:
        ancestors.add(root)
        lineage = lineages[root]
        tokens += (lineage.settings or {}).get("tokens") or 0
        root = lineage.parent
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
        ArtifactError: If a file is damaged.
    """
    metrics = read_object(file)
    manifest = read_object(file.parent / MANIFEST)
    with reading(file):
        rows = sorted(metrics["seeds"], key=lambda row: row["seed"])
        scores = {row["seed"]: float(row["score"]) for row in rows}
        collapses = frozenset(row["seed"] for row in rows if row["degenerate"])
        predictions = _predictions(file.parent / PREDICTIONS, metrics, list(scores))
        return ArmResult(
            task=str(metrics["task"]),
            arm=arm,
            metric=metrics["metric"],
            direction=metrics["direction"],
            scores=scores,
            collapsed_seeds=collapses,
            settings=_deciding_settings(manifest),
            predictions=predictions,
            lineage=trace(manifest["depends_on"].get("model"), lineages or {}),
            adaptations=metrics["adaptations"],
            warnings=tuple(data_warnings(metrics)),
        )


def _deciding_settings(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that decide a result, by dotted name; without model and seeds."""
    leaves = flatten({**manifest["depends_on"], "precision": manifest.get("precision")})
    settings = {}
    for key, value in leaves:
        if key.split(".")[0] != "model" and key != "preset.seeds":
            settings[key] = value
    return settings


def read_baseline(file: Path) -> ArmResult:
    """Read a baseline from ``metrics.json`` and the predictions beside it.

    Raises:
        ArtifactError: If a file is damaged.
    """
    metrics = read_object(file)
    columns = ("adaptation", "id", "label", "prediction")
    table = read_columns(file.parent / PREDICTIONS, columns).sort_by("id")
    with reading(file):
        kind = find_kind(metrics["kind"])(tuple(metrics["labels"]))
        predictions = Predictions(
            ids=table["id"].to_numpy(),
            labels=kind.labels_from(table["label"]),
            predicted=kind.labels_from(table["prediction"])[np.newaxis],  # of one model
            kind=kind,
            folds=table["adaptation"].to_numpy() if metrics["folds"] else None,
        )
        return ArmResult(
            task=metrics["task"],
            arm=BASELINE_TITLES.get(file.parent.name, file.parent.name),
            metric=metrics["metric"],
            direction=metrics["direction"],
            scores={},
            collapsed_seeds=frozenset(),
            settings={},
            predictions=predictions,
            is_baseline=True,
        )


def _predictions(file: Path, metrics: dict[str, Any], seeds: Sequence[int]) -> Predictions:
    """Read the predictions.

    Args:
        file: Parquet file.
        metrics: Content of ``metrics.json``.
        seeds: Seeds in ascending order, which folds divide evenly and in order.

    Raises:
        ArtifactError: If the file is damaged, or its seeds have other texts.
    """
    table = read_columns(file, ("adaptation", "seed", "id", "label", "prediction"))
    has_folds = bool(metrics["folds"])
    # With folds, one model of each fold shares a row.
    models = len(seeds) // metrics["adaptations"] if has_folds else len(seeds)
    with reading(file):
        kind = find_kind(metrics["kind"])(tuple(metrics["labels"]))
        rows = np.searchsorted(seeds, table["seed"].to_numpy()) % models
        order = np.lexsort((table["id"].to_numpy(), rows))
        ids = table["id"].to_numpy()[order].reshape(models, -1)
        labels = kind.labels_from(table["label"])[order].reshape(models, -1)
        predicted = kind.labels_from(table["prediction"])[order].reshape(models, -1)
        is_alike = ids.size > 0 and (ids == ids[0]).all() and (labels == labels[0]).all()
        if not is_alike:
            raise ValueError("seeds have other test examples or labels")
    folds = None
    if has_folds:  # the same in every row
        folds = table["adaptation"].to_numpy()[order][: ids.shape[1]]
    return Predictions(ids[0], labels[0], predicted, kind, folds)
