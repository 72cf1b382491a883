"""A fine-tuned model's ancestors and how they were adapted, by the digests of weights in the run's manifests."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Weights = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Adaptation:
    """One adapted model of a run.

    Attributes:
        parent: The weights it was trained from.
        settings: It was trained with.
    """

    parent: Weights
    settings: dict[str, Any]


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

    def are_siblings(self, other: "Lineage") -> bool:
        """Whether both were adapted from one model, so that only the text should differ."""
        return bool(self.parent) and self.parent == other.parent


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


def adaptations(manifests: Iterable[dict[str, Any]]) -> dict[Weights, Adaptation]:
    """Every model that a run adapted, by its own weights."""
    found = {}
    for manifest in manifests:
        depends_on = manifest.get("depends_on")
        if isinstance(depends_on, dict) and "model" in depends_on:
            execution = manifest.get("execution")
            computed = {"precision": execution.get("precision")} if isinstance(execution, dict) else {}
            settings = {**(depends_on.get("settings") or {}), **computed}
            found[own_weights(manifest)] = Adaptation(weights(depends_on["model"]), settings)
    found.pop(frozenset(), None)  # of other steps, and of manifests that do not name their files
    return found


def trace(identity: Any, known: dict[Weights, Adaptation]) -> Lineage:
    """Follow a model back to what this run started from."""
    own = root = weights(identity)
    seen = set()
    while root in known and root not in seen:
        seen.add(root)
        root = known[root].parent
    last = known.get(own)
    return Lineage(last.parent if last else frozenset(), root, last.settings if last else None)
