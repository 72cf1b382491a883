"""Precision of a process: the launch's where it names one, else bfloat16 where the device has it, else float32."""

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dana.core.device import device_named, has_bf16
from dana.core.errors import ConfigError

LAUNCH = "ACCELERATE_MIXED_PRECISION"


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
        named = accelerator.mixed_precision
        return cls._decided(accelerator.device, named if os.environ.get(LAUNCH) or named != "no" else None)

    @classmethod
    def here(cls) -> "Precision":
        """That of a process which is started from this one as it is."""
        return cls._decided(device_named(), os.environ.get(LAUNCH))

    @classmethod
    def _decided(cls, device: torch.device, named: str | None) -> "Precision":
        return cls(device, named or ("bf16" if has_bf16(device) else "no"), bool(named))

    @property
    def reason(self) -> str:
        """Why it is this one."""
        return "as the launch says (no = fp32)" if self.launched else f"what this {self.device.type} device has"

    @property
    def is_ours(self) -> bool:
        """Whether it is bfloat16 that Accelerate does not see to."""
        return self.name == "bf16" and not self.launched

    def for_own_passes(self) -> "Precision":
        """This one, for passes that Accelerate does not prepare.

        Raises:
            ConfigError: If it is one that only Accelerate can do.
        """
        if self.name not in ("no", "bf16"):
            raise ConfigError(f"mixed_precision={self.name!r}: must be no or bf16 here; fp16 is for dana adapt alone")
        return self

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of a forward pass."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.name == "bf16")


def refuse_precision(folder: Path, before: str | None, now: str) -> None:
    """Refuse to go on in another precision than a folder was made in.

    Raises:
        ConfigError: Says which environment variable keeps to the one before.
    """
    if before != now:
        keep = f"to go on with it, set {LAUNCH}={before}"
        raise ConfigError(f"{folder}: was run with mixed_precision={before}, this is {now}; {keep}")
