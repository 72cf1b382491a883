"""Find the other piece of the same document among pieces of other documents. Gao et al. 2021, SimCSE, equation 1.

Two disjoint pieces of a document, of two neighbouring sentences each, are a positive pair. The
negatives are the second pieces of the other documents of the *step*. With the cosines of the
pieces' vectors over the temperature, s_ij = cos(a_i, b_j) / τ, and the mean weight l_i of a
document's two pieces,

    t_i = -log( e^s_ii / (e^s_ii + Σ_{j≠i} l_j e^s_ij) )

and the loss of the step is Σ l_i t_i / Z, with the three denominators of
:mod:`dana.train.objectives.batch` and one label a document. So weight 0 equals absence in the loss,
as a pair and as a negative; the accuracy counts every negative.

The loss needs the vectors of the whole step: see :mod:`dana.train.joint`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.config import require
from dana.core.device import tensor_on
from dana.core.rng import UNIT_STRIDE
from dana.train.documents import DrawCrops, PieceBatch
from dana.train.examples import Batch, SpecialTokens
from dana.train.objectives.base import Collator, ModelCardTerms
from dana.train.objectives.batch import ACCURACY, loss_scale
from dana.train.objectives.vectors import (
    DOCUMENTS_A_STEP,
    TextVectors,
    VectorObjective,
    VectorsBatch,
)

TEMPERATURE = 0.05
RUN = 4  # tokens of a run, by which near-repeats are found
NEAR = 0.5  # share of the runs of the shorter of two near-repeats that the other has, too


def near_repeats(tokens: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Find the documents of a step that repeat each other, so that one is no negative of the other.

    Args:
        tokens: Shape (tokens,), the documents' text end to end.
        offsets: Shape (documents + 1,), where each begins.

    Returns:
        bool of shape (documents, documents), symmetric, False on the diagonal: whether two
        documents share at least half of the runs of four tokens of the shorter one.
    """
    from scipy.sparse import csr_array

    count = offsets.size - 1
    owners = np.repeat(np.arange(count), np.diff(offsets))
    hashes = np.zeros(max(0, tokens.size - RUN + 1), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for place in range(RUN):
            hashes = (
                hashes * UNIT_STRIDE + tokens[place : place + hashes.size].astype(np.uint64) + 1
            )
    run_owners = owners[: hashes.size]
    is_whole = run_owners == owners[RUN - 1 :][: hashes.size]
    _, runs = np.unique(hashes[is_whole], return_inverse=True)
    entries = np.unique(np.stack([run_owners[is_whole], runs]), axis=1)
    width = int(runs.max()) + 1 if runs.size else 1
    ones = np.ones(entries.shape[1], dtype=np.int64)
    holds = csr_array((ones, (entries[0], entries[1])), shape=(count, width))
    shared = (holds @ holds.T).toarray()
    sizes = shared.diagonal()
    shorter = np.minimum(sizes[:, None], sizes)
    near: np.ndarray = (shorter > 0) & (shared >= NEAR * shorter)
    np.fill_diagonal(near, False)
    return near


def pair_losses(
    vectors: Tensor, weights: Tensor, is_negative: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Compute the losses t_i of documents.

    Args:
        vectors: float32 of shape (2 · documents, width): the first and the second piece of each.
        weights: float32 of shape (documents,), l.
        is_negative: bool of shape (documents, documents): whether document j is a negative of i.
        temperature: τ.

    Returns:
        Losses in nats; and 1 where the own second piece is nearer than every negative, else 0. Both
        of shape (documents,).
    """
    units = torch.nn.functional.normalize(vectors.float(), dim=1)
    similarities = units[0::2] @ units[1::2].T / temperature
    own = similarities.diagonal()
    negatives = similarities.masked_fill(~is_negative, -torch.inf)
    weighted = torch.cat([own[:, None], negatives + weights.log()], dim=1)
    losses = weighted.logsumexp(1) - own
    hits = (own > negatives.max(1).values).float()
    return losses, hits


@dataclass(frozen=True)
class CropsBatch(VectorsBatch):
    """The pairs of one step on all ranks; ``counts`` and the scale are of documents.

    Attributes:
        document_weights: float32 of shape (documents,), l.
        is_negative: bool of shape (documents, documents), whether j is a negative of i.
        temperature: τ.
    """

    document_weights: np.ndarray
    is_negative: np.ndarray
    temperature: float

    @property
    def loss_counts(self) -> dict[str, int]:
        documents = self.document_weights.size
        return {"tokens": documents, ACCURACY: documents}

    @property
    def guess(self) -> float:
        """Accuracy of choosing among the negatives and the own second piece at random."""
        return float((1 / (1 + self.is_negative.sum(1))).mean())

    def joint_losses(self, vectors: Tensor) -> Tensor:
        weights = tensor_on(self.document_weights, vectors.device)
        is_negative = tensor_on(self.is_negative, vectors.device)
        return torch.cat(pair_losses(vectors, weights, is_negative, self.temperature))

    def joint_coefficients(self) -> np.ndarray:
        coefficients = self.scale.coefficients
        return np.concatenate([coefficients, np.zeros_like(coefficients)])


@dataclass(frozen=True)
class CropsCollator(Collator):
    """Makes pairs of the pieces of a step.

    Attributes:
        temperature: τ.
        group: Documents whose second pieces are each other's negatives; None for the whole step.
    """

    special_tokens: SpecialTokens
    temperature: float = TEMPERATURE
    group: int | None = None

    def step_batch(self, batch: Batch, epochs: np.ndarray | int, denominator: str) -> CropsBatch:
        assert isinstance(batch, PieceBatch)
        documents = batch.documents
        weights = batch.weights.reshape(documents, 2).mean(1)
        is_negative = ~near_repeats(*batch.text())
        np.fill_diagonal(is_negative, False)
        if self.group is not None:
            group = np.arange(documents) // self.group
            is_negative &= group[:, None] == group
        counts = np.ones(documents, dtype=np.int64)
        return CropsBatch(
            examples=batch,
            inputs=batch.tokens,
            labels=np.zeros(documents, dtype=np.int64),
            owners=batch.owners,
            counts=counts,
            scale=loss_scale(weights, counts, denominator),
            document_weights=weights,
            is_negative=is_negative,
            temperature=self.temperature,
        )


@dataclass(frozen=True)
class Crops(VectorObjective):
    """Find the other piece of the same document among those of the other documents of the step.

    Attributes:
        temperature: The cosines are divided by it.
    """

    temperature: float = TEMPERATURE
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require(0 < self.temperature <= 1, "temperature", self.temperature, "in (0, 1]")

    def module(self, model: Any, bf16: bool = False) -> TextVectors:
        return TextVectors(model, bf16)

    def collator(self, tokenizer: Any, seed: int) -> CropsCollator:
        return CropsCollator(SpecialTokens.from_tokenizer(tokenizer), self.temperature)

    def heldout_collator(self, tokenizer: Any) -> CropsCollator:
        return CropsCollator(SpecialTokens.from_tokenizer(tokenizer), group=DOCUMENTS_A_STEP)

    def draw(self, seed: int) -> DrawCrops:
        return DrawCrops(seed)

    def card_terms(self) -> ModelCardTerms:
        return ModelCardTerms(
            f"two pieces of one document among those of others, temperature {self.temperature:g}",
            f"document among {DOCUMENTS_A_STEP}",
            "sentence-similarity",
            "AutoModel",
        )
