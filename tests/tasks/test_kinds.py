"""Kinds of labels: reading, loss, predictions, scores, tables, cards and models of each."""

import json
import socket

import numpy as np
import pyarrow as pa
import pytest
import torch
import toy_kinds
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score

from dana.core.errors import ConfigError
from dana.tasks.card import TaskCard, load_card
from dana.tasks.examples import Example, read_split
from dana.tasks.kinds import KINDS, is_error, kind_of_model
from dana.tasks.kinds.base import is_degenerate
from dana.tasks.kinds.single_label import _module, score_predictions

TAGS = ["O", "B-per", "I-per", "B-loc", "I-loc"]
MULTI, NUMBER, WORDS = (
    KINDS["multi_label"](("a", "b", "c")),
    KINDS["regression"](()),
    KINDS["token_labels"]((*TAGS,)),
)
ONE = KINDS["single_label"](("a", "b", "c"))


def sets(*labels):
    return MULTI.gather([tuple(codes) for codes in labels])


def tags(text):
    """Class numbers of tags with spaces between; ``?`` is a word without a prediction."""
    return tuple(-1 if tag == "?" else TAGS.index(tag) for tag in text.split())


def sentences(*texts):
    return WORDS.gather([tags(text) for text in texts])


SETS, SET_GUESS = sets([0], [0, 1], [], [2], [1, 2]), sets([0], [0], [1], [], [1, 2])
NUMBERS, NUMBER_GUESS = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 1.0, 5.0, 5.0])
SENTENCES = sentences("B-per I-per O B-loc", "O O", "B-loc I-loc")
SENTENCE_GUESS = sentences("B-per I-per O B-per", "O B-loc", "B-loc O")

NAMES = KINDS["single_label"](("0", "1", "\u00e9", "True"))

READ = [
    *((NAMES, value, 1) for value in (1, 1.0, np.float64(1), "1", " 1\n")),
    (NAMES, 0.0, 0),
    (NAMES, "e\u0301 ", 2),
    (NAMES, True, 3),
    (MULTI, [], ()),
    (MULTI, ["c", "a"], (0, 2)),
    (MULTI, ("b",), (1,)),
    (MULTI, "b", (1,)),
    (MULTI, "['c', 'a']", (0, 2)),
    (MULTI, "[]", ()),
    (MULTI, "c; a", (0, 2)),
    (MULTI, "a|b", (0, 1)),
    (MULTI, "a,c,", (0, 2)),
    (MULTI, [0, 1, 1], (1, 2)),
    (MULTI, [0.0, 0.0, 0.0], ()),
    (MULTI, np.array([True, False, False]), (0,)),
    (MULTI, "0,1,0", (1,)),
    (MULTI, "[1 0 1]", (0, 2)),
    (KINDS["multi_label"](("a, b", "c")), "a, b", (0,)),
    (KINDS["multi_label"](("a, b", "c")), "a, b; c", (0, 1)),
    (KINDS["multi_label"](("0", "1", "2")), [0, 1, 0], (1,)),
    (KINDS["multi_label"](("0", "1", "2")), [1, 2], (1, 2)),
    (KINDS["single_label"](("1.0", "true")), 1.0, 0),
    (KINDS["single_label"](("1.0", "true")), True, 1),
    (NUMBER, 3, 3.0),
    (NUMBER, "1e3", 1000.0),
    (WORDS, ["O", "B-per", 3], (0, 1, 3)),
]
REFUSED = [
    *((NAMES, value) for value in (0.5, "1.0", float("inf"), float("nan"), "", " \n", None)),
    *(
        (MULTI, value)
        for value in ("d", "a;d", "", 3, ["a", "d"], ["a", "b", "a"], "a;a", [0, 1], [0, 2, 0])
    ),
    (MULTI, [["a"]]),
    (MULTI, [None]),
    (KINDS["multi_label"](("0", "1")), [0, 1]),
    (KINDS["multi_label"](("a", "a|b", "c", "b;c")), "a|b;c"),
    *(
        (NUMBER, value)
        for value in ("high", "", "1_000", True, None, [1.0], float("nan"), "inf", 10**400, 1e300)
    ),
    *((WORDS, value) for value in ("O", ["B-zoo"], [5], [True])),
]


