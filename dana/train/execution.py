"""Launch of a run: environment in, its ``Accelerator`` and precision out, or a refusal; sharded tensors to whole ones.

With Accelerate's defaults two CPU processes may be two unrelated runs, DeepSpeed may count one process, and gradients
may never be shared; each of these exits with code 0, and is refused here.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from dana.core.device import device_named, has_bf16
from dana.core.errors import ConfigError
from dana.core.launch import cores, is_set, meeting, processes
from dana.core.logging import get_logger

log = get_logger(__name__)

LAUNCH = "ACCELERATE_MIXED_PRECISION"
PRECISIONS = ("no", "bf16", "fp16")
HOW = (
    "launch with accelerate launch --config_file accelerate_configs/X.yaml, or torchrun --standalone --nproc_per_node N"
)


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
    def of(cls, accelerator: Any = None) -> "Precision":
        """The precision of a launch; without one, of a process that is started from this one as it is."""
        named, device = os.environ.get(LAUNCH), accelerator.device if accelerator else device_named()
        if accelerator and (named or accelerator.mixed_precision != "no"):
            named = accelerator.mixed_precision
        return cls(device, named or ("bf16" if has_bf16(device) else "no"), bool(named))

    def for_own_passes(self) -> "Precision":
        """This one, for passes that Accelerate does not prepare.

        Raises:
            ConfigError: If it is one that only Accelerate can do.
        """
        if self.name not in ("no", "bf16"):
            raise ConfigError(f"mixed_precision={self.name!r}: must be no or bf16 here; fp16 is for dana adapt alone")
        return self

    def autocast(self) -> torch.autocast:
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


def make_accelerator(trackers: Sequence[str] = (), logs: Path | None = None) -> Any:
    """An ``accelerate.Accelerator`` for how this process was launched.

    Args:
        trackers: Names for its ``log_with``.
        logs: Where they write.

    Raises:
        ConfigError: If what was asked for is not what Accelerate would run; says how to launch.
    """
    from accelerate import Accelerator, InitProcessGroupKwargs

    named = os.environ.get(LAUNCH, "no")
    if named not in PRECISIONS:
        raise ConfigError(f"{LAUNCH}={named}: must be one of {', '.join(PRECISIONS)}")
    asked = next((kind for kind in ("DEEPSPEED", "FSDP") if is_set(f"ACCELERATE_USE_{kind}")), "DATA")
    if asked == "DEEPSPEED" and is_set("ACCELERATE_USE_CPU"):
        raise ConfigError(f"ACCELERATE_USE_CPU turns DeepSpeed off; set one of the two ({HOW})")
    if asked == "FSDP" and not torch.accelerator.is_available():
        raise ConfigError(f"FSDP needs a GPU here; use accelerate_configs/cpu.yaml or a zero*.yaml ({HOW})")
    meets = meeting()
    share_cores()
    accelerator = Accelerator(
        cpu=meets.pop("cpu"),
        kwargs_handlers=[InitProcessGroupKwargs(**meets)],
        log_with=list(trackers) or None,
        project_dir=str(logs) if logs else None,
    )
    many, kind, device = accelerator.num_processes, accelerator.distributed_type.value, accelerator.device.type
    check(many, kind, processes(), asked)
    log.info("launch    %d process(es) on %s, %s, %d thread(s) each", many, device, kind, torch.get_num_threads())
    return accelerator


def share_cores() -> None:
    """Give each process on this machine its share of the cores.

    Launchers set one OpenMP thread a process, whatever the machine has; a number above one is taken as meant.
    """
    given = int(os.environ.get("OMP_NUM_THREADS") or 1)
    launched = {"LOCAL_WORLD_SIZE", "ACCELERATE_DYNAMO_BACKEND"} & os.environ.keys()
    if given == 1 and launched:
        torch.set_num_threads(max(1, cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def check(processes: int, kind: str, world: int, asked: str) -> None:
    """Refuse to train as something other than what was asked for.

    Args:
        processes: How many Accelerate counts.
        kind: Its distributed type.
        world: How many the launcher started.
        asked: What the launcher was asked for: ``DEEPSPEED``, ``FSDP`` or ``DATA``.

    Raises:
        ConfigError: On any difference.
    """
    if processes != world:
        raise ConfigError(f"{world} processes were launched, but Accelerate sees {processes}; {HOW}")
    if asked != "DATA" and kind != asked:
        raise ConfigError(f"{asked} was asked for, but Accelerate runs {kind}; {HOW}")
    if asked == "DATA" and world > 1 and not kind.startswith("MULTI_"):
        raise ConfigError(f"{world} processes would not share gradients (Accelerate runs {kind}); {HOW}")


def is_deepspeed(accelerator: Any) -> bool:
    """Whether DeepSpeed holds the parameters and the optimizer."""
    return accelerator.distributed_type.value == "DEEPSPEED"


def total(accelerator: Any, sums: torch.Tensor) -> torch.Tensor:
    """Numbers on the CPU, summed over all ranks; a collective operation.

    In whatever precision they come: float64 goes to a device only where several ranks meet, which Macs' never do.
    """
    if accelerator.num_processes == 1:
        return sums
    return accelerator.reduce(sums.to(accelerator.device)).cpu()


def whole(tensor: Tensor) -> Tensor:
    """A tensor with the parts of all ranks in place; a collective operation if it has parts."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def parted(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, the same on every rank, on the device and in the parts of another of its shape."""
    value: Any = tensor.to(like.device, like.dtype)
    return distribute_tensor(value, like.device_mesh, like.placements) if isinstance(like, DTensor) else value
