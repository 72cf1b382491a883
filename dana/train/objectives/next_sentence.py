"""Train masked tokens and next-sentence prediction together, on pairs of halves of texts.

Every text is cut in the middle. A hash of (seed, epoch, example id) picks about half of the texts,
and these exchange their second halves among each other. Two halves of texts of at most n tokens
have at most n tokens, so nothing is truncated, and every token of the step occurs once.

With label losses r_i, the pairs add Σ c'_i r_i / Z', with the same three denominators and one label
per example. A masked token has the weight of the text that it comes from, also in a pair with
another text's first half; a pair has the weight of its first half's text. Only BERT has the head.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.logging import get_logger
from dana.core.rng import derive_seed, epoch_keys, hash_uniform
from dana.models.heads import SelectedLogits, token_losses
from dana.models.language_model import LanguageModel
from dana.train.examples import Batch, SpecialTokens
from dana.train.layout import BatchLayout, lay_out
from dana.train.objectives.architectures import refuse_architecture
from dana.train.objectives.base import ModelCardTerms
from dana.train.objectives.batch import IGNORED, LossScale, MicroBatch, StepBatch, loss_scale
from dana.train.objectives.masked import MaskedCollator, MaskedTokens, Masking, mask

# The labels of BERT.
FOLLOWS = 0
ELSEWHERE = 1


@dataclass(frozen=True)
class Pairs:
    """The examples of a step as pairs of halves.

    Attributes:
        batch: ``before A middle B after`` of each pair; ids and weights are those of A's text.
        types: int64 of shape (tokens,), 0 up to the end of ``middle``, then 1.
        texts: int64 of shape (tokens,), index of the example that each token comes from.
        labels: int64 of shape (examples,), :data:`FOLLOWS`, :data:`ELSEWHERE`, or
            :data:`dana.train.objectives.batch.IGNORED` for a text of fewer than two tokens.
    """

    batch: Batch
    types: np.ndarray
    texts: np.ndarray
    labels: np.ndarray


def pair(batch: Batch, special_tokens: SpecialTokens, epochs: np.ndarray | int, seed: int) -> Pairs:
    """Exchange the second halves of about half of a step's texts.

    The result depends on the set of examples in the step, not on their order. An example that would
    exchange with itself, in this epoch or the next, keeps its second half and is labelled
    :data:`FOLLOWS`.

    Args:
        batch: All examples of the step, with special tokens for pairs: A is the first ⌈n / 2⌉
            tokens of text.
        special_tokens: Special tokens of every example.
        epochs: Shape (examples,) or one for all; pairs change with it.
        seed: Pairs of two seeds are independent.

    References:
        Devlin et al. 2019, section 3.1, task 2. There B comes from another document half of the time.
    """
    lengths = np.diff(batch.offsets)
    sizes = lengths - special_tokens.size
    heads = special_tokens.before.size + (sizes + 1) // 2 + special_tokens.middle.size
    chance = hash_uniform(derive_seed(seed, "next sentence"), epoch_keys(batch.ids, epochs))
    swaps = np.flatnonzero((chance < 0.5) & (sizes >= 2))
    swaps = swaps[np.argsort(chance[swaps], kind="stable")]
    second = np.arange(len(batch))  # source of each example's second half
    second[swaps] = np.roll(swaps, 1)

    indices = np.arange(len(batch))
    texts = np.stack([indices, second], axis=1).ravel()
    starts = np.stack([batch.offsets[:-1], (batch.offsets[:-1] + heads)[second]], axis=1).ravel()
    counts = np.stack([heads, (lengths - heads)[second]], axis=1).ravel()
    ends = np.cumsum(counts)
    positions = np.arange(batch.tokens.size) + np.repeat(starts - ends + counts, counts)
    offsets = np.concatenate([[0], ends[1::2]])
    pairs = Batch(batch.tokens[positions], offsets, batch.ids, batch.weights)
    labels = np.where(batch.ids[second] == batch.ids, FOLLOWS, ELSEWHERE)
    labels[sizes < 2] = IGNORED
    types = np.repeat(np.tile([0, 1], len(batch)), counts)
    return Pairs(pairs, types, np.repeat(texts, counts), labels)


log = get_logger(__name__)


class PairLogits(SelectedLogits):
    """Logits of a ``BertForPreTraining`` model: at selected positions, and for each row on its next sentence.

    With ``token_type_ids`` it returns two tensors, logits of shape (selected, vocabulary) and of
    shape (rows, 2); without them, the first alone.
    """

    def answer(self, input_ids: Tensor, where: Tensor, attention: dict[str, Any]) -> Any:
        if "token_type_ids" not in attention:
            return super().answer(input_ids, where, attention)
        states, pooler_output = self.model.base_model(input_ids=input_ids, **attention)[:2]
        return self.model.cls(states.flatten(0, 1).index_select(0, where), pooler_output)


@dataclass(frozen=True)
class PairMicroBatch(MicroBatch):
    """Tensors of one forward pass over pairs, one pair per row.

    Attributes:
        relation: int64 of shape (rows,), labels of :class:`Pairs`; each also has a coefficient.
    """

    relation: Tensor

    @property
    def sizes(self) -> list[int]:
        return [self.labels.numel(), self.relation.numel()]

    def losses(self, module: torch.nn.Module) -> Tensor:
        """Compute losses in nats of shape (labels + rows,); 0 for a pair without a label."""
        logits, relation = module(**self.inputs)
        return torch.cat([token_losses(logits, self.labels), token_losses(relation, self.relation)])


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
    def loss_counts(self) -> dict[str, int]:
        return {**super().loss_counts, "next_sentence": int((self.pairs.labels != IGNORED).sum())}

    def micro(self, rows: np.ndarray, layout: BatchLayout) -> PairMicroBatch:
        tokens = super().micro(rows, layout)
        labels = self.pairs.labels[rows]
        if not rows.size:
            rows = np.array([0])
            labels = np.array([IGNORED])
        positions, _ = lay_out(rows, self.examples.offsets, layout)
        types = np.where(positions >= 0, self.pairs.types[positions], 0)
        # The step divides by Z alone, so the coefficients of the pairs contain Z / Z'.
        ratio = self.scale.total / self.relation.total if self.relation.total else 0.0
        coefficients = (self.relation.coefficients[rows] * ratio).astype(np.float32)
        return PairMicroBatch(
            inputs={**tokens.inputs, "token_type_ids": torch.from_numpy(types)},
            labels=tokens.labels,
            owners=tokens.owners,
            coefficients=torch.cat([tokens.coefficients, torch.from_numpy(coefficients)]),
            relation=torch.from_numpy(labels),
        )


@dataclass(frozen=True)
class PairCollator(MaskedCollator):
    """Pairs the examples of a step, then masks them."""

    def step_batch(self, batch: Batch, epochs: np.ndarray | int, denominator: str) -> PairBatch:
        pairs = pair(batch, self.special_tokens, epochs, self.masking.seed)
        batch = pairs.batch
        inputs, labels = mask(batch.tokens, batch.offsets, batch.ids, epochs, self.masking)
        step = StepBatch.from_examples(batch, inputs, labels, denominator, pairs.texts)
        label_counts = (pairs.labels != IGNORED).astype(np.int64)
        relation = loss_scale(batch.weights, label_counts, denominator)
        scale = step.scale
        if not scale.total and relation.total:
            # No masked token has a weight above 0, but pairs have.
            scale = LossScale(scale.coefficients, 1.0)
        return PairBatch(**{**vars(step), "scale": scale}, pairs=pairs, relation=relation)


@dataclass(frozen=True)
class NextSentence(MaskedTokens):
    """Predict masked tokens, and whether the second half of a text follows its first. Held-out loss: masked tokens."""

    version: ClassVar[int] = 1

    layouts = ("padded",)  # token types start again in each row
    exemptions: ClassVar[dict[str, str]] = {
        "weight_0_is_absence": "texts of a step exchange halves, so one more makes other pairs"
    }

    def auto_class(self, config: Any) -> Any:
        from transformers import AutoModelForPreTraining

        if config.model_type != "bert":
            refuse_architecture("next_sentence", config, "has no such head: only bert has it")
        return AutoModelForPreTraining

    def prepare_model(self, model: str, seed: int, dropout: float | None = None) -> LanguageModel:
        # A new next-sentence head is trained with the rest of the model, without warm-up.
        language_model = super().prepare_model(model, seed, dropout)
        relation = {
            name for name in language_model.new if "pooler" in name or "seq_relationship" in name
        }
        if relation:
            names = ", ".join(sorted(relation))
            log.info("%s: has no next-sentence head; new parameters: %s", model, names)
        return replace(language_model, new=language_model.new - relation)

    def module(self, model: Any, bf16: bool = False) -> PairLogits:
        return PairLogits(model, bf16)

    def collator(self, tokenizer: Any, seed: int) -> PairCollator:
        masking = Masking.from_tokenizer(tokenizer, seed, self.mask_rate, self.whole_word)
        return PairCollator(masking, SpecialTokens.from_tokenizer(tokenizer, paired=True))

    def card_terms(self) -> ModelCardTerms:
        terms = super().card_terms()
        objective = terms.objective.replace(", mask rate", " and next sentence, mask rate")
        return replace(terms, objective=objective)
