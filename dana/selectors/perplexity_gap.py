"""Perplexity-gap selector: Moore-Lewis with a decoder adapted to the target text against itself.

References:
    Moore and Lewis 2010, Intelligent selection of language model training data, section 2, with
    n-gram models.
    Duh, Neubig, Sudoh and Tsukada 2013, Adaptation data selection using neural language models,
    section 3.
"""

import copy
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.artifacts import write_json
from dana.core.config import require
from dana.core.device import describe_machine, find_device
from dana.core.errors import DataError
from dana.core.logging import format_duration, get_logger, monitor
from dana.core.rng import derive_seed, generator, torch_seed
from dana.corpus.unit_stream import Units
from dana.encoders.transformer import DTYPES
from dana.models.folder import (
    load_complete,
    load_tokenizer,
    model_identity,
    padding_id,
    quiet_transformers,
    uncut,
)
from dana.models.heads import ChunkedLosses, positions_of
from dana.models.language_model import LanguageModel
from dana.selectors.base import FittedSelector, Selector
from dana.train.examples import Batch
from dana.train.layout import BatchLayout, micro_batches
from dana.train.objectives.architectures import is_decoder
from dana.train.objectives.batch import MicroBatch, StepBatch, micro_loss
from dana.train.objectives.causal import Causal
from dana.train.schedule import learning_rate_at
from dana.train.supervised import batches_by_length, make_optimizer, train_supervised

log = get_logger(__name__)

TEXTS_AT_ONCE = 1024  # whose tokens are in memory together when scoring
TOKENS_AT_ONCE = 4096  # of a forward pass, padding included


@dataclass(frozen=True)
class PerplexityGapSelector(Selector):
    """Mean loss a token under a decoder adapted to the task, minus that under the decoder itself.

    Higher = more foreign. The adaptation is the objective ``causal`` over all weights, with a
    linearly decaying rate. No pool text is needed. It logs what it costs before it starts: about 6
    floating-point operations per parameter and token of the adaptation, and 4 per parameter and
    token that is scored.

    Attributes:
        model: Folder or Hub name of a causal language model, or ``smollm2``.
        epochs: Passes over the target's units.
        learning_rate: Learning rate of the first step.
        batch_size: Units per step.
        max_tokens: Tokens to which longer units are truncated, with the one that stands before
            each.
        dtype: ``float32``, or ``bfloat16`` by autocast: several times as fast where a processor
            supports it; a score then depends on the other units of a batch by its rounding.
    """

    model: str = "smollm2"
    epochs: int = 1
    learning_rate: float = 5e-5
    batch_size: int = 16
    max_tokens: int = 128
    dtype: str = "float32"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require(self.learning_rate > 0, "learning_rate", self.learning_rate, "above 0")
        require(self.epochs >= 1, "epochs", self.epochs, "at least 1")
        require(self.batch_size >= 1, "batch_size", self.batch_size, "at least 1")
        require(self.max_tokens >= 2, "max_tokens", self.max_tokens, "at least 2")
        require(self.dtype in DTYPES, "dtype", self.dtype, f"one of {', '.join(DTYPES)}")

    @cached_property
    def base(self) -> LanguageModel:
        """The decoder, in evaluation mode on its device; it is not trained."""
        from transformers import AutoModelForCausalLM

        config, tokenizer = load_tokenizer(self.model)
        allowed = (
            f"a decoder, such as smollm2: a model of type {config.model_type} "
            "also sees what follows"
        )
        require(is_decoder(config), "model", self.model, allowed)
        # With its head: a new one would know nothing.
        network = load_complete(AutoModelForCausalLM, self.model)
        return LanguageModel(network.eval().to(find_device()), tokenizer)

    def learn(self, target: Units, pool: Mapping[str, Units], seed: int) -> "FittedPerplexityGap":
        """Adapt the decoder.

        Raises:
            ArtifactError: If the model cannot be loaded.
            ConfigError: If it is no decoder.
            DataError: If the task has no unit.
        """
        if not len(target):
            raise DataError("the target text has no unit")
        network = copy.deepcopy(self.base.model)
        ids = self.tokens_of(target.texts)
        tokens = self.epochs * sum(map(len, ids))
        parameters = sum(map(torch.numel, network.parameters()))
        size = f"{self.model}, {parameters / 1e6:,.1f} million parameters"
        work = f"on {tokens:,} tokens: {6 * parameters * tokens:.1e} FLOP"
        log.info("selector  perplexity_gap: adapts %s, %s", size, work)
        start = time.monotonic()
        with torch_seed(derive_seed(seed, "selector", "perplexity_gap"), network.device):
            self._train(network.train(), ids, seed)
        seconds = time.monotonic() - start
        log.info(
            "selector  perplexity_gap: took %s on %s; a million tokens are scored in about %s",
            format_duration(seconds),
            describe_machine(),
            format_duration(1e6 * seconds / tokens * 4 / 6),
        )
        notes = {"perplexity_gap": {"units": len(target), "tokens": tokens}}
        return FittedPerplexityGap(self, network.eval(), notes)

    def _train(self, network: Any, ids: list[list[int]], seed: int) -> None:
        """Minimise the mean loss a token with AdamW."""
        module = self.module_of(network)

        def losses(rows: np.ndarray) -> Iterator[Tensor]:
            step = self.step_of([ids[row] for row in rows])
            total = max(step.scale.total, 1.0)
            for micro in self.micro_batches_of(step, network):
                yield micro_loss(micro.losses(module), micro.coefficients, total)

        random = generator(seed, "selector", "perplexity_gap", "order")
        lengths = list(map(len, ids))
        epochs = (batches_by_length(lengths, self.batch_size, random) for _ in range(self.epochs))
        batches = chain.from_iterable(epochs)
        steps = self.epochs * math.ceil(len(ids) / self.batch_size)
        rate = partial(learning_rate_at, steps=steps, peak=self.learning_rate, warmup=0.0)
        optimizer = make_optimizer(network, self.learning_rate, weight_decay=0.0)
        training = train_supervised(optimizer, batches, losses, rate, "perplexity_gap")
        list(monitor(training, what="perplexity_gap", unit="steps", total=steps))

    def tokens_of(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenise texts.

        Before each stands the token of a text's start, so that every token is predicted.
        """
        tokenizer = self.base.tokenizer
        first = tokenizer.bos_token_id
        if first is None:
            first = padding_id(tokenizer)
        longest = min(self.max_tokens, positions_of(self.base.model.config)) - 1
        encodings = uncut(tokenizer).encode_batch(list(texts), add_special_tokens=False)
        return [[first, *encoding.ids[:longest]] for encoding in encodings]

    def step_of(self, ids: Sequence[Sequence[int]]) -> StepBatch:
        """Make the batch of the objective ``causal``, in which all tokens weigh the same."""
        tokens = np.concatenate(ids).astype(np.int32)
        offsets = np.cumsum([0, *map(len, ids)])
        keys = np.arange(len(ids), dtype=np.uint64)
        weights = np.ones(len(ids), dtype=np.float32)
        batch = Batch(tokens, offsets, keys, weights)
        return Causal().collator(self.base.tokenizer, 0).step_batch(batch, 0, "token_count")

    def module_of(self, network: Any) -> ChunkedLosses:
        """Wrap a decoder in the module that computes losses."""
        return ChunkedLosses(network, self.dtype == "bfloat16")

    def micro_batches_of(self, step: StepBatch, network: Any) -> Iterator[MicroBatch]:
        """Yield the forward passes of a batch on the model's device."""
        layout = BatchLayout.from_config(network.config, TOKENS_AT_ONCE)
        for rows in micro_batches(step.lengths, layout):
            yield step.micro(rows, layout).to(network.device)

    def load(self, folder: Path) -> "FittedPerplexityGap":
        from transformers import AutoModelForCausalLM

        network = load_complete(AutoModelForCausalLM, str(folder / "model"))
        return FittedPerplexityGap(self, network.eval().to(find_device()), {})

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "model": model_identity(self.model)}