def test_targets_are_read_or_refused_by_value_and_words_are_a_list_or_split_at_spaces(tmp_path):
    for kind, value, label in READ:
        assert kind.read(value) == label
    for kind, value in REFUSED:
        with pytest.raises(ValueError, match="label"):
            kind.read(value)
    card = load_card(str(toy_kinds.write_task(tmp_path, "token_labels")))
    row = {"tokens": ["a", "wren", "St. Ives"], "tags": ["O", "B-bird", 3]}
    (tmp_path / "toy" / "dev.jsonl").write_text(json.dumps(row) + "\n")
    assert read_split(card, "dev") == [
        Example("dev-1", "a wren St. Ives", (0, 1, 3), words=("a", "wren", "St. Ives"))
    ]
    assert WORDS.read_text(" a  wren ") == ("a wren", ("a", "wren"))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        *(
            ("multi_label", change)
            for change in ({"metric": "accuracy"}, {"direction": "lower"}, {"labels": ["one"]})
        ),
        *(
            ("regression", change)
            for change in ({"metric": "f1"}, {"direction": "higher"}, {"labels": ["a", "b"]})
        ),
        ("token_labels", {"template": "{a} {b}", "text": None}),
        ("token_labels", {"text_pair": "b"}),
        ("token_labels", {"metric": "span_f1", "labels": ["noun", "verb"]}),
        ("token_labels", {"metric": "span_f1", "labels": ["O", "B-", "I-"]}),
    ],
)
def test_a_card_that_does_not_fit_its_kind_is_refused(tmp_path, kind, changes):
    with pytest.raises(ConfigError, match=rf"toy\.yaml: {next(iter(changes))}="):
        TaskCard.read(toy_kinds.write_task(tmp_path, kind, **changes))


def test_the_direction_of_a_card_is_its_metrics(tmp_path):
    for metric, direction, sign in (
        ("mae", "lower", -1),
        ("mse", "lower", -1),
        ("pearson", "higher", 1),
    ):
        card = load_card(str(toy_kinds.write_task(tmp_path, "regression", metric=metric)))
        assert (card.direction, card.sign, card.labels) == (direction, sign, [])
        assert is_error(metric) == (direction == "lower")


def test_losses_by_hand():
    chances = ONE.activate(torch.tensor([[0.0, np.log(2.0), 0.0]]))
    assert chances.tolist() == [pytest.approx([0.25, 0.5, 0.25])]
    loss_labels = torch.from_numpy(ONE.loss_labels([1]))
    assert ONE.loss(torch.tensor([[0.0, np.log(2.0), 0.0]]), loss_labels).item() == pytest.approx(
        np.log(2)
    )
    loss_labels = torch.from_numpy(MULTI.loss_labels([(1,)]))
    assert loss_labels.tolist() == [[0, 1, 0]]
    loss = (np.log(2) + np.log1p(np.exp(-2)) + np.log1p(np.exp(-1))) / 3
    assert MULTI.loss(torch.tensor([[0.0, 2.0, -1.0]]), loss_labels).item() == pytest.approx(loss)
    numbers = NUMBER.loss_labels([1.0, 5.0])
    standard = NUMBER.fit(numbers)
    assert (standard.mean, standard.std) == (3, 2)
    loss = standard.loss(torch.tensor([[0.0], [2.0]]), torch.from_numpy(numbers))
    assert loss.item() == pytest.approx(((0 + 1) ** 2 + (2 - 1) ** 2) / 2)
    assert standard.activate(torch.tensor([[0.5]])).item() == 4
    assert NUMBER.fit(NUMBER.loss_labels([7.0, 7.0])).std == 1


def test_mean_and_deviation_fold_into_the_last_layer():
    standard = NUMBER.fit(NUMBER.loss_labels([100.0, 300.0]))
    layer, states = (
        torch.nn.Linear(4, 1),
        torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
    )
    with torch.no_grad():
        before = standard.activate(layer(states))
        plain = standard.fold_into(layer)
        assert plain == NUMBER
        assert torch.allclose(plain.activate(layer(states)), before, rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("O O", set()),
        ("B-per I-per O B-loc", {("per", 0, 2), ("loc", 3, 4)}),
        ("B-per B-per", {("per", 0, 1), ("per", 1, 2)}),
        ("I-per I-per O", {("per", 0, 2)}),  # an I without a B begins a span
        ("B-per I-loc I-loc", {("per", 0, 1), ("loc", 1, 3)}),  # also one of another type
        ("I-per B-per I-per", {("per", 0, 1), ("per", 1, 3)}),
        ("O B-loc I-loc", {("loc", 1, 3)}),  # at the end of the text
        ("B-per ? I-per", {("per", 0, 1), ("per", 2, 3)}),
    ],
)
def test_spans_by_hand(text, spans):
    assert WORDS.spans(tags(text)) == spans


