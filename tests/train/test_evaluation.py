from dataclasses import replace

import numpy as np
import pytest
from accelerate import Accelerator

from dana.mlm.heads import MaskedLogits
from dana.train.batch import Shape
from dana.train.evaluation import _ratio, evaluate, sample


def measure(model, examples, masking, budget=512):
    return evaluate(MaskedLogits(model), examples, masking, Shape(budget=budget), Accelerator(cpu=True))


def test_mean_and_standard_error_by_hand():
    # ratio 12/4 = 3; deviations 4 - 3·1, 8 - 3·3 = 1, -1; √(2·2/1) / 4
    found = _ratio(np.array([4.0, 8.0]), np.array([1, 3]))
    assert found.mean == 3
    assert found.standard_error == pytest.approx(2 / 4)


def test_standard_error_of_equal_counts_is_that_of_a_mean():
    sums = np.random.default_rng(0).normal(10, 2, 400)
    assert _ratio(sums, np.ones(400, dtype=int)).standard_error == pytest.approx(sums.std(ddof=1) / 20)


def test_one_example_has_no_standard_error():
    assert np.isnan(_ratio(np.array([3.0]), np.array([2])).standard_error)


def test_loss_depends_on_neither_batches_nor_the_runs_seed_and_rate(tiny_model, masking, make_examples):
    model, examples = tiny_model(dropout=0.5), make_examples()
    base = measure(model, examples, masking)
    assert measure(model, examples, masking, budget=16).mean == pytest.approx(base.mean, abs=1e-6)
    assert measure(model, examples, replace(masking, seed=9, rate=0.5)) == base
    shuffled = examples.rows(np.random.default_rng(0).permutation(len(examples)))
    assert measure(model, shuffled, masking).mean == pytest.approx(base.mean, abs=1e-6)


def test_an_untrained_model_is_near_the_entropy_of_guessing(tiny_model, masking, make_examples):
    assert measure(tiny_model(), make_examples(), masking).mean == pytest.approx(np.log(60), abs=0.15)


def test_measuring_leaves_the_model_in_training_mode_and_without_gradients(tiny_model, masking, make_examples):
    module = MaskedLogits(tiny_model()).train()
    evaluate(module, make_examples(4), masking, Shape(), Accelerator(cpu=True))
    assert module.training
    assert all(value.grad is None for value in module.parameters())


def test_a_sample_is_short_never_empty_and_the_same_whatever_the_order(make_examples):
    examples = make_examples()
    few = sample(examples, 50)
    assert 34 < few.lengths.sum() <= 50
    assert len(sample(examples, 1)) == 1
    reversed_order = examples.rows(np.arange(len(examples))[::-1])
    assert set(sample(reversed_order, 50).ids.tolist()) == set(few.ids.tolist())
    assert sample(examples, 10**6).lengths.sum() == examples.lengths.sum()
