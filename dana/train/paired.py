"""A step that also asks whether second halves follow first ones: the loss of the masks plus that of the pairs.

With label losses r_i, the pairs add Σ c'_i r_i / Z', of the same three denominators with one question an example. A
masked token counts with the weight of the text that it is from, also where it lies behind another's first half; a pair
counts with the weight of its first half's text.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from dana.mlm.examples import Examples
from dana.mlm.layout import Arrangement
from dana.mlm.loss import Scale, scale, token_losses
from dana.mlm.masking import Masking, mask
from dana.mlm.next_sentence import UNASKED, Pairs, pair
from dana.train.batch import MicroBatch, Shape, StepBatch
from dana.train.plan import Step


@dataclass(frozen=True)
class PairedMicroBatch(MicroBatch):
    """Tensors of one forward pass over pairs, one a row.

    Attributes:
        labels: int64 of shape (rows,), of :mod:`dana.mlm.next_sentence`. ``coefficients`` has one more for each.
    """

    labels: Tensor

    def losses(self, module: torch.nn.Module) -> Tensor:
        """Losses in nats of shape (hidden + rows,), from :class:`dana.mlm.heads.PairedLogits`."""
        logits, relation = module(self.input_ids, self.where, **self.attention)
        return torch.cat([token_losses(logits, self.targets), token_losses(relation, self.labels)])


@dataclass(frozen=True)
class PairedBatch(StepBatch):
    """All pairs of one step on all ranks; only rows of their own (``padded``) tell a model where pairs begin.

    Attributes:
        pairs: The step's examples in pairs; ``examples`` is their batch.
        relation: Coefficients and denominator of the labels' losses.
    """

    pairs: Pairs
    relation: Scale

    @classmethod
    def of(cls, examples: Examples, step: Step, masking: Masking, denominator: str) -> "PairedBatch":
        """Pair, mask and scale a step of the plan; `examples` are framed for pairs."""
        pairs = pair(examples.take(step.rows), examples.frame, step.epochs, masking.seed)
        batch = pairs.batch
        masked = mask(batch.tokens, batch.offsets, batch.ids, step.epochs, masking)
        hidden = np.bincount(pairs.texts[masked.hidden], minlength=len(batch))
        asked = (pairs.labels != UNASKED).astype(np.int64)
        tokens, relation = scale(batch.weights, hidden, denominator), scale(batch.weights, asked, denominator)
        return cls(batch, masked, tokens, pairs, relation)

    @property
    def questions(self) -> int:
        """Pairs with a label."""
        return int((self.pairs.labels != UNASKED).sum())

    def fill(self, arranged: Arrangement, shape: Shape, idle: bool) -> PairedMicroBatch:
        """Tensors of pairs that were laid out."""
        masked = super().fill(arranged, shape, idle)
        real, rows = arranged.places >= 0, arranged.example[:, 0]
        flat = np.where(real, arranged.places, 0)
        owners = self.pairs.texts[flat.ravel()[masked.where.numpy()]]
        # One sum over one Z: the pairs' own Z' goes into their coefficients.
        ratio = self.scale.total / self.relation.total if self.relation.total else 0.0
        coefficients = np.concatenate([self.scale.coefficients[owners], self.relation.coefficients[rows] * ratio])
        types = torch.from_numpy(np.where(real, self.pairs.types[flat], 0))
        changed = replace(
            masked,
            owners=torch.from_numpy(owners),
            coefficients=torch.from_numpy(coefficients.astype(np.float32)),
            attention={**masked.attention, "token_type_ids": types},
        )
        labels = np.full(rows.size, UNASKED) if idle else self.pairs.labels[rows]
        return PairedMicroBatch(**vars(changed), labels=torch.from_numpy(labels))
