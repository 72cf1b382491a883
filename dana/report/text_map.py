"""Stored vectors of task, general and kept text to a map of two principal components, and to who lies nearer the task.

Vectors are centred on the general sample and normalised, as detectors see them (:mod:`dana.encoders.geometry`). The
components are those of task and general text alone; kept text is placed among them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from dana.core.rng import generator
from dana.core.schemas import HELD_OUT_TASK, SCORES, parts
from dana.encoders.cache import META, stored_vectors
from dana.encoders.geometry import parse_geometry
from dana.report.files import read_columns
from dana.report.unit_texts import texts_of

if TYPE_CHECKING:
    import torch

MEASURED = 1000  # units of a text that the distances are taken of
DRAWN = {"general": 250, "kept": 200, "task": 150}
FEWEST = 10  # units of each text; with fewer there is no map


@dataclass(frozen=True)
class TextMap:
    """Where three texts lie.

    Attributes:
        points: A row a drawn unit: text (``general``, ``kept``, ``task``), x, y; task text lies on the left.
        variance: Share of the variance of task and general text along x and along y.
        distances: A row a measured unit: text, cosine distance to the centre of the task's held-out units.
        stored: Share of the sampled units whose vectors are stored.
    """

    points: pd.DataFrame
    variance: tuple[float, float]
    distances: pd.DataFrame
    stored: float


def text_map(
    scores: Path, corpus: Path, task: Path, store: Path, table: pa.Table, weights: np.ndarray
) -> TextMap | None:
    """The map of a run's units; None where the store lacks the vectors of one of the texts.

    Args:
        scores: Folder of the scores, which has the keys of the task's held-out units.
        corpus: Folder of the general documents.
        task: Folder of the task's text.
        store: Folder of the embedding store.
        table: The scores, :data:`dana.core.schemas.SCORES`.
        weights: Relevance of shape (units,); kept units are drawn with these probabilities.
    """
    if not (parts(corpus) and (scores / HELD_OUT_TASK).is_file() and weights.any()):
        return None
    random = generator(0, "report", "map")
    count, likely = len(weights), weights / weights.sum()
    rows = {
        "general": random.choice(count, min(MEASURED, count), replace=False),
        "kept": random.choice(count, min(MEASURED, int((weights > 0).sum())), replace=False, p=likely),
    }
    held_out = read_columns(scores / HELD_OUT_TASK, SCORES.names)
    held_out = held_out.take(pa.array(random.permutation(held_out.num_rows)[:MEASURED]))
    texts = {name: texts_of(table.take(pa.array(drawn)), corpus) for name, drawn in rows.items()}
    texts["task"] = texts_of(held_out, task / "held_out")
    vectors = _stored(store, texts)
    if min(map(len, vectors.values()), default=0) < FEWEST:
        return None
    stored = sum(map(len, vectors.values())) / sum(len(set(own)) for own in texts.values())
    geometry = parse_geometry("center+l2").fit(vectors["general"])
    return _placed({name: geometry.apply(found).numpy() for name, found in vectors.items()}, stored)


def _stored(store: Path, texts: dict[str, list[str]]) -> "dict[str, torch.Tensor]":
    """Vectors of distinct texts, of the encoder that has most of them; empty without a store."""
    best: dict[str, torch.Tensor] = {}
    for folder in sorted(meta.parent for meta in store.glob(f"*/{META}")):
        found = {name: stored_vectors(folder, own) for name, own in texts.items()}
        if sum(map(len, found.values())) > sum(map(len, best.values())):
            best = found
    return best


def _placed(vectors: dict[str, np.ndarray], stored: float) -> TextMap:
    """Vectors as the detectors see them, (units, dims) each, to their map."""
    from sklearn.decomposition import PCA

    drawn = {name: vectors[name][:most] for name, most in DRAWN.items()}
    fitted = PCA(2, svd_solver="full").fit(np.concatenate([drawn["task"], drawn["general"]]))
    places = {name: fitted.transform(rows) for name, rows in drawn.items()}
    side = -1.0 if places["task"][:, 0].mean() > places["general"][:, 0].mean() else 1.0
    points = pd.concat(
        pd.DataFrame({"text": name, "x": side * place[:, 0], "y": place[:, 1]}) for name, place in places.items()
    )
    centre = vectors["task"].mean(0)
    centre = centre / max(float(np.linalg.norm(centre)), 1e-12)
    distances = pd.concat(pd.DataFrame({"text": name, "distance": 1 - rows @ centre}) for name, rows in vectors.items())
    x, y = fitted.explained_variance_ratio_.tolist()
    return TextMap(points.reset_index(drop=True), (x, y), distances.reset_index(drop=True), stored)
