"""Hold the weights of linear layers in bfloat16 during a step, cast once instead of in every pass.

Autocast casts each weight and bias in each forward pass, and each of their gradients in each backward
pass: of a BERT-base step more than a quarter of all launches, which bound small models on a GPU. Here
the layers have bfloat16 leaves while a step's passes run. The numbers are the same: the leaf is the cast weight,
and its gradient is cast and added to the float32 weight's after every pass.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from dana.models.adapters import has_adapter
from dana.train.execution import bf16_by_launch


class HalfWeights:
    """The bfloat16 leaves of a model's linear layers.

    Args:
        model: A model that is computed under autocast, with parameters that lie whole on one
            device, in float32.
    """

    def __init__(self, model: nn.Module) -> None:
        self._places: list[tuple[nn.Module, str]] = []
        self._masters: list[Tensor] = []
        self._leaves: list[Tensor] = []
        for layer in model.modules():
            if not isinstance(layer, nn.Linear | Conv1D):
                continue
            for name, master in layer.named_parameters(recurse=False):
                leaf = nn.Parameter(master.detach().bfloat16(), master.requires_grad)
                self._places.append((layer, name))
                self._masters.append(master)
                self._leaves.append(leaf)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the leaves, as the weights are now, into the layers for as long as the block lasts."""
        with torch.no_grad():
            torch._foreach_copy_(self._leaves, self._masters)
        self._put(self._leaves)
        try:
            yield
        finally:
            self._put(self._masters)
            for leaf in self._leaves:
                leaf.grad = None

    @torch.no_grad()
    def collect(self) -> None:
        """Add the gradients of a pass to those of the float32 weights."""
        masters: list[Tensor] = []
        halves: list[Tensor] = []
        for master, leaf in zip(self._masters, self._leaves, strict=True):
            if leaf.grad is not None:
                masters.append(master)
                halves.append(leaf.grad)
                leaf.grad = None
        if not masters:
            return
        wholes = [torch.empty_like(master) for master in masters]
        torch._foreach_copy_(wholes, halves)
        sums: list[Tensor] = []
        parts: list[Tensor] = []
        for master, whole in zip(masters, wholes, strict=True):
            if master.grad is None:
                master.grad = whole
            else:  # of an earlier pass, or of an embedding that is tied to the layer
                sums.append(master.grad)
                parts.append(whole)
        if sums:
            torch._foreach_add_(sums, parts)

    def _put(self, parameters: list[Tensor]) -> None:
        for (layer, name), parameter in zip(self._places, parameters, strict=True):
            assert isinstance(parameter, nn.Parameter)
            layer._parameters[name] = parameter


def saves_casts(model: Any, accelerator: Any, bf16: bool) -> bool:
    """Return whether a run may have half weights: one process on a GPU, in bfloat16, without adapters.

    Several processes share gradients by hooks on the float32 weights, and adapters compute in the
    precision that the weights have.

    Args:
        model: The model.
        accelerator: Device, precision and ranks.
        bf16: Whether its module computes in bfloat16 by autocast.
    """
    alone = accelerator.num_processes == 1 and accelerator.distributed_type.value == "NO"
    on_gpu = accelerator.device.type == "cuda"
    if not (alone and on_gpu) or has_adapter(model):
        return False
    return bf16 or bf16_by_launch(accelerator)
