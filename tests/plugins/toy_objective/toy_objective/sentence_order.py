"""Sentence order: two neighbouring sentences are read as they stand, or swapped; which of both?

Lan et al. 2020, ALBERT: A Lite BERT for self-supervised learning, section 3.1.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import nn

from dana.core.rng import derive_seed, epoch_keys, hash_uniform
from dana.train.documents import Draw, Pieces
from dana.train.objectives.base import ModelCardTerms
from dana.train.objectives.classes import ClassObjective


@dataclass(frozen=True)
class DrawNeighbours(Draw):
    """Draws a sentence of each document and the one behind it."""

    seed: int

    def pieces(self, documents, indices, epochs):
        table = documents.sentences_of(indices)
        keys = epoch_keys(documents.ids[indices], epochs)
        first = table.one_of_each(table.followed(), hash_uniform(self.seed, keys))
        rows = table.rows[np.stack([first, first + 1], axis=1).ravel()]
        return Pieces(np.repeat(np.arange(indices.size), 2), rows, rows)

    def fits(self, documents):
        table = documents.sentences_of(np.arange(len(documents)))
        return table.counts_of(table.followed()) > 0


@dataclass(frozen=True)
class SentenceOrder(ClassObjective):
    """Tell whether two neighbouring sentences stand in their order, or are swapped."""

    version: ClassVar[int] = 1
    classes: ClassVar[int] = 2
    pieces_a_text: ClassVar[int] = 2

    def draw(self, seed):
        return DrawNeighbours(seed)

    def texts(self, batch, epochs, seed):
        pairs = np.arange(len(batch)).reshape(-1, 2)
        keys = epoch_keys(batch.document_ids, epochs)
        is_swapped = hash_uniform(derive_seed(seed, "swap"), keys) < 0.5
        pairs[is_swapped] = pairs[is_swapped, ::-1]
        return batch.joined(pairs), is_swapped.astype(np.int64)

    def head(self, width):
        return nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, self.classes))

    def card_terms(self):
        return ModelCardTerms("order of two sentences", "pair", "feature-extraction", "AutoModel")
