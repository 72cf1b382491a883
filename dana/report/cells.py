"""Fine-tuning results read from disk: one arm on one task, with all that must be equal for a comparison."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.artifacts import MANIFEST
from dana.core.errors import ArtifactError
from dana.report.files import flatten, read_columns, read_object, require_keys
from dana.report.lineage import Adaptation, Lineage, Weights, trace
from dana.tasks.kinds import DEFAULT, KINDS, find_kind
from dana.tasks.kinds.base import Kind
from dana.tasks.kinds.single_label import SingleLabel

PREDICTIONS = "predictions.parquet"
LONGEST = 24  # characters of a setting's value in a sentence
IN_CELL = ("task", "preset", "settings")  # left out before a setting's name


@dataclass(frozen=True)
class Predictions:
    """``predictions.parquet``, test examples in the order of their ids.

    Attributes:
        ids: Of shape (examples,).
        labels: True answers of shape (examples,): class numbers, or what else the kind has.
        predicted: Answers of shape (seeds, examples), seeds in the cell's order.
        kind: What the answers are.
    """

    ids: np.ndarray
    labels: np.ndarray
    predicted: np.ndarray
    kind: Kind


@dataclass(frozen=True)
class Finetuned:
    """One arm on one task.

    Attributes:
        task: Its name.
        arm: Its name.
        metric: One of its kind's.
        direction: ``higher`` or ``lower`` is better.
        scores: Score by seed, seeds rising.
        collapsed: Seeds whose model predicts nearly the same for every text.
        settings: All that decides the result but the model and the seeds, by name; None where it is not recorded.
        predictions: Of the test examples; None where they are not there.
        lineage: Where the model comes from.
        nested: Whether each seed has a model of its own, selected and adapted with another seed.
    """

    task: str
    arm: str
    metric: str
    direction: str
    scores: dict[int, float]
    collapsed: frozenset[int]
    settings: dict[str, Any] | None
    predictions: Predictions | None
    lineage: Lineage = field(default_factory=Lineage)
    nested: bool = False

    @property
    def seeds(self) -> list[int]:
        """Rising."""
        return list(self.scores)

    def unlike(self, other: "Finetuned") -> list[str]:
        """Why the two cannot be compared, each as a few words with this cell's value first; empty if they can."""
        if self.settings is None or other.settings is None:
            lacking = " and ".join(cell.arm for cell in (self, other) if cell.settings is None)
            found = [f"the settings of {lacking} are not recorded"]
        else:
            found = _differences(self.settings, other.settings)
        found += self._unlike_lineage(other)
        made = {"metric": (self.metric, other.metric), "direction": (self.direction, other.direction)}
        found += [_difference(name, *pair) for name, pair in made.items() if pair[0] != pair[1]]
        if self.seeds != other.seeds:
            found.append(f"seeds {_some(self.seeds)} against {_some(other.seeds)}")
        return found + self._unlike_test(other)

    def _unlike_lineage(self, other: "Finetuned") -> list[str]:
        """Only what is sure: models that were adapted elsewhere may come from anywhere."""
        ours, theirs = self.lineage, other.lineage
        found = []
        if ours.settings is not None and theirs.settings is not None and ours.are_siblings(theirs):
            pair = dict(flatten(ours.settings)), dict(flatten(theirs.settings))
            found = [f"adapted with {said}" for said in _differences(*pair)]
        if ours.parent and theirs.parent and self.nested != other.nested:
            found.append("one adaptation for all seeds against one a seed")
        known = all(cell.lineage.parent or cell.arm == "base" for cell in (self, other))
        return [*found, "they start from different models"] if known and ours.roots_differ(theirs) else found

    def _unlike_test(self, other: "Finetuned") -> list[str]:
        own, its = self.predictions, other.predictions
        if own is None or its is None:
            return []
        if own.kind.name != its.kind.name:
            return [f"{own.kind.name} against {its.kind.name}"]
        if len(own.kind.labels) != len(its.kind.labels):
            return [f"{len(own.kind.labels)} classes against {len(its.kind.labels)}"]
        if not np.array_equal(own.ids, its.ids):
            apart = np.setxor1d(own.ids, its.ids).size
            return [f"the test examples differ ({apart} are in one alone)"]
        apart = int((own.labels != its.labels).sum())
        return [f"the labels of {apart} test examples differ"] if apart else []


def _differences(own: dict[str, Any], its: dict[str, Any]) -> list[str]:
    pairs = [(name, own.get(name), its.get(name)) for name in own.keys() | its.keys()]
    return sorted(_difference(name, mine, theirs) for name, mine, theirs in pairs if mine != theirs)


def _difference(name: str, own: Any, its: Any) -> str:
    parts = name.split(".", 1)
    name = parts[1] if parts[0] in IN_CELL and len(parts) > 1 else name
    shown = ["not recorded" if value is None else str(value) for value in (own, its)]
    if name.startswith("data.") or max(map(len, shown)) > LONGEST:
        return f"{name.removeprefix('data.')} differs"
    return f"{name} {shown[0]} against {shown[1]}"


def _some(seeds: Sequence[int]) -> str:
    """Seeds in a few characters: 0 to 7, or 1, 4, 9."""
    if len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1:
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds[:6])) + (" …" if len(seeds) > 6 else "")


