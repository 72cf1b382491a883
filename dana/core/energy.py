"""Energy counters of the machine's processors, memory and GPUs, read now and then, to the joules used in between.

Processors are read where Linux shows RAPL (``/sys/class/powercap``; since 2020 only root may), GPUs where NVML can be
asked (the package ``nvidia-ml-py``). Both count the whole machine, other work on it included.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

RAPL = Path("/sys/class/powercap")
EVERY = 30.0  # seconds; a counter of RAPL begins again after 65 kJ or more, and no processor uses that in so few


@dataclass(frozen=True)
class EnergyCounter:
    """A counter's state.

    Attributes:
        joules: What it shows.
        wraps_at: Joules after which it begins again at 0; 0 if it does not.
    """

    joules: float
    wraps_at: float = 0.0


def read_counters(rapl: Path = RAPL) -> dict[str, EnergyCounter]:
    """The counters that can be read, by name; empty where there are none, or none may be read.

    Args:
        rapl: Folder of the processors' counters.
    """
    return {**_of_processors(rapl), **_of_gpus()}


def joules_between(before: Mapping[str, EnergyCounter], after: Mapping[str, EnergyCounter]) -> float:
    """Joules counted from one reading to another, by the counters that both have; none wrapped twice in between."""
    return sum(_used(before[name], after[name]) for name in sorted(before.keys() & after.keys()))


def _used(before: EnergyCounter, after: EnergyCounter) -> float:
    used = after.joules - before.joules
    return used if used >= 0 else used + after.wraps_at


def _of_processors(rapl: Path) -> dict[str, EnergyCounter]:
    """Packages, and memory beside them; cores and the like are parts of a package."""
    found = {}
    for zone in sorted(rapl.glob("intel-rapl:*")):
        with suppress(OSError, ValueError):
            if (zone / "name").read_text().strip().startswith(("package-", "dram")):
                shown, most = (int((zone / name).read_text()) for name in ("energy_uj", "max_energy_range_uj"))
                found[zone.name] = EnergyCounter(shown / 1e6, most / 1e6)
    return found


def _of_gpus() -> dict[str, EnergyCounter]:
    """Every GPU that counts millijoules, as those since 2017 do."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no package, no driver, no device: each has an error of its own
        return {}
    found = {}
    for number in range(pynvml.nvmlDeviceGetCount()):
        with suppress(pynvml.NVMLError):
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            found[f"gpu:{number}"] = EnergyCounter(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3)
    pynvml.nvmlShutdown()
    return found


class EnergyMeter(AbstractContextManager["EnergyMeter"]):
    """Counts the machine's joules while it is open; a thread reads now and then, so that no counter wraps unseen.

    Args:
        read: Reads the counters; without any there is no thread.
        every: Seconds from one reading to the next.
    """

    def __init__(self, read: Callable[[], dict[str, EnergyCounter]] = read_counters, every: float = EVERY) -> None:
        self._read, self._every = read, every
        self._closed, self._one_at_a_time = threading.Event(), threading.Lock()
        self._last = read()
        self._used = 0.0

    def __enter__(self) -> "EnergyMeter":
        if self._last:
            threading.Thread(target=self._go_on, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    @property
    def joules(self) -> float | None:
        """Used since the meter was made; None where the machine has no counter that may be read."""
        return self._count() if self._last else None

    def _go_on(self) -> None:
        while not self._closed.wait(self._every):
            self._count()

    def _count(self) -> float:
        with self._one_at_a_time:
            now = self._read()
            self._used += joules_between(self._last, now)
            self._last = {**self._last, **now}
            return self._used
