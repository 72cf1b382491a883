"""Stage functions of a few lines, which worker processes import by name."""

import os
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dana.core.artifacts import Artifact, Draft, make, read_json, write_json
from dana.core.errors import DataError, Preemption

STAGES = "tests.stages.steps.toy_stages"


@dataclass(frozen=True)
class Seeds:
    """Settings of :func:`draw`."""

    seeds: int = 2
    scale: float = 1.0


def draw(folder: Path, settings: Seeds, after: str = "", seconds: float = 0.0) -> Artifact:
    """Make an artifact of seeds: a score and a flag each; `after` is another's path, whose sum is added."""
    under = (
        sum(row["score"] for row in read_json(Path(after) / "metrics.json")["seeds"])
        if after
        else 0
    )

    def write(draft: Draft) -> None:
        with (folder.parent / "calls.txt").open("a") as stream:
            stream.write(f"{folder.name}\n")
        time.sleep(seconds)
        scores = [settings.scale * (seed + 0.1) + under for seed in range(settings.seeds)]
        notes = {"adaptation": 0, "collapsed": False, "seconds": time.time()}
        rows = [{"seed": seed, "score": score, **notes} for seed, score in enumerate(scores)]
        write_json(draft.path / "metrics.json", {"seeds": rows})

    return make(folder, "drawn", {"settings": settings, "under": under}, write)


def note(folder: Path, notes: dict[str, Any]) -> Artifact:
    """Make an artifact whose manifest holds results without seeds."""
    return make(folder, "notes", {"notes": notes}, lambda draft: draft.notes.update(notes))


def answer(text: str) -> str:
    """Return a text."""
    return text


def refuse(reason: str) -> None:
    """Fails as a stage does that meets bad input."""
    raise DataError(reason)


def blame_itself() -> None:
    """Raise an error that is its own cause."""
    error = ValueError("by itself")
    raise error from error


class Model:
    """Memory that a test watches."""


def run_out_of_memory(alive: list[Any]) -> None:
    """Fails with a model in memory, as a training does on a GPU."""
    model = Model()
    alive.append(weakref.ref(model))
    try:
        raise RuntimeError("out of memory")
    except RuntimeError as error:
        raise DataError("give it less") from error


def stop() -> None:
    """Ends as a training does that was told to stop."""
    raise Preemption("told to stop")


def die() -> None:
    """Ends its process at once."""
    os._exit(9)


LEAKED = []


def leak(megabytes: int) -> None:
    """Holds memory after it has ended, for which loky starts the process anew."""
    time.sleep(1.1)  # loky looks once a second
    LEAKED.append(bytearray(os.urandom(1 << 20) * megabytes))


def where(folder: Path) -> Artifact:
    """Write the device and the number of threads of its process."""

    def write(draft: Draft) -> None:
        names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
        write_json(
            draft.path / "where.json",
            {"pid": os.getpid(), **{name: os.environ.get(name) for name in names}},
        )

    return make(folder, "where", {"folder": folder.name}, write)
