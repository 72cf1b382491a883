"""Which model an arm started from, and whether two arms were adapted alike."""

import json

import pytest

from dana.core.artifacts import MANIFEST, write_json
from dana.report import sections
from dana.report.cells import adaptations, trace, weights
from dana.report.run import read_run
from dana.report.sections import analyse


def manifest(own: str, parent: str, **settings) -> dict:
    """Of a model that was adapted."""
    files = {"model.safetensors": {"digest": own}, "__dana__/x.safetensors": {"digest": "no"}, "config.json": {}}
    return {
        "kind": "model",
        "files": files,
        "depends_on": {"model": {"model.safetensors": parent, "config.json": "c"}, "settings": settings},
    }


def identity(own: str) -> dict[str, str]:
    return {"model.safetensors": own, "config.json": "c", "tokenizer.json": "t"}


def test_a_model_is_followed_back_to_what_the_run_started_from():
    known = adaptations([manifest("b", "a", steps=1), manifest("c", "b", steps=2), {"kind": "scores"}])
    found = trace(identity("c"), known)
    assert (found.parent, found.root, found.settings) == (weights(identity("b")), weights(identity("a")), {"steps": 2})
    base = trace(identity("a"), known)
    assert (base.parent, base.root, base.settings) == (frozenset(), weights(identity("a")), None)
    assert not found.roots_differ(base)
    assert found.roots_differ(trace(identity("z"), known))
    assert not found.roots_differ(trace({"name": "bert"}, known))  # a Hub name may be the same model
    assert trace({"name": "bert"}, known).roots_differ(trace({"name": "roberta"}, known))
    assert not trace(None, known).roots_differ(trace(None, known))


@pytest.mark.parametrize("broken", [{"files": None}, {"files": []}, {"depends_on": None}, {"depends_on": {}}])
def test_a_manifest_that_says_nothing_of_it_is_passed_over(broken):
    assert adaptations([{**manifest("b", "a"), **broken}]) == {}


def test_a_circle_ends():
    assert trace(identity("a"), adaptations([manifest("a", "a")])).root == weights(identity("a"))


@pytest.fixture
def run(tmp_path, write):
    """Three arms that a gain is claimed of; the manifests say which weights were fine-tuned."""
    write["results"](tmp_path, arms={"base": 0.5, "random": 0.6, "dana": 0.7}, collapsed="")
    for arm in ("random", "dana"):
        write["training"](tmp_path / "arms" / arm / "adapted", 0.2)
        edit(tmp_path / "arms" / arm / "adapted", manifest(arm, "start", steps=100))
    for arm in ("base", "random", "dana"):
        fine_tuned(tmp_path, arm, "start" if arm == "base" else arm)
    return tmp_path


def edit(folder, values):
    file = folder / MANIFEST
    write_json(file, {**json.loads(file.read_text()), **values})


def fine_tuned(run, arm, own):
    folder = run / "finetune" / "toy" / arm
    depends_on = json.loads((folder / MANIFEST).read_text())["depends_on"]
    edit(folder, {"depends_on": {**depends_on, "model": identity(own)}})


def said(run):
    return sections.verdict(analyse(read_run(run)))


def test_arms_adapted_alike_from_one_model_are_compared(run):
    assert said(run) == "On toy, dana is better than base and random (8 seeds)."


def test_random_text_that_was_trained_on_for_fewer_steps_is_no_rival(run):
    edit(run / "arms" / "random" / "adapted", manifest("random", "start", steps=50))
    assert "dana and random were not made alike (adapted with steps 100 against 50)" in said(run)
    assert said(run).startswith("On toy, dana is better than base (8 seeds)")


def test_another_base_is_not_what_was_adapted(run):
    fine_tuned(run, "base", "other")
    assert "dana and base were not made alike (they start from different models)" in said(run)
    assert "dana is better than random (8 seeds)" in said(run)


def test_a_model_from_elsewhere_may_be_compared(run):
    """Nothing here says what it was adapted from; that is for its user to know."""
    fine_tuned(run, "dana", "elsewhere")
    assert said(run) == "On toy, dana is better than base and random (8 seeds)."
