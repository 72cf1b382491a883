"""Masked tokens and next-sentence prediction: halves of texts in, the masked tokens and one label a pair out.

Every text is cut in its middle. A coin of (seed, epoch, example id) decides for half of the texts that their second
halves change places among each other. Two halves of texts of at most n tokens have at most n tokens: nothing is
truncated, and every token of the step is still there once.

With label losses r_i, the pairs add Σ c'_i r_i / Z', of the same three denominators with one label an example. A
masked token counts with the weight of the text that it is from, also where it lies behind another's first half; a pair
counts with the weight of its first half's text. For BERT, which alone has the head.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.config import require
from dana.core.logging import get_logger
from dana.core.rng import derive_seed, hash_uniform
from dana.models.heads import SelectedLogits
from dana.models.language_model import LanguageModel
from dana.train.examples import Batch, SpecialTokens
from dana.train.layout import BatchLayout, lay_out
from dana.train.objectives.base import ModelCardTerms
from dana.train.objectives.batch import IGNORED, LossScale, MicroBatch, StepBatch, loss_scale, token_losses
from dana.train.objectives.masked import EPOCH_STRIDE, MaskedCollator, MaskedTokens, Masking, mask

FOLLOWS, ELSEWHERE = 0, 1  # the labels of BERT


@dataclass(frozen=True)
class Pairs:
    """The examples of a step as pairs of halves.

    Attributes:
        batch: ``before A middle B after`` of each; ids and weights are those of the text that A is from.
        types: int64 of shape (tokens,), 0 up to the middle's end and 1 behind it.
        texts: int64 of shape (tokens,), the example of the step whose text each token is from.
        labels: int64 of shape (examples,), :data:`FOLLOWS`, :data:`ELSEWHERE`, or
            :data:`dana.train.objectives.batch.IGNORED` where the text has fewer than two tokens.
    """

    batch: Batch
    types: np.ndarray
    texts: np.ndarray
    labels: np.ndarray


def pair(batch: Batch, special_tokens: SpecialTokens, epochs: np.ndarray | int, seed: int) -> Pairs:
    """Exchange the second halves of about half of a step's texts.

    The result depends on which examples are in the step, not on their order. One that would exchange with nobody, or
    with its own next epoch, keeps what follows it and is labelled so.

    Args:
        batch: All examples of the step, framed for pairs: A is the first ⌈n / 2⌉ tokens of text.
        special_tokens: Theirs.
        epochs: Shape (examples,) or one for all; pairs change with it.
        seed: Pairs of two seeds are independent.

    References:
        Devlin et al. 2019, section 3.1, task 2. There B comes from another document half of the time.
    """
    lengths = np.diff(batch.offsets)
    sizes = lengths - special_tokens.size
    heads = special_tokens.before.size + (sizes + 1) // 2 + special_tokens.middle.size
    with np.errstate(over="ignore"):
        keys = batch.ids + np.asarray(epochs).astype(np.uint64) * EPOCH_STRIDE
    chance = hash_uniform(derive_seed(seed, "next sentence"), keys)
    moved = np.flatnonzero((chance < 0.5) & (sizes >= 2))
    moved = moved[np.argsort(chance[moved], kind="stable")]
    second = np.arange(len(batch))  # whose second half each example gets
    second[moved] = np.roll(moved, 1)

    own = np.arange(len(batch))
    texts = np.stack([own, second], axis=1).ravel()
    starts = np.stack([batch.offsets[:-1], (batch.offsets[:-1] + heads)[second]], axis=1).ravel()
    counts = np.stack([heads, (lengths - heads)[second]], axis=1).ravel()
    ends = np.cumsum(counts)
    places = np.arange(batch.tokens.size) + np.repeat(starts - ends + counts, counts)
    return Pairs(
        Batch(batch.tokens[places], np.concatenate([[0], ends[1::2]]), batch.ids, batch.weights),
        np.repeat(np.tile([0, 1], len(batch)), counts),
        np.repeat(texts, counts),
        np.where(sizes < 2, IGNORED, np.where(batch.ids[second] == batch.ids, FOLLOWS, ELSEWHERE)),
    )


log = get_logger(__name__)


class PairLogits(SelectedLogits):
    """A ``BertForPreTraining`` model: logits at selected places, and of each row whether its second half follows.

    Given ``token_type_ids`` it answers with two tensors, logits of shape (selected, vocabulary) and of shape (rows, 2);
    without them, as its base does.
    """

    def answer(self, input_ids: Tensor, where: Tensor, attention: dict[str, Any]) -> Any:
        """See the class."""
        if "token_type_ids" not in attention:
            return super().answer(input_ids, where, attention)
        states, pooled = self.model.base_model(input_ids=input_ids, **attention)[:2]
        return self.model.cls(states.flatten(0, 1)[where], pooled)


@dataclass(frozen=True)
class PairMicroBatch(MicroBatch):
    """Tensors of one forward pass over pairs, one a row.

    Attributes:
        relation: int64 of shape (rows,), labels of :class:`Pairs`; each has a coefficient, too.
    """

    relation: Tensor

    @property
    def sizes(self) -> list[int]:
        """Of targets, of pairs."""
        return [self.targets.numel(), self.relation.numel()]

    def losses(self, module: torch.nn.Module) -> Tensor:
        """Losses in nats of shape (targets + rows,); 0 for a pair without a label."""
        logits, relation = module(**self.inputs)
        return torch.cat([token_losses(logits, self.targets), token_losses(relation, self.relation)])


@dataclass(frozen=True)
class PairBatch(StepBatch):
    """All pairs of one step on all ranks.

    Attributes:
        pairs: The step's examples in pairs; ``examples`` is their batch.
        relation: Coefficients and denominator of the pairs' losses.
    """

    pairs: Pairs
    relation: LossScale

    @property
    def asked(self) -> dict[str, int]:
        """Masked tokens, and pairs with a label."""
        return {**super().asked, "next_sentence": int((self.pairs.labels != IGNORED).sum())}

    def micro(self, rows: np.ndarray, layout: BatchLayout) -> PairMicroBatch:
        """Tensors of some of the step's pairs, one a row."""
        tokens, idle, rows = super().micro(rows, layout), not rows.size, rows if rows.size else np.array([0])
        places, _ = lay_out(rows, self.examples.offsets, layout)
        types = np.where(places >= 0, self.pairs.types[places], 0)
        # One sum over one Z: the pairs' own Z' goes into their coefficients.
        ratio = self.scale.total / self.relation.total if self.relation.total else 0.0
        pairs = torch.from_numpy((self.relation.coefficients[rows] * ratio).astype(np.float32))
        labels = np.full(rows.size, IGNORED) if idle else self.pairs.labels[rows]
        return PairMicroBatch(
            {**tokens.inputs, "token_type_ids": torch.from_numpy(types)},
            tokens.targets,
            tokens.owners,
            torch.cat([tokens.coefficients, pairs]),
            torch.from_numpy(labels),
        )


