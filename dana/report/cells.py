"""Fine-tuning results read from disk: one arm on one task, with all that must be equal for a comparison.

A model's ancestors are followed by the digests of the weights in the run's manifests.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.artifacts import MANIFEST
from dana.core.errors import ArtifactError
from dana.report.files import RESULTS, flatten, read_columns, read_object, reading
from dana.tasks.kinds import find_kind
from dana.tasks.kinds.base import Kind
from dana.tasks.kinds.single_label import SingleLabel

PREDICTIONS = "predictions.parquet"
LONGEST = 24  # characters of a setting's value in a sentence
IN_CELL = ("task", "preset", "settings")  # left out before a setting's name

Weights = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Lineage:
    """Where a model comes from.

    Attributes:
        parent: What its last step of adaptation started from; empty where this run adapted nothing.
        root: What the first one started from; the model itself where this run adapted nothing.
        settings: Of the last step.
    """

    parent: Weights = frozenset()
    root: Weights = frozenset()
    settings: dict[str, Any] | None = None

    def roots_differ(self, other: "Lineage") -> bool:
        """Whether the two surely start from different models; of a Hub name against a folder nothing is sure."""
        names = [{name for name, _ in lineage.root} for lineage in (self, other)]
        return names[0] == names[1] and self.root != other.root


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
        settings: All that decides the result but the model and the seeds, by name.
        predictions: Of the test examples.
        lineage: Where the model comes from.
        nested: Whether each seed has a model of its own, selected and adapted with another seed.
    """

    task: str
    arm: str
    metric: str
    direction: str
    scores: dict[int, float]
    collapsed: frozenset[int]
    settings: dict[str, Any]
    predictions: Predictions
    lineage: Lineage = field(default_factory=Lineage)
    nested: bool = False

    @property
    def seeds(self) -> list[int]:
        """Rising."""
        return list(self.scores)

    def unlike(self, other: "Finetuned") -> list[str]:
        """Why the two cannot be compared, each as a few words with this cell's value first; empty if they can."""
        found = _differences(self.settings, other.settings) + self._unlike_lineage(other)
        pairs = [{"metric": cell.metric, "direction": cell.direction} for cell in (self, other)]
        found += _differences(*pairs)
        if self.seeds != other.seeds:
            found.append(f"seeds {_some(self.seeds)} against {_some(other.seeds)}")
        return found + self._unlike_test(other)

    def _unlike_lineage(self, other: "Finetuned") -> list[str]:
        """Only what is sure: models that were adapted elsewhere may come from anywhere."""
        ours, theirs = self.lineage, other.lineage
        found = []
        if ours.parent and ours.parent == theirs.parent:  # adapted from one model: only the text should differ
            pair = (dict(flatten(lineage.settings or {})) for lineage in (ours, theirs))
            found = [f"adapted with {difference}" for difference in _differences(*pair)]
        if ours.parent and theirs.parent and self.nested != other.nested:
            found.append("one adaptation for all seeds against one a seed")
        known = all(cell.lineage.parent or cell.arm == "base" for cell in (self, other))
        return [*found, "they start from different models"] if known and ours.roots_differ(theirs) else found

    def _unlike_test(self, other: "Finetuned") -> list[str]:
        own, its = self.predictions, other.predictions
        if own.kind.name != its.kind.name:
            return [f"{own.kind.name} against {its.kind.name}"]
        if len(own.kind.labels) != len(its.kind.labels):
            return [f"{len(own.kind.labels)} classes against {len(its.kind.labels)}"]
        if not np.array_equal(own.ids, its.ids):
            return [f"the test examples differ ({np.setxor1d(own.ids, its.ids).size} are in one alone)"]
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


def weights(identity: Any) -> Weights:
    """The weights' digests of a model's identity, by file; of a Hub model its name."""
    found = identity.items() if isinstance(identity, dict) else ()
    return frozenset((name, str(digest)) for name, digest in found if name == "name" or name.endswith(".safetensors"))