def test_scores_by_hand_and_by_sklearn():
    # right: a 2, b 1, c 1; predicted: a 2, b 2, c 1; true: a 2, b 2, c 2
    scores = {
        "micro_f1": 2 * 4 / (5 + 6),
        "macro_f1": (4 / 4 + 2 / 4 + 2 / 3) / 3,
        "subset_accuracy": 2 / 5,
    }
    assert MULTI.scores(SET_GUESS, SETS) == pytest.approx(scores)
    assert MULTI.scores(sets([], []), sets([], [])) == {
        "micro_f1": 0,
        "macro_f1": 0,
        "subset_accuracy": 1,
    }
    # ranks of the predictions: 2, 1, 3.5, 3.5
    scores = {
        "mse": 7 / 4,
        "mae": 5 / 4,
        "pearson": 6.5 / np.sqrt(5 * 12.75),
        "spearman": 3.5 / np.sqrt(5 * 4.5),
    }
    assert NUMBER.scores(NUMBER_GUESS, NUMBERS) == pytest.approx(scores)
    # one span of four predicted and three true is right; five of eight words
    scores = {"span_f1": 2 * 1 / (4 + 3), "accuracy": 5 / 8}
    assert WORDS.scores(SENTENCE_GUESS, SENTENCES) == pytest.approx(scores)
    assert WORDS.scores(SENTENCES, SENTENCES) == {"span_f1": 1, "accuracy": 1}
    assert WORDS.scores(sentences("O"), sentences("O")) == {"span_f1": 0, "accuracy": 1}
    assert WORDS.scores(sentences("O ?"), sentences("O O"))["accuracy"] == 0.5
    nouns = KINDS["token_labels"](("noun", "verb"))
    assert nouns.scores(nouns.gather([(0, 1)]), nouns.gather([(0, 0)])) == {"accuracy": 0.5}, (
        "not BIO: no spans"
    )
    true, guess = np.random.default_rng(0).random((2, 200, 3)) < 0.3
    labels = [MULTI.gather([tuple(np.flatnonzero(row)) for row in part]) for part in (guess, true)]
    f1 = {
        f"{how}_f1": f1_score(true, guess, average=how, zero_division=0)
        for how in ("micro", "macro")
    }
    assert MULTI.scores(*labels) == pytest.approx(
        f1 | {"subset_accuracy": accuracy_score(true, guess)}
    )


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=3, max_size=40))
def test_correlations_agree_with_scipy(pairs):
    one, other = np.array(pairs, dtype=np.float64).T
    scores, varies = NUMBER.scores(one, other), np.ptp(one) and np.ptp(other)
    for name, correlation in {"pearson": pearsonr, "spearman": spearmanr}.items():
        statistic = correlation(one, other).statistic if varies else 0
        assert scores[name] == pytest.approx(statistic, abs=1e-9)


# true \ predicted      0  1  2      class 2 is never predicted, class 3 neither occurs nor is predicted
CONFUSION = np.array([[3, 1, 0], [2, 3, 0], [0, 1, 0]])


def test_the_three_metrics_of_a_confusion_table_by_hand_without_a_network(monkeypatch):
    for owner, name in ((socket, "getaddrinfo"), (socket.socket, "connect")):
        monkeypatch.setattr(owner, name, lambda *arguments: pytest.fail("asked the network"))
    _module.cache_clear()
    cells = [
        (true, guess)
        for true in range(3)
        for guess in range(3)
        for _ in range(CONFUSION[true, guess])
    ]
    labels, predictions = np.array(cells).T
    # F1 = 2 right / (predicted + true): 6/9, 6/10, 0/1, and 0 for the absent class
    metrics = {"accuracy": 6 / 10, "micro_f1": 6 / 10, "macro_f1": (6 / 9 + 6 / 10 + 0 + 0) / 4}
    assert score_predictions(predictions, labels, 4) == pytest.approx(metrics)
    # sklearn's default would average over 2 classes here and over 3 when one of them is guessed
    # once
    labels = np.array([0, 0, 1, 1])
    assert score_predictions(np.array([0, 0, 1, 1]), labels, 3)["macro_f1"] == pytest.approx(2 / 3)
    assert score_predictions(np.array([0, 0, 1, 2]), labels, 3)["macro_f1"] == pytest.approx(
        (1 + 2 / 3) / 3
    )


