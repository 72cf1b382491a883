"""Precision of a process: the launch's where it names one, else bfloat16 where the device has it, else float32."""

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from dana.core.device import device_named, has_bf16


@dataclass(frozen=True)
class Precision:
    """What forward passes compute in; weights, losses and the optimizer stay in float32.

    Attributes:
        device: Where they run.
        name: As Accelerate calls it: ``no`` (float32), ``bf16`` or ``fp16``.
        launched: Whether the launch named it; Accelerate then sees to it in what it prepared.
    """

    device: torch.device
    name: str
    launched: bool

    @classmethod
    def of(cls, accelerator: Any) -> "Precision":
        """The precision of a launch."""
        if os.environ.get("ACCELERATE_MIXED_PRECISION") or accelerator.mixed_precision != "no":
            return cls(accelerator.device, accelerator.mixed_precision, True)
        return cls(accelerator.device, "bf16" if has_bf16(accelerator.device) else "no", False)

    @property
    def reason(self) -> str:
        """Why it is this one."""
        return "as the launch says (no = fp32)" if self.launched else f"what this {self.device.type} device has"

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of a forward pass."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.name == "bf16")


def precision_here() -> str:
    """The name of the precision that a process started from this one will compute in."""
    return os.environ.get("ACCELERATE_MIXED_PRECISION") or ("bf16" if has_bf16(device_named()) else "no")
