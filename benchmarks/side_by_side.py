"""Time a command alone and beside itself, to see whether two commands on one machine hinder each other.

    python benchmarks/side_by_side.py -- dana finetune --model dana-mini --task TASK --out {out}

Every copy gets a new folder in place of {out}. For each it prints wall seconds and CPU seconds (user
and system). On a quiet machine the wall time of two copies should be at most 2.5 times that of one; on
any machine their CPU seconds should hardly grow: threads that spin while they wait burn them.
"""

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path


def start(command: Sequence[str], folder: Path) -> tuple[subprocess.Popen[bytes], float]:
    """Start a copy of a command, with a new folder as ``{out}``."""
    words = [word.replace("{out}", str(folder)) for word in command]
    with folder.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
    return process, time.monotonic()


def measure(command: Sequence[str], copies: int, folder: Path) -> list[tuple[float, float]]:
    """Run copies of a command at once.

    Args:
        command: The words of the command.
        copies: Number of copies.
        folder: Folder for their outputs and logs.

    Returns:
        Wall seconds and CPU seconds of each copy.

    Raises:
        SystemExit: If a copy fails; names its log.
    """
    started = {}
    for copy in range(copies):
        process, begin = start(command, folder / f"{copies}-{copy}")
        started[process.pid] = begin, folder / f"{copies}-{copy}.log"
    times = []
    for _ in range(copies):
        number, status, usage = os.wait3(0)
        begin, log = started[number]
        if status:
            raise SystemExit(f"a copy failed: {log.read_text(errors='replace')[-2000:]}")
        times.append((time.monotonic() - begin, usage.ru_utime + usage.ru_stime))
    return times


def main() -> None:
    """Measure one copy, then two, and print both."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", nargs="+", help="the command, after --")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"load {load:.1f} on {os.cpu_count()} cores before")
    with tempfile.TemporaryDirectory() as folder:
        [(alone, cpu)] = measure(options.command, 1, Path(folder))
        print(f"alone         wall {alone:6.1f} s   CPU {cpu:6.1f} s")
        pair = measure(options.command, 2, Path(folder))
    for wall, seconds in pair:
        print(
            f"side by side  wall {wall:6.1f} s   CPU {seconds:6.1f} s   "
            f"{wall / alone:.1f} times the wall time, {seconds / cpu:.1f} times the CPU time"
        )


if __name__ == "__main__":
    main()
