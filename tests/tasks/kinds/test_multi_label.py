"""Several labels a text: reading, loss, predictions, scores, tables, checks."""

import numpy as np
import pytest
import torch
import toy_kinds
from sklearn.metrics import accuracy_score, f1_score

from dana.core.errors import ConfigError, DataError
from dana.tasks.card import TaskCard, load_card
from dana.tasks.examples import read_split
from dana.tasks.kinds import find_kind, kind_of_model

KIND = find_kind("multi_label")(
    (
        "a",
        "b",
        "c",
    )
)


def answers(*sets):
    return KIND.gather([tuple(codes) for codes in sets])


TRUE = answers([0], [0, 1], [], [2], [1, 2])
GUESS = answers([0], [0], [1], [], [1, 2])


@pytest.mark.parametrize(("value", "found"), [([], ()), (["c", "a"], (0, 2)), (("b",), (1,))])
def test_labels_are_a_list_of_any_length_in_any_order(value, found):
    assert KIND.read(value) == found


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("a", "label 'a' is str, not a list of labels"),
        (3, "label 3 is int, not a list"),
        (["a", "d"], "label 'd' is not among the card's: a, b, c"),
        (["a", "b", "a"], "label 'a' occurs twice"),
    ],
)
def test_what_is_no_list_of_the_card_s_labels_is_refused(value, says):
    with pytest.raises(ValueError, match=says):
        KIND.read(value)


def test_a_bad_record_is_named_by_file_and_line(tmp_path):
    card = load_card(str(toy_kinds.write_task(tmp_path, "multi_label")))
    (tmp_path / "toy" / "dev.jsonl").write_text('{"text": "x", "label": "bird"}\n')
    with pytest.raises(DataError, match=r"dev\.jsonl:1: label 'bird' is str, not a list of labels"):
        read_split(card, "dev")


@pytest.mark.parametrize("changes", [{"metric": "accuracy"}, {"direction": "lower"}, {"labels": ["one"]}])
def test_a_card_that_does_not_fit_is_refused(tmp_path, changes):
    [key] = changes
    with pytest.raises(ConfigError, match=rf"toy\.yaml: {key}="):
        TaskCard.read(toy_kinds.write_task(tmp_path, "multi_label", **changes))


def test_the_loss_is_the_mean_cross_entropy_of_each_label():
    logits = torch.tensor([[0.0, 2.0, -1.0]])
    targets = torch.from_numpy(KIND.targets([(1,)]))
    assert targets.tolist() == [[0, 1, 0]]
    expected = (np.log(2) + np.log1p(np.exp(-2)) + np.log1p(np.exp(-1))) / 3
    assert KIND.loss(logits, targets).item() == pytest.approx(expected)


def test_a_label_is_given_from_a_half_on():
    found = KIND.decode(np.array([[0.5, 0.49, 0.9], [0.1, 0.2, 0.3]], dtype=np.float32), np.ones(2))
    assert found.tolist() == [(0, 2), ()]


def test_scores_by_hand():
    """Right: a 2, b 1, c 1; predicted: a 2, b 2, c 1; true: a 2, b 2, c 2."""
    found = KIND.scores(GUESS, TRUE)
    assert found["micro_f1"] == pytest.approx(2 * 4 / (5 + 6))
    assert found["macro_f1"] == pytest.approx((4 / 4 + 2 / 4 + 2 / 3) / 3)
    assert found["subset_accuracy"] == pytest.approx(2 / 5)


def test_scores_agree_with_sklearn():
    random = np.random.default_rng(0)
    true, guess = random.random((2, 200, 4)) < 0.3
    kind = find_kind("multi_label")(tuple(list("abcd")))
    sets = [kind.gather([tuple(np.flatnonzero(row)) for row in part]) for part in (guess, true)]
    found = kind.scores(*sets)
    for average in ("micro", "macro"):
        assert found[f"{average}_f1"] == pytest.approx(f1_score(true, guess, average=average, zero_division=0))
    assert found["subset_accuracy"] == pytest.approx(accuracy_score(true, guess))


def test_nothing_there_and_nothing_predicted_is_0():
    none = answers([], [])
    assert KIND.scores(none, none) == {"micro_f1": 0, "macro_f1": 0, "subset_accuracy": 1}


@pytest.mark.parametrize("metric", KIND.metrics)
def test_a_text_that_counts_twice_is_a_text_that_is_there_twice(metric):
    """Of two models at once."""
    random = np.random.default_rng(1)
    models = np.stack([GUESS, answers([0, 1], [1], [], [2], [0])])
    often = random.integers(0, 4, (3, 5)).astype(float)
    found = KIND.scorer(models, TRUE, metric)(often)
    for draw, counts in enumerate(often.astype(int)):
        repeated = np.repeat(np.arange(5), counts)
        for model in range(2):
            expected = KIND.scores(models[model][repeated], TRUE[repeated])[metric]
            assert found[draw, model] == pytest.approx(expected)


def test_one_set_for_everything_is_a_collapse_and_different_ones_are_not():
    many = answers(*[[0], [1], [2], [0, 1]] * 10)
    assert KIND.is_collapsed(answers(*[[]] * 40), many)
    assert KIND.is_collapsed(answers(*[[0, 1]] * 39, [2]), many)
    assert not KIND.is_collapsed(many, many)


def test_tables_hold_what_was_predicted():
    outputs = np.array([[0.9, 0.1, 0.6], [0.2, 0.3, 0.4]], dtype=np.float32)
    import pyarrow as pa

    table = pa.table(KIND.columns(outputs, answers([1], [])))
    assert table["label"].to_pylist() == [[1], []]
    assert table["prediction"].to_pylist() == [[0, 2], []]
    assert np.array_equal(KIND.outputs_from({name: table[name] for name in table.column_names}), outputs)
    assert KIND.answers(table["prediction"]).tolist() == [(0, 2), ()]
    with pytest.raises(ValueError, match="a class outside 0 to 1"):
        find_kind("multi_label")(
            (
                "a",
                "b",
            )
        ).answers(table["prediction"])
    shown = pa.table(KIND.prediction_columns(outputs, np.ones(2))).to_pylist()
    assert shown[0]["label"] == ["a", "c"]
    assert shown[0]["probability"] == pytest.approx([0.9, 0.6])
    assert shown[1] == {"label": [], "probability": []}


def test_a_split_s_labels_are_counted_by_text():
    assert KIND.counts(TRUE, TRUE) == [("a", 2, 5), ("b", 2, 5), ("c", 2, 5)]
    assert KIND.absent([(0,), (0, 2)]) == ["b"]


def test_models_of_transformers_are_told_by_their_problem_type():
    assert kind_of_model(["a", "b"], "multi_label_classification", False) == find_kind("multi_label")(
        (
            "a",
            "b",
        )
    )
    assert kind_of_model(["a", "b"], None, False) == find_kind("single_label")(
        (
            "a",
            "b",
        )
    )
    assert kind_of_model(["a", "b"], "something_else", False) is None
