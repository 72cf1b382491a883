"""Classifier selector: a transformer fine-tuned to tell target units from pool units.

Aharoni and Goldberg 2020 call it Domain-Finetune.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.artifacts import read_json, write_json
from dana.core.config import require
from dana.core.device import find_device
from dana.core.errors import DataError
from dana.core.logging import monitor
from dana.core.registry import ENCODERS
from dana.core.rng import derive_seed, generator, torch_seed
from dana.corpus.unit_stream import Units
from dana.encoders.transformer import TransformerEncoder, batches_on, padded_batch
from dana.models.folder import (
    load_complete,
    load_own_tokenizer,
    load_with_head,
    model_identity,
    running,
)
from dana.models.heads import positions_of
from dana.models.minilm import minilm_folder
from dana.selectors.base import FittedSelector, Selector
from dana.train.schedule import learning_rate_at
from dana.train.supervised import batches_by_length, make_optimizer, train_supervised

NEGATIVES = ("pre_ranked", "random")
FOREIGN_SHARE = 2 / 3  # share of pool units, least similar first, from which negatives are drawn
DEVICE_TOKENS = 8192  # tokens of a forward pass when scoring, padding included
SORTED_STEPS = 16  # number of steps whose units are sorted by length together


@dataclass(frozen=True)
class ClassifierSelector(Selector):
    """Binary classifier of target against pool units; a score below 0 is classified as target text.

    Negatives are unlabelled, so some are in-domain, and the classifier would learn to reject such
    text (learning from positive and unlabelled examples). Pre-ranking excludes most of them:
    negatives come from the two thirds of the pool sample whose vectors are least similar to the
    task's mean. Both classes have equal weight in training, though target text is rare in the pool.
    So a score below 0 means "more like the task than like a negative", and not "probably target
    text". Who selects all units below 0 (Domain-Finetune-Positive) needs no budget: the classifier
    decides how much text that is.

    Attributes:
        model: Folder or Hub name of a transformer. By default that of the run's encoder, or MiniLM
            if the encoder is not a transformer.
        negatives: ``pre_ranked``, by cosine in the space of the run's encoder, or ``random``.
        ratio: Negatives per target unit.
        epochs: Passes over target units and negatives.
        learning_rate: Learning rate of the first step; it decays linearly to 0.
        batch_size: Units per step.
        max_tokens: Tokens to which longer units are truncated, special tokens included.

    References:
        Aharoni and Goldberg 2020, Unsupervised domain clusters in pretrained language models,
        section 4.2 and the appendix (5 epochs, Adam, 2e-5, batches of 64 on each of 4 GPUs); the
        number of negatives is not given.
    """

    model: str | None = None
    negatives: str = "pre_ranked"
    ratio: float = 1.0
    epochs: int = 5
    learning_rate: float = 2e-5
    batch_size: int = 64
    max_tokens: int = 128
    version: ClassVar[int] = 1
    takes: ClassVar[tuple[str, ...]] = ("encoder",)

    def __post_init__(self) -> None:
        allowed = f"one of {', '.join(NEGATIVES)}"
        require(self.negatives in NEGATIVES, "negatives", self.negatives, allowed)
        require(self.ratio > 0, "ratio", self.ratio, "above 0")
        require(self.learning_rate > 0, "learning_rate", self.learning_rate, "above 0")
        require(self.epochs >= 1, "epochs", self.epochs, "at least 1")
        require(self.batch_size >= 1, "batch_size", self.batch_size, "at least 1")
        require(self.max_tokens >= 3, "max_tokens", self.max_tokens, "at least 3")

    @cached_property
    def _model(self) -> str:
        if self.model is not None:
            return self.model
        encoder = ENCODERS.create(self.settings.encoder)
        if isinstance(encoder, TransformerEncoder):
            return encoder.model
        return str(minilm_folder())

    def samples(self, target_units: int) -> Mapping[str, int]:
        """Return the size of ``background``, from which negatives are drawn."""
        eligible_share = FOREIGN_SHARE if self.negatives == "pre_ranked" else 1.0
        units_per_target = self.ratio / eligible_share
        return {"background": max(1, math.ceil(target_units * units_per_target))}

    def learn(self, target: Units, pool: Mapping[str, Units], seed: int) -> "FittedClassifier":
        """Draw negatives and fine-tune.

        Raises:
            ArtifactError: If the model cannot be loaded.
            DataError: If the task has no unit.
        """
        from transformers import AutoModelForSequenceClassification

        if not len(target):
            raise DataError("the target text has no unit")
        negatives = self.draw_negatives(target.texts, pool["background"].texts, seed)
        device = find_device()
        with torch_seed(derive_seed(seed, "selector", "classifier"), device):
            head = {"num_labels": 2, "id2label": {0: "pool", 1: "target"}}
            network, _ = load_with_head(AutoModelForSequenceClassification, self._model, **head)
            tokenizer = load_own_tokenizer(self._model)
            self._train(network.to(device), tokenizer, target.texts, negatives, seed)
        notes = {"classifier": {"target": len(target), "negatives": len(negatives)}}
        return FittedClassifier(self, network.eval(), tokenizer, notes)

    def draw_negatives(self, target: Sequence[str], pool: Sequence[str], seed: int) -> list[str]:
        """Draw texts of pool units as negatives, `ratio` per target unit.

        Args:
            target: Texts of the target's units.
            pool: Texts to draw from.
            seed: Root seed.
        """
        rows = np.arange(len(pool))
        if self.negatives == "pre_ranked":
            rows = least_similar(self.settings.embed(target), self.settings.embed(pool))
        order = generator(seed, "selector", "classifier", "negatives").permutation(rows.size)
        count = max(1, round(self.ratio * len(target)))
        drawn = rows[order[:count]]
        return [pool[row] for row in drawn]

    def _train(
        self,
        network: Any,
        tokenizer: Any,
        target: Sequence[str],
        negatives: Sequence[str],
        seed: int,
    ) -> None:
        """Minimise the class-balanced cross-entropy with Adam."""
        limit = _longest(self.max_tokens, network, tokenizer)
        ids = tokenizer([*target, *negatives], truncation=True, max_length=limit)["input_ids"]
        lengths = np.array([len(tokens) for tokens in ids])
        pad = tokenizer.pad_token_id or 0
        labels = torch.tensor([1] * len(target) + [0] * len(negatives))
        # By label: both classes together weigh the same.
        half = len(ids) / 2
        weights = torch.tensor([half / len(negatives), half / len(target)], device=network.device)

        def losses(rows: np.ndarray) -> list[Tensor]:
            """Compute the loss of a batch, as the one part of it."""
            width = int(lengths[rows].max())
            tokens, mask = padded_batch([ids[row] for row in rows], width, pad)
            logits = _logits(network, tokens, mask)
            batch_labels = labels[rows].to(network.device)
            loss = torch.nn.functional.cross_entropy(logits, batch_labels, reduction="none")
            return [(loss * weights[batch_labels]).mean()]

        random = generator(seed, "selector", "classifier", "order")
        epochs = (
            batches_by_length(lengths, self.batch_size, random, SORTED_STEPS)
            for _ in range(self.epochs)
        )
        batches = chain.from_iterable(epochs)
        steps = self.epochs * math.ceil(len(ids) / self.batch_size)
        rate = partial(learning_rate_at, steps=steps, peak=self.learning_rate, warmup=0.0)
        network.train()
        optimizer = make_optimizer(network, self.learning_rate, weight_decay=0.0)
        training = train_supervised(optimizer, batches, losses, rate, "classifier")
        for _ in monitor(training, what="classifier", unit="steps", total=steps):
            pass  # reading a loss takes the step

    def load(self, folder: Path) -> "FittedClassifier":
        from transformers import AutoModelForSequenceClassification

        network = load_complete(AutoModelForSequenceClassification, str(folder / "model"))
        tokenizer = load_own_tokenizer(str(folder / "model"))
        notes = {"classifier": read_json(folder / "selector.json")["units"]}
        return FittedClassifier(self, network.to(find_device()).eval(), tokenizer, notes)

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "model": model_identity(self._model)}


@dataclass(frozen=True)
class FittedClassifier(FittedSelector):
    """Fine-tuned sequence classifier. Its saved folder ``model`` opens with transformers alone.

    Attributes:
        selector: Unfitted selector with the parameters.
        network: Transformers model in evaluation mode; label 1 is the task.
        tokenizer: Tokenizer of the model.
        notes: Numbers of target units and negatives in training, for the manifest.
    """

    selector: ClassifierSelector
    network: Any
    tokenizer: Any
    notes: dict[str, Any]

    def score_units(self, units: Units) -> np.ndarray:
        """Compute the logit of pool minus that of the target, in nats.

        A unit below 0 is classified as target text.
        """
        device = self.network.device
        limit = _longest(self.selector.max_tokens, self.network, self.tokenizer)
        scores = torch.zeros(len(units), dtype=torch.double, device=device)
        with (
            torch.inference_mode(),
            batches_on(device, self.tokenizer, units.texts, limit, DEVICE_TOKENS) as batches,
        ):
            for batch in batches:
                logits = _logits(self.network, batch.tokens, batch.mask).double()
                logits = logits[: len(batch.rows)]  # the rest are copies that fill the batch up
                scores[batch.rows] = logits[:, 0] - logits[:, 1]
        return scores.cpu().numpy()

    def save(self, folder: Path) -> None:
        """Write the model folder ``model`` and ``selector.json``."""
        self.network.save_pretrained(folder / "model")
        self.tokenizer.save_pretrained(folder / "model")
        description = {**self.selector.identity(), "units": self.notes["classifier"]}
        write_json(folder / "selector.json", description)


def least_similar(target: Tensor, pool: Tensor) -> np.ndarray:
    """Rank the two thirds of the pool vectors that are least similar to the target's mean.

    Args:
        target: Shape (units, dims).
        pool: Shape (units, dims).

    Returns:
        Rows of `pool`, the lowest cosine first.

    References:
        Aharoni and Goldberg 2020, section 4.2, Domain-Cosine and negative sampling with
        pre-ranking.
    """
    centre = target.double().mean(0, keepdim=True)
    similar = torch.nn.functional.cosine_similarity(pool.double(), centre).cpu().numpy()
    count = math.ceil(FOREIGN_SHARE * len(pool))
    return np.argsort(similar, kind="stable")[:count]


def _longest(limit: int, network: Any, tokenizer: Any) -> int:
    """Return the most tokens of a text: `limit`, or fewer if model or tokenizer take no more."""
    limit_of_tokenizer: int = tokenizer.model_max_length
    return min(limit, positions_of(network.config), limit_of_tokenizer)


def _logits(network: Any, tokens: Tensor, mask: Tensor) -> Tensor:
    """Compute the logits of a padded batch, float32 of shape (rows, labels).

    Raises:
        ArtifactError: If the model cannot run (:func:`dana.models.folder.running`).
    """
    inputs = {"input_ids": tokens.to(network.device), "attention_mask": mask.to(network.device)}
    with running(network):
        logits: Tensor = network(**inputs).logits.float()
        return logits
