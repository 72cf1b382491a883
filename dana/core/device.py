"""Devices: the name in a setting to a torch device, and whether it has instructions of its own for bfloat16."""

import torch


def device_named(name: str = "auto") -> torch.device:
    """The device of a name; ``auto`` is this process's CUDA device, or the CPU where there is none."""
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


def has_bf16(device: torch.device) -> bool:
    """Whether a device multiplies in bfloat16 by instructions of its own, which are several times as fast as float32.

    A CPU that only imitates them is slower than in float32. Asked is what the machine has, not how fast it is just now.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return False
    asked = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(supported() for supported in asked if supported)
