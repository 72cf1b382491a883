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
EVALUATION_TOKENS = 16384  # most tokens in a forward pass without a gradient, padding included


@dataclass(frozen=True)
class Callbacks:
    """Functions that :func:`run_seed` calls while it works.

    Attributes:
        check_in: It is called before every step and before every forward pass of an evaluation. It
            may raise an error, which ends the seed.
        track: It is called with numbers by their names and with the number of the step, from 1. It
            receives the loss of every step and the dev score of every epoch. With None, the dev
            split is predicted only after epochs that may be tested.
    """

    check_in: Callable[[], None] = lambda: None
    track: Callable[[dict[str, float], int], None] | None = None


def run_seed(  # noqa: PLR0913, each argument decides what a seed computes or reports
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
    """Fine-tune a checkpoint for one seed, and predict the test split once.

    The dev split is predicted after every epoch that may be tested, and after every other epoch if
    the scores are tracked. Processes share nothing here: each of them runs other seeds.

    Args:
        model: Folder or Hub name of the checkpoint.
        splits: ``train`` and ``dev`` with labels, and ``test``, whose labels are not used.
        card: The task.
        preset: Hyper-parameters.
        seed: It decides the head's initial weights, the order of the examples and dropout.
        precision: Device and number format. If the model fails in this format, it is trained in
            float32.
        name: Name of the run in the progress bar: the task, and the arm or the model.
        calls: Functions that are called during the training and the predictions.
        method: Class that trains the model; None is :class:`SeedTraining`, which trains encoder and
            head together.

    Returns:
        The model with the tested weights, in evaluation mode, and its result. If the labels are
        numbers, the model returns them in their unit, not standardised.

    Raises:
        ConfigError: If the method does not fit the labels.
        ArtifactError: If the checkpoint cannot be used, or its outputs are not finite.
        DivergenceError: If the loss of a step is not finite; it is a :class:`DanaError`.
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
    # The model is saved without the mean and deviation of its labels, so its last layer takes them up.
    kind = kind.fold_into(classifier.out)
    outputs = predict(classifier, splits["test"], kind, precision, calls.check_in)
    seconds = round(time.monotonic() - start_time, 3)
    result = SeedResult(
        seed, training.tested_epoch, training.dev_scores, outputs, seconds, precision.name
    )
    return classifier, result


@dataclass
class SeedTraining:
    """The training of one seed, which trains encoder and head together.

    A subclass trains in another way: it overrides :meth:`batches` and :meth:`losses`, and says in
    the class methods for which tasks it can be used.

    Attributes:
        classifier: The model, which is trained in place.
        kind: Kind of the labels, fitted to the training labels.
        card: The task.
        preset: Hyper-parameters.
        train: Training split, with labels.
        dev: Development split, with labels.
        seed: It decides the order of the examples and dropout.
        precision: Device and number format.
        calls: Functions that are called during the training.
        dev_scores: The task's metric on the development split: after each epoch under ``evaluate:
            best``, else after the last one alone.
        tested_epoch: The epoch whose weights the model ends with, from 1; 0 before :meth:`run`.
        epochs: Number of epochs.
        steps_of_epoch: Number of steps in each epoch.
        class_weights: Weight of each class in the loss; None if all classes weigh alike.
        version: Version of what a subclass computes, for the fingerprint of its results. The one
            here is not recorded.
        auto_preset: Values that a subclass has in the preset ``auto`` instead of the usual ones.
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

    version: ClassVar[int] = 0
    auto_preset: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def trains(cls, kind: Kind) -> bool:
        """Return whether the method can train for labels of a kind; this one can for every kind."""
        return True

    @classmethod
    def lacks(cls, labels: Sequence[Any]) -> str:
        """Say what the method needs that training texts do not have; empty if they have all of it.

        Args:
            labels: Labels of the training texts.
        """
        return ""

    @classmethod
    def check_task(cls, card: TaskCard, preset: Preset) -> None:
        """Refuse a task or a pooling that the method cannot train; this one refuses none.

        Raises:
            ConfigError: If a subclass cannot train it; the message says why.
        """

    @classmethod
    def make_classifier(
        cls, model: str, card: TaskCard, kind: Kind, preset: Preset, seed: int
    ) -> Classifier:
        """Load a checkpoint with a new head.

        Args:
            model: Folder or Hub name of the checkpoint.
            card: The task.
            kind: Kind of the labels, fitted to the training labels.
            preset: Hyper-parameters, of which the pooling counts here.
            seed: It decides the head's initial weights.

        Raises:
            ArtifactError: If the checkpoint cannot be used, or its head lacks the bias that the
                kind needs.
        """
        classifier = new_classifier(model, len(kind.outputs), seed, kind.per_word, preset.pooling)
        # Fitting changes a kind only if it standardises its labels. The bias then takes up their mean.
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
        """Return the weight of each class in the loss, on the device; None if all weigh alike."""
        if self.card.class_weight is None:
            return None
        every_row = np.arange(len(self.train.tokens))
        trained_units = self.train.units(every_row)  # words that are cut off are not among them
        weights = self.kind.class_weights(self.train_labels[trained_units])
        return torch.from_numpy(weights).to(self.precision.device)

    def run(self, name: str) -> None:
        """Train the model in place, and leave it with the weights of the epoch to test.

        Under ``evaluate: best`` this is the first epoch with the best dev score, else the last one.
        It also sets ``dev_scores`` and ``tested_epoch``.

        Args:
            name: Name of the run in the progress bar.

        Raises:
            DivergenceError: If the loss of a step is not finite.
            ArtifactError: If outputs on the development split are not finite.
        """
        steps = self.steps_of_epoch * self.epochs
        losses_of_steps = self._train_by_step(steps)
        keeps_best = self.preset.evaluate == "best"
        best_weights: dict[str, Tensor] = {}
        self.tested_epoch = self.epochs
        with progress(what=f"{name} seed {self.seed}", unit="steps", total=steps) as bar:
            for step, loss in enumerate(losses_of_steps, 1):
                bar.update(1)
                self._track({"train/loss": loss}, step)
                epoch, steps_after_epoch = divmod(step, self.steps_of_epoch)
                is_end_of_epoch = steps_after_epoch == 0
                if not is_end_of_epoch or not self._is_scored(epoch):
                    continue
                score = self.dev_score()
                self.dev_scores.append(score)
                self._track({f"dev/{self.card.metric}": score}, step)
                bar.set_postfix(epoch=f"{epoch}/{self.epochs}", dev=f"{score:.3f}")
                if keeps_best and self.best_epoch == epoch:
                    weights = self.classifier.state_dict()
                    best_weights = {key: value.clone() for key, value in weights.items()}
        if best_weights:
            self.classifier.load_state_dict(best_weights)
            self.tested_epoch = self.best_epoch
        else:
            # Tracking adds scores of earlier epochs, and must not change the result.
            self.dev_scores = self.dev_scores[-1:]

    def _train_by_step(self, steps: int) -> Iterator[float]:
        """Return an iterator that takes one optimizer step at a time, and yields its loss.

        Args:
            steps: Number of steps of the training, which the schedule of the learning rate needs.
        """
        peak = float(self.preset.learning_rate)
        optimizer = make_optimizer(self.classifier, peak, WEIGHT_DECAY)
        rate = partial(learning_rate_at, steps=steps, peak=peak, warmup=self.preset.warmup)
        return train_supervised(
            optimizer,
            enumerate(self.batches()),
            self.losses,
            rate,
            f"seed {self.seed}",
            CLIP,
            self._half_weights(),
        )

    def batches(self) -> Iterator[np.ndarray]:
        """Yield the rows of the training split that each step reads, of all epochs."""
        for epoch in range(self.epochs):
            yield from order(self.train, self.preset.batch_size, self.seed, epoch)

    def losses(self, batch: tuple[int, np.ndarray]) -> list[Tensor]:
        """Compute the loss of a step as a list of one scalar, with dropout.

        It puts the model into training mode, and calls ``check_in``, which may raise.

        Args:
            batch: Number of the step, from 0, and its rows.
        """
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
        """Compute the task's metric on the development split.

        It leaves the model in evaluation mode.

        Raises:
            ArtifactError: If the outputs are not finite.
        """
        assert self.dev.labels is not None, "dev is encoded with its labels"
        outputs = predict(self.classifier, self.dev, self.kind, self.precision, self.calls.check_in)
        predictions = self.kind.decode(outputs, self.dev.sizes)
        return self.kind.scores(predictions, self.dev.labels)[self.card.metric]

    @property
    def best_epoch(self) -> int:
        """The first epoch with the best dev score, from 1; it counts on a score of every epoch."""
        higher_is_better = self.card.sign * np.array(self.dev_scores)
        return int(np.argmax(higher_is_better)) + 1

    def _is_scored(self, epoch: int) -> bool:
        """Return whether the development split is predicted after an epoch."""
        may_be_tested = self.preset.evaluate == "best" or epoch == self.epochs
        is_tracked = self.calls.track is not None
        return may_be_tested or is_tracked

    def _track(self, numbers: dict[str, float], step: int) -> None:
        """Hand numbers of a step, from 1, to the tracker, if there is one."""
        if self.calls.track is not None:
            self.calls.track(numbers, step)

    def _half_weights(self) -> HalfWeights | None:
        """Return bfloat16 copies of the weights for the steps; None where they save no time."""
        # A small step on a GPU takes as long as the launches of its kernels. Up to a fifth of these
        # are the casts of autocast, which such copies save.
        saves_casts = self.precision.device.type == "cuda" and self.precision.name == "bf16"
        if not saves_casts:
            return None
        return HalfWeights(self.classifier)


def two_rows(
    classifier: Classifier, split: EncodedSplit, device: torch.device
) -> Callable[[], Tensor]:
    """Return a function that computes the logits of the longest and the shortest text of a split.

    The two are padded to one length, so the padding of the model is tried, too. They are one row if
    the longest text is also the shortest.

    Args:
        classifier: The model, on the device.
        split: The split.
        device: Device of the inputs.
    """
    rows = np.unique([split.lengths.argmax(), split.lengths.argmin()])
    inputs = split.batch(rows, device)
    return lambda: classifier(*inputs)


def order(split: EncodedSplit, size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Return the rows of each step of an epoch, shuffled, with texts of similar length in a step.

    The rows are the same for all checkpoints that share a tokenizer.

    Args:
        split: The training split.
        size: Rows per step.
        seed: Seed of the run.
        epoch: Number of the epoch, from 0.
    """
    return batches_by_length(split.lengths, size, generator(seed, "finetune", "order", epoch))


def passes_of(split: EncodedSplit) -> Iterator[np.ndarray]:
    """Yield the rows of each forward pass of an evaluation, the longest texts first.

    Texts of similar length share a pass, so that little of it is padding. It has as many texts as
    fit into :data:`EVALUATION_TOKENS` if each is padded to the longest, but at least one.
    """
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
    """Predict the probabilities or values of all units of a split, without a gradient.

    It leaves the model in evaluation mode.

    Args:
        classifier: The model, which returns logits of shape (units, outputs).
        split: The examples; their labels are not used.
        kind: Kind of the labels, which converts logits to probabilities or values.
        precision: Device and number format.
        check_in: Function that is called before every forward pass; it may raise.

    Returns:
        float32 of shape (units, outputs), in the order of the split; 0 for words that are cut off.

    Raises:
        ArtifactError: If an output is not finite.
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
