"""SIGTERM and SIGUSR1: a training run finishes its step and saves; any other work is left at once. Exit code 75."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from dana.core.errors import Preempted

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


@contextmanager
def ending_when_told() -> Iterator[None]:
    """Raise Preempted wherever the process is when a signal comes, so that locks and temporary folders go.

    Raises:
        Preempted: When told to stop.
    """
    process = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # a child that inherited this handler
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        raise Preempted("told to stop; what was finished is kept, the same command goes on from there")

    with _listening(end):
        yield


class StopRequest:
    """Remembers SIGTERM and SIGUSR1 while it is entered; any rank's request counts for all."""

    def __init__(self) -> None:
        self.received = False
        self._listening = _listening(self._remember)

    def __enter__(self) -> "StopRequest":
        self._listening.__enter__()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listening.__exit__(None, None, None)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.received = True

    def on_any_rank(self, accelerator: Any) -> bool:
        """Whether some rank was asked to stop; every rank must ask together."""
        if accelerator.num_processes == 1:
            return self.received
        import torch

        flag = torch.tensor([float(self.received)], device=accelerator.device)
        return bool(accelerator.reduce(flag).item())


@contextmanager
def _listening(handler: Any) -> Iterator[None]:
    """Let a handler answer the signals; Python allows it in the main thread alone, elsewhere nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