@dataclass(frozen=True)
class PairCollator(MaskedCollator):
    """Pairs the examples of a step, then masks them."""

    def step_batch(self, batch: Batch, epochs: np.ndarray | int, denominator: str) -> PairBatch:
        """Labels are the masked tokens and whether second halves follow."""
        pairs = pair(batch, self.special_tokens, epochs, self.masking.seed)
        batch = pairs.batch
        found = mask(batch.tokens, batch.offsets, batch.ids, epochs, self.masking)
        labels = np.where(found.masked, batch.tokens, IGNORED)
        step = StepBatch.of(batch, found.inputs, labels, denominator, pairs.texts)
        asked = (pairs.labels != IGNORED).astype(np.int64)
        relation, scale = loss_scale(batch.weights, asked, denominator), step.scale
        if not scale.total and relation.total:  # no masked token has a weight above 0, but pairs have
            scale = LossScale(scale.coefficients, 1.0)
        return PairBatch(**{**vars(step), "scale": scale}, pairs=pairs, relation=relation)


@dataclass(frozen=True)
class NextSentence(MaskedTokens):
    """Predict masked tokens, and whether the second half of a text follows its first. Held out: masked tokens only."""

    version: ClassVar[int] = 1

    layouts = ("padded",)  # token types begin anew in each row

    def auto_class(self, config: Any) -> Any:
        """``AutoModelForPreTraining``.

        Raises:
            ConfigError: If the model is no BERT.
        """
        from transformers import AutoModelForPreTraining

        kind = config.model_type
        require(
            kind == "bert", "objective", "next_sentence", f"masked for a model of type {kind}: only bert has the head"
        )
        return AutoModelForPreTraining

    def prepare_model(self, model: str, seed: int, dropout: float | None = None) -> LanguageModel:
        """A new next-sentence head is trained with the rest: it takes no part in the warm-up."""
        loaded = super().prepare_model(model, seed, dropout)
        relation = {name for name in loaded.new if "pooler" in name or "seq_relationship" in name}
        if relation:
            log.info("%s: its next-sentence head is new: %s", model, ", ".join(sorted(relation)))
        return replace(loaded, new=loaded.new - relation)

    def module(self, model: Any, bf16: bool = False) -> PairLogits:
        """Both heads."""
        return PairLogits(model, bf16)

    def collator(self, tokenizer: Any, seed: int) -> PairCollator:
        """Pairs and masks by the seed."""
        masking = Masking.of(tokenizer, seed, self.mask_rate, self.whole_word)
        return PairCollator(masking, SpecialTokens.of(tokenizer, paired=True))

    def card_terms(self) -> ModelCardTerms:
        """The words of a model card."""
        terms = super().card_terms()
        return replace(terms, objective=terms.objective.replace(", mask rate", " and next sentence, mask rate"))
