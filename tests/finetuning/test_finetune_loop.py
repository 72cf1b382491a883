from dataclasses import replace

import numpy as np
import pytest
import torch
import toy_task
from transformers import AutoTokenizer

from dana.core.errors import DanaError
from dana.finetuning.loop import EncodedSplit, predict, run_seed
from dana.models.classifier import new_classifier
from dana.tasks.card import TaskCard
from dana.tasks.examples import read_splits
from dana.tasks.kinds.single_label import SingleLabel
from dana.train.execution import Precision

KIND = SingleLabel.from_count(3)
FLOAT32 = Precision(torch.device("cpu"), "no", False)
HALF = Precision(torch.device("cpu"), "bf16", False)


@pytest.fixture
def splits(toy_card, checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    splits, kind = read_splits(toy_card), toy_card.target
    labels = {name: EncodedSplit.with_labels(splits[name], tokenizer, 24, kind) for name in ("train", "dev")}
    return {**labels, "test": EncodedSplit.of(splits["test"], tokenizer, 24)}


@pytest.fixture
def run(toy_card, checkpoint, splits):
    """Fine-tunes for a seed; returns the classifier and the result."""

    def run(seed=0, model=checkpoint, precision=FLOAT32, **changes):
        return run_seed(model, splits, toy_card, replace(toy_card.preset("quick"), **changes), seed, precision)

    return run


def test_a_task_that_can_be_learnt_is_learnt(run, toy_card):
    _, result = run()
    right = result.outputs.argmax(1) == [example.label for example in read_splits(toy_card)["test"]]
    assert right.mean() > 0.9
    assert np.allclose(result.outputs.sum(1), 1, atol=1e-5)
    assert (result.epoch, len(result.dev_scores)) == (6, 1), "the development data decide nothing: read once"
    assert result.dev_score == result.dev_scores[0] > 0.9


def test_a_seed_is_reproducible_trains_every_part_and_computes_in_its_precision(run, checkpoint):
    torch.manual_seed(1)
    classifier, first = run(epochs=1)
    torch.manual_seed(2)
    _, again = run(epochs=1)
    assert np.array_equal(first.outputs, again.outputs), "whatever was drawn before"
    assert not np.array_equal(first.outputs, run(seed=1, epochs=1)[1].outputs)
    half, result = run(epochs=1, precision=HALF)
    assert not np.array_equal(first.outputs, result.outputs)
    np.testing.assert_allclose(first.outputs, result.outputs, atol=0.1)
    assert {value.dtype for value in half.parameters()} == {torch.float32}, "weights stay in float32"
    before = dict(new_classifier(checkpoint, 3, 0).named_parameters())
    frozen = [name for name, value in classifier.named_parameters() if torch.equal(value, before[name])]
    assert frozen == []


@pytest.mark.parametrize(
    ("sign", "evaluate", "scores", "epoch"),
    [(1, "best", [0.1, 0.9, 0.9, 0.5], 2), (-1, "best", [0.5, 0.1, 0.1, 0.9], 2), (1, "last", [0.7], 4)],
)
def test_the_first_best_epoch_is_tested_or_the_last(run, splits, monkeypatch, sign, evaluate, scores, epoch):
    """Dev is also the test split here and its scores are fixed, so the predictions of each epoch are known."""
    remaining, predictions = iter(scores), []

    def remember(*arguments):
        predictions.append(predict(*arguments))
        return predictions[-1]

    monkeypatch.setattr(TaskCard, "sign", sign)
    monkeypatch.setattr("dana.tasks.kinds.single_label.score_predictions", lambda *_: {"macro_f1": next(remaining)})
    monkeypatch.setattr("dana.finetuning.loop.predict", remember)
    splits["test"] = splits["dev"]
    _, result = run(epochs=4, evaluate=evaluate)
    assert (result.epoch, result.dev_scores) == (epoch, scores)
    same = [np.array_equal(result.outputs, outputs) for outputs in predictions[:-1]]
    assert same == ([False, True, False, False] if evaluate == "best" else [True])


def test_the_batches_of_a_prediction_do_not_show(splits, checkpoint, monkeypatch):
    classifier = new_classifier(checkpoint, 3, 0)
    together = predict(classifier, splits["test"], KIND, FLOAT32)
    monkeypatch.setattr("dana.finetuning.loop.EVALUATION_TOKENS", 50)
    assert np.allclose(together, predict(classifier, splits["test"], KIND, FLOAT32), atol=1e-6)
    with torch.no_grad():
        alone = classifier(*splits["test"].batch(np.array([5]), torch.device("cpu"))).softmax(-1)
    assert np.allclose(together[5], alone[0], atol=1e-6)


def test_a_loss_that_is_not_finite_stops_the_seed(run, tmp_path):
    broken = toy_task.write_checkpoint(tmp_path / "broken", initializer_range=float("inf"))
    with pytest.raises(DanaError, match=r"seed 0, step 1: the loss is nan; lower learning_rate="):
        run(model=str(broken))


def test_a_step_has_dropout_the_planned_rate_and_a_bounded_gradient(run, monkeypatch):
    """15 steps an epoch, 30 in all: 3 of warm-up, then down to a 27th of the peak."""
    training, rates, norms = [], [], []

    class Recorder(torch.optim.SGD):
        def step(self):
            [group] = self.param_groups
            gradients = [value.grad.norm() for value in group["params"] if value.grad is not None]
            norms.append(torch.stack(gradients).norm().item())
            rates.append(group["lr"])

    def classifier(*arguments):
        classifier = new_classifier(*arguments)
        classifier.register_forward_pre_hook(lambda module, _: training.append(module.training))
        return classifier

    monkeypatch.setattr("dana.finetuning.loop.new_classifier", classifier)
    monkeypatch.setattr("dana.finetuning.loop.make_optimizer", lambda model, *_: Recorder(model.parameters(), 0.0))
    monkeypatch.setattr("dana.finetuning.loop.CLIP", 1e-3)
    run(epochs=2, learning_rate=0.27, evaluate="best")
    assert training == [*[True] * 15, False, *[True] * 15, False, False]  # dev after each epoch, test at the end
    assert rates[:4] == pytest.approx([0.09, 0.18, 0.27, 0.27])
    assert rates[-1] == pytest.approx(0.01)
    assert norms == pytest.approx([1e-3] * 30, rel=1e-2)
