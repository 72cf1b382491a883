"""Torch devices: find a device by its name, and measure whether bfloat16 is faster than float32 there."""

import time
from functools import cache

import torch

TURNS = 6  # of each precision; all of them take a tenth of a second
WORTHWHILE = 1.2  # times float32's speed, from which bfloat16 is taken


def device_named(name: str = "auto") -> torch.device:
    """The device of a name; ``auto`` is this process's CUDA device, or the CPU where there is none."""
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


def has_bf16(device: torch.device) -> bool:
    """Whether a device multiplies in bfloat16 by instructions of its own, and these are faster than float32.

    A CPU that only imitates them is slower than in float32. One that has them may be, too: seen are twice the speed of
    float32 or more where AMX runs them, and half of it under a hypervisor that shows AVX512-BF16 and hides AMX. So a
    CPU is timed, once in a process; both kinds lie so far from the bound that load does not decide it.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return False
    asked = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(supported() for supported in asked if supported) and speed_of_bf16() > WORTHWHILE


@cache
def speed_of_bf16() -> float:
    """How many times as fast as in float32 this CPU multiplies in bfloat16, by the fastest of interleaved turns."""
    operands = [
        (torch.zeros(2048, 256, dtype=dtype), torch.zeros(1024, 256, dtype=dtype))
        for dtype in (torch.float32, torch.bfloat16)
    ]
    seconds = [float("inf")] * len(operands)
    with torch.no_grad():
        for _ in range(TURNS):
            for place, (rows, weights) in enumerate(operands):
                start = time.perf_counter()
                torch.nn.functional.linear(rows, weights)
                seconds[place] = min(seconds[place], time.perf_counter() - start)
    return seconds[0] / seconds[1]
