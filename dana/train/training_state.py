"""Hold what a training changes: the model and its optimizer, wrapped for the way the run was launched."""

from dataclasses import dataclass
from typing import Any

import torch

from dana.train.half_weights import HalfWeights
from dana.train.layout import BatchLayout


@dataclass
class TrainingState:
    """Model and optimizer, wrapped by Accelerate for the way the run was launched.

    Attributes:
        module: From :meth:`dana.train.objectives.base.Objective.module`, wrapped.
        optimizer: AdamW, wrapped.
        accelerator: From :func:`dana.train.execution.make_accelerator`.
        shape: Layout of micro-batches, the same on every rank.
        half: The weights in bfloat16, where a step casts them once.
    """

    module: torch.nn.Module
    optimizer: Any
    accelerator: Any
    shape: BatchLayout
    half: HalfWeights | None = None

    @property
    def inner_module(self) -> Any:
        """The module, unwrapped: the model, and heads that are not part of it."""
        return self.accelerator.unwrap_model(self.module)

    def backward(self, loss: torch.Tensor) -> None:
        """Compute the gradients of a pass, and add them to those of the passes before."""
        self.accelerator.backward(loss)
        if self.half is not None:
            self.half.collect()

    @property
    def model(self) -> Any:
        """The transformers model, unwrapped."""
        return self.inner_module.model