BALANCED, LOPSIDED = np.repeat(np.arange(6), 50), np.array([0] * 950 + [1] * 50)


def test_one_label_is_a_collapse_which_a_few_strays_do_not_hide_and_chance_is_not():
    # A tenth of the 250 that are outside the largest class is 25; a careful model of a rare class
    # predicts it rarely.
    for labels, strays in ((BALANCED, (2, 24, 25)), (LOPSIDED, (0, 4, 10))):
        predictions = [
            np.repeat([0, labels.max()], [labels.size - count, count]) for count in strays
        ]
        assert [is_degenerate(part, labels) for part in predictions] == [True, True, False]
    assert is_degenerate(np.array([2, 2, 2]), np.array([2, 2, 2]))
    assert not is_degenerate(np.random.default_rng(0).integers(0, 6, BALANCED.size), BALANCED)


MODELS = [
    (ONE, np.array([0, 1, 2, 2, 1]), np.array([[0, 1, 1, 2, 1], [2, 2, 2, 0, 1]])),
    (MULTI, SETS, np.stack([SET_GUESS, sets([0, 1], [1], [], [2], [0])])),
    (NUMBER, NUMBERS, np.stack([NUMBER_GUESS, np.array([3.0, 3.0, 1.0, 2.0])])),
    (
        WORDS,
        SENTENCES,
        np.stack([SENTENCE_GUESS, sentences("O O O B-loc", "B-loc O", "B-loc I-loc")]),
    ),
]


@pytest.mark.parametrize(
    ("kind", "true", "models", "metric"),
    [(*row, metric) for row in MODELS for metric in row[0].metrics],
)
def test_a_text_of_count_two_occurs_twice_and_its_influence_is_that_of_leaving_it_out(
    kind, true, models, metric
):
    draws = np.random.default_rng(1).integers(0, 4, (5, true.size))
    draws[:, 0] += 1
    scores = kind.scorer(models, true, metric)(draws.astype(float))
    for row, counts in zip(scores, draws, strict=True):
        rows = np.repeat(np.arange(true.size), counts)
        assert row == pytest.approx(
            [kind.scores(model[rows], true[rows])[metric] for model in models]
        )
    score = kind.scorer(models, true, metric)
    without, [whole] = score(1 - np.eye(true.size)), score(np.ones((1, true.size)))
    expected = whole + (true.size - 1) * (without.mean(0) - without)
    assert pytest.approx(expected) == kind.influences(models, true, metric).T


def test_nearly_one_answer_for_every_text_is_a_collapse():
    many = sets(*[[0], [1], [2], [0, 1]] * 10)
    assert MULTI.is_collapsed(sets(*[[]] * 40), many, "micro_f1")
    assert MULTI.is_collapsed(sets(*[[0, 1]] * 39, [2]), many, "micro_f1")
    assert not MULTI.is_collapsed(many, many, "micro_f1")
    true = np.random.default_rng(0).normal(50, 10, 200)
    collapses = [
        NUMBER.is_collapsed(50 + (true - 50) * ratio, true, "pearson") for ratio in (0, 0.09, 0.11)
    ]
    assert collapses == [True, True, False]
    words = sentences(*["B-per I-per O O"] * 20)
    assert WORDS.is_collapsed(sentences(*["O O O O"] * 20), words, "span_f1")
    assert not WORDS.is_collapsed(words, words, "span_f1")


CHANCES = np.array([[0.2, 0.7, 0.1], [0.1, 0.3, 0.6]], dtype=np.float32)
HALVES = np.array(
    [[0.5, 0.49, 0.9], [0.1, 0.2, 0.3]], dtype=np.float32
)  # a label is predicted from a half on
VALUES = np.array([[1.5], [2.25]], dtype=np.float32)
TOKENS = np.zeros((6, 5), dtype=np.float32)
TOKENS[[0, 1, 2, 3, 5], [1, 2, 0, 3, 0]] = 0.75  # the last word of the second text was truncated
TAGS_SHOWN = {"label": ["B-per", "I-per"], "probability": [0.75, 0.75]}


