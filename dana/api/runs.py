"""Prepare a run from a table of labelled texts, and run it."""

from typing import TYPE_CHECKING, Any

from dana.api.keywords import Folder, plain_value, with_messages
from dana.core.config import merge_sections
from dana.stages import init as stage
from dana.stages.run import run_recipe
from dana.stages.settings import load_settings, read_recipe

if TYPE_CHECKING:
    import pandas as pd

init = with_messages(stage.init)


@with_messages
def run(recipe: Folder, quick: bool = False, **settings: Any) -> "pd.DataFrame":
    """Run every step of a recipe and write its report, as ``dana run`` does; finished steps are reused.

    Args:
        recipe: Folder of :func:`dana.init`, a recipe's YAML file, or the name of one that ships with dana.
        quick: Whether to do less: three adaptations of the arms random and dana on 0.25 million tokens each.
        **settings: Sections and keys of a recipe that replace its own: ``out="runs/2"``, ``adapt={"tokens": 500_000}``.

    Returns:
        One row per task, arm, metric and seed, as in ``results.csv`` beside the report.

    Raises:
        DanaError: See :func:`dana.stages.run.run_recipe`.
    """
    import pandas as pd

    values, path = read_recipe(recipe, quick)
    ready = load_settings(merge_sections(values, plain_value(settings)), origin=str(path))
    return pd.read_csv(run_recipe(ready).parent / "results.csv")
