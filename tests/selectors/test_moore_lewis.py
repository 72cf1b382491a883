"""Moore-Lewis selector: differences of the entropies of two n-gram models, by one vocabulary."""

import numpy as np
import pytest

from dana.models.ngram.model import text_entropies
from dana.selectors.moore_lewis import MooreLewisSelector

SENTENCES = [
    "the kinase binds the receptor",
    "a ligand binds the kinase",
    "the enzyme cuts the protein",
]
TARGET = [f"{sentence} {number}" for number in range(4) for sentence in SENTENCES]
POOL = ["the court heard the appeal", "a judge read the verdict", "the kinase of the court"] * 4
TEXTS = [
    "the ligand binds the enzyme",
    "the judge heard the appeal",
    "wholly other words",
    "",
    "the the the",
]


def fit(target=TARGET, pool=POOL, **parameters):
    return MooreLewisSelector(**parameters).fit(target, {"background": pool})


def test_scores_are_differences_of_entropies():
    model = fit()
    assert len(model.target.levels) == len(model.background.levels) == 3, "by default"
    target, pool = text_entropies(model.target, TEXTS), text_entropies(model.background, TEXTS)
    assert model.score(TEXTS) == pytest.approx((target.nats - pool.nats) / target.tokens)
    assert fit(normalise="none").score(TEXTS) == pytest.approx(target.nats - pool.nats)
    perplexities = np.exp(target.nats / target.tokens) - np.exp(pool.nats / pool.tokens)
    assert fit(score="perplexity").score(TEXTS) == pytest.approx(perplexities)
    assert model.score(TEXTS)[0] < 0 < model.score(TEXTS)[1]


def test_models_share_a_vocabulary():
    both, target = fit(), fit(vocabulary="target", min_count=5)
    assert both.target.vocabulary == both.background.vocabulary
    assert {"kinase", "judge"} <= set(both.target.vocabulary.words)
    assert target.target.vocabulary == target.background.vocabulary
    assert target.target.vocabulary.words[3:] == ("the", "binds", "kinase")


def test_a_cutoff_drops_rare_ngrams():
    models = [fit(order=4, cutoff=cutoff) for cutoff in (0, 4)]
    for side in ("target", "background"):
        every, cut = (
            [level.keys.size for level in getattr(model, side).levels] for model in models
        )
        assert cut[:2] == every[:2]
        assert cut[2:] < every[2:]


@pytest.mark.parametrize(
    "target", [["the ligand binds", "a kinase", "the enzyme cuts"], ["the same text"] * 50]
)
def test_small_and_uniform_tasks_are_learnt(target):
    scores = fit(target, order=5).score([target[0], *POOL[:3], ""])
    assert np.isfinite(scores).all()
    assert (scores[0] < scores[1:4]).all()
    apart = fit(pool=["nothing shared"] * 9, vocabulary="target")
    assert apart.score(TARGET[:3]).max() < 0 < apart.score(["nothing shared"])[0]


@pytest.mark.parametrize(
    ("parameters", "size"), [({}, 5000), ({"background": 700}, 700), ({"background": "target"}, 60)]
)
def test_the_background_is_a_sample_of_its_size(parameters, size):
    assert MooreLewisSelector(**parameters).samples(60) == {"background": size}
