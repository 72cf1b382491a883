"""Fine-tuning for one seed, which decides order, head and dropout: encoded splits to test probabilities."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dana.core.errors import DanaError
from dana.core.logging import progress
from dana.core.rng import derive_seed
from dana.core.torch_seed import seeded
from dana.execution.precision import Precision
from dana.finetuning.encoded import Encoded, order
from dana.models.classifier import Classifier, new_classifier
from dana.tasks.card import TaskCard
from dana.tasks.metrics import score_predictions
from dana.tasks.preset import Preset
from dana.train.optimizer import make_optimizer
from dana.train.schedule import learning_rate_at

WEIGHT_DECAY = 0.01
CLIP = 1.0
EVALUATION_TOKENS = 16384  # in one forward pass, padding included


@dataclass(frozen=True)
class SeedResult:
    """What one seed gave.

    Attributes:
        seed: The seed.
        epoch: The epoch that was tested, from 1.
        dev_scores: The task's metric on the development data after each epoch.
        probabilities: float32 of shape (test examples, labels).
        seconds: Loading, training and testing.
    """

    seed: int
    epoch: int
    dev_scores: list[float]
    probabilities: np.ndarray
    seconds: float

    @property
    def dev_score(self) -> float:
        """The task's metric on the development data after the epoch that was tested."""
        return self.dev_scores[self.epoch - 1]


@dataclass(frozen=True)
class Watch:
    """What the one who runs a seed wants to hear and say meanwhile.

    Attributes:
        name: What the progress bar calls the run: task, and arm or model.
        check_in: Called after every step and every batch of an evaluation; may raise to end the seed.
        keep: Called with the tested model and its result at the end.
    """

    name: str = "seed"
    check_in: Callable[[], None] = lambda: None
    keep: Callable[[Classifier, SeedResult], None] = lambda classifier, result: None


def run_seed(
    model: str,
    splits: dict[str, Encoded],
    card: TaskCard,
    preset: Preset,
    seed: int,
    precision: Precision,
    watch: Watch | None = None,
) -> SeedResult:
    """Fine-tune a checkpoint once; dev is measured after every epoch, test once.

    Args:
        model: Folder or Hub name.
        splits: Encoded train, dev and test.
        card: The task.
        preset: Hyper-parameters.
        seed: Decides head, order and dropout.
        precision: What to compute in, and where. Nothing is shared between processes: each works on seeds of
            its own.
        watch: Who is told how it goes; nobody if None.

    Raises:
        ArtifactError: If the checkpoint cannot be used.
        DanaError: If the loss stops being finite.
    """
    started, watch = time.monotonic(), watch or Watch()
    device, train, dev = precision.device, splits["train"], splits["dev"]
    classifier = new_classifier(model, len(card.labels), seed).to(device)
    optimizer = make_optimizer(classifier, preset.learning_rate, WEIGHT_DECAY)
    steps = -(-len(train.tokens) // preset.batch_size) * preset.epochs
    step, dev_scores, best = 0, [], {}
    with progress(what=f"{watch.name} seed {seed}", unit="examples", total=len(train.tokens) * preset.epochs) as bar:
        for epoch in range(preset.epochs):
            for rows in order(train.lengths, preset.batch_size, seed, epoch):
                watch.check_in()
                rate = learning_rate_at(step, steps, preset.learning_rate, preset.warmup)
                with seeded(derive_seed(seed, "finetune", "dropout", step), device):
                    loss = _loss(classifier, train, rows, precision)
                _update(classifier, optimizer, loss, rate)
                step += 1
                bar.update(len(rows))
                if not torch.isfinite(loss):
                    raise DanaError(f"seed {seed}, step {step}: the loss is {loss}; lower learning_rate={rate}")
            predictions = predict(classifier, dev, precision, watch.check_in).argmax(1)
            dev_scores.append(score_predictions(predictions, dev.labels, len(card.labels))[card.metric])
            bar.set_postfix(epoch=f"{epoch + 1}/{preset.epochs}", dev=f"{dev_scores[-1]:.3f}")
            if preset.evaluate == "best" and dev_scores[-1] > max([-1.0, *dev_scores[:-1]]):
                best = {name: value.clone() for name, value in classifier.state_dict().items()}
    if best:
        classifier.load_state_dict(best)
    tested = int(np.argmax(dev_scores)) + 1 if best else preset.epochs  # of a tie, the earlier epoch
    probabilities = predict(classifier, splits["test"], precision, watch.check_in)
    result = SeedResult(seed, tested, dev_scores, probabilities, round(time.monotonic() - started, 3))
    watch.keep(classifier, result)
    return result


def _loss(classifier: Classifier, train: Encoded, rows: np.ndarray, precision: Precision) -> Tensor:
    classifier.train()
    targets = torch.from_numpy(train.labels[rows]).to(precision.device)
    with precision.autocast():
        logits = classifier(*train.batch(rows, precision.device))
    return torch.nn.functional.cross_entropy(logits.float(), targets)


def _update(classifier: Classifier, optimizer: torch.optim.Optimizer, loss: Tensor, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss.backward()
    torch.nn.utils.clip_grad_norm_(classifier.parameters(), CLIP)
    optimizer.step()
    optimizer.zero_grad()


@torch.no_grad()
def predict(
    classifier: Classifier, split: Encoded, precision: Precision, check_in: Callable[[], None] = lambda: None
) -> np.ndarray:
    """Probabilities, float32 of shape (examples, labels), in the order of the split.

    Args:
        classifier: Gives logits of shape (rows, labels).
        split: What to predict.
        precision: What to compute in, and where.
        check_in: Called before every batch.
    """
    classifier.eval()
    lengths = split.lengths
    longest_first = np.argsort(-lengths, kind="stable")
    found, start = [], 0
    while start < longest_first.size:
        check_in()
        fit = max(1, EVALUATION_TOKENS // int(lengths[longest_first[start]]))
        with precision.autocast():
            logits = classifier(*split.batch(longest_first[start : start + fit], precision.device))
        found.append(logits.float().softmax(-1).cpu().numpy())
        start += fit
    probabilities = np.concatenate(found)
    return probabilities[np.argsort(longest_first)]
