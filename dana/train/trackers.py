"""Experiment trackers by name, through Accelerate; none is on unless it is asked for."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dana.core.config import require
from dana.core.errors import ConfigError
from dana.train.records import Record, values_of


def check_trackers(names: list[str]) -> None:
    """Refuse unknown trackers, and those whose package is missing, before any work.

    Raises:
        ConfigError: Naming the tracker.
    """
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

    known = sorted(map(str, LOGGER_TYPE_TO_CLASS))
    for name in names:
        require(name in known, "trackers", name, f"one of {', '.join(known)}")
        available = name in [str(kind.value) for kind in get_available_trackers()]
        if not available:
            raise ConfigError(f"trackers: the package of {name!r} is not installed")
        if name == "tensorboard" and not (find_spec("tensorboard") or find_spec("tensorboardX")):
            raise ConfigError("trackers: tensorboard is not installed; pip install tensorboard, or trackers=[]")


def start_trackers(accelerator: Any, names: list[str], run: str, settings: dict[str, Any]) -> None:
    """Begin a run in every tracker that the accelerator was made with; settings go in as its configuration."""
    if names:
        plain = {key: value for key, value in _flat(settings) if isinstance(value, bool | int | float | str)}
        accelerator.init_trackers(run, config=plain)


def track(accelerator: Any, record: Record) -> None:
    """Pass a record's numbers on, under ``train/`` or ``held_out/``."""
    values = values_of(record)
    step, group = values.pop("step"), "train" if values.pop("kind") == "step" else "held_out"
    accelerator.log({f"{group}/{name}": value for name, value in values.items()}, step=step)


def stop_trackers(accelerator: Any) -> None:
    """Let trackers write what they hold. Accelerate's ``end_training`` would end the process group as well."""
    for tracker in accelerator.trackers:
        tracker.finish()


def logging_folder(out: Path) -> Path:
    """Where trackers write: beside the model, because its folder is committed whole."""
    return out.parent / "logs"


def _flat(values: dict[str, Any], before: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        found += _flat(value, f"{before}{key}.") if isinstance(value, dict) else [(before + key, value)]
    return found
