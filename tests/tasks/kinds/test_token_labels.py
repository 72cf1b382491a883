"""A label a word: reading, spans, scores, tables, checks."""

import numpy as np
import pyarrow as pa
import pytest
import toy_kinds

from dana.core.errors import ConfigError, DataError
from dana.tasks.card import TaskCard, load_card
from dana.tasks.examples import Example, read_split
from dana.tasks.kinds import find_kind, kind_of_model

LABELS = ["O", "B-per", "I-per", "B-loc", "I-loc"]
KIND = find_kind("token_labels")(tuple(LABELS))


def tags(text):
    """Class numbers of tags with spaces between; ``?`` is a word without a prediction."""
    return tuple(-1 if tag == "?" else LABELS.index(tag) for tag in text.split())


def answers(*texts):
    return KIND.gather([tags(text) for text in texts])


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("O O", set()),
        ("B-per I-per O B-loc", {("per", 0, 2), ("loc", 3, 4)}),
        ("B-per B-per", {("per", 0, 1), ("per", 1, 2)}),
        ("I-per I-per O", {("per", 0, 2)}),  # an I without a B begins a span
        ("B-per I-loc I-loc", {("per", 0, 1), ("loc", 1, 3)}),  # of another type, too
        ("I-per B-per I-per", {("per", 0, 1), ("per", 1, 3)}),
        ("O B-loc I-loc", {("loc", 1, 3)}),  # one that the text ends with
        ("B-per ? I-per", {("per", 0, 1), ("per", 2, 3)}),
    ],
)
def test_spans_by_hand(text, spans):
    assert KIND.spans(tags(text)) == spans


TRUE = answers("B-per I-per O B-loc", "O O", "B-loc I-loc")
GUESS = answers("B-per I-per O B-per", "O B-loc", "B-loc O")


def test_scores_by_hand():
    """One span of four predicted and three true is right; five of eight words."""
    found = KIND.scores(GUESS, TRUE)
    assert found["span_f1"] == pytest.approx(2 * 1 / (4 + 3))
    assert found["accuracy"] == pytest.approx(5 / 8)
    assert KIND.scores(TRUE, TRUE) == {"span_f1": 1, "accuracy": 1}
    assert KIND.scores(answers("O"), answers("O")) == {"span_f1": 0, "accuracy": 1}


def test_a_word_without_a_prediction_is_wrong():
    assert KIND.scores(answers("O ?"), answers("O O"))["accuracy"] == 0.5


@pytest.mark.parametrize("metric", KIND.metrics)
def test_a_text_that_counts_twice_is_a_text_that_is_there_twice(metric):
    models = np.stack([GUESS, answers("O O O B-loc", "B-loc O", "B-loc I-loc")])
    often = np.random.default_rng(1).integers(0, 4, (5, 3)).astype(float)
    found = KIND.scorer(models, TRUE, metric)(often)
    for draw, counts in enumerate(often.astype(int)):
        repeated = np.repeat(np.arange(3), counts)
        expected = [KIND.scores(model[repeated], TRUE[repeated])[metric] for model in models]
        assert found[draw] == pytest.approx(expected)


