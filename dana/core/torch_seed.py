"""Seeds torch's global generator, which dropout and new weights use, and restores its state afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@contextmanager
def seeded(seed: int, device: "torch.device | None" = None) -> Iterator[None]:
    """Seed the global generator (and the CUDA device's, if given), and put its state back afterwards."""
    import torch

    with torch.random.fork_rng(devices=[device] if device and device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
