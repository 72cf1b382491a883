"""Fine-tune a checkpoint for one seed: train, choose the epoch on dev, predict the test split."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.errors import ArtifactError
from dana.core.logging import progress
from dana.core.rng import derive_seed, generator, torch_seed
from dana.finetuning.encoded_split import EncodedSplit
from dana.finetuning.results import SeedResult
from dana.models.classifier import Classifier, new_classifier
from dana.tasks.card import TaskCard
from dana.tasks.kinds.base import Kind
from dana.tasks.settings import Preset
from dana.train.execution import Precision
from dana.train.half_weights import HalfWeights
from dana.train.schedule import learning_rate_at
from dana.train.supervised import batches_by_length, make_optimizer, train_supervised
from dana.train.trial import try_precision

WEIGHT_DECAY = 0.01
CLIP = 1.0
EVALUATION_TOKENS = 16384  # in one forward pass, padding included


@dataclass(frozen=True)
class Callbacks:
    """Functions that a seed calls while it is run.

    Attributes:
        check_in: Called before every step and every batch of an evaluation; may raise to end the
            seed.
        track: Called with numbers by name, and the step: the loss of each step, the dev score of
            each epoch. None computes no score of an epoch that is not tested.
    """

    check_in: Callable[[], None] = lambda: None
    track: Callable[[dict[str, float], int], None] | None = None


def run_seed(  # noqa: PLR0913, what decides a seed
    model: str,
    splits: dict[str, EncodedSplit],
    card: TaskCard,
    preset: Preset,
    seed: int,
    precision: Precision,
    name: str = "seed",
    calls: Callbacks = Callbacks(),
    method: "type[SeedTraining] | None" = None,
) -> tuple[Classifier, SeedResult]:
    """Fine-tune a checkpoint for one seed; returns the tested model and its result.

    The dev score is computed after every epoch that may be tested; the test split is predicted
    once.

    Args:
        model: Folder or Hub name.
        splits: Train and dev with labels, and test, whose labels are not used.
        card: The task.
        preset: Hyper-parameters.
        seed: Decides the head's initial weights, the order of the examples and dropout.
        precision: Device and number format; float32 is taken where the model fails in another.
            Processes share nothing: each works on other seeds.
        name: Name of the run in the progress bar: task, and arm or model.
        calls: What is called meanwhile.
        method: How it is trained; None trains encoder and head together.

    Raises:
        ConfigError: If the method does not fit the labels.
        ArtifactError: If the checkpoint cannot be used.
        DanaError: If the loss is not finite.
    """
    start_time = time.monotonic()
    train = splits["train"]
    loss_labels = train.loss_labels
    assert loss_labels is not None, "train is encoded with its labels"
    kind = card.label_kind.fit(loss_labels)
    method = method or SeedTraining
    classifier = method.make_classifier(model, card, kind, preset, seed).to(precision.device)
    precision = try_precision(precision, classifier, two_rows(classifier, train, precision.device))
    training = method(classifier, kind, card, preset, train, splits["dev"], seed, precision, calls)
    training.run(name)
    kind = kind.fold_into(classifier.out)
    outputs = predict(classifier, splits["test"], kind, precision, calls.check_in)
    seconds = round(time.monotonic() - start_time, 3)
    result = SeedResult(
        seed, training.tested_epoch, training.dev_scores, outputs, seconds, precision.name
    )
    return classifier, result


@dataclass
class SeedTraining:
    """The training of one seed.

    Attributes:
        classifier: The model, which is trained in place.
        kind: Kind of the labels, fitted to the training labels.
        card: The task.
        preset: Hyper-parameters.
        train: Training split, with labels.
        dev: Development split, with labels.
        seed: Decides the order of the examples and dropout.
        precision: Device and number format.
        calls: What is called meanwhile.
        dev_scores: The task's metric after each epoch under ``evaluate: best``, else after the
            last one.
        tested_epoch: The epoch whose weights the model ends with, from 1.
    """

    classifier: Classifier
    kind: Kind
    card: TaskCard
    preset: Preset
    train: EncodedSplit
    dev: EncodedSplit
    seed: int
    precision: Precision
    calls: Callbacks
    dev_scores: list[float] = field(default_factory=list)
    tested_epoch: int = 0

    version: ClassVar[int] = 0  # of the numbers of another method
    auto_preset: ClassVar[Mapping[str, Any]] = {}  # what it changes in the preset ``auto``

    @classmethod
    def trains(cls, kind: Kind) -> bool:
        """Return whether the method can train for labels of a kind; this one can for all."""
        return True

    @classmethod
    def lacks(cls, labels: Sequence[Any]) -> str:
        """Say what training texts with these labels lack for the method; empty if nothing."""
        return ""

    @classmethod
    def check_task(cls, card: TaskCard, preset: Preset) -> None:
        """Refuse a task, or a pooling, that the method cannot train; this one trains all.

        Raises:
            ConfigError: Says why.
        """

    @classmethod
    def make_classifier(
        cls, model: str, card: TaskCard, kind: Kind, preset: Preset, seed: int
    ) -> Classifier:
        """Load a checkpoint with a new head.

        Raises:
            ArtifactError: If it cannot be used, or its head lacks the bias that the kind needs.
        """
        classifier = new_classifier(model, len(kind.outputs), seed, kind.per_word, preset.pooling)
        is_standardised = kind != card.label_kind
        if is_standardised and classifier.out.bias is None:
            raise ArtifactError(
                f"{model}: its head has no bias, but {card.kind} needs one; use pooling=mean"
            )
        return classifier

    def __post_init__(self) -> None:
        examples = len(self.train.tokens)
        self.epochs = self.preset.epochs_of(examples)
        self.steps_of_epoch = math.ceil(examples / self.preset.batch_size)
        self.class_weights = self._class_weights()

    @property
    def train_labels(self) -> np.ndarray:
        """Targets of the loss, one row per unit of the training split."""
        assert self.train.loss_labels is not None, "train is encoded with its labels"
        return self.train.loss_labels

    def _class_weights(self) -> Tensor | None:
        """Return the weight of each class in the loss; None if all count alike."""
        if self.card.class_weight is None:
            return None
        every_unit = self.train.units(np.arange(len(self.train.tokens)))
        weights = self.kind.class_weights(self.train_labels[every_unit])
        return torch.from_numpy(weights).to(self.precision.device)

    def run(self, name: str) -> None:
        """Train, and leave the weights of the epoch to test.

        Args:
            name: Name in the progress bar.
        """
        steps = self.steps_of_epoch * self.epochs
        peak = float(self.preset.learning_rate)
        optimizer = make_optimizer(self.classifier, peak, WEIGHT_DECAY)
        rate = partial(learning_rate_at, steps=steps, peak=peak, warmup=self.preset.warmup)
        losses = train_supervised(
            optimizer,
            enumerate(self.batches()),
            self.losses,
            rate,
            f"seed {self.seed}",
            CLIP,
            self._half_weights(),
        )
        best_weights: dict[str, Tensor] = {}
        self.tested_epoch = self.epochs
        with progress(what=f"{name} seed {self.seed}", unit="steps", total=steps) as bar:
            for step, loss in enumerate(losses, 1):
                bar.update(1)
                self._track({"train/loss": loss}, step)
                epoch, rest = divmod(step, self.steps_of_epoch)
                if rest or not self._is_scored(epoch):
                    continue
                score = self.dev_score()
                self.dev_scores.append(score)
                self._track({f"dev/{self.card.metric}": score}, step)
                bar.set_postfix(epoch=f"{epoch}/{self.epochs}", dev=f"{score:.3f}")
                if self.preset.evaluate == "best" and self.best_epoch == epoch:
                    weights = self.classifier.state_dict()
                    best_weights = {key: value.clone() for key, value in weights.items()}
        if best_weights:
            self.classifier.load_state_dict(best_weights)
            self.tested_epoch = self.best_epoch
        else:
            self.dev_scores = self.dev_scores[-1:]

    def batches(self) -> Iterator[np.ndarray]:
        """Yield the rows of every step."""
        for epoch in range(self.epochs):
            yield from order(self.train, self.preset.batch_size, self.seed, epoch)

    def losses(self, batch: tuple[int, np.ndarray]) -> list[Tensor]:
        """Compute the loss of a step, given its number and rows."""
        step, rows = batch
        self.calls.check_in()
        self.classifier.train()
        device = self.precision.device
        labels = torch.from_numpy(self.train_labels[self.train.units(rows)]).to(device)
        dropout_seed = derive_seed(self.seed, "finetune", "dropout", step)
        with torch_seed(dropout_seed, device), self.precision.autocast():
            logits = self.classifier(*self.train.batch(rows, device))
        return [self.kind.loss(logits.float(), labels, self.class_weights)]

    def dev_score(self) -> float:
        """Compute the task's metric on the development split."""
        assert self.dev.labels is not None, "dev is encoded with its labels"
        outputs = predict(self.classifier, self.dev, self.kind, self.precision, self.calls.check_in)
        predictions = self.kind.decode(outputs, self.dev.sizes)
        return self.kind.scores(predictions, self.dev.labels)[self.card.metric]

    @property
    def best_epoch(self) -> int:
        """The first epoch with the best score, from 1, where every epoch is scored."""
        return int(np.argmax(self.card.sign * np.array(self.dev_scores))) + 1

    def _is_scored(self, epoch: int) -> bool:
        """Return whether the development split is predicted after an epoch."""
        is_tested = self.preset.evaluate == "best" or epoch == self.epochs
        return is_tested or self.calls.track is not None

    def _track(self, numbers: dict[str, float], step: int) -> None:
        if self.calls.track is not None:
            self.calls.track(numbers, step)

    def _half_weights(self) -> HalfWeights | None:
        # On a GPU small steps are bound by their launches, of which casts are up to a fifth.
        saves_casts = self.precision.device.type == "cuda" and self.precision.name == "bf16"
        return HalfWeights(self.classifier) if saves_casts else None


