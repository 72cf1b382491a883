"""Train a new head alone for some steps before the rest of the model; the backbone stays as it is.

A new head begins as one that guesses every token by its frequency in the pool: its bias is the
logarithm of these frequencies. It is trained until it predicts held-out text better than such
guesses by a margin; a head that does not get there would spoil every later number.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.core.artifacts import fingerprint
from dana.core.device import find_device
from dana.core.errors import ConfigError, DataError
from dana.core.files import explain_write_errors, temp_file
from dana.core.launch import is_writer
from dana.core.logging import get_logger, monitor
from dana.models.head_file import is_cut
from dana.models.language_model import LanguageModel
from dana.train.evaluation import measure_loss
from dana.train.examples import ExampleSet
from dana.train.layout import BatchLayout, micro_batches
from dana.train.objectives.base import Collator
from dana.train.objectives.batch import micro_loss
from dana.train.plan import Plan, Step
from dana.train.planner import explain_out_of_memory
from dana.train.schedule import learning_rate_at
from dana.train.settings import HeadWarmup, TrainSettings
from dana.train.supervised import make_optimizer, train_supervised

log = get_logger(__name__)

WARMUP_SHARE = 0.1  # share of the steps
CHECK_EVERY = 50  # steps between two measurements of held-out text
MOST_COUNTED = 50_000  # examples whose tokens are counted
AT_ONCE = 1_000  # of them in memory
HEADER = "warmup"  # key of the file's metadata
PARAMETER = "parameter"  # key of a trained parameter beside those of its optimizer


@dataclass(frozen=True)
class HeadCheck:
    """Held-out text by which a new head is judged.

    Attributes:
        examples: Held-out pool text.
        collator: Makes its labels, the same for every run.
        accelerator: From :func:`dana.train.execution.make_accelerator`.
    """

    examples: ExampleSet
    collator: Collator
    accelerator: Any

    def measure(self, module: torch.nn.Module, shape: BatchLayout) -> float | None:
        """Measure the loss of a model on the text, in nats per predicted token."""
        loss = measure_loss(module, self.examples, self.collator, shape, self.accelerator)
        return loss.mean


@dataclass
class WarmupProgress:
    """How far a warm-up has come.

    Attributes:
        losses: Loss of each step, in nats per predicted token.
        heldout_loss: The newest loss on held-out text; None if none was measured.
    """

    losses: list[float]
    heldout_loss: float | None = None

    def is_over(self, steps: int, bar: float) -> bool:
        """Whether all steps are taken, or the loss on held-out text is at the bar."""
        is_good = self.heldout_loss is not None and self.heldout_loss <= bar
        return is_good or len(self.losses) >= steps


@dataclass(frozen=True)
class WarmupFile:
    """The state of a warm-up, so that a stopped one goes on.

    Attributes:
        path: The file.
        depends_on: Settings and inputs of the warm-up; a file of others is not read.
    """

    path: Path
    depends_on: Mapping[str, Any]

    def write(self, optimizer: torch.optim.Optimizer, progress: WarmupProgress) -> None:
        """Write parameters, optimizer and progress in place of the older ones; on the first rank.

        Raises:
            ArtifactError: If they cannot be written.
        """
        from safetensors.torch import save_file

        if not is_writer():
            return
        kept = optimizer.state_dict()["state"]
        tensors = {}
        for index, parameter in enumerate(_parameters(optimizer)):
            tensors[f"{PARAMETER}.{index}"] = parameter.detach().contiguous()
            for key, value in kept.get(index, {}).items():  # none before a first gradient
                tensors[f"{key}.{index}"] = value.contiguous()
        header = {"fingerprint": fingerprint(self.depends_on), "progress": asdict(progress)}
        with explain_write_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with temp_file(self.path) as temporary:
                save_file(tensors, temporary, {HEADER: json.dumps(header)})

    def restore(self, optimizer: torch.optim.Optimizer) -> WarmupProgress:
        """Restore parameters and optimizer, if there is a good file of the same settings."""
        from safetensors import SafetensorError, safe_open
        from safetensors.torch import load_file

        if not self.path.is_file():
            return WarmupProgress([])
        try:
            with safe_open(self.path, "pt") as file:
                header = json.loads(file.metadata()[HEADER])
            tensors = load_file(self.path)
            progress = WarmupProgress(**header["progress"])
            is_other = header["fingerprint"] != fingerprint(self.depends_on)
        except (SafetensorError, OSError, TypeError, KeyError, ValueError) as error:
            log.warning("head      %s cannot be read, and is begun anew: %s", self.path, error)
            return WarmupProgress([])
        if is_other:
            return WarmupProgress([])
        kept: dict[int, dict[str, Tensor]] = defaultdict(dict)
        for name, value in tensors.items():
            key, _, number = name.rpartition(".")
            kept[int(number)][key] = value
        with torch.no_grad():
            for index, parameter in enumerate(_parameters(optimizer)):
                parameter.copy_(kept[index].pop(PARAMETER))
        optimizer.load_state_dict({**optimizer.state_dict(), "state": dict(kept)})
        log.info("head      goes on after %d steps", len(progress.losses))
        return progress

    def remove(self) -> None:
        """Remove the file, if there is one."""
        self.path.unlink(missing_ok=True)


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    """Return the parameters of all groups."""
    return [value for group in optimizer.param_groups for value in group["params"]]


@dataclass(frozen=True)
class NewHead:
    """What came of a warm-up.

    Attributes:
        loss: Loss of the last step, in nats per predicted token.
        steps: Number of steps.
        entropy: Loss of guessing every token by its frequency, in nats.
        heldout_loss: Loss of the head on held-out pool text, in nats; None if there is nothing to
            measure.
    """

    loss: float
    steps: int
    entropy: float
    heldout_loss: float | None = None


def warm_up_head(
    language_model: LanguageModel,
    examples: ExampleSet,
    collator: Collator,
    settings: TrainSettings,
    warmup: HeadWarmup,
    shape: BatchLayout,
    check: HeadCheck | None = None,
    file: WarmupFile | None = None,
) -> NewHead | None:
    """Train only the parameters that the checkpoint lacked, in place; all others stay bit-identical.

    Every rank does the same work: it is short, and the model is not yet sharded.

    Args:
        language_model: A model with a new head.
        examples: Training examples.
        collator: Makes their labels.
        settings: Settings of the training that follows.
        warmup: Settings of the warm-up.
        shape: Layout, precision and size of the passes, of a model that is set up for them.
        check: Held-out text: the warm-up ends as soon as the loss there is ``warmup.margin`` below
            that of guesses by frequency. Without, it takes all steps.
        file: Keeps the state after each such measurement; the caller removes it when the head is
            saved elsewhere.

    Returns:
        What came of it; None if ``warmup.steps`` is 0.

    Raises:
        DataError: If the loss on held-out text is higher after all steps.
        ConfigError: If ZeRO-3 has cut the model up.
    """
    if warmup.steps == 0:
        log.info("the new head keeps its initial weights (head_warmup.steps=0)")
        return None
    model = language_model.model
    if is_cut(model.parameters()):
        raise ConfigError(
            "a new head cannot be trained under ZeRO-3: launch with ZeRO-1, ZeRO-2 or without "
            "DeepSpeed, or take a base with a trained head"
        )
    device = find_device()
    counts = _count_tokens(language_model, examples)
    entropy = entropy_of(counts)
    _set_bias(language_model, counts)
    module = settings.make_objective().module(model, shape.bf16).to(device)
    module.eval()  # no dropout: nothing here can overfit
    _freeze_known(language_model)
    optimizer = make_optimizer(module, warmup.learning_rate, weight_decay=0.0)
    short = replace(
        settings.by_phase()[0],
        steps=warmup.steps,
        tokens=None,
        epochs=None,
        batch_size=warmup.batch_size,
        batch_tokens=None,
    )
    plan = Plan.from_settings(examples, short)

    def losses(step: Step) -> Iterator[Tensor]:
        batch = collator.step_batch(examples.take(step.rows), step.epochs, "token_count")
        if not batch.scale.total:
            return
        for rows in micro_batches(batch.lengths, shape):
            micro = batch.micro(rows, shape).to(device)
            yield micro_loss(micro.losses(module), micro.coefficients, batch.scale.total)

    progress = WarmupProgress([]) if file is None else file.restore(optimizer)
    done = len(progress.losses)

    def rate(step: int) -> float:
        return learning_rate_at(
            done + step, steps=warmup.steps, peak=warmup.learning_rate, warmup=WARMUP_SHARE
        )

    rest = (plan[step] for step in range(done, len(plan)))
    steps = train_supervised(optimizer, rest, losses, rate, "head_warmup", clip=None)
    bar = entropy - warmup.margin
    if not progress.is_over(warmup.steps, bar):
        watched = monitor(steps, what="warm up the head", unit="steps", total=warmup.steps - done)
        with explain_out_of_memory("head_warmup", shape.budget):
            for _ in _measured(watched, progress, check, module, shape, warmup.steps, bar):
                if file is not None:
                    file.write(optimizer, progress)
    model.requires_grad_(True)
    taken = progress.losses
    head = NewHead(taken[-1], len(taken), entropy, progress.heldout_loss)
    _judge(head, warmup)
    return head


def _freeze_known(language_model: LanguageModel) -> None:
    """Freeze all parameters but the new ones; one that is tied to a known one is frozen, too."""
    frozen = [
        value
        for name, value in language_model.model.named_parameters(remove_duplicate=False)
        if name not in language_model.new
    ]
    for parameter in language_model.model.parameters():
        parameter.requires_grad_(all(parameter is not other for other in frozen))


def _measured(
    losses: Iterable[float],
    progress: WarmupProgress,
    check: HeadCheck | None,
    module: torch.nn.Module,
    shape: BatchLayout,
    most: int,
    bar: float,
) -> Iterator[float | None]:
    """Take steps and yield each loss on held-out text, until it is at the bar or `most` steps are taken.

    It is None where that text has no token to predict.
    """
    for loss in losses:
        progress.losses.append(loss)
        count = len(progress.losses)
        if check is None or (count % CHECK_EVERY and count < most):
            continue
        progress.heldout_loss = check.measure(module, shape)
        yield progress.heldout_loss
        if progress.is_over(most, bar):
            return


def _judge(head: NewHead, warmup: HeadWarmup) -> None:
    """Say how good a new head is, and refuse one that is hardly better than guesses by frequency."""
    if head.heldout_loss is None:
        log.info("new head warmed up in %d steps, loss %.3f", head.steps, head.loss)
        return
    log.info(
        "new head warmed up in %d steps: %.2f nats a token of held-out pool text, "
        "where guessing by frequency costs %.2f",
        head.steps,
        head.heldout_loss,
        head.entropy,
    )
    if head.heldout_loss > head.entropy - warmup.margin:
        raise DataError(
            f"the new head is at {head.heldout_loss:.2f} nats a token of held-out pool text after "
            f"{head.steps} steps, where guessing by frequency costs {head.entropy:.2f}; it must be "
            f"{warmup.margin:g} below. Take a base with a trained head (dana-mini), an objective "
            "without one (position, crops), more text, or more head_warmup.steps; "
            "head_warmup.margin lowers the bar"
        )


def _count_tokens(language_model: LanguageModel, examples: ExampleSet) -> np.ndarray:
    """Count each token of the vocabulary in the text, special ones left out; int64 of shape (vocabulary,)."""
    size = language_model.model.get_input_embeddings().weight.shape[0]
    counts = np.zeros(size, np.int64)
    number = min(len(examples), MOST_COUNTED)
    rows = np.linspace(0, len(examples) - 1, number).round().astype(np.int64)
    for start in range(0, number, AT_ONCE):
        tokens = examples.take(rows[start : start + AT_ONCE]).tokens
        counts += np.bincount(tokens, minlength=size)[:size]
    counts[language_model.tokenizer.all_special_ids] = 0
    return counts


def entropy_of(counts: np.ndarray) -> float:
    """Compute the entropy of frequencies in nats: the loss of one who guesses by them."""
    shares = counts[counts > 0] / max(1, counts.sum())
    return float(-(shares * np.log(shares)).sum())


def _set_bias(language_model: LanguageModel, counts: np.ndarray) -> None:
    """Set the new bias of a head to the logarithm of the frequencies, each counted once more; if it has one."""
    bias = getattr(language_model.model.get_output_embeddings(), "bias", None)
    if bias is None or bias.shape != counts.shape:
        return
    parameters = language_model.model.named_parameters(remove_duplicate=False)
    is_new = any(value is bias and name in language_model.new for name, value in parameters)
    if is_new:
        frequencies = (counts + 1) / (counts.sum() + counts.size)
        with torch.no_grad():
            bias.copy_(torch.from_numpy(np.log(frequencies)))