@dataclass(frozen=True)
class FittedPerplexityGap(FittedSelector):
    """Adapted decoder. Its saved folder ``model`` opens with transformers alone.

    The decoder itself is opened by name.

    Attributes:
        selector: Unfitted selector with the parameters and the decoder itself.
        network: Adapted model of transformers in evaluation mode.
        notes: Numbers of target units and of tokens of the adaptation, for the manifest.
    """

    selector: PerplexityGapSelector
    network: Any
    notes: dict[str, Any]

    @torch.no_grad()
    def score_units(self, units: Units) -> np.ndarray:
        """Compute the difference of mean losses in nats a token, adapted minus base.

        Higher = more foreign.
        """
        selector = self.selector
        scores = np.zeros(len(units))
        adapted = selector.module_of(self.network)
        base = selector.module_of(selector.base.model)
        for start in range(0, len(units), TEXTS_AT_ONCE):
            texts = units.texts[start : start + TEXTS_AT_ONCE]
            step = selector.step_of(selector.tokens_of(texts))
            sums = torch.zeros(len(step.counts), dtype=torch.float64)
            for micro in selector.micro_batches_of(step, self.network):
                gaps = micro.losses(adapted).double() - micro.losses(base).double()
                sums.index_add_(0, micro.owners.cpu(), gaps.cpu())
            scores[start : start + TEXTS_AT_ONCE] = sums.numpy() / np.maximum(step.counts, 1)
        return scores

    def save(self, folder: Path) -> None:
        """Write the model folder ``model`` and ``selector.json``."""
        with quiet_transformers():
            self.network.save_pretrained(folder / "model")
        self.selector.base.tokenizer.save_pretrained(folder / "model", save_jinja_files=False)
        write_json(folder / "selector.json", self.selector.identity())
