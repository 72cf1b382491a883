"""Continued pretraining for domain-adapted language models: selection of text, adaptation, fine-tuning, comparison.

The names below are the Python interface (docs/reference/api.md); each is imported when it is first
used. The commands are in :mod:`dana.cli`, and docs/architecture.md describes the rooms.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from dana.api.predicting import load as load
    from dana.api.runs import init as init
    from dana.api.runs import run as run
    from dana.api.selection import rank as rank
    from dana.api.selection import score as score
    from dana.api.selection import weigh as weigh
    from dana.api.training import adapt as adapt
    from dana.api.training import evaluate as evaluate
    from dana.api.training import finetune as finetune
    from dana.api.training import probe as probe
    from dana.api.training import training_dataset as training_dataset
    from dana.core.errors import DanaError as DanaError
    from dana.scoring.saved_selector import load_selector as load_selector
    from dana.selectors.detector import DetectorSelector as DetectorSelector
    from dana.train.hf_trainer import WeightedCollator as WeightedCollator
    from dana.train.hf_trainer import WeightedTrainer as WeightedTrainer
    from dana.train.hf_trainer import load_model as load_model

_HOMES = {
    "init": "dana.api.runs",
    "run": "dana.api.runs",
    "load": "dana.api.predicting",
    "rank": "dana.api.selection",
    "score": "dana.api.selection",
    "weigh": "dana.api.selection",
    "adapt": "dana.api.training",
    "finetune": "dana.api.training",
    "evaluate": "dana.api.training",
    "probe": "dana.api.training",
    "load_selector": "dana.scoring.saved_selector",
    "load_model": "dana.train.hf_trainer",
    "training_dataset": "dana.api.training",
    "WeightedCollator": "dana.train.hf_trainer",
    "WeightedTrainer": "dana.train.hf_trainer",
    "DanaError": "dana.core.errors",
    "DetectorSelector": "dana.selectors.detector",
}
__all__ = [*_HOMES]


if not TYPE_CHECKING:  # to type checkers the module has the names above and no other

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return version("dana-lm")
        if name not in _HOMES:
            raise AttributeError(f"module 'dana' has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*_HOMES, "__version__"]
