"""Set up Accelerate for the way a run was launched, and gather or shard tensors over its ranks.

With Accelerate's defaults two CPU processes may be two unrelated runs, DeepSpeed may count one
process, and gradients may never be shared. Each of these would exit with code 0, so they are
refused here.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from dana.core.config import require
from dana.core.device import allow_tf32, bf16_speedup, find_device, has_bf16
from dana.core.errors import ConfigError
from dana.core.launch import (
    PRECISION_VARIABLE,
    cores,
    env_flag,
    processes,
    rendezvous_options,
)
from dana.core.logging import get_logger

log = get_logger(__name__)

PRECISIONS = ("no", "bf16", "fp16")
LAUNCH_HINT = (
    "launch with accelerate launch --config_file accelerate_configs/X.yaml, or "
    "torchrun --standalone --nproc_per_node N"
)


@dataclass(frozen=True)
class Precision:
    """Device and number format of forward passes; weights, losses and the optimizer stay in float32.

    Attributes:
        device: Device of the forward passes.
        name: Accelerate's name: ``no`` (float32), ``bf16`` or ``fp16``.
        from_launcher: True if the launch set it; Accelerate then applies it to the modules that it
            prepared.
    """

    device: torch.device
    name: str
    from_launcher: bool

    @classmethod
    def from_accelerator(cls, accelerator: Any = None) -> "Precision":
        """Read the precision from an accelerator, or from the environment and the device."""
        name = os.environ.get(PRECISION_VARIABLE)
        device = accelerator.device if accelerator else find_device()
        if accelerator and (name or accelerator.mixed_precision != "no"):
            name = accelerator.mixed_precision
        if name:
            return cls(device, name, from_launcher=True)
        return cls(device, "bf16" if has_bf16(device) else "no", from_launcher=False)

    @classmethod
    def without_scaler(cls, accelerator: Any) -> "Precision":
        """Read the precision for a loop that steps without Accelerate, and so without its scaler.

        Raises:
            ConfigError: If the launch asks for fp16, which needs the scaler.
        """
        precision = cls.from_accelerator(accelerator)
        form = "no or bf16; only dana adapt supports fp16"
        require(precision.name in ("no", "bf16"), "mixed_precision", precision.name, form)
        return precision

    def autocast(self) -> torch.autocast:
        """Return the context manager of a forward pass."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.name == "bf16")


def bf16_by_launch(accelerator: Any) -> bool:
    """Return whether the launch asked for bfloat16, which Accelerate applies to what it wraps."""
    precision = Precision.from_accelerator(accelerator)
    return precision.from_launcher and precision.name == "bf16"


def refuse_precision(folder: Path, before: str | None, now: str) -> None:
    """Refuse to resume a folder in another precision.

    Raises:
        ConfigError: Names the environment variable that sets the earlier precision.
    """
    if before != now:
        remedy = f"to resume it, set {PRECISION_VARIABLE}={before}"
        raise ConfigError(
            f"{folder}: was run with mixed_precision={before}, but this process has {now}; {remedy}"
        )


