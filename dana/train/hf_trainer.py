"""Train on weighted examples with Hugging Face's Trainer: data set, collator, and the exact weighted loss of a step."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from accelerate.utils import gather_object
from transformers import Trainer, TrainerCallback

from dana.core.config import require
from dana.core.errors import DataError
from dana.core.registry import OBJECTIVES
from dana.models.folder import load_complete, load_tokenizer, own_class
from dana.models.heads import token_losses
from dana.train import DENOMINATORS
from dana.train.examples import Batch, Examples
from dana.train.layout import BatchLayout, lay_out
from dana.train.objectives.batch import IGNORED, StepBatch, loss_scale, micro_loss

if TYPE_CHECKING:
    from datasets import Dataset

COLUMNS = ("input_ids", "weight", "example_id")
ROWS_AT_ONCE = 8192


def examples_dataset(examples: Examples) -> "Dataset":
    """Convert examples to a ``datasets`` table: ``input_ids`` with special tokens, ``weight`` and ``example_id``."""
    import pyarrow as pa
    from datasets import Dataset
    from datasets.table import InMemoryTable

    tables = []
    for start in range(0, len(examples), ROWS_AT_ONCE):
        batch = examples.take(np.arange(start, min(start + ROWS_AT_ONCE, len(examples))))
        ids = pa.ListArray.from_arrays(pa.array(batch.offsets, pa.int32()), pa.array(batch.tokens))
        tables.append(pa.table([ids, pa.array(batch.weights), pa.array(batch.ids)], names=COLUMNS))
    return Dataset(InMemoryTable(pa.concat_tables(tables)))


def load_model(folder: str | Path) -> tuple[Any, Any]:
    """Load the transformers model that a checkpoint's configuration names, in float32, and its tokenizer.

    Args:
        folder: A folder, a Hub name, or ``dana-mini``, which ships with dana.

    Raises:
        ArtifactError: If there is no such model, or its weights are pickled.
    """
    _, tokenizer = load_tokenizer(str(folder))
    return load_complete(own_class(str(folder)), str(folder)), tokenizer


def check_tokenizer(tokenizer: Any) -> None:
    """Refuse an object that is not a tokenizer.

    Raises:
        ConfigError: If it has no ``pad_token_id``.
    """
    hint = "the model's own, from transformers.AutoTokenizer.from_pretrained(...)"
    require(hasattr(tokenizer, "pad_token_id"), "tokenizer", tokenizer, hint)


class WeightedCollator:
    """Collate rows of :func:`examples_dataset` into ``input_ids``, ``attention_mask``, ``labels`` and ``weight``.

    The masks depend on seed, :attr:`epoch` and ``example_id`` alone, and are those of ``dana
    adapt``. A label is at the position whose logits predict it; other labels are -100.

    Args:
        tokenizer: The model's tokenizer.
        objective: Spec of an objective that predicts tokens, such as ``masked:mask_rate=0.15``.
        seed: Seed of the masks.

    Attributes:
        epoch: Index of the current epoch; :class:`WeightedTrainer` updates it.

    Raises:
        ConfigError: If `tokenizer` is not a tokenizer, or the objective predicts something else
            than tokens.
        DataError: If a row lacks a column.
    """

    def __init__(self, tokenizer: Any, objective: str = "masked", seed: int = 0) -> None:
        check_tokenizer(tokenizer)
        self._pad = tokenizer.pad_token_id or 0
        self._objective = objective
        self._collator = OBJECTIVES.create(objective).collator(tokenizer, seed)
        self.epoch = 0

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Pad and mask rows; returns tensors of shape (rows, longest row), and ``weight`` of shape (rows,)."""
        if missing := [name for name in COLUMNS if name not in rows[0]]:
            raise DataError(
                f"a row has no {', '.join(missing)}, but {', '.join(rows[0])}; use dana.training_dataset"
            )
        tokens = np.concatenate([np.asarray(row["input_ids"], dtype=np.int32) for row in rows])
        ids = np.array([row["example_id"] for row in rows], dtype=np.uint64)
        weights = np.array([row["weight"] for row in rows], dtype=np.float32)
        batch = Batch(
            tokens, np.cumsum([0, *(len(row["input_ids"]) for row in rows)]), ids, weights
        )
        step = self._collator.step_batch(batch, self.epoch, DENOMINATORS[0])
        require(
            type(step) is StepBatch,
            "objective",
            self._objective,
            "one that predicts tokens and nothing else",
        )
        positions, attention = lay_out(np.arange(len(rows)), batch.offsets, BatchLayout())
        columns = {"input_ids": (step.inputs, self._pad), "labels": (step.labels, IGNORED)}
        arrays = {
            name: np.where(positions < 0, fill, flat[positions])
            for name, (flat, fill) in columns.items()
        }
        tensors = {name: torch.from_numpy(array.astype(np.int64)) for name, array in arrays.items()}
        return {**tensors, **attention, "weight": torch.from_numpy(weights)}