def own_weights(manifest: dict[str, Any]) -> Weights:
    """The digests of the weights that a step made; empty where it made no model, or does not name its files."""
    files = manifest.get("files")
    if manifest.get("kind") != "model" or not isinstance(files, dict):
        return frozenset()
    return weights({name: about["digest"] for name, about in files.items() if "/" not in name and "digest" in about})


def adaptations(manifests: Iterable[dict[str, Any]]) -> dict[Weights, Lineage]:
    """The last step of every model that a run adapted, by its own weights."""
    found = {}
    for manifest in manifests:
        depends_on = manifest.get("depends_on")
        if isinstance(depends_on, dict) and "model" in depends_on:
            execution = manifest.get("execution")
            computed = {"precision": execution.get("precision")} if isinstance(execution, dict) else {}
            settings = {**(depends_on.get("settings") or {}), **computed}
            found[own_weights(manifest)] = Lineage(weights(depends_on["model"]), settings=settings)
    found.pop(frozenset(), None)  # of other steps, and of manifests that do not name their files
    return found


def trace(identity: Any, known: dict[Weights, Lineage]) -> Lineage:
    """Follow a model back to what this run started from."""
    own = root = weights(identity)
    seen = set()
    while root in known and root not in seen:
        seen.add(root)
        root = known[root].parent
    return replace(known.get(own, Lineage()), root=root)


def read_cell(file: Path, arm: str, adapted: dict[Weights, Lineage] | None = None) -> Finetuned:
    """A cell from its ``metrics.json``, and the manifest and predictions beside it.

    Args:
        file: ``metrics.json``.
        arm: The arm's name.
        adapted: The models that the run adapted.

    Raises:
        ArtifactError: If a file is not what fine-tuning writes, or the three do not belong together.
    """
    metrics, made = read_object(file), read_object(file.parent / MANIFEST)
    with reading(file):
        scores = {seed: float(score) for seed, score in sorted((row["seed"], row["score"]) for row in metrics["seeds"])}
        predictions = _predictions(file.parent / PREDICTIONS, scores, metrics)
        pairs = zip(scores, predictions.predicted, strict=True)
        collapsed = frozenset(seed for seed, own in pairs if predictions.kind.collapsed(own, predictions.labels))
        found = flatten({**made["depends_on"], "precision": made.get("precision")})
        return Finetuned(
            task=str(metrics["task"]),
            arm=arm,
            metric=metrics["metric"],
            direction=metrics["direction"],
            scores=scores,
            collapsed=collapsed,
            settings={name: value for name, value in found if name.split(".")[0] != "model" and name != "preset.seeds"},
            predictions=predictions,
            lineage=trace(made["depends_on"].get("model"), adapted or {}),
            nested=bool(made.get("nested")),
        )


def _predictions(file: Path, scores: dict[int, float], metrics: dict[str, Any]) -> Predictions:
    """Those beside the metrics, if the metrics are theirs."""
    rows = read_columns(file, ("seed", "id", "label", "prediction"))
    rows = rows.sort_by([("seed", "ascending"), ("id", "ascending")])
    shape = len(scores), rows.num_rows // len(scores)
    with reading(file):
        if "kind" in metrics:
            kind = find_kind(metrics["kind"])(tuple(metrics.get("labels", ())))
        else:  # one label a text is all there is, and the metrics do not name the labels
            kind = SingleLabel.numbered(len(read_columns(file, ("probabilities",))["probabilities"][0]))
        seeds, ids = rows["seed"].to_numpy().reshape(shape), rows["id"].to_numpy().reshape(shape)
        labels, answers = (kind.answers(rows[name]).reshape(shape) for name in ("label", "prediction"))
        scored = kind.scorer(answers, labels[0], metrics["metric"])(np.ones((1, shape[1])))[0]
    alike = (list(scores) == seeds.T).all() and (ids == ids[0]).all() and (labels == labels[0]).all()
    if not (alike and np.allclose(scored, list(scores.values()), rtol=1e-6, atol=1e-6)):
        theirs = f"its seeds, test examples or {metrics['metric']} are not those of {RESULTS}"
        raise ArtifactError(f"{file}: {theirs}; make {file.parent} again")
    return Predictions(ids[0], labels[0], answers, kind)
