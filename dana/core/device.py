"""Device resolution: the name in a setting to a torch device."""

import torch


def device_named(name: str = "auto") -> torch.device:
    """The device of a name; ``auto`` is this process's CUDA device, or the CPU where there is none."""
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
