"""Fine-tuning one seed: order, head and dropout are functions of it, so its result can be had again."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.errors import DanaError
from dana.finetune.card import TaskCard
from dana.finetune.encoded import Encoded, order
from dana.finetune.model import Classifier, new_classifier
from dana.finetune.preset import Preset
from dana.finetune.scoring import score
from dana.logging import progress
from dana.rng import derive_seed
from dana.train.optimizer import learning_rate_at, make_optimizer
from dana.train.torch_seed import seeded

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


def run_seed(
    model: str, splits: dict[str, Encoded], card: TaskCard, preset: Preset, seed: int, accelerator: Any
) -> SeedResult:
    """Fine-tune a checkpoint once; dev is measured after every epoch, test once.

    Args:
        model: Folder or Hub name.
        splits: Encoded train, dev and test.
        card: The task.
        preset: Hyper-parameters.
        seed: Decides head, order and dropout.
        accelerator: Gives device and precision. Nothing is shared between processes: each works on seeds of
            its own.

    Raises:
        ArtifactError: If the checkpoint cannot be used.
        DanaError: If the loss stops being finite.
    """
    started = time.monotonic()
    device, train, dev = accelerator.device, splits["train"], splits["dev"]
    classifier = new_classifier(model, len(card.labels), seed).to(device)
    optimizer = make_optimizer(classifier, preset.learning_rate, WEIGHT_DECAY)
    steps = -(-len(train.tokens) // preset.batch_size) * preset.epochs
    step, dev_scores, best = 0, [], {}
    with progress(what=f"seed {seed}", unit="examples", total=len(train.tokens) * preset.epochs) as bar:
        for epoch in range(preset.epochs):
            for rows in order(train.lengths, preset.batch_size, seed, epoch):
                rate = learning_rate_at(step, steps, preset.learning_rate, preset.warmup)
                with seeded(derive_seed(seed, "finetune", "dropout", step), device):
                    loss = _loss(classifier, train, rows, accelerator)
                _update(classifier, optimizer, loss, rate)
                step += 1
                bar.update(len(rows))
                if not torch.isfinite(loss):
                    raise DanaError(f"seed {seed}, step {step}: the loss is {loss}; lower learning_rate={rate}")
            predictions = predict(classifier, dev, accelerator).argmax(1)
            dev_scores.append(score(predictions, dev.labels, len(card.labels))[card.metric])
            bar.set_postfix(epoch=f"{epoch + 1}/{preset.epochs}", dev=f"{dev_scores[-1]:.3f}")
            if preset.evaluate == "best" and dev_scores[-1] > max([-1.0, *dev_scores[:-1]]):
                best = {name: value.clone() for name, value in classifier.state_dict().items()}
    if best:
        classifier.load_state_dict(best)
    tested = int(np.argmax(dev_scores)) + 1 if best else preset.epochs  # of a tie, the earlier epoch
    probabilities = predict(classifier, splits["test"], accelerator)
    return SeedResult(seed, tested, dev_scores, probabilities, round(time.monotonic() - started, 3))


def _loss(classifier: Classifier, train: Encoded, rows: np.ndarray, accelerator: Any) -> Tensor:
    classifier.train()
    targets = torch.from_numpy(train.labels[rows]).to(accelerator.device)
    with accelerator.autocast():
        logits = classifier(*train.batch(rows, accelerator.device))
    return torch.nn.functional.cross_entropy(logits.float(), targets)


def _update(classifier: Classifier, optimizer: torch.optim.Optimizer, loss: Tensor, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss.backward()
    torch.nn.utils.clip_grad_norm_(classifier.parameters(), CLIP)
    optimizer.step()
    optimizer.zero_grad()


@torch.no_grad()
def predict(classifier: Classifier, split: Encoded, accelerator: Any) -> np.ndarray:
    """Probabilities, float32 of shape (examples, labels), in the order of the split."""
    classifier.eval()
    lengths = split.lengths
    longest_first = np.argsort(-lengths, kind="stable")
    found, start = [], 0
    while start < longest_first.size:
        fit = max(1, EVALUATION_TOKENS // int(lengths[longest_first[start]]))
        with accelerator.autocast():
            logits = classifier(*split.batch(longest_first[start : start + fit], accelerator.device))
        found.append(logits.float().softmax(-1).cpu().numpy())
        start += fit
    probabilities = np.concatenate(found)
    return probabilities[np.argsort(longest_first)]
