"""The shape of labels: their values decide what they are, and what they do not tell is asked."""

import numpy as np
import pytest

from dana.core.errors import ConfigError, DataError
from dana.tasks.labels import Question, shape_of

ASKS = Question("dana init t.csv --kind {kind}", "dana init t.csv --labels {words}")


def read(values, **options):
    """The kind that values have, and how they are read."""
    shape = shape_of(values, "--label y", **options)
    return shape.kind, [shape.read(value) for value in values]


@pytest.mark.parametrize(
    ("values", "kind", "labels"),
    [
        (["spam", "ham"], "single_label", ["spam", "ham"]),
        (["", "yes"], "single_label", None),
        ([1.0, 2.5, 2.5], "single_label", ["1", "2.5", "2.5"]),
        ([0, 1.0, np.int64(2)], "single_label", ["0", "1", "2"]),
        (["no", "010", "1e3", "null"], "single_label", ["no", "010", "1e3", "null"]),
        (["Arts, culture", "Sports", "Crime, law"], "single_label", None),
        (["Sci/Tech", "World"], "single_label", None),
        ([["a", "b"], ["a"], []], "multi_label", [["a", "b"], ["a"], []]),
        ([("a", "b"), np.array(["a"])], "multi_label", [["a", "b"], ["a"]]),
        ([[2, 5], [27]], "multi_label", [["2", "5"], ["27"]]),
        ([[0], [1]], "multi_label", [["0"], ["1"]]),
        ([[0, 1], [1]], "multi_label", [["0", "1"], ["1"]]),
        (["['a', 'b']", "[]"], "multi_label", [["a", "b"], []]),
        (["['a' 'b']", "['a']"], "multi_label", [["a", "b"], ["a"]]),
        (['["it\'s", "b"]', "{'b'}"], "multi_label", [["it's", "b"], ["b"]]),
        (["[a, b c]", "[a]"], "multi_label", [["a", "b c"], ["a"]]),
        (["a;b", "b", "a ; c", "c", "a"], "multi_label", None),
        (["x, y; z", "z", "x, y"], "multi_label", [["x, y", "z"], ["z"], ["x, y"]]),
        ([n / 7 for n in range(40)], "regression", [n / 7 for n in range(40)]),
        (["0.5", "1.25", "3"], "regression", [0.5, 1.25, 3.0]),
    ],
)
def test_values_decide_what_they_are(values, kind, labels):
    shape = shape_of(values, "--label y")
    assert shape.kind == kind
    if labels is not None:
        assert [shape.read(value) for value in values] == labels


@pytest.mark.parametrize(
    "values",
    [
        [[0, 1, 1], [1, 0, 0]],
        [np.array([False, True, True]), np.array([True, False, False])],
        [["0", "1", "1"], ["1", "0", "0"]],
        ["[0, 1, 1]", "[1, 0, 0]"],
        ["[0 1 1]", "[1 0 0]"],
        ["[0. 1. 1.]", "[1. 0. 0.]"],
        ["0,1,1", "1,0,0"],
        ["0;1;1", "1;0;0"],
    ],
)
def test_vectors_are_no_names_and_their_places_have_the_names_that_are_given(values):
    with pytest.raises(ConfigError, match=r"vector of 0 and 1.*--labels name1 name2 name3"):
        shape_of(values, "--label y", question=ASKS)
    names = ["red", "green", "blue"]
    assert read(values, labels=names) == ("multi_label", [["green", "blue"], ["red"]])
    with pytest.raises(ConfigError, match="3 different names"):
        shape_of(values, "--label y", labels=["a", "b"])
    with pytest.raises(ValueError, match="vector of 3 places"):
        shape_of(values, "--label y", labels=names).read([0, 1])


def test_two_places_are_a_vector_too_and_as_one_label_a_text_have_exactly_one():
    values = [[0, 1], [1, 0]]
    assert read(values, labels=["a", "b"]) == ("multi_label", [["b"], ["a"]])
    assert read(values, labels=["a", "b"], kind="single_label") == ("single_label", ["b", "a"])
    shape = shape_of(values, "y", labels=["a", "b"], kind="single_label")
    with pytest.raises(ValueError, match="has 2 labels, and kind single_label has one a text"):
        shape.read([1, 1])