def test_words_and_labels_are_read(tmp_path):
    card = load_card(str(toy_kinds.write_task(tmp_path, "token_labels")))
    row = '{"tokens": ["a", "wren", "St. Ives"], "tags": ["O", "B-bird", 3]}\n'
    (tmp_path / "toy" / "dev.jsonl").write_text(row)
    assert read_split(card, "dev") == [Example("dev-1", "a wren St. Ives", (0, 1, 3), words=("a", "wren", "St. Ives"))]
    assert KIND.read_text(" a  wren ") == ("a wren", ("a", "wren"))


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ('{"tokens": ["a", "b"], "tags": ["O"]}', "2 words, but 1 labels"),
        ('{"tokens": ["a"], "tags": "O"}', "label 'O' is str, not a list of labels, one per word"),
        ('{"tokens": ["a"], "tags": ["B-zoo"]}', "label 'B-zoo' is not among the card's"),
        ('{"tokens": ["a"], "tags": [5]}', "label '5' is not among the card's"),
        ('{"tokens": ["a"], "tags": [true]}', "label 'True' is not among the card's"),
        ('{"tokens": ["a", " "], "tags": ["O", "O"]}', "'tokens' has an empty word"),
        ('{"tokens": {"a": 1}, "tags": ["O"]}', "'tokens' is dict, not a list of words"),
        ('{"tokens": ["a", 3], "tags": ["O", "O"]}', "'tokens' is list, not a list of words"),
        ('{"tokens": [], "tags": []}', "the text is empty"),
    ],
)
def test_a_bad_record_is_named_by_file_and_line(tmp_path, row, says):
    card = load_card(str(toy_kinds.write_task(tmp_path, "token_labels")))
    (tmp_path / "toy" / "dev.jsonl").write_text(row + "\n")
    with pytest.raises(DataError, match=f"dev.jsonl:1: {says}"):
        read_split(card, "dev")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"labels": ["noun", "verb"]},
            "metric='span_f1': must be accuracy",
        ),
        (
            {"labels": ["O", "B-", "I-"]},
            "metric='span_f1': must be accuracy",
        ),
        ({"text": None, "template": "{a} {b}"}, "template='{a} {b}': must be left out"),
        ({"text_pair": "b"}, "text_pair='b': must be left out"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(tmp_path, changes, says):
    import re

    with pytest.raises(ConfigError, match=re.escape(says)):
        TaskCard.read(toy_kinds.write_task(tmp_path, "token_labels", **changes))


def test_labels_that_are_no_bio_are_judged_by_accuracy_alone():
    kind = find_kind("token_labels")(
        (
            "noun",
            "verb",
        )
    )
    kind.check_card("accuracy", None, None)
    assert kind.scores(kind.gather([(0, 1)]), kind.gather([(0, 0)])) == {"accuracy": 0.5}


def test_nearly_one_label_for_every_word_is_a_collapse():
    many = answers(*["B-per I-per O O"] * 20)
    assert KIND.is_collapsed(answers(*["O O O O"] * 20), many)
    assert not KIND.is_collapsed(many, many)


def test_tables_hold_a_row_a_text():
    outputs = np.zeros((5, 5), dtype=np.float32)
    outputs[[0, 1, 2, 3], [1, 2, 0, 3]] = 0.75  # the last word was cut off
    references = answers("B-per I-per", "O O O")
    table = pa.table(KIND.columns(outputs, references))
    assert table["prediction"].to_pylist() == [[1, 2], [0, 3, -1]]
    assert np.array_equal(KIND.outputs_from({name: table[name] for name in table.column_names}), outputs)
    assert KIND.answers(table["prediction"]).tolist() == [(1, 2), (0, 3, -1)]
    with pytest.raises(ValueError, match="a class outside 0 to 1"):
        find_kind("token_labels")(
            (
                "a",
                "b",
            )
        ).answers(table["prediction"])
    shown = pa.table(KIND.prediction_columns(outputs, np.array([2, 3]))).to_pylist()
    assert shown[1] == {"label": ["O", "B-loc", None], "probability": [0.75, 0.75, None]}


def test_labels_are_counted_by_word():
    train = list(answers("B-per I-per O O"))
    assert KIND.counts(train, train)[:3] == [("O", 2, 4), ("B-per", 1, 4), ("I-per", 1, 4)]
    assert KIND.absent(train) == ["B-loc", "I-loc"]


def test_token_classifiers_are_told_from_those_of_texts():
    assert kind_of_model(LABELS, None, True) == KIND
    assert kind_of_model(["a", "b"], None, False) == find_kind("single_label")(
        (
            "a",
            "b",
        )
    )
