"""Translation: predict each token of a sentence's translation from the sentence and the tokens before it.

An example is a source, a tab and its translation in one row of tokens. The encoder reads the source
with the end token in place of the tab, the decoder the padding token (its start) and the
translation. Weights, denominators and the cut into micro-batches are those of all objectives
(:mod:`dana.train.objectives.batch`).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.config import require
from dana.core.errors import DataError
from dana.models.heads import SelectedLogits
from dana.train.examples import Batch, SpecialTokens
from dana.train.layout import BatchLayout
from dana.train.objectives.architectures import refuse_architecture
from dana.train.objectives.base import Collator, ModelCardTerms, Objective
from dana.train.objectives.batch import IGNORED, MicroBatch, StepBatch

TAB = "\t"  # between a source and its translation, in the text of an example


class SmoothedLosses(SelectedLogits):
    """An encoder-decoder that returns the losses of targets; in training they are smoothed.

    With smoothing ε and V tokens the loss is (1 - ε) (-log p(target)) + ε / V Σ -log p. In
    evaluation ε is 0.

    References:
        Szegedy et al. 2016, Rethinking the Inception architecture for computer vision, section 7. fairseq spreads ε
        over the other V - 1 tokens.
    """

    def __init__(self, model: Any, bf16: bool = False, smoothing: float = 0.0) -> None:
        super().__init__(model, bf16)
        self.smoothing = smoothing

    def losses(
        self, input_ids: Tensor, where: Tensor, labels: Tensor, attention: dict[str, Any]
    ) -> Tensor:
        logits = self.answer(input_ids, where, {**attention, "use_cache": False})
        smoothing = self.smoothing if self.training else 0.0
        return torch.nn.functional.cross_entropy(
            logits.float(), labels, reduction="none", label_smoothing=smoothing
        )


@dataclass(frozen=True)
class TranslationBatch(StepBatch):
    """All pairs of one step on all ranks; ``labels`` are the tokens of the translations, each at its own position.

    Attributes:
        middles: int64 of shape (examples,), position of the first token of each translation.
        start: Token that the decoder reads first.
    """

    middles: np.ndarray
    start: int

    def micro(self, rows: np.ndarray, layout: BatchLayout) -> MicroBatch:
        offsets = self.examples.offsets
        examples = rows if rows.size else np.array([0])
        source = _grid(offsets[:-1][examples], self.middles[examples])
        target = _grid(self.middles[examples], offsets[1:][examples])
        ids = np.where(source >= 0, self.inputs[source], layout.pad)
        before = np.where(target >= 0, self.inputs[target - 1], layout.pad)
        before[:, 0] = self.start
        is_label = (target >= 0) & bool(rows.size)
        arrays = {
            "input_ids": ids,
            "attention_mask": source >= 0,
            "decoder_input_ids": before,
            "where": np.flatnonzero(is_label),
        }
        inputs = {name: torch.from_numpy(array.astype(np.int64)) for name, array in arrays.items()}
        labels = self.labels[target][is_label].astype(np.int64)
        owners = self.owners[target][is_label]
        coefficients = self.scale.coefficients[owners].astype(np.float32)
        return MicroBatch(
            inputs,
            torch.from_numpy(labels),
            torch.from_numpy(owners),
            torch.from_numpy(coefficients),
        )


def _grid(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the positions from each start to its end as rows, -1 for padding."""
    column = np.arange((ends - starts).max())
    return np.where(column < (ends - starts)[:, None], starts[:, None] + column, -1)


@dataclass(frozen=True)
class TranslationCollator(Collator):
    """Splits each example at its tab.

    Attributes:
        tab: Id of the token between source and translation.
        start: Id of the token that the decoder reads first.
    """

    special_tokens: SpecialTokens
    tab: int
    start: int

    def step_batch(
        self, batch: Batch, epochs: np.ndarray | int, denominator: str
    ) -> TranslationBatch:
        """Make the batch of a step.

        Raises:
            DataError: If an example has no tab, as one that was cut at `max_tokens`, or several.
        """
        tabs = np.flatnonzero(batch.tokens == self.tab)
        owners = np.repeat(np.arange(len(batch)), np.diff(batch.offsets))
        counts = np.bincount(owners[tabs], minlength=len(batch))
        if (counts != 1).any():
            remedy = "one text is source, tab, translation, and no longer than max_tokens"
            raise DataError(
                f"an example of translation has {counts[counts != 1][0]} tabs, must have one: {remedy}"
            )
        middles = tabs + 1
        inputs = batch.tokens.copy()
        inputs[tabs] = self.special_tokens.after[0]
        labels = np.where(np.arange(inputs.size) >= middles[owners], inputs, IGNORED)
        step = StepBatch.from_examples(batch, inputs, labels, denominator, owners)
        return TranslationBatch(**vars(step), middles=middles, start=self.start)


@dataclass(frozen=True)
class Translation(Objective):
    """Predict the translation of a source; text is a source, a tab and its translation.

    Attributes:
        smoothing: Share of each target's probability that is spread over all tokens in training.
    """

    smoothing: float = 0.0
    version: ClassVar[int] = 1

    layouts = ("padded",)

    def __post_init__(self) -> None:
        require(0 <= self.smoothing < 1, "smoothing", self.smoothing, "in [0, 1)")

    def auto_class(self, config: Any) -> Any:
        from transformers import AutoModelForSeq2SeqLM

        start = getattr(config, "decoder_start_token_id", None)
        fits = (
            bool(config.is_encoder_decoder) and start is not None and start == config.pad_token_id
        )
        if not fits:
            refuse_architecture("translation", config, "has no decoder that begins with padding")
        return AutoModelForSeq2SeqLM

    def collator(self, tokenizer: Any, seed: int) -> TranslationCollator:
        tab, end, pad = (
            tokenizer.get_vocab().get(TAB),
            tokenizer.eos_token_id,
            tokenizer.pad_token_id,
        )
        fits = None not in (tab, end, pad)
        require(
            fits,
            "objective",
            "translation",
            "another one: its tokenizer needs a tab, an end and a padding token",
        )
        after = np.array([end], dtype=np.int32)
        return TranslationCollator(SpecialTokens(after[:0], after), tab, pad)

    def heldout_collator(self, tokenizer: Any) -> TranslationCollator:
        return self.collator(tokenizer, 0)

    def module(self, model: Any, bf16: bool = False) -> SmoothedLosses:
        return SmoothedLosses(model, bf16, self.smoothing)

    def card_terms(self) -> ModelCardTerms:
        smoothing = f", label smoothing {self.smoothing:g}" if self.smoothing else ""
        return ModelCardTerms(
            f"translation{smoothing}", "target token", "translation", "AutoModelForSeq2SeqLM"
        )