def make_accelerator(trackers: Sequence[str] = (), logs: Path | None = None) -> Any:
    """Make the ``accelerate.Accelerator`` for the way this process was launched.

    Args:
        trackers: Names of experiment trackers, for its ``log_with``.
        logs: Folder of the trackers.

    Raises:
        ConfigError: If Accelerate would not run what the launcher requested; says how to launch.
    """
    from accelerate import Accelerator, InitProcessGroupKwargs

    precision = os.environ.get(PRECISION_VARIABLE, "no")
    require(
        precision in PRECISIONS, PRECISION_VARIABLE, precision, f"one of {', '.join(PRECISIONS)}"
    )
    engine = "DATA"
    for kind in ("FSDP", "DEEPSPEED"):
        if env_flag(f"ACCELERATE_USE_{kind}"):
            engine = kind
    if engine == "DEEPSPEED" and env_flag("ACCELERATE_USE_CPU"):
        raise ConfigError(
            f"ACCELERATE_USE_CPU turns DeepSpeed off; unset it, or DeepSpeed ({LAUNCH_HINT})"
        )
    if engine == "FSDP" and not torch.accelerator.is_available():
        raise ConfigError(
            f"FSDP needs a GPU; use accelerate_configs/cpu.yaml or a zero*.yaml ({LAUNCH_HINT})"
        )
    options = rendezvous_options()
    share_cores()
    allow_tf32()
    accelerator = Accelerator(
        cpu=options.pop("cpu"),
        kwargs_handlers=[InitProcessGroupKwargs(**options)],
        log_with=list(trackers) or None,
        project_dir=str(logs) if logs else None,
    )
    count = accelerator.num_processes
    kind = accelerator.distributed_type.value
    device = accelerator.device.type
    check_launch(count, kind, processes(), engine)
    if device == "cpu" and accelerator.mixed_precision == "bf16" and bf16_speedup() < 1:
        log.warning(
            "launch    bf16 on a CPU on which float32 is faster; launch with mixed_precision: 'no'"
        )
    threads = torch.get_num_threads()
    if count == 1:
        log.info("device    %s, %d thread(s)", device, threads)
    else:
        log.info(
            "launch    %d process(es) on %s, %s, %d thread(s) each", count, device, kind, threads
        )
    return accelerator


def share_cores() -> None:
    """Give each process on this machine its share of the cores.

    Launchers set one OpenMP thread a process, whatever the machine has; a number above one is taken
    as meant.
    """
    threads = int(os.environ.get("OMP_NUM_THREADS") or 1)
    from_launcher = {"LOCAL_WORLD_SIZE", "ACCELERATE_DYNAMO_BACKEND"} & os.environ.keys()
    if threads == 1 and from_launcher:
        torch.set_num_threads(max(1, cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def check_launch(processes: int, kind: str, world: int, engine: str) -> None:
    """Refuse a launch in which Accelerate runs something else than the launcher requested.

    Args:
        processes: Number of processes according to Accelerate.
        kind: Its distributed type.
        world: Number of processes that the launcher started.
        engine: Engine requested from the launcher: ``DEEPSPEED``, ``FSDP`` or ``DATA``.

    Raises:
        ConfigError: On any difference.
    """
    if processes != world:
        raise ConfigError(
            f"{world} processes were launched, but Accelerate sees {processes}; {LAUNCH_HINT}"
        )
    if engine != "DATA" and kind != engine:
        raise ConfigError(f"{engine} was requested, but Accelerate runs {kind}; {LAUNCH_HINT}")
    if engine == "DATA" and world > 1 and not kind.startswith("MULTI_"):
        raise ConfigError(
            f"{world} processes would not share gradients (Accelerate runs {kind}); {LAUNCH_HINT}"
        )


def describe_launch(accelerator: Any) -> dict[str, Any]:
    """Describe what decides the bits of a training: number of processes, engine, precision."""
    launch = {
        "processes": accelerator.num_processes,
        "kind": accelerator.distributed_type.value,
        "precision": Precision.from_accelerator(accelerator).name,
    }
    if is_deepspeed(accelerator):
        launch["zero_stage"] = accelerator.state.deepspeed_plugin.zero_stage
    return launch


def is_deepspeed(accelerator: Any) -> bool:
    """Return whether DeepSpeed holds the parameters and the optimizer."""
    kind: str = accelerator.distributed_type.value
    return kind == "DEEPSPEED"


def total(accelerator: Any, sums: torch.Tensor) -> torch.Tensor:
    """Sum numbers over all ranks, on the device. Collective.

    A single process returns its input, wherever it lies: Metal has no float64, so on a Mac these
    tensors stay on the CPU.
    """
    if accelerator.num_processes == 1:
        return sums
    reduced: torch.Tensor = accelerator.reduce(sums.to(accelerator.device))
    return reduced


def gather_tensor(tensor: Tensor) -> Tensor:
    """Gather the shards of a tensor from all ranks; return other tensors as they are. Collective."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Move a tensor, the same on every rank, to device, dtype and sharding of another one."""
    value = tensor.to(like.device, like.dtype)
    if isinstance(like, DTensor):
        return distribute_tensor(value, like.device_mesh, like.placements)
    return value
