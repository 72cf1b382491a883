"""Told to stop: finish the step, save, and leave with a code that says "start me again"."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

import torch

from dana.errors import DanaError

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class Preempted(DanaError):
    """Training was told to stop and has saved what it had; the same command goes on from there."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h: try again


class StopRequest:
    """Remembers SIGTERM and SIGUSR1 while it is entered; any rank's request counts for all."""

    def __init__(self) -> None:
        self.received = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():  # Python allows no other to listen
            self._before = {number: signal.signal(number, self._remember) for number in SIGNALS}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.received = True

    def on_any_rank(self, accelerator: Any) -> bool:
        """Whether some rank was asked to stop; every rank must ask together."""
        if accelerator.num_processes == 1:
            return self.received
        flag = torch.tensor([float(self.received)], device=accelerator.device)
        return bool(accelerator.reduce(flag).item())
