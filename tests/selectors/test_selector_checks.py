"""Checks of selectors: the built-in ones pass, and each broken promise fails the check that names it."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

from dana.core.errors import ConfigError, PluginError
from dana.core.registry import SELECTORS
from dana.selectors.base import FittedSelector, Selector, SelectorContext
from dana.selectors.build import create_selector
from dana.selectors.checks import SelectorChecks, check_selector, checks_of

BUILT_IN = ["detector", "random", "cascade:first='hashing:dims=16'", "dsir", "lexical", "moore_lewis"]
ELSEWHERE = {"classifier", "auto", "fusion"}  # in test_classifier_selector.py and tests/scoring/ranking/test_auto.py


def _failed(candidate):
    return {result.name for result in check_selector(candidate) if not result.passed}


@pytest.mark.parametrize("spec", BUILT_IN)
def test_built_in_selectors_pass_every_check(spec):
    results = check_selector(spec)
    assert [str(result) for result in results if not result.passed] == []
    assert [result.name for result in results] == checks_of(SelectorChecks)
    exempt = [result.name for result in results if "exempt" in result.detail]
    assert exempt == (["task_text_scores_lower"] if spec == "random" else [])


def test_every_selector_of_the_core_is_checked():
    ours = [claims[0] for claims in SELECTORS.entries().values() if claims[0].dist.name == "dana"]
    core = {claim.name for claim in ours if not claim.value.startswith("dana.studies.")}
    assert {spec.partition(":")[0] for spec in BUILT_IN} | ELSEWHERE == core


@dataclass(frozen=True)
class FittedFlawed(FittedSelector):
    """Share of unknown words; `flaw` breaks one promise."""

    flaw: str
    words: list
    calls: list = field(default_factory=list, compare=False, metadata={"saved": False})

    def score_units(self, units):
        known = set(self.words)
        scores = np.array([np.mean([word not in known for word in text.split()]) for text in units.texts])
        self.calls.append(1)
        changed = {
            "wrong sign": lambda: -scores,
            "float32": lambda: scores.astype(np.float32),
            "one too few": lambda: scores[1:],
            "batch-dependent": lambda: scores - (scores.mean() if len(scores) else 0) + np.arange(len(scores)),
            "nothing for nothing": lambda: scores if len(scores) else None,
            "counts its calls": lambda: scores + len(self.calls),
        }
        return changed.get(self.flaw, lambda: scores)()

    def save(self, folder):
        super().save(folder)
        if self.flaw == "pickles":
            (folder / "model.pkl").write_text("x")


@dataclass(frozen=True)
class Flawed(Selector):
    """A selector with one flaw."""

    flaw: str = ""
    fitted_type: ClassVar[type] = FittedFlawed

    def samples(self, task_units):
        return {"some": 0.5} if self.flaw == "half a sample" else {}

    def learn(self, task, general, seed):
        words = sorted({word for text in task.texts for word in text.split()})
        if self.flaw == "global state":
            words = list(np.random.default_rng().permutation(words)[:4])
        if self.flaw == "undeclared setting" and self.settings.geometry == "l2":
            words = words[:4]
        return FittedFlawed(self.flaw, words)

    def identity(self):
        return {"of": np.ones(1)} if self.flaw == "opaque" else super().identity()


@pytest.mark.parametrize(
    ("flaw", "caught_by"),
    [
        ("wrong sign", "task_text_scores_lower"),
        ("float32", "results_are_finite_and_of_their_type"),
        ("one too few", "results_are_finite_and_of_their_type"),
        ("batch-dependent", "order_and_batch_do_not_matter"),
        ("nothing for nothing", "no_items_give_no_results"),
        ("counts its calls", "calling_and_fitting_change_nothing"),
        ("pickles", "saved_and_loaded_scores_equal"),
        ("half a sample", "samples_are_named_sizes"),
        ("global state", "same_seed_same_scores"),
        ("undeclared setting", "settings_not_used_decide_nothing"),
        ("opaque", "identity_is_plain_and_stable"),
    ],
)
def test_a_flaw_fails_its_check(flaw, caught_by):
    assert caught_by in _failed(Flawed(flaw))


def test_a_selector_without_a_flaw_passes():
    assert _failed(Flawed()) == set()


def test_a_misspelt_component_is_refused():
    with pytest.raises(PluginError, match="unknown detector 'knm'; did you mean 'knn'"):
        check_selector("detector:detector=knm")


def test_a_spec_does_not_set_the_context():
    with pytest.raises(ConfigError, match="context"):
        create_selector("random:context=3", SelectorContext())
    with pytest.raises(ConfigError, match="RandomSelector takes: nothing"):
        create_selector("random:3", SelectorContext())
    with pytest.raises(PluginError, match="unknown selector 'randum'; did you mean 'random'"):
        create_selector("randum", SelectorContext())
