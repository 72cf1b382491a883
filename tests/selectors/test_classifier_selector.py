"""Classifier selector on a tiny BERT: the contract, its negatives, what it saves, bad input."""

import math

import numpy as np
import pytest
import torch

from dana.core.errors import ArtifactError
from dana.selectors.base import SelectorContext
from dana.selectors.checks import OTHER, TARGET, check_selector
from dana.selectors.classifier import ClassifierSelector, least_similar
from tests import toy_task

CONTEXT = SelectorContext(encoder="hashing:dims=64")
QUICK = {"epochs": 6, "learning_rate": 5e-3, "batch_size": 16}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return str(toy_task.write_checkpoint(tmp_path_factory.mktemp("tiny"), words=[*TARGET, *OTHER]))


def texts(words, count, seed=0):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(words, 6)) for _ in range(count)]


@pytest.fixture(scope="module")
def classifier(tiny):
    selector = ClassifierSelector(tiny, context=CONTEXT, **QUICK)
    return selector.fit(texts(TARGET, 60), {"background": texts(OTHER, 90)})


def test_classifier_passes_the_checks(tiny):
    results = check_selector(ClassifierSelector(tiny, **QUICK))
    assert [str(result) for result in results if not result.passed] == []


def test_below_zero_is_target_text_in_any_batch(classifier):
    assert (classifier.score(texts(TARGET, 30, 1)) < 0).all()
    assert (classifier.score(texts(OTHER, 30, 1)) > 0).all()
    assert classifier.notes == {"classifier": {"target": 60, "negatives": 60}}
    units = [" ".join(texts(TARGET, 1, seed) * (1 + seed % 3)) for seed in range(20)]
    alone = [classifier.score([unit]) for unit in units]
    np.testing.assert_array_equal(np.concatenate(alone), classifier.score(units))


def test_transformers_opens_the_saved_model(classifier, tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    classifier.save(tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    assert model.config.id2label == {0: "pool", 1: "target"}
    unit = texts(TARGET + OTHER, 1)[0]
    inputs = AutoTokenizer.from_pretrained(tmp_path / "model")(unit, return_tensors="pt")
    with torch.no_grad():
        ((pool, target),) = model(**inputs).logits
    assert classifier.score([unit])[0] == pytest.approx(float(pool - target), abs=1e-5)


def test_least_similar_is_by_cosine():
    target = torch.tensor([[1.0, 0.0], [1.0, 0.2]])
    pool = torch.tensor(
        [[0.1, 0.0], [-1.0, 0.0], [5.0, 0.0], [0.0, 9.0], [0.5, -0.5], [-2.0, -0.1]]
    )
    assert sorted(least_similar(target, pool)) == [1, 3, 4, 5]
    assert least_similar(target, pool)[0] in (1, 5)


def test_pre_ranking_excludes_target_text():
    target, pool = texts(TARGET, 30), texts(OTHER, 60) + texts(TARGET, 30, 1)
    by_rank, by_chance = (
        ClassifierSelector(context=CONTEXT),
        ClassifierSelector(negatives="random", context=CONTEXT),
    )
    negatives, random = (
        selector.draw_negatives(target, pool, 0) for selector in (by_rank, by_chance)
    )
    assert len(negatives) == len(set(negatives)) == len(random) == 30
    assert set(negatives).isdisjoint(pool[60:])
    assert not set(random).isdisjoint(pool[60:])
    assert by_rank.samples(60) == {"background": 90}
    assert ClassifierSelector(ratio=2.0, negatives="random", context=CONTEXT).samples(60) == {
        "background": 120
    }


def test_classes_have_equal_weight(tiny):
    selector = ClassifierSelector(tiny, "random", ratio=8.0, context=CONTEXT, **QUICK)
    model = selector.fit(["cell gene"] * 12, {"background": ["cell gene"] * 96})
    assert abs(model.score(["cell gene"])[0]) < math.log(8) / 3


def test_the_default_model_is_the_runs_encoder(tiny, tmp_path):
    by_run = ClassifierSelector(context=SelectorContext(encoder=f"transformer:{tiny}"))
    assert (
        by_run.identity()["model"] == ClassifierSelector(tiny, context=CONTEXT).identity()["model"]
    )
    with pytest.raises(ArtifactError, match="none"):
        ClassifierSelector(str(tmp_path / "none"), context=CONTEXT).identity()