def two_rows(
    classifier: Classifier, split: EncodedSplit, device: torch.device
) -> Callable[[], Tensor]:
    """Return a function that computes the logits of the longest and the shortest text of a split."""
    rows = np.unique([split.lengths.argmax(), split.lengths.argmin()])
    inputs = split.batch(rows, device)
    return lambda: classifier(*inputs)


def order(split: EncodedSplit, size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Return the rows of each step of an epoch; the same for all checkpoints with the same tokenizer."""
    return batches_by_length(split.lengths, size, generator(seed, "finetune", "order", epoch))


def passes_of(split: EncodedSplit) -> Iterator[np.ndarray]:
    """Yield the rows of each forward pass of an evaluation, the longest first."""
    lengths = split.lengths
    longest_first = np.argsort(-lengths, kind="stable")
    start = 0
    while start < longest_first.size:
        longest = int(lengths[longest_first[start]])
        count = max(1, EVALUATION_TOKENS // longest)
        yield longest_first[start : start + count]
        start += count


@torch.no_grad()
def predict(
    classifier: Classifier,
    split: EncodedSplit,
    kind: Kind,
    precision: Precision,
    check_in: Callable[[], None] = lambda: None,
) -> np.ndarray:
    """Predict probabilities or values, float32 of shape (units, outputs), in the order of the split; 0 if truncated.

    Args:
        classifier: Returns logits of shape (units, outputs).
        split: The examples.
        kind: Converts logits to probabilities or values.
        precision: Device and number format.
        check_in: Called before every batch.
    """
    classifier.eval()
    outputs = np.zeros((int(split.sizes.sum()), len(kind.outputs)), dtype=np.float32)
    for rows in passes_of(split):
        check_in()
        with precision.autocast():
            logits = classifier(*split.batch(rows, precision.device))
        outputs[split.units(rows)] = kind.activate(logits.float()).cpu().numpy()
    if not np.isfinite(outputs).all():
        raise ArtifactError(
            "the model's outputs are not finite: its weights are damaged (copy them again), or "
            "training diverged (lower finetune.learning_rate)"
        )
    return outputs
