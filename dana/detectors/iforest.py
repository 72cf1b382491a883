"""Isolation forest: how few random cuts does it take to be alone?"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.config import require
from dana.detectors.base import OnDevice, blocks, check_rows


def average_path(samples: np.ndarray) -> np.ndarray:
    """c(n) = 2 H(n-1) - 2 (n-1)/n: the mean path of an unsuccessful search; c(1) = 0, c(2) = 1. DANA section 3.1."""
    n = np.asarray(samples, dtype=np.float64)
    # ln + Euler's constant stands for the harmonic number, as in scikit-learn, from n = 3 on
    long = 2 * (np.log(np.maximum(n - 1, 1)) + np.euler_gamma) - 2 * (n - 1) / np.maximum(n, 1)
    return np.where(n > 2, long, np.where(n == 2, 1.0, 0.0))


@dataclass(frozen=True)
class FittedIsolationForest(OnDevice):
    """All trees, padded to the largest. A leaf is its own child, so every walk can take the same number of steps.

    Attributes:
        depth: Steps of the longest walk.
        normaliser: c(n) of the sub-sample each tree grew on.
        mean: Shape (dims,), of the projection before the trees.
        directions: Shape (dims, components), or (0, 0) for none.
        feature: int64 (trees, nodes), what a node looks at.
        threshold: float64 (trees, nodes); at most this goes left.
        left: int64 (trees, nodes).
        right: int64 (trees, nodes).
        path: float64 (trees, nodes), a leaf's h(x): its depth, plus c of the rows it holds.
    """

    depth: int
    normaliser: float
    mean: Tensor
    directions: Tensor
    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    path: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """s(x, n) = 2^(-E[h(x)] / c(n)), in (0, 1], higher = more anomalous. O(units · trees · depth). DANA section 3.1."""
        check_rows(embeddings, self.mean.numel())
        scores = [self._score(block) for block in blocks(embeddings.float(), 16 * len(self.feature))]
        return torch.cat(scores) if scores else embeddings.new_zeros(0, dtype=torch.float64)

    def _score(self, block: Tensor) -> Tensor:
        rows = _project(block, self.mean, self.directions)
        total = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
        for feature, threshold, left, right, path in zip(
            self.feature, self.threshold, self.left, self.right, self.path, strict=True
        ):
            node = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
            for _ in range(self.depth):
                value = rows.gather(1, feature[node, None]).squeeze(1)
                node = torch.where(value.double() <= threshold[node], left[node], right[node])
            total += path[node]
        return torch.exp2(-total / (len(self.feature) * self.normaliser))


@dataclass(frozen=True)
class IsolationForest:
    """Isolation forest on the leading principal components; higher = more anomalous.

    On raw 384-dimensional embeddings a forest of 100 trees is mostly seed noise: one cut sees one of
    hundreds of directions. Projecting first, and growing more trees, makes it repeatable (``docs/results/ranking.md``).

    Cost: fit O(rows · dims² + trees · samples · log samples), score O(units · trees · log samples).

    Attributes:
        trees: Number of trees; the paper gives none, the library default is 100.
        samples: Rows each tree grows on.
        components: Principal components the trees see; 0 for the embeddings as they are, as in the paper.

    References:
        Liu, Ting and Zhou 2008, Isolation forest. DANA section 3.1 (IF).
    """

    trees: int = 400
    samples: int = 256
    components: int = 16
    fitted_type: ClassVar[type] = FittedIsolationForest
    paper: ClassVar[str] = "iforest:trees=100,samples=256,components=0"

    def __post_init__(self) -> None:
        require(self.trees >= 1, "trees", self.trees, "at least 1")
        require(self.samples >= 2, "samples", self.samples, "at least 2")
        require(self.components >= 0, "components", self.components, "at least 0")

    def fit(self, embeddings: Tensor, seed: int) -> FittedIsolationForest:
        """Grow the forest with scikit-learn."""
        from sklearn.ensemble import IsolationForest as Forest

        check_rows(embeddings, at_least=2)
        mean, directions = _projection(embeddings.float(), self.components)
        rows = _project(embeddings.float(), mean, directions).cpu().numpy()
        samples = min(self.samples, len(rows))
        forest = Forest(n_estimators=self.trees, max_samples=samples, random_state=seed % 2**32).fit(rows)
        trees = [_flatten(tree.tree_) for tree in forest.estimators_]
        most = max(len(tree["feature"]) for tree in trees)
        stacked = {
            name: torch.from_numpy(
                np.stack([np.pad(tree[name], (0, most - len(tree[name]))) for tree in trees])
            ).to(embeddings.device)
            for name in ("feature", "threshold", "left", "right", "path")
        }
        depth = max(int(tree["depth"]) for tree in trees)
        return FittedIsolationForest(depth, float(average_path(np.array(samples))), mean, directions, **stacked)


def _flatten(tree: Any) -> dict[str, Any]:
    """One scikit-learn tree as arrays of shape (nodes,)."""
    nodes = np.arange(tree.node_count)
    leaf = tree.children_left < 0
    level = np.zeros(tree.node_count, dtype=np.int64)
    for node in nodes[~leaf]:  # parents come before their children
        level[tree.children_left[node]] = level[tree.children_right[node]] = level[node] + 1
    return {
        "feature": np.where(leaf, 0, tree.feature).astype(np.int64),
        "threshold": np.where(leaf, np.inf, tree.threshold),
        "left": np.where(leaf, nodes, tree.children_left),
        "right": np.where(leaf, nodes, tree.children_right),
        "path": level + average_path(tree.n_node_samples),
        "depth": level.max(),
    }


def _projection(rows: Tensor, components: int) -> tuple[Tensor, Tensor]:
    """Mean (dims,) and leading principal directions (dims, components); no projection for 0."""
    mean = rows.double().mean(0)
    if components == 0:
        return torch.zeros_like(mean).float(), rows.new_zeros(0, 0)
    centred = rows.double() - mean
    _, directions = torch.linalg.eigh(centred.T @ centred)
    leading = directions.flip(1)[:, :components]
    largest = leading.abs().argmax(0)
    sign = leading[largest, torch.arange(leading.shape[1], device=rows.device)].sign()
    return mean.float(), (leading * sign).float().contiguous()


def _project(rows: Tensor, mean: Tensor, directions: Tensor) -> Tensor:
    return (rows - mean) @ directions if directions.numel() else rows
