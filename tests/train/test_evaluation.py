"""Held-out losses and their standard errors."""

import numpy as np
import pytest

from dana.models.heads import SelectedLogits
from dana.train.evaluation import HeldoutLoss, _ratio, heldout_sample
from dana.train.examples import Batch
from dana.train.objectives.batch import IGNORED
from dana.train.objectives.masked import MaskedTokens
from dana.train.objectives.next_sentence import NextSentence
from tests.train.conftest import MASKED, bert, mean_loss


def test_mean_and_standard_error_by_hand():
    # ratio 12/4 = 3; deviations 4 - 3·1, 8 - 3·3 = 1, -1; √(2·2/1) / 4
    assert _ratio(np.array([4.0, 8.0]), np.array([1, 3])) == pytest.approx((3, 2 / 4))
    assert _ratio(np.array([3.0]), np.array([2])) == (1.5, None)
    assert _ratio(np.array([0.0, 0.0]), np.array([0, 0])) == (None, None)
    sums = np.random.default_rng(0).normal(10, 2, 400)
    assert _ratio(sums, np.ones(400, dtype=int)).standard_error == pytest.approx(sums.std(ddof=1) / 20)
    assert [str(HeldoutLoss(mean, None)) for mean in (None, 1.25)] == ["nothing to measure", "1.2500 nats"]


def test_the_loss_does_not_depend_on_batches_order_or_dropout(examples):
    module = SelectedLogits(bert(dropout=0.5)).train()
    backwards = examples.rows(np.arange(len(examples))[::-1])
    loss = mean_loss(module, examples, MASKED)
    assert mean_loss(module, examples, MASKED, budget=16) == pytest.approx(loss, abs=1e-6)
    assert mean_loss(module, backwards, MASKED) == pytest.approx(loss, abs=1e-6)
    assert loss == pytest.approx(np.log(60), abs=0.15), "an untrained model guesses"
    assert module.training
    assert all(value.grad is None for value in module.parameters())


def test_held_out_masks_do_not_depend_on_the_objective(tiny_tokenizer, repository_texts):
    ids = tiny_tokenizer(repository_texts[:8])["input_ids"]
    offsets, keys = np.cumsum([0, *map(len, ids)]), np.arange(8, dtype=np.uint64)
    batch = Batch(np.concatenate(ids).astype(np.int32), offsets, keys, np.ones(8, dtype=np.float32))
    objectives = MaskedTokens(), MaskedTokens(0.5), MaskedTokens(whole_word=True), NextSentence(0.3)
    labels = [one.heldout_collator(tiny_tokenizer).step_batch(batch, 0, "token_count").labels for one in objectives]
    assert all(np.array_equal(one, labels[0]) for one in labels[1:])
    assert (labels[0] != IGNORED).mean() == pytest.approx(0.15, abs=0.03)


def test_a_sample_is_short_not_empty_and_does_not_depend_on_the_order(examples):
    sample = heldout_sample(examples, 50)
    assert 34 < sample.lengths.sum() <= 50
    assert len(heldout_sample(examples, 1)) == 1
    backwards = examples.rows(np.arange(len(examples))[::-1])
    assert set(heldout_sample(backwards, 50).ids.tolist()) == set(sample.ids.tolist())
    assert heldout_sample(examples, 10**6).lengths.sum() == examples.lengths.sum()
