"""Isolation forest: mean path length over random trees, fitted by scikit-learn and scored in torch."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.config import require
from dana.detectors.base import OnDevice, check_rows, score_blocks

TOGETHER = 128  # trees traversed at once; their nodes fit a CPU's cache
WALK = 16  # numbers held per row and tree while traversing


def average_path(samples: np.ndarray) -> np.ndarray:
    """Compute c(n) = 2 H(n-1) - 2 (n-1)/n, the mean path of an unsuccessful search; c(1) = 0. DANA section 3.1."""
    n = np.asarray(samples, dtype=np.float64)
    # ln + Euler's constant stands for the harmonic number, as in scikit-learn, from n = 3 on
    long = 2 * (np.log(np.maximum(n - 1, 1)) + np.euler_gamma) - 2 * (n - 1) / np.maximum(n, 1)
    return np.where(n > 2, long, np.where(n == 2, 1.0, 0.0))


@dataclass(frozen=True)
class FittedIsolationForest(OnDevice):
    """All trees in one list of nodes; a leaf is its own child, so every traversal has the same number of steps.

    Attributes:
        depth: Depth of the deepest tree.
        normaliser: c(n) of the sub-sample that each tree was fitted on.
        dims: Width of the embeddings.
        roots: int64 (trees,), the root node of each tree.
        feature: int64 (nodes,), the dimension that a node compares.
        threshold: float32 (nodes,); at most this goes left.
        left: int64 (nodes,); the right child is the next node.
        path: float64 (nodes,); path length of a row that ends in this node.
    """

    depth: int
    normaliser: float
    dims: int
    roots: Tensor
    feature: Tensor
    threshold: Tensor
    left: Tensor
    path: Tensor

    def score(self, embeddings: Tensor) -> Tensor:
        """Compute s(x, n) = 2^(-E[h(x)] / c(n)), in (0, 1], higher = more anomalous. DANA section 3.1.

        O(units · trees · depth): the rows of a block descend 128 trees at once, a level at a time.
        """
        check_rows(embeddings, self.dims)
        return score_blocks(embeddings, WALK * TOGETHER, self._score)

    def _score(self, rows: Tensor) -> Tensor:
        total = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
        # Expanded with stride 0, not copied: `gather` is faster here than indexing.
        feature, threshold, left_child, path = (
            nodes.expand(len(rows), -1)
            for nodes in (self.feature, self.threshold, self.left, self.path)
        )
        for roots in self.roots.split(TOGETHER):
            node = roots.expand(len(rows), -1)
            for _ in range(self.depth):
                right = rows.gather(1, feature.gather(1, node)) > threshold.gather(1, node)
                node = left_child.gather(1, node).add_(right)
            total += path.gather(1, node).sum(1)
        return torch.exp2(-total / len(self.roots) / self.normaliser)


@dataclass(frozen=True)
class IsolationForest:
    """Isolation forest; higher = more anomalous.

    A split compares one of hundreds of dimensions, so on sentence embeddings the scores of the
    library's 100 trees depend mostly on the seed (rank correlation 0.26 between seeds); 1,600 trees
    are more stable (0.82) and better. Principal components before the trees are repeatable and
    worse: foreign text has little variance along the task's main directions and scores as typical
    there (``docs/results/ranking.md``).

    Scores equal scikit-learn's of the same seed to the last digits of float64, because the trees
    are scikit-learn's.

    Cost: fit O(trees · samples · log samples), score O(units · trees · log samples).

    Attributes:
        trees: Number of trees; the paper gives none, the library default is 100.
        samples: Rows each tree is fitted on.

    References:
        Liu, Ting and Zhou 2008, Isolation forest. DANA section 3.1 (IF).
    """

    trees: int = 1600
    samples: int = 256
    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedIsolationForest

    def __post_init__(self) -> None:
        require(self.trees >= 1, "trees", self.trees, "at least 1")
        require(self.samples >= 2, "samples", self.samples, "at least 2")

    def fit(self, embeddings: Tensor, seed: int) -> FittedIsolationForest:
        """Fit the forest with scikit-learn and flatten its trees."""
        from sklearn.ensemble import IsolationForest as Forest

        check_rows(embeddings, at_least=2)
        rows = embeddings.float().cpu().numpy()
        samples = min(self.samples, len(rows))
        forest = Forest(
            n_estimators=self.trees, max_samples=samples, random_state=seed % 2**32
        ).fit(rows)
        trees = [_flatten(tree.tree_) for tree in forest.estimators_]
        roots = np.cumsum([0, *(len(tree["path"]) for tree in trees[:-1])])
        for root, tree in zip(roots, trees, strict=True):
            tree["left"] += root
        nodes = {
            name: torch.from_numpy(np.concatenate([tree[name] for tree in trees])).to(
                embeddings.device
            )
            for name in ("feature", "threshold", "left", "path")
        }
        return FittedIsolationForest(
            depth=max(int(tree.tree_.max_depth) for tree in forest.estimators_),
            normaliser=float(average_path(np.array(samples))),
            dims=rows.shape[1],
            roots=torch.from_numpy(roots).to(embeddings.device),
            **nodes,
        )


def _flatten(tree: Any) -> dict[str, np.ndarray]:
    """Convert a scikit-learn tree to arrays of shape (nodes,) in which siblings are adjacent."""
    inner = np.flatnonzero(tree.children_left >= 0)
    order = np.concatenate(
        [[0], np.stack([tree.children_left[inner], tree.children_right[inner]], 1).ravel()]
    )
    position = np.argsort(order)
    leaf = tree.children_left[order] < 0
    depth = tree.compute_node_depths() - 1
    return {
        "feature": np.where(leaf, 0, tree.feature[order]).astype(np.int64),
        "threshold": np.where(leaf, np.float32(np.inf), round_down(tree.threshold[order])),
        "left": np.where(leaf, np.arange(len(order)), position[tree.children_left[order]]),
        "path": (depth + average_path(tree.n_node_samples))[order],
    }


def round_down(threshold: np.ndarray) -> np.ndarray:
    """Round down to float32, so that float32 rows compare with the threshold as before rounding."""
    nearest = threshold.astype(np.float32)
    return np.where(nearest > threshold, np.nextafter(nearest, np.float32(-np.inf)), nearest)