def read_cell(file: Path, arm: str, adapted: dict[Weights, Adaptation] | None = None) -> Finetuned:
    """A cell from its ``metrics.json``, and the manifest and predictions beside it.

    Args:
        file: ``metrics.json``.
        arm: The arm's name.
        adapted: The models that the run adapted.

    Raises:
        ArtifactError: If a file is not what fine-tuning writes, or the three do not belong together.
    """
    metrics = read_object(file)
    require_keys(metrics, ("task", "metric", "direction", "seeds"), file)
    if metrics["direction"] not in ("higher", "lower"):
        raise ArtifactError(f"{file}: direction={metrics['direction']!r}: must be higher or lower")
    if (named := metrics.get("kind", DEFAULT)) not in KINDS:
        raise ArtifactError(f"{file}: kind={named!r}: must be one of {', '.join(KINDS)}")
    if metrics["metric"] not in (known := KINDS[named].metrics):
        raise ArtifactError(f"{file}: metric={metrics['metric']!r}: must be one of {', '.join(known)}")
    scores, collapsed = _scores(metrics["seeds"], file)
    predictions = _predictions(file.parent / PREDICTIONS, list(scores), metrics)
    if predictions is not None:
        _check(predictions, scores, metrics["metric"], file)
        alike = zip(scores, predictions.predicted, strict=True)
        collapsed = frozenset(seed for seed, own in alike if predictions.kind.collapsed(own, predictions.labels))
    manifest = _manifest(file.parent)
    return Finetuned(
        task=str(metrics["task"]),
        arm=arm,
        metric=metrics["metric"],
        direction=metrics["direction"],
        scores=scores,
        collapsed=collapsed,
        settings=_settings(metrics, manifest),
        predictions=predictions,
        lineage=trace(manifest.get("depends_on", {}).get("model"), adapted or {}),
        nested=bool(manifest.get("nested")),
    )


def _scores(rows: Any, file: Path) -> tuple[dict[int, float], frozenset[int]]:
    if not isinstance(rows, list) or not rows:
        raise ArtifactError(f"{file}: seeds={rows!r}: must be a list with a row a seed; make it again")
    scores, collapsed = {}, set()
    for row in rows:
        require_keys(row, ("seed", "score"), file)
        seed, score = row["seed"], row["score"]
        if type(seed) is not int:
            raise ArtifactError(f"{file}: seed={seed!r}: must be a whole number")
        if type(score) not in (int, float) or not math.isfinite(score):
            raise ArtifactError(f"{file}: score={score!r} of seed {seed}: must be a finite number; fine-tune again")
        if seed in scores:
            raise ArtifactError(f"{file}: seed {seed} is there twice")
        scores[seed] = float(score)
        if row.get("degenerate"):
            collapsed.add(seed)
    return dict(sorted(scores.items())), frozenset(collapsed)


def _manifest(folder: Path) -> dict[str, Any]:
    """The manifest beside the metrics; empty without one.

    Raises:
        ArtifactError: If it is not one.
    """
    file = folder / MANIFEST
    if not file.is_file():
        return {}
    manifest = read_object(file)
    require_keys(manifest, ("depends_on",), file)
    if not isinstance(manifest["depends_on"], dict):
        raise ArtifactError(f"{file}: depends_on is not an object; make {folder} again")
    return manifest


def _settings(metrics: dict[str, Any], manifest: dict[str, Any]) -> dict[str, Any] | None:
    """The manifest's settings, task and digests of the data; without one, those that the metrics name."""
    if manifest:
        found = dict(flatten({**manifest["depends_on"], "precision": manifest.get("precision")}))
    elif isinstance(metrics.get("settings"), dict):
        found = dict(flatten({key: metrics[key] for key in ("version", "settings") if key in metrics}))
    else:
        return None
    own = ("model", "settings.seeds", "preset.seeds")  # what arms differ by; seeds are compared as they were run
    return {name: value for name, value in found.items() if name.split(".")[0] not in own and name not in own}


def _predictions(file: Path, seeds: list[int], metrics: dict[str, Any]) -> Predictions | None:
    if not file.is_file():
        return None
    table = read_columns(file, ("seed", "id", "label", "prediction"))
    if not table.num_rows:
        raise ArtifactError(f"{file}: has no rows; make {file.parent} again")
    kind = _kind(file, metrics)
    rows = table.sort_by([("seed", "ascending"), ("id", "ascending")])
    found, counts = np.unique(rows["seed"].to_numpy(), return_counts=True)
    if found.tolist() != seeds:
        raise ArtifactError(f"{file}: has seeds {_some(found.tolist())}, metrics.json {_some(seeds)}")
    size = int(counts[0])
    true = rows.select(["id", "label"])
    if {size} != set(counts.tolist()) or any(
        not true.slice(at, size).equals(true.slice(0, size)) for at in range(0, true.num_rows, size)
    ):
        raise ArtifactError(f"{file}: its seeds have different test examples; make {file.parent} again")
    try:
        labels, predicted = kind.answers(true["label"].slice(0, size)), kind.answers(rows["prediction"])
    except ValueError as error:
        raise ArtifactError(f"{file}: {error}; make {file.parent} again") from error
    return Predictions(true["id"].to_numpy()[:size], labels, predicted.reshape(len(seeds), size), kind)


def _kind(file: Path, metrics: dict[str, Any]) -> Kind:
    """The kind of a result; where one label a text is all there is, the metrics do not name them."""
    if "kind" in metrics:
        return find_kind(metrics["kind"])(tuple(metrics.get("labels", ())))
    return SingleLabel.numbered(len(read_columns(file, ("probabilities",))["probabilities"][0]))


def _check(predictions: Predictions, scores: dict[int, float], metric: str, file: Path) -> None:
    scorer = predictions.kind.scorer(predictions.predicted, predictions.labels, metric)
    [again] = scorer(np.ones((1, predictions.labels.size)))
    for (seed, score), found in zip(scores.items(), again, strict=True):
        if abs(score - found) > 1e-6 * max(1.0, abs(score)):
            raise ArtifactError(
                f"{file}: seed {seed} has {metric} {score:.4f}, but {found:.4f} by {PREDICTIONS};"
                f" they do not belong together, make {file.parent} again"
            )
