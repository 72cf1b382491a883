"""Prepare a run from a table of labelled texts, and run it."""

from typing import TYPE_CHECKING, Any

from dana.api.keywords import Folder, plain_value, with_messages
from dana.core.config import flatten, merge_sections
from dana.stages import init as stage
from dana.stages.recipe import read_recipe, remove_rivals
from dana.stages.run import run_recipe
from dana.stages.settings import load_settings

if TYPE_CHECKING:
    import pandas as pd

init = with_messages(stage.init)


@with_messages
def run(
    recipe: Folder,
    quick: bool = False,
    remake: bool = False,
    minutes: float | None = None,
    **settings: Any,
) -> "pd.DataFrame":
    """Run every step of a recipe and write its report, as ``dana run`` does; finished steps are reused.

    Args:
        recipe: A run's folder, a recipe's YAML file, or the name of one that ships with dana.
        quick: Whether to end after the probes of at most three adaptations or folds, of the arms random and dana. A
            call without goes on from there.
        remake: Whether steps of other settings are replaced, instead of refused.
        minutes: Time of the run: after so many minutes no step begins, nor one that is likely to take longer than
            what is left. The report and the model are of what is done, and the same call goes on.
        **settings: Sections and keys of a recipe that replace its own: ``out="runs/2"``, ``adapt={"tokens": 500_000}``.

    Returns:
        One row per task, arm, metric and seed, as in ``results.csv`` beside the report; baselines
        such as ``tfidf`` are arms without a seed.

    Raises:
        DanaError: See :func:`dana.stages.run.run_recipe`.
    """
    import pandas as pd

    values, path = read_recipe(recipe)
    given = plain_value(settings)
    remove_rivals(values, {key for key, _ in flatten(given)})
    ready = load_settings(merge_sections(values, given), origin=str(path))
    return pd.read_csv(run_recipe(ready, quick, remake, minutes).parent / "results.csv")
