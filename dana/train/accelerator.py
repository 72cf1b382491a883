"""The one place that makes an ``Accelerator``, because on CPUs its defaults silently train something else.

Without this, two CPU processes may be two unrelated runs, DeepSpeed may count one process, and gradients may
never be shared; each of these exits with code 0.
"""

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from dana.errors import ConfigError
from dana.logging import get_logger

log = get_logger(__name__)

HOW = (
    "launch with accelerate launch --config_file accelerate_configs/X.yaml, or torchrun --standalone --nproc_per_node N"
)
PATIENCE = timedelta(hours=6)  # ranks wait while the first one tokenises


def make_accelerator(trackers: Sequence[str] = (), logs: Path | None = None) -> Any:
    """An ``accelerate.Accelerator`` for how this process was launched.

    Args:
        trackers: Names for its ``log_with``.
        logs: Where they write.

    Raises:
        ConfigError: If what was asked for is not what Accelerate would run; says how to launch.
    """
    from accelerate import Accelerator, InitProcessGroupKwargs

    world = int(os.environ.get("WORLD_SIZE", "1"))
    asked = asked_for()
    has_device = torch.accelerator.is_available()
    if asked == "DEEPSPEED" and _flag("ACCELERATE_USE_CPU"):
        raise ConfigError(f"ACCELERATE_USE_CPU turns DeepSpeed off; set one of the two ({HOW})")
    if asked == "FSDP" and not has_device:
        raise ConfigError(f"FSDP needs a GPU here; use accelerate_configs/cpu.yaml or a zero*.yaml ({HOW})")
    gloo = asked == "DEEPSPEED" and not has_device
    plain_cpu = not has_device and world > 1 and asked != "DEEPSPEED"
    share_cores()
    accelerator = Accelerator(
        cpu=plain_cpu,
        kwargs_handlers=[InitProcessGroupKwargs(backend="gloo" if gloo else None, timeout=PATIENCE)],
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
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    launched = {"LOCAL_WORLD_SIZE", "ACCELERATE_MIXED_PRECISION"} & os.environ.keys()
    if given == 1 and launched:
        torch.set_num_threads(max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def asked_for() -> str:
    """The kind of parallelism the launcher asked for: ``DEEPSPEED``, ``FSDP`` or ``DATA``."""
    if _flag("ACCELERATE_USE_DEEPSPEED"):
        return "DEEPSPEED"
    return "FSDP" if _flag("ACCELERATE_USE_FSDP") else "DATA"


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


def _flag(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes")