@pytest.mark.parametrize(
    ("values", "commands"),
    [
        (["a;b", "c"] * 4, {"single_label": ["a;b", "c"], "multi_label": [["a", "b"], ["c"]]}),
        (
            ["a|b", "a|c", "b|c"] * 4,
            {"single_label": ["a|b", "a|c", "b|c"], "multi_label": [["a", "b"], ["a", "c"]]},
        ),
        (
            ["Buffalo, NY", "Albany, NY", "Rome"] * 4,
            {"single_label": ["Buffalo, NY"], "multi_label": [["Buffalo", "NY"]]},
        ),
        ([*range(1, 31)] * 2, {"single_label": ["1", "2"], "regression": [1.0, 2.0]}),
        ([0.5, 1.0, 2] * 9, {"single_label": ["0.5", "1"], "regression": [0.5, 1.0]}),
        (["0,5", "1,25", "2"] * 5, {"multi_label": [["0", "5"]], "regression": [0.5, 1.25, 2.0]}),
    ],
)
def test_what_values_do_not_tell_is_asked_with_the_commands_that_decide_it(values, commands):
    with pytest.raises(ConfigError) as error:
        shape_of(values, "--label y", question=ASKS)
    for kind, labels in commands.items():
        assert f"dana init t.csv --kind {kind}" in str(error.value)
        own_kind, read_labels = read(values, kind=kind)
        assert (own_kind, read_labels[: len(labels)]) == (kind, labels)


def test_lists_with_a_label_for_each_word_are_tags():
    tags = [["O", "B-x", "O"], ["O"]]
    assert read(tags, words=[3, 1]) == ("token_labels", tags)
    assert read(["['O', 'O']", "['O']"], words=[2, 1])[0] == "token_labels"
    assert read([["a", "b"], ["b", "a"]], words=[2, 2])[0] == "multi_label", "by chance"
    assert read([["a"], ["b"]], words=[1, 1])[0] == "multi_label"
    assert read([[0, 1], [1, 1]], words=[2, 2], labels=["a", "b"])[0] == "multi_label"
    assert read([["O", "O"], ["B-x", "O"]], words=[2, 2])[0] == "token_labels"
    assert read([["a", "b"], ["b"]], words=[2, 7])[0] == "multi_label"
    assert read(tags, kind="token_labels") == ("token_labels", tags)


@pytest.mark.parametrize(
    ("values", "options", "error", "words"),
    [
        ([None, float("nan"), " "], {}, DataError, "holds no label"),
        (["a"], {"kind": "nope"}, ConfigError, "must be one of single_label"),
        ([["a"], "b"], {}, DataError, "some labels are lists, but 'b' is str"),
        (["['a', 'b'", "['a']"], {}, DataError, "but \"\\['a', 'b'\" is none; write all alike"),
        ([{"a": 1}], {}, DataError, "is a mapping"),
        (["a", "b"], {"kind": "multi_label"}, DataError, "single words"),
        ([["a"], ["b"]], {"labels": ["x", "y"]}, ConfigError, "leave them out"),
    ],
)
def test_values_that_are_no_labels_are_refused(values, options, error, words):
    with pytest.raises(error, match=words):
        shape_of(values, "--label y", **options)


@pytest.mark.parametrize(
    ("values", "value", "words"),
    [
        ([["a", "b"]], ["a", "a"], "'a' occurs twice"),
        ([["a", "b"]], "a", "is str, not a list"),
        ([["a", "b"]], [["a"]], "not a name"),
        ([["a", "b"]], [None], "label None is empty"),
        (["a", "b"], "", "is empty"),
        ([0.25 * n for n in range(40)], "high", "not a finite number"),
    ],
)
def test_a_value_of_another_form_is_refused(values, value, words):
    with pytest.raises(ValueError, match=words):
        shape_of(values, "--label y").read(value)


@pytest.mark.parametrize(
    ("values", "kind", "words"),
    [
        ([1, 2], "multi_label", "label 1 is int, not a list of labels$"),
        (["a b"], "token_labels", "is str, not a list of labels, one per word$"),
        ([3], "token_labels", "is int, not a list of labels, one per word$"),
    ],
)
def test_values_of_another_kind_than_was_said_are_refused_one_by_one(values, kind, words):
    with pytest.raises(ValueError, match=words):
        shape_of(values, "--label y", kind=kind).read(values[0])


@pytest.mark.parametrize("values", [["500", "981", "1,018", "2,683"], ["1,018"]])
def test_numbers_whose_commas_may_divide_thousands_are_refused(values):
    with pytest.raises(DataError, match=r"1,018.* may be thousands, or have three decimals"):
        shape_of(values, "--label y", kind="regression")


@pytest.mark.parametrize(
    ("values", "read_as"), [(["1,5", "1,018"], [1.5, 1.018]), (["0,125", "3"], [0.125, 3.0])]
)
def test_a_comma_that_can_only_begin_decimals_does(values, read_as):
    assert read(values, kind="regression") == ("regression", read_as)


def test_names_of_labels_beside_numbers_are_refused():
    with pytest.raises(ConfigError, match="labels"):
        shape_of([1.0, 2.5], "--label y", kind="regression", labels=["a"])