@pytest.mark.parametrize(
    ("kind", "outputs", "true", "labels", "columns"),
    [
        (ONE, CHANCES, np.array([0, 1]), [1, 2], {"label": "b", "probability": 0.7}),
        (
            MULTI,
            HALVES,
            sets([1], []),
            [(0, 2), ()],
            {"label": ["a", "c"], "probability": [0.5, 0.9]},
        ),
        (NUMBER, VALUES, np.array([1.0, 2.0]), [1.5, 2.25], {"value": 1.5}),
        (
            WORDS,
            TOKENS,
            sentences("B-per I-per", "O O O", "O"),
            [(1, 2), (0, 3, -1), (0,)],
            TAGS_SHOWN,
        ),
    ],
)
def test_tables_have_one_row_per_text_and_are_read_back(kind, outputs, true, labels, columns):
    table = pa.table(kind.columns(outputs, true))
    assert kind.labels_from(table["label"]).tolist() == true.tolist()
    assert kind.labels_from(table["prediction"]).tolist() == labels
    assert np.array_equal(
        kind.outputs_from({name: table[name] for name in table.column_names}), outputs
    )
    rows = pa.table(kind.prediction_columns(outputs, kind.sizes(true.tolist()))).to_pylist()
    assert rows[0] == {
        name: pytest.approx(value) if name != "label" else value for name, value in columns.items()
    }
    if kind is WORDS:
        assert rows[1] == {"label": ["O", "B-loc", None], "probability": [0.75, 0.75, None]}
    if kind is not NUMBER:
        with pytest.raises(ValueError, match="a class outside 0 to 1"):
            type(kind)(("a", "b")).labels_from(table["prediction"])


def test_only_a_word_can_be_without_a_prediction_and_no_value_is_infinite():
    with pytest.raises(ValueError, match="a class outside 0 to 2"):
        ONE.labels_from(pa.chunked_array([[0, -1]]))
    assert WORDS.labels_from(pa.chunked_array([[[0, -1]]])).tolist() == [(0, -1)]
    with pytest.raises(ValueError, match="not finite"):
        NUMBER.labels_from(pa.chunked_array([[1.0, float("nan")]]))


def test_labels_and_ranges_of_values_are_counted():
    assert MULTI.counts(SETS, SETS) == [("a", 2, 5), ("b", 2, 5), ("c", 2, 5)]
    assert MULTI.absent([(0,), (0, 2)]) == ["b"]
    train = list(sentences("B-per I-per O O"))
    assert WORDS.counts(train, train)[:3] == [("O", 2, 4), ("B-per", 1, 4), ("I-per", 1, 4)]
    assert WORDS.absent(train) == ["B-loc", "I-loc"]
    fifths = NUMBER.counts([-7, 19, 20, 99, 1000], list(range(100)))
    assert [count for _, count, _ in fifths] == [2, 1, 0, 0, 2]
    assert [fifths[at][0] for at in (0, 1, -1)] == [
        "below 19.8",
        "19.8 to below 39.6",
        "79.2 and above",
    ]
    assert {name for name, _, _ in NUMBER.counts([1.0], [3.0, 3.0])} == {"below 3", "3 and above"}
    assert NUMBER.absent([1.0]) == []


@pytest.mark.parametrize(
    ("labels", "problem_type", "per_word", "kind"),
    [
        (["a", "b", "c"], None, False, ONE),
        (["a", "b", "c"], "multi_label_classification", False, MULTI),
        (["a", "b"], "something_else", False, None),
        (["LABEL_0"], None, False, NUMBER),
        (["value"], "regression", False, NUMBER),
        (["a", "b"], "regression", False, None),
        (TAGS, None, True, WORDS),
    ],
)
def test_the_kind_of_a_transformers_model(labels, problem_type, per_word, kind):
    assert kind_of_model(labels, problem_type, per_word) == kind


def test_constants_do_not_correlate_though_rounding_leaves_a_variance():
    kind = KINDS["regression"](())
    constant = np.full(3, 0.1)
    assert kind.score(constant, constant, "pearson") == 0
    assert kind.score(np.full(7, 7.7), np.full(7, 0.1), "spearman") == 0


def test_ranges_of_close_numbers_have_names_of_their_own():
    labels = np.arange(120_000.0, 120_036.0)
    counts = KINDS["regression"](()).counts(labels, labels)
    assert len({name for name, *_ in counts}) == len(counts) == 5
    assert sum(count for _, count, *_ in counts) == 36


def test_marks_without_a_label_between_them_are_no_list_of_labels():
    kind = KINDS["multi_label"](("a", "b"))
    for value in (" ; ", ",", " "):
        with pytest.raises(ValueError, match="label"):
            kind.read(value)
