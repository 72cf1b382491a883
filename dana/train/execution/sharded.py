"""Sharded tensors (FSDP's DTensor) to whole ones and back; a collective operation. Others pass as they are."""

from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def whole(tensor: Tensor) -> Tensor:
    """A tensor with the parts of all ranks in place; a collective operation if it has parts."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def parted(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, the same on every rank, on the device and in the parts of another of its shape."""
    value: Any = tensor.to(like.device, like.dtype)
    return distribute_tensor(value, like.device_mesh, like.placements) if isinstance(like, DTensor) else value
