import sys

import numpy as np
import pytest

from dana.core.errors import ConfigError, DataError, PluginError
from dana.models.ngram.model import text_entropies
from dana.selectors.checks import CheckResult, check_selector
from dana.selectors.moore_lewis import MooreLewisSelector

TASK = ["the kinase binds the receptor", "a ligand binds the kinase", "the enzyme cuts the protein"] * 4
GENERAL = ["the court heard the appeal", "a judge read the verdict", "the kinase of the court"] * 4
TEXTS = ["the ligand binds the enzyme", "the judge heard the appeal", "wholly other words", "", "the the the"]


def fitted(**parameters):
    return MooreLewisSelector(**parameters).fit(TASK, {"background": GENERAL})


@pytest.mark.parametrize(
    "parameters",
    [{}, {"order": 1}, {"score": "perplexity"}, {"normalise": "none", "vocabulary": "task", "cutoff": 1}],
    ids=str,
)
def test_moore_lewis_passes_the_checks(parameters):
    results: list[CheckResult] = check_selector(MooreLewisSelector(**parameters))
    assert [result.detail for result in results if not result.passed] == []


def test_scores_are_differences_of_entropies():
    made = fitted()
    task, general = text_entropies(made.task, TEXTS), text_entropies(made.background, TEXTS)
    assert made.score(TEXTS) == pytest.approx((task.nats - general.nats) / task.tokens)
    assert fitted(normalise="none").score(TEXTS) == pytest.approx(task.nats - general.nats)
    perplexities = np.exp(task.nats / task.tokens) - np.exp(general.nats / general.tokens)
    assert fitted(score="perplexity").score(TEXTS) == pytest.approx(perplexities)
    assert made.score(TEXTS)[0] < 0 < made.score(TEXTS)[1]


def test_models_share_a_vocabulary():
    both, task = fitted(), fitted(vocabulary="task", min_count=5)
    assert both.task.vocabulary == both.background.vocabulary
    assert {"kinase", "judge"} <= set(both.task.vocabulary.words)
    assert task.task.vocabulary == task.background.vocabulary
    assert "judge" not in task.task.vocabulary.words
    assert task.task.vocabulary.words[3:] == ("the", "binds", "kinase")


def test_a_cutoff_drops_rare_ngrams():
    whole, cut = fitted(order=4).task, fitted(order=4, cutoff=4).task
    assert [level.keys.size for level in cut.levels[:2]] == [level.keys.size for level in whole.levels[:2]]
    assert [level.keys.size for level in cut.levels[2:]] < [level.keys.size for level in whole.levels[2:]]


@pytest.mark.parametrize(
    "task", [["the ligand binds", "a kinase", "the enzyme cuts"], ["the same text"] * 50], ids=["three", "alike"]
)
def test_small_and_uniform_tasks_are_learned(task):
    scores = MooreLewisSelector(order=5).fit(task, {"background": GENERAL}).score([task[0], *GENERAL[:3], ""])
    assert np.isfinite(scores).all()
    assert (scores[0] < scores[1:4]).all()
    made = MooreLewisSelector(vocabulary="task").fit(TASK, {"background": ["nothing shared"] * 9})
    assert made.score(TASK[:3]).max() < 0 < made.score(["nothing shared"])[0]
    assert MooreLewisSelector(background=700).samples(60) == {"background": 700}
    assert MooreLewisSelector(background="task").samples(60) == {"background": 60}


def test_no_background_and_no_words_are_refused():
    for general in ({"background": []}, {"geometry": GENERAL}):
        with pytest.raises(DataError, match="background"):
            MooreLewisSelector().fit(TASK, general)
    with pytest.raises(DataError, match="min_count=99"):
        fitted(min_count=99)
    for parameters, task in (({"min_count": 99}, [" "]), ({"min_count": 1, "vocabulary": "task"}, [" "])):
        with pytest.raises(DataError, match=r"training texts$"):
            MooreLewisSelector(**parameters).fit(task, {"background": GENERAL})


@pytest.mark.parametrize(
    "parameters",
    [
        *[{"order": 0}, {"min_count": 0}, {"cutoff": -1}, {"background": 0}, {"background": "all"}, {"score": "total"}],
        *[{"vocabulary": "general"}, {"normalise": "word"}, {"score": "perplexity", "normalise": "none"}],
        {"engine": "srilm"},
    ],
    ids=str,
)
def test_bad_parameters_are_refused(parameters):
    with pytest.raises(ConfigError, match=list(parameters)[-1]):
        MooreLewisSelector(**parameters)


def test_kenlm_gives_the_same_scores():
    pytest.importorskip("kenlm", reason="KenLM is not installed: pip install 'dana[kenlm]'")
    for parameters in ({}, {"normalise": "none"}, {"score": "perplexity", "order": 2}):
        expected = fitted(**parameters).score(TEXTS)
        assert fitted(**parameters, engine="kenlm").score(TEXTS) == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_missing_kenlm_is_refused_first(monkeypatch):
    monkeypatch.setitem(sys.modules, "kenlm", None)
    with pytest.raises(PluginError, match=r"pip install 'dana\[kenlm\]'"):
        MooreLewisSelector(engine="kenlm")
