"""Fine-tuning for one seed, which decides order, head and dropout: encoded splits to test predictions."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dana.core.logging import progress
from dana.core.rng import derive_seed, generator
from dana.core.torch_seed import seeded
from dana.finetuning.encoded import Encoded
from dana.finetuning.results import SeedResult
from dana.models.classifier import Classifier, new_classifier
from dana.tasks.card import TaskCard
from dana.tasks.kinds.base import Kind
from dana.tasks.settings import Preset
from dana.train.execution import Precision
from dana.train.schedule import learning_rate_at
from dana.train.supervised import batches_by_length, make_optimizer, train_supervised

WEIGHT_DECAY = 0.01
CLIP = 1.0
EVALUATION_TOKENS = 16384  # in one forward pass, padding included


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
    """Fine-tune a checkpoint once; dev is measured after every epoch that may be the tested one, test once.

    Args:
        model: Folder or Hub name.
        splits: Encoded train and dev with labels; and test, whose labels are not looked at.
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
    kind, targets = card.target.fitted(told(train.targets)), told(train.targets)
    classifier = new_classifier(model, len(kind.outputs), seed, kind.per_word, preset.pooling).to(device)
    optimizer = make_optimizer(classifier, preset.learning_rate, WEIGHT_DECAY)
    in_epoch = -(-len(train.tokens) // preset.batch_size)
    steps, dev_scores, best = in_epoch * preset.epochs, list[float](), {}

    def losses(batch: tuple[int, np.ndarray]) -> list[Tensor]:
        step, rows = batch
        watch.check_in()
        classifier.train()
        wanted = torch.from_numpy(targets[train.units(rows)]).to(device)
        with seeded(derive_seed(seed, "finetune", "dropout", step), device), precision.autocast():
            logits = classifier(*train.batch(rows, device))
        return [kind.loss(logits.float(), wanted)]

    def rate(step: int) -> float:
        return learning_rate_at(step, steps, preset.learning_rate, preset.warmup)

    batches = enumerate(rows for epoch in range(preset.epochs) for rows in order(train, preset.batch_size, seed, epoch))
    with progress(what=f"{watch.name} seed {seed}", unit="steps", total=steps) as bar:
        for step, _ in enumerate(train_supervised(optimizer, batches, losses, rate, f"seed {seed}", CLIP), 1):
            bar.update(1)
            epoch, more = divmod(step, in_epoch)
            if more or (preset.evaluate == "last" and epoch < preset.epochs):
                continue
            predictions = kind.decode(predict(classifier, dev, kind, precision, watch.check_in), dev.sizes)
            dev_scores.append(kind.scores(predictions, told(dev.references))[card.metric])
            bar.set_postfix(epoch=f"{epoch}/{preset.epochs}", dev=f"{dev_scores[-1]:.3f}")
            if preset.evaluate == "best" and _best(dev_scores, card) == epoch - 1:
                best = {name: value.clone() for name, value in classifier.state_dict().items()}
    if best:
        classifier.load_state_dict(best)
    tested = _best(dev_scores, card) + 1 if best else preset.epochs
    kind = kind.folded(classifier.out)
    outputs = predict(classifier, splits["test"], kind, precision, watch.check_in)
    result = SeedResult(seed, tested, dev_scores, outputs, round(time.monotonic() - started, 3))
    watch.keep(classifier, result)
    return result


def _best(scores: list[float], card: TaskCard) -> int:
    """The epoch, from 0, with the best score; of a tie, the earlier."""
    return int(np.argmax(card.sign * np.array(scores)))


def order(split: Encoded, size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Rows of each step of an epoch; checkpoints with the same tokenizer see the same order on a seed."""
    return batches_by_length(split.lengths, size, generator(seed, "finetune", "order", epoch))


@torch.no_grad()
def predict(
    classifier: Classifier,
    split: Encoded,
    kind: Kind,
    precision: Precision,
    check_in: Callable[[], None] = lambda: None,
) -> np.ndarray:
    """Probabilities or values, float32 of shape (units, outputs), in the order of the split; 0 of units cut off.

    Args:
        classifier: Gives logits of shape (units, outputs).
        split: What to predict.
        kind: What logits say.
        precision: What to compute in, and where.
        check_in: Called before every batch.
    """
    classifier.eval()
    lengths = split.lengths
    longest_first = np.argsort(-lengths, kind="stable")
    found = np.zeros((int(split.sizes.sum()), len(kind.outputs)), dtype=np.float32)
    start = 0
    while start < longest_first.size:
        check_in()
        rows = longest_first[start : start + max(1, EVALUATION_TOKENS // int(lengths[longest_first[start]]))]
        with precision.autocast():
            logits = classifier(*split.batch(rows, precision.device))
        found[split.units(rows)] = kind.activate(logits.float()).cpu().numpy()
        start += rows.size
    return found


def told(labels: np.ndarray | None) -> np.ndarray:
    """Labels of a split that must have them.

    Raises:
        ValueError: If it has none.
    """
    if labels is None:
        raise ValueError("this split was encoded without its labels")
    return labels
