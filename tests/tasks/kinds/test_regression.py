"""A number a text: reading, standardised loss, folding into the last layer, scores, tables, checks."""

import numpy as np
import pyarrow as pa
import pytest
import torch
import toy_kinds
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, rankdata, spearmanr

from dana.core.errors import ConfigError, DataError
from dana.tasks.card import TaskCard, load_card
from dana.tasks.examples import read_split
from dana.tasks.kinds import find_kind, is_error, kind_of_model
from dana.tasks.kinds.regression import _weighted_ranks

KIND = find_kind("regression")(())
TRUE, GUESS = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 1.0, 5.0, 5.0])


@pytest.mark.parametrize(("value", "found"), [(3, 3.0), (-0.5, -0.5), ("2.5", 2.5), ("1e3", 1000.0)])
def test_numbers_may_be_written_as_text(value, found):
    assert KIND.read(value) == found


@pytest.mark.parametrize("value", ["high", "", True, None, [1.0], float("nan"), "inf", 10**400, 1e300])
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(ValueError, match="is not a finite number"):
        KIND.read(value)


def test_a_bad_record_is_named_by_file_and_line(tmp_path):
    card = load_card(str(toy_kinds.write_task(tmp_path, "regression")))
    (tmp_path / "toy" / "dev.jsonl").write_text('{"text": "x", "label": 1}\n{"text": "x", "label": "warm"}\n')
    with pytest.raises(DataError, match=r"dev\.jsonl:2: label 'warm' is not a finite number"):
        read_split(card, "dev")


def test_the_direction_is_the_metrics(tmp_path):
    for metric, direction, sign in (("mae", "lower", -1), ("mse", "lower", -1), ("pearson", "higher", 1)):
        card = load_card(str(toy_kinds.write_task(tmp_path, "regression", metric=metric)))
        assert (card.direction, card.sign, card.labels) == (direction, sign, [])
        assert is_error(metric) == (direction == "lower")
    with pytest.raises(ConfigError, match=r"toy\.yaml: direction='higher': must be lower, "):
        TaskCard.read(toy_kinds.write_task(tmp_path, "regression", direction="higher"))
    with pytest.raises(ConfigError, match=r"toy\.yaml: labels=\['a', 'b'\]: must be left out"):
        TaskCard.read(toy_kinds.write_task(tmp_path, "regression", labels=["a", "b"]))
    with pytest.raises(ConfigError, match=r"toy\.yaml: metric='accuracy': must be one of pearson, spearman, mse, mae"):
        TaskCard.read(toy_kinds.write_task(tmp_path, "regression", metric="accuracy"))


def test_the_loss_is_of_standardised_targets():
    targets = KIND.targets([1.0, 5.0])
    fitted = KIND.fit(targets)
    assert (fitted.mean, fitted.std) == (3, 2)
    loss = fitted.loss(torch.tensor([[0.0], [2.0]]), torch.from_numpy(targets))
    assert loss.item() == pytest.approx(((0 + 1) ** 2 + (2 - 1) ** 2) / 2)
    assert fitted.activate(torch.tensor([[0.5]])).item() == 4
    assert KIND.fit(KIND.targets([7.0, 7.0])).std == 1


def test_folded_into_the_last_layer_it_gives_the_same_values():
    fitted = KIND.fit(KIND.targets([100.0, 300.0]))
    layer, hidden = torch.nn.Linear(4, 1), torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = fitted.activate(layer(hidden))
        plain = fitted.fold_into(layer)
        assert plain == KIND
        assert torch.allclose(plain.activate(layer(hidden)), before, rtol=1e-5)


def test_scores_by_hand():
    found = KIND.scores(GUESS, TRUE)
    assert found["mse"] == pytest.approx((1 + 1 + 4 + 1) / 4)
    assert found["mae"] == pytest.approx((1 + 1 + 2 + 1) / 4)
    assert found["pearson"] == pytest.approx(6.5 / np.sqrt(5 * 12.75))
    assert found["spearman"] == pytest.approx(3.5 / np.sqrt(5 * 4.5))  # ranks 2, 1, 3.5, 3.5


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=3, max_size=40))
def test_correlations_agree_with_scipy(pairs):
    one, other = np.array(pairs, dtype=np.float64).T
    found = KIND.scores(one, other)
    if np.ptp(one) and np.ptp(other):
        assert found["pearson"] == pytest.approx(pearsonr(one, other).statistic, abs=1e-9)
        assert found["spearman"] == pytest.approx(spearmanr(one, other).statistic, abs=1e-9)
    else:
        assert (found["pearson"], found["spearman"]) == (0, 0)


@pytest.mark.parametrize("metric", KIND.metrics)
def test_a_text_that_counts_twice_is_a_text_that_is_there_twice(metric):
    random = np.random.default_rng(1)
    true = random.integers(0, 6, 12).astype(float)
    models = true + random.integers(-2, 3, (2, 12))
    often = random.integers(0, 4, (3, 12)).astype(float)
    found = KIND.scorer(models, true, metric)(often)
    for draw, counts in enumerate(often.astype(int)):
        repeated = np.repeat(np.arange(12), counts)
        expected = [KIND.scores(model[repeated], true[repeated])[metric] for model in models]
        assert found[draw] == pytest.approx(expected)


def test_ranks_are_the_mean_ranks_of_what_is_repeated():
    values, often = np.array([3.0, 1.0, 3.0, 2.0]), np.array([1, 2, 3, 1])
    repeated = np.repeat(np.arange(4), often)
    expected = rankdata(values[repeated])
    [found] = _weighted_ranks(values, often[None].astype(float))
    assert found[repeated].tolist() == expected.tolist()


def test_nearly_one_number_is_a_collapse_and_a_weak_model_is_not():
    true = np.random.default_rng(0).normal(50, 10, 200)
    assert KIND.is_collapsed(np.full(200, 50.0), true)
    assert KIND.is_collapsed(50 + (true - 50) * 0.09, true)
    assert not KIND.is_collapsed(50 + (true - 50) * 0.11, true)


def test_tables_hold_values():
    outputs = np.array([[1.5], [2.25]], dtype=np.float32)
    table = pa.table(KIND.columns(outputs, np.array([1.0, 2.0])))
    assert table.to_pylist() == [{"label": 1.0, "prediction": 1.5}, {"label": 2.0, "prediction": 2.25}]
    assert np.array_equal(KIND.outputs_from({name: table[name] for name in table.column_names}), outputs)
    assert KIND.answers(table["prediction"]).tolist() == [1.5, 2.25]
    with pytest.raises(ValueError, match="not finite"):
        KIND.answers(pa.chunked_array([[1.0, float("nan")]]))
    assert pa.table(KIND.prediction_columns(outputs, np.ones(2))).to_pylist() == [{"value": 1.5}, {"value": 2.25}]


def test_values_are_counted_in_fifths_of_the_training_data():
    train = list(range(100))
    found = KIND.counts([-7, 19, 20, 99, 1000], train)
    assert [count for _, count, _ in found] == [2, 1, 0, 0, 2]
    assert found[0][0] == "below 19.8"
    assert found[1][0] == "19.8 to below 39.6"
    assert found[-1][0] == "79.2 and above"
    assert {name for name, _, _ in KIND.counts([1.0], [3.0, 3.0])} == {"below 3", "3 and above"}
    assert KIND.absent([1.0]) == []


def test_a_model_of_one_logit_gives_a_number():
    assert kind_of_model(["LABEL_0"], None, False) == kind_of_model(["value"], "regression", False) == KIND
    assert kind_of_model(["a", "b"], "regression", False) is None
