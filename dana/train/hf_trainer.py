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
TOKENS_ALONE = "one that predicts tokens and nothing else"
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
        objective: The objective.
        epoch: Index of the current epoch; :class:`WeightedTrainer` updates it.

    Raises:
        ConfigError: If `tokenizer` is not a tokenizer, or the objective predicts something else
            than tokens.
        DataError: If a row lacks a column, or its weight is negative or not finite.
    """

    def __init__(self, tokenizer: Any, objective: str = "masked", seed: int = 0) -> None:
        check_tokenizer(tokenizer)
        self._pad = tokenizer.pad_token_id or 0
        self._spec = objective
        self.objective = OBJECTIVES.create(objective)
        require(not self.objective.has_own_head, "objective", objective, TOKENS_ALONE)
        self._collator = self.objective.collator(tokenizer, seed)
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
        is_bad = ~(np.isfinite(weights) & (weights >= 0))
        if is_bad.any():
            row = rows[int(is_bad.argmax())]
            raise DataError(
                f"example_id {row['example_id']}: weight {row['weight']}: must be a finite number of "
                "at least 0"
            )
        offsets = np.cumsum([0, *(len(row["input_ids"]) for row in rows)])
        batch = Batch(tokens, offsets, ids, weights)
        step = self._collator.step_batch(batch, self.epoch, DENOMINATORS[0])
        require(type(step) is StepBatch, "objective", self._spec, TOKENS_ALONE)
        positions, attention = lay_out(np.arange(len(rows)), batch.offsets, BatchLayout())
        is_padding = positions < 0
        inputs = np.where(is_padding, self._pad, step.inputs[positions])
        labels = np.where(is_padding, IGNORED, step.labels[positions])
        return {
            "input_ids": torch.from_numpy(inputs.astype(np.int64)),
            "labels": torch.from_numpy(labels.astype(np.int64)),
            **attention,
            "weight": torch.from_numpy(weights),
        }


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
        ConfigError: If an argument would change the loss, or the model cannot learn the objective.
    """

    loss_is_scaled_for_ga = True  # compute_loss divides by the Z of all micro-batches

    def __init__(self, *args: Any, denominator: str = "batch", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        allowed = f"one of {', '.join(DENOMINATORS)}"
        require(denominator in DENOMINATORS, "denominator", denominator, allowed)
        collator = cast(WeightedCollator, self.data_collator)
        is_ours = isinstance(collator, WeightedCollator)
        require(is_ours, "data_collator", collator, "a dana.WeightedCollator")
        config = getattr(self.model, "config", None)
        if config is not None:
            collator.objective.auto_class(
                config
            )  # refuses an objective that the model cannot learn
        function = self.compute_loss_func
        require(function is None, "compute_loss_func", function, "left out")
        arguments = self.args
        smoothing = arguments.label_smoothing_factor
        require(smoothing == 0, "label_smoothing_factor", smoothing, "0")
        is_persistent = arguments.dataloader_persistent_workers
        allowed = "False: each epoch has its own masks"
        require(not is_persistent, "dataloader_persistent_workers", is_persistent, allowed)
        arguments.remove_unused_columns = False  # or the Trainer would drop the weights
        self.denominator = denominator
        self.add_callback(_EpochOfMasks(collator))

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Any]:
        """Return this rank's micro-batches of an optimizer step, each with its coefficients, and Z over all ranks."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        weights = [batch.pop("weight").cpu().numpy() for batch in batches]
        counts = [(batch["labels"] != IGNORED).sum(1).cpu().numpy() for batch in batches]
        ranks = gather_object([(np.concatenate(weights), np.concatenate(counts))])
        all_weights = np.concatenate([rank_weights for rank_weights, _ in ranks])
        all_counts = np.concatenate([rank_counts for _, rank_counts in ranks])
        scale = loss_scale(all_weights, all_counts, self.denominator)
        ranks_before = ranks[: self.accelerator.process_index]
        start = sum(rank_weights.size for rank_weights, _ in ranks_before)
        for batch, weight in zip(batches, weights, strict=True):
            end = start + weight.size
            coefficients = scale.coefficients[start:end].astype(np.float32)
            batch["coefficients"] = torch.from_numpy(coefficients).to(device)
            start = end
        return batches, scale.total

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return a micro-batch's share of the step's loss; in evaluation the loss of the batch alone."""
        not_of_the_model = ("labels", "weight", "coefficients")
        arguments = {name: value for name, value in inputs.items() if name not in not_of_the_model}
        labels = inputs["labels"]
        is_label = labels != IGNORED
        coefficients = inputs.get("coefficients")
        world = self.accelerator.num_processes
        total = num_items_in_batch
        if coefficients is None:
            weights = inputs["weight"].cpu().numpy()
            counts = is_label.sum(1).cpu().numpy()
            scale = loss_scale(weights, counts, self.denominator)
            coefficients = torch.from_numpy(scale.coefficients.astype(np.float32)).to(labels.device)
            world = 1
            total = scale.total
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
