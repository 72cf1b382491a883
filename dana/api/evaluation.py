"""Fine-tune several checkpoints on several labelled tasks: a leaderboard as a pandas table."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.api.keywords import Folder, run_folder, settings_of
from dana.api.training import Model, saved_model
from dana.core.config import require

if TYPE_CHECKING:
    import pandas as pd

EVALUATE = ("finetune", "data", "task_path", "jobs")


def evaluate(
    models: Mapping[str, Model] | Sequence[Folder],
    tasks: Folder | Sequence[Folder],
    out: Folder | None = None,
    **settings: Any,
) -> "pd.DataFrame":
    """Fine-tune every checkpoint on every task, once a seed, all alike, and rank them by their mean.

    Args:
        models: Names of rows to checkpoints, each a folder, a Hub name, or a pair of model and tokenizer; or a list of
            folders and Hub names, whose last parts name them. With one named ``base`` the report compares the others.
        tasks: One or more task cards, by name or YAML file.
        out: Folder of the run: ``leaderboard.csv``, ``leaderboard.json`` (with provenance), ``report.html``, and a
            folder a task and checkpoint, which are reused. None uses a temporary one.
        **settings: Keys of the section ``finetune`` of a recipe (``seeds``, ``preset`` …), ``data``, ``task_path`` and
            ``jobs``.

    Returns:
        A row a checkpoint and task: ``task``, ``checkpoint``, ``model``, ``metric``, ``mean``, ``std`` (ddof 1) over
        seeds, ``low`` and ``high`` (95 % t-interval over seeds), ``n`` and ``collapsed``.

    Raises:
        ConfigError: Of a keyword, a card, or a checkpoint that is unknown or named twice.
        DanaError: See :func:`dana.stages.evaluate.run_evaluate`.
    """
    from dana.stages.evaluate import Checkpoint, run_evaluate

    cards = [tasks] if isinstance(tasks, str | Path) else list(tasks)
    with ExitStack() as stack:
        folder = stack.enter_context(run_folder(out))
        ready = replace(settings_of("evaluate", None, settings, EVALUATE), out=str(folder), cards=list(map(str, cards)))
        listed = isinstance(models, Mapping) or (isinstance(models, Sequence) and not isinstance(models, str))
        require(listed, "models", models, "a mapping of names to checkpoints, or a list of folders and Hub names")
        if not isinstance(models, Mapping):
            wrong = next((type(model).__name__ for model in models if not isinstance(model, str | Path)), None)
            require(wrong is None, "models", wrong, "folders and Hub names; a mapping gives others a name")
            return run_evaluate([Checkpoint.parse(str(model)) for model in models], ready)
        named = [
            Checkpoint(name, stack.enter_context(saved_model(model)), _origin(model)) for name, model in models.items()
        ]
        return run_evaluate(named, ready)


def _origin(model: Model) -> str | None:
    """What the table calls a model in memory, whose folder is gone afterwards."""
    return None if isinstance(model, str | Path) else f"{type(model[0]).__name__} in memory"
