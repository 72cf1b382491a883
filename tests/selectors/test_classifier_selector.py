"""Classifier selector on a tiny BERT: the contract, its negatives, what it saves, bad input."""

import math

import numpy as np
import pytest
import torch

from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.selectors.base import SelectorContext
from dana.selectors.checks import OTHER, TASK, check_selector
from dana.selectors.classifier import ClassifierSelector, least_similar
from tests import toy_task

CONTEXT = SelectorContext(encoder="hashing:dims=64")
QUICK = {"epochs": 6, "learning_rate": 5e-3, "batch_size": 16}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return str(toy_task.write_checkpoint(tmp_path_factory.mktemp("tiny"), words=[*TASK, *OTHER]))


def texts(words, count, seed=0):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(words, 6)) for _ in range(count)]


@pytest.fixture(scope="module")
def fitted(tiny):
    selector = ClassifierSelector(tiny, context=CONTEXT, **QUICK)
    return selector.fit(texts(TASK, 60), {"background": texts(OTHER, 90)})


def test_classifier_passes_the_checks(tiny):
    results = check_selector(ClassifierSelector(tiny, **QUICK))
    assert [str(result) for result in results if not result.passed] == []


def test_below_zero_is_task_text(fitted):
    assert (fitted.score(texts(TASK, 30, 1)) < 0).all()
    assert (fitted.score(texts(OTHER, 30, 1)) > 0).all()
    assert fitted.notes == {"classifier": {"task": 60, "negatives": 60}}


def test_scores_are_bit_equal_in_any_batch(fitted):
    units = [" ".join(texts(TASK, 1, seed) * (1 + seed % 3)) for seed in range(20)]
    together = fitted.score(units)
    np.testing.assert_array_equal(np.concatenate([fitted.score([unit]) for unit in units]), together)


def test_transformers_opens_the_saved_model(fitted, tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    fitted.save(tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    assert model.config.id2label == {0: "general", 1: "task"}
    unit = texts(TASK + OTHER, 1)[0]
    with torch.no_grad():
        ((general, task),) = model(
            **AutoTokenizer.from_pretrained(tmp_path / "model")(unit, return_tensors="pt")
        ).logits
    assert fitted.score([unit])[0] == pytest.approx(float(general - task), abs=1e-5)


def test_least_similar_is_by_cosine():
    task = torch.tensor([[1.0, 0.0], [1.0, 0.2]])
    general = torch.tensor([[0.1, 0.0], [-1.0, 0.0], [5.0, 0.0], [0.0, 9.0], [0.5, -0.5], [-2.0, -0.1]])
    assert sorted(least_similar(task, general)) == [1, 3, 4, 5]
    assert least_similar(task, general)[0] == 1 or least_similar(task, general)[0] == 5


def test_pre_ranking_excludes_task_text():
    task, general = texts(TASK, 30), texts(OTHER, 60) + texts(TASK, 30, 1)
    ranked = ClassifierSelector(context=CONTEXT).draw_negatives(task, general, 0)
    drawn = ClassifierSelector(negatives="random", context=CONTEXT).draw_negatives(task, general, 0)
    assert len(ranked) == len(drawn) == 30
    assert ClassifierSelector(context=CONTEXT).samples(60) == {"background": 90}
    assert ClassifierSelector(ratio=2.0, negatives="random", context=CONTEXT).samples(60) == {"background": 120}
    assert len(set(ranked)) == 30
    assert set(ranked).isdisjoint(general[60:])
    assert not set(drawn).isdisjoint(general[60:])


def test_classes_have_equal_weight(tiny):
    selector = ClassifierSelector(tiny, "random", ratio=8.0, context=CONTEXT, **QUICK)
    fitted = selector.fit(["cell gene"] * 12, {"background": ["cell gene"] * 96})
    assert abs(fitted.score(["cell gene"])[0]) < math.log(8) / 3


def test_the_default_model_is_the_runs_encoder(tiny):
    own = ClassifierSelector(context=SelectorContext(encoder=f"transformer:{tiny}"))
    given = ClassifierSelector(tiny, context=CONTEXT)
    assert own.identity()["model"] == given.identity()["model"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("negatives", "worst"), ("ratio", 0.0), ("epochs", 0), ("learning_rate", 0.0), ("batch_size", 0)],
        ("max_tokens", 2),
    ],
)
def test_parameters_out_of_range_are_refused(name, value):
    with pytest.raises(ConfigError, match=name):
        ClassifierSelector(**{name: value})


def test_bad_input_is_refused(tiny, tmp_path):
    with pytest.raises(DataError, match="task"):
        ClassifierSelector(tiny, context=CONTEXT).fit([], {"background": ["court"]})
    with pytest.raises(ArtifactError, match="none"):
        ClassifierSelector(str(tmp_path / "none"), context=CONTEXT).identity()
