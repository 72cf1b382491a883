"""Find and name a torch device, and measure whether bfloat16 is faster than float32 on it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import torch

from dana.core.launch import cores

TURNS = 6  # of each precision; all of them take a tenth of a second
WORTHWHILE = 1.2  # minimum speed relative to float32 at which bfloat16 is used


def find_device(name: str = "auto") -> torch.device:
    """Return the device of a name.

    ``auto`` is this process's CUDA device, or the CPU if there is none.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def tensor_on(values: np.ndarray, device: torch.device) -> torch.Tensor:
    """Copy an array to a device. A GPU copies it from pinned memory, while the CPU goes on."""
    tensor = torch.from_numpy(values)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def describe_machine() -> str:
    """Name what this process computes on: its GPU, or the number of CPU cores."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{cores()} CPU core(s)"


def allow_tf32() -> None:
    """Let float32 products of GPUs be rounded to TF32.

    That is several times as fast, with an error of about 1e-3.
    """
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("high")


@contextmanager
def full_float32() -> Iterator[None]:
    """Compute float32 products in full, whatever :func:`allow_tf32` said."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def has_float64(device: torch.device) -> bool:
    """Return whether a device has 64-bit numbers: all but a Mac's GPU."""
    return device.type != "mps"


def has_bf16(device: torch.device) -> bool:
    """Return True if a device has bfloat16 matrix instructions that are faster than float32.

    A CPU is timed once per process, because its instructions do not tell: with AMX bfloat16 was at
    least twice as fast as float32, but half as fast under a hypervisor that offers AVX512-BF16 and
    hides AMX. Both ratios are so far from the threshold that load on the machine does not change
    the result.
    """
    if device.type == "cuda":
        is_supported: bool = torch.cuda.is_bf16_supported(including_emulation=False)
        return is_supported
    if device.type != "cpu":
        return False
    return _cpu_has_instructions() and bf16_speedup() > WORTHWHILE


def _cpu_has_instructions() -> bool:
    """Return whether the CPU has instructions for bfloat16, as far as torch knows them."""
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        check = getattr(torch.cpu, name, None)
        if check and check():
            return True
    return False


@cache
def bf16_speedup() -> float:
    """Measure the speed of bfloat16 relative to float32 on this CPU.

    It is that of the fastest of interleaved products.
    """
    operands = []
    for dtype in (torch.float32, torch.bfloat16):
        rows = torch.zeros(2048, 256, dtype=dtype)
        weights = torch.zeros(1024, 256, dtype=dtype)
        operands.append((rows, weights))
    seconds = [float("inf")] * len(operands)
    with torch.no_grad():
        for _ in range(TURNS):
            for index, (rows, weights) in enumerate(operands):
                start = time.perf_counter()
                torch.nn.functional.linear(rows, weights)
                seconds[index] = min(seconds[index], time.perf_counter() - start)
    return seconds[0] / seconds[1]
