"""Makes the ``Accelerator`` of a launch, and refuses one that would train as something else than was asked for.

With Accelerate's defaults two CPU processes may be two unrelated runs, DeepSpeed may count one process, and gradients
may never be shared; each of these exits with code 0.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from dana.core.errors import ConfigError
from dana.core.launch import cores, is_set, meeting, processes
from dana.core.logging import get_logger

log = get_logger(__name__)

PRECISIONS = ("no", "bf16", "fp16")

HOW = (
    "launch with accelerate launch --config_file accelerate_configs/X.yaml, or torchrun --standalone --nproc_per_node N"
)


def make_accelerator(trackers: Sequence[str] = (), logs: Path | None = None) -> Any:
    """An ``accelerate.Accelerator`` for how this process was launched.

    Args:
        trackers: Names for its ``log_with``.
        logs: Where they write.

    Raises:
        ConfigError: If what was asked for is not what Accelerate would run; says how to launch.
    """
    from accelerate import Accelerator, InitProcessGroupKwargs

    named = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
    if named not in PRECISIONS:
        raise ConfigError(f"ACCELERATE_MIXED_PRECISION={named}: must be one of {', '.join(PRECISIONS)}")
    world = processes()
    asked = asked_for()
    has_device = torch.accelerator.is_available()
    if asked == "DEEPSPEED" and is_set("ACCELERATE_USE_CPU"):
        raise ConfigError(f"ACCELERATE_USE_CPU turns DeepSpeed off; set one of the two ({HOW})")
    if asked == "FSDP" and not has_device:
        raise ConfigError(f"FSDP needs a GPU here; use accelerate_configs/cpu.yaml or a zero*.yaml ({HOW})")
    meets = meeting()
    share_cores()
    accelerator = Accelerator(
        cpu=meets.pop("cpu"),
        kwargs_handlers=[InitProcessGroupKwargs(**meets)],
        log_with=list(trackers) or None,
        project_dir=str(logs) if logs else None,
    )
    check(accelerator.num_processes, accelerator.distributed_type.value, world, asked)
    log.info(
        "launch    %d process(es) on %s, %s, %d thread(s) each",
        accelerator.num_processes,
        accelerator.device.type,
        accelerator.distributed_type.value if world > 1 else "alone",
        torch.get_num_threads(),
    )
    return accelerator


def share_cores() -> None:
    """Give each process on this machine its share of the cores.

    Launchers set one OpenMP thread a process, whatever the machine has; a number above one is taken as meant.
    """
    given = int(os.environ.get("OMP_NUM_THREADS") or 1)
    launched = {"LOCAL_WORLD_SIZE", "ACCELERATE_DYNAMO_BACKEND"} & os.environ.keys()
    if given == 1 and launched:
        torch.set_num_threads(max(1, cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def asked_for() -> str:
    """The kind of parallelism the launcher asked for: ``DEEPSPEED``, ``FSDP`` or ``DATA``."""
    if is_set("ACCELERATE_USE_DEEPSPEED"):
        return "DEEPSPEED"
    return "FSDP" if is_set("ACCELERATE_USE_FSDP") else "DATA"


def check(processes: int, kind: str, world: int, asked: str) -> None:
    """Refuse to train as something other than what was asked for.

    Args:
        processes: How many Accelerate counts.
        kind: Its distributed type.
        world: How many the launcher started.
        asked: From :func:`asked_for`.

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