class WeightedTrainer(Trainer):
    """Hugging Face's Trainer with the loss Σ c l / Z of a whole optimizer step (:mod:`dana.train.objectives.batch`).

    Coefficients c and denominator Z are computed over all examples of the step, on all ranks, so
    the gradient does not depend on the cut into micro-batches and ranks. A step whose weights are
    all 0 leaves the model unchanged.

    Args:
        *args: Arguments of ``transformers.Trainer``.
        denominator: ``batch``, ``weight_sum`` or ``token_count``.
        **kwargs: Arguments of ``transformers.Trainer``; ``data_collator`` is a :class:`WeightedCollator`.

    Raises:
        ConfigError: If an argument would change the loss.
    """

    loss_is_scaled_for_ga = True  # compute_loss divides by the Z of all micro-batches

    def __init__(self, *args: Any, denominator: str = "batch", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        require(
            denominator in DENOMINATORS,
            "denominator",
            denominator,
            f"one of {', '.join(DENOMINATORS)}",
        )
        arguments, collator = self.args, cast(WeightedCollator, self.data_collator)
        require(
            isinstance(collator, WeightedCollator),
            "data_collator",
            collator,
            "a dana.WeightedCollator",
        )
        require(
            self.compute_loss_func is None, "compute_loss_func", self.compute_loss_func, "left out"
        )
        smoothing, persistent = (
            arguments.label_smoothing_factor,
            arguments.dataloader_persistent_workers,
        )
        require(smoothing == 0, "label_smoothing_factor", smoothing, "0")
        require(
            not persistent,
            "dataloader_persistent_workers",
            persistent,
            "False: each epoch has its own masks",
        )
        arguments.remove_unused_columns = False  # or the Trainer would drop the weights
        self.denominator = denominator
        self.add_callback(_EpochOfMasks(collator))

    def get_batch_samples(
        self, epoch_iterator: Iterator, num_batches: int, device: torch.device
    ) -> tuple[list, Any]:
        """Return this rank's micro-batches of an optimizer step, each with its coefficients, and Z over all ranks."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        weights = [batch.pop("weight").cpu().numpy() for batch in batches]
        counts = [(batch["labels"] != IGNORED).sum(1).cpu().numpy() for batch in batches]
        ranks = gather_object([(np.concatenate(weights), np.concatenate(counts))])
        everywhere = [np.concatenate(parts) for parts in zip(*ranks, strict=True)]
        scale = loss_scale(everywhere[0], everywhere[1], self.denominator)
        start = sum(part.size for part, _ in ranks[: self.accelerator.process_index])
        for batch, part in zip(batches, weights, strict=True):
            coefficients = scale.coefficients[start : start + part.size].astype(np.float32)
            batch["coefficients"], start = (
                torch.from_numpy(coefficients).to(device),
                start + part.size,
            )
        return batches, scale.total

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return a micro-batch's share of the step's loss; in evaluation the loss of the batch alone."""
        arguments = {
            name: value
            for name, value in inputs.items()
            if name not in ("labels", "weight", "coefficients")
        }
        labels, world, total = inputs["labels"], self.accelerator.num_processes, num_items_in_batch
        coefficients, is_label = inputs.get("coefficients"), labels != IGNORED
        if coefficients is None:
            scale = loss_scale(
                inputs["weight"].cpu().numpy(), is_label.sum(1).cpu().numpy(), self.denominator
            )
            coefficients = torch.from_numpy(scale.coefficients.astype(np.float32)).to(labels.device)
            world, total = 1, scale.total
        outputs = model(**arguments)
        losses = token_losses(outputs.logits[is_label], labels[is_label])
        loss = micro_loss(losses, coefficients[is_label.nonzero()[:, 0]], total or 1.0, world)
        return (loss, outputs) if return_outputs else loss

    def training_step(
        self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Run the forward and backward pass of a micro-batch; returns its detached loss."""
        loss = super().training_step(model, inputs, num_items_in_batch)
        if num_items_in_batch == 0:
            model.zero_grad()  # without gradients the optimizer leaves the parameters unchanged
        return loss


class _EpochOfMasks(TrainerCallback):
    """Sets the collator's epoch at the start of each epoch."""

    def __init__(self, collator: WeightedCollator) -> None:
        self._collator = collator

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._collator.epoch = int((state.epoch or 0) + 1e-6)
