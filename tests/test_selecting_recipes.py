"""No shipped recipe keeps film reviews for a task of another field: of four sources, with static vectors for BERT's."""

import gzip
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from dana.core.config import read_yaml
from dana.core.settings import load
from dana.core.studies import missing_studies
from dana.stages.score import score_read
from dana.stages.settings import RunSettings
from dana.stages.texts import pool_stage, target_stage
from dana.stages.weigh import weigh_stage

RECIPES = Path(__file__).parent.parent / "recipes"
LIKE = {"chemprot": "pubmed", "acl_arc": "arxiv"}  # the source that is like the task
SOURCES = [*LIKE.values(), "news_wikinews", "reviews_movie"]
DOCUMENTS, TASK_UNITS = 25, 300


def read_recipes():
    """Map selector, detector, selection and weights, with static vectors, to the recipes that have them."""
    recipes = {}
    paths = [*RECIPES.glob("*.yaml"), *(RECIPES / "papers" / "dana").glob("*.yaml")]
    for path in sorted(paths):
        if path.stem == "quickstart":  # it takes more documents than the pool of this test has
            continue
        values = read_yaml(path)
        if {
            "selector",
            "detector",
            "weigh",
            "arms",
        } & values.keys() and not values.keys() & missing_studies().keys():
            run = load(RunSettings, values, origin=path.name)
            selection = replace(run.selection, encoder="static", max_target_units=TASK_UNITS)
            recipes.setdefault((run.selector_spec, run.detector, selection, run.weigh), []).append(
                path.stem
            )
    return recipes


SETUPS = read_recipes()
SCORED = list(dict.fromkeys(setup[:3] for setup in SETUPS))


@pytest.fixture(scope="module", params=LIKE)
def run(request, tmp_path_factory, dana_data):
    """A folder with a task's text and a pool of as many documents of each source, and the source like the task."""
    folder = tmp_path_factory.mktemp(request.param)
    for source in SOURCES:
        with gzip.open(
            dana_data / "general" / f"{source}.jsonl.gz", "rt", encoding="utf-8"
        ) as lines:
            (folder / f"{source}.jsonl").write_text(
                "".join(islice(lines, DOCUMENTS)), encoding="utf-8"
            )
    target_stage(request.param, folder / "target")
    pool_stage([str(folder / f"{source}.jsonl") for source in SOURCES], folder / "pool")
    return folder, LIKE[request.param]


def marks(setup):
    return [pytest.mark.slow] if setup[0] == "auto" else []  # it fits four selectors six times


@pytest.mark.parametrize(
    "setup",
    [pytest.param(setup, id="-".join(SETUPS[setup]), marks=marks(setup)) for setup in SETUPS],
)
def test_a_recipe_keeps_text_of_the_tasks_field_and_no_film_reviews(run, setup, tmp_path):
    (folder, like), (*scored, weigh) = run, setup
    scores = score_read(
        folder, folder, *scored, folder / f"scores-{SCORED.index(tuple(scored))}"
    ).path
    weights = weigh_stage(scores, folder / "pool", weigh, tmp_path / "weights")
    kept = {
        source: row["selected_characters"]
        for source, row in weights.manifest["counts"]["by_source"].items()
    }
    assert max(kept, key=kept.__getitem__) == like
    assert kept["reviews_movie"] < 0.1 * sum(kept.values())
