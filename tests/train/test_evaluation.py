import numpy as np
import pytest
from accelerate import Accelerator

from dana.models.heads import SelectedLogits
from dana.train.evaluation import _ratio, heldout_sample, measure_loss
from dana.train.examples import Batch
from dana.train.layout import BatchLayout
from dana.train.objectives.batch import IGNORED
from dana.train.objectives.masked import MaskedTokens
from dana.train.objectives.next_sentence import NextSentence


def measure(model, examples, collator, budget=512):
    return measure_loss(SelectedLogits(model), examples, collator, BatchLayout(budget=budget), Accelerator(cpu=True))


def test_mean_and_standard_error_by_hand():
    # ratio 12/4 = 3; deviations 4 - 3·1, 8 - 3·3 = 1, -1; √(2·2/1) / 4
    found = _ratio(np.array([4.0, 8.0]), np.array([1, 3]))
    assert found.mean == 3
    assert found.standard_error == pytest.approx(2 / 4)


def test_standard_error_of_equal_counts_is_that_of_a_mean():
    sums = np.random.default_rng(0).normal(10, 2, 400)
    assert _ratio(sums, np.ones(400, dtype=int)).standard_error == pytest.approx(sums.std(ddof=1) / 20)


def test_one_example_has_no_standard_error():
    assert _ratio(np.array([3.0]), np.array([2])).standard_error is None


def test_loss_depends_on_neither_batches_nor_order(tiny_model, collator, make_examples):
    model, examples = tiny_model(dropout=0.5), make_examples()
    base = measure(model, examples, collator)
    assert measure(model, examples, collator, budget=16).mean == pytest.approx(base.mean, abs=1e-6)
    shuffled = examples.rows(np.random.default_rng(0).permutation(len(examples)))
    assert measure(model, shuffled, collator).mean == pytest.approx(base.mean, abs=1e-6)


def test_held_out_masks_depend_on_no_parameter_of_the_objective(tiny_tokenizer, repository_texts):
    ids = tiny_tokenizer(repository_texts[:8])["input_ids"]
    offsets, keys = np.cumsum([0, *map(len, ids)]), np.arange(8, dtype=np.uint64)
    batch = Batch(np.concatenate(ids).astype(np.int32), offsets, keys, np.ones(8, dtype=np.float32))
    objectives = MaskedTokens(), MaskedTokens(0.5), MaskedTokens(whole_word=True), NextSentence(0.3)
    labels = [one.heldout_collator(tiny_tokenizer).step_batch(batch, 0, "token_count").labels for one in objectives]
    assert all(np.array_equal(one, labels[0]) for one in labels[1:])
    assert (labels[0] != IGNORED).mean() == pytest.approx(0.15, abs=0.03)


def test_an_untrained_model_is_near_the_entropy_of_guessing(tiny_model, collator, make_examples):
    assert measure(tiny_model(), make_examples(), collator).mean == pytest.approx(np.log(60), abs=0.15)


def test_measuring_leaves_the_model_in_training_mode_and_without_gradients(tiny_model, collator, make_examples):
    module = SelectedLogits(tiny_model()).train()
    measure_loss(module, make_examples(4), collator, BatchLayout(), Accelerator(cpu=True))
    assert module.training
    assert all(value.grad is None for value in module.parameters())


def test_a_sample_is_short_never_empty_and_the_same_whatever_the_order(make_examples):
    examples = make_examples()
    few = heldout_sample(examples, 50)
    assert 34 < few.lengths.sum() <= 50
    assert len(heldout_sample(examples, 1)) == 1
    reversed_order = examples.rows(np.arange(len(examples))[::-1])
    assert set(heldout_sample(reversed_order, 50).ids.tolist()) == set(few.ids.tolist())
    assert heldout_sample(examples, 10**6).lengths.sum() == examples.lengths.sum()
