"""Kneser-Ney smoothing: small examples by the formulas, sums of probabilities, discounts, odd texts."""

import numpy as np
import pytest

from dana.core.errors import ConfigError, DataError
from dana.models.ngram.kneser_ney import FALL_BACK, count_ngrams, modified_discounts, train_ngrams
from dana.models.ngram.vocabulary import BEGIN, UNKNOWN, Vocabulary

WORDS = [f"{first}{last}" for first in "bdfgk" for last in "aeiouy"]


def random_texts(count=150):
    """Texts of up to 12 words, some words far more frequent than others."""
    random = np.random.default_rng(0)
    rare = 1 / np.arange(1, len(WORDS) + 1)
    return [
        " ".join(random.choice(WORDS, random.integers(0, 13), p=rare / rare.sum()))
        for _ in range(count)
    ]


def probability(model, history, word):
    """P(word | history) by the model, where the history begins a text; the word None is its end."""
    ids = model.vocabulary.encode([" ".join([*history, word or ""])])
    return 10.0 ** float(model.log_probs(ids)[len(history) + 1])


def test_a_small_example_equals_the_formulas_by_hand():
    model = train_ngrams(["a b", "a b", "a c"], order=2)
    # Single words follow 1, 1, 1 and 2 others: n_3 = 0, so 0.5 and 1 are taken off; 2.5 of 5 over
    # five words. Pairs: n_1 = n_2 = 2, n_3 = 1, n_4 = 0, so Y = 1/3, D = 1/3, 3/2, 3. Left after a:
    # (3/2 + 1/3) / 3 = 11/18.
    assert probability(model, [], "a") == pytest.approx(0 + 1 * 0.2)
    assert probability(model, ["a"], "b") == pytest.approx((2 - 1.5) / 3 + 11 / 18 * 0.2)
    assert probability(model, ["a"], "c") == pytest.approx((1 - 1 / 3) / 3 + 11 / 18 * 0.2)
    assert probability(model, ["a"], "never seen") == pytest.approx(11 / 18 * 0.1)
    assert probability(model, ["a"], None) == pytest.approx(11 / 18 * 0.3)
    assert probability(model, ["a", "b"], None) == pytest.approx((2 - 1.5) / 2 + 0.75 * 0.3)


def test_lower_orders_count_the_words_before_and_text_beginnings_count_occurrences():
    vocabulary = Vocabulary.of_words("abxy")
    numbers = {word: number for number, word in enumerate(vocabulary.words)}
    ones, twos, threes = count_ngrams(
        vocabulary.encode(["x a b", "y a b", "y a b", "a b"]), 3, len(vocabulary)
    )
    assert ones.adjusted_counts[numbers["a"]] == 3  # after x, y and the beginning
    assert ones.adjusted_counts[numbers["b"]] == 1
    assert ones.adjusted_counts[BEGIN] == 0
    keys = [
        numbers[first] * len(vocabulary) + numbers[second]
        for first, second in (("a", "b"), ("<s>", "y"))
    ]
    pairs = np.searchsorted(twos.keys, keys)
    assert twos.adjusted_counts[pairs].tolist() == [3, 2]
    assert twos.raw[pairs].tolist() == [4, 2]
    assert threes.adjusted_counts.sum() == threes.raw.sum() == 3 * 3 + 2


@pytest.mark.parametrize(
    ("order", "cutoff", "min_count"),
    [(1, 0, 1), (2, 0, 20), (2, 1, 1), (3, 0, 1), (3, 1, 20), (3, 3, 1), (5, 0, 20), (5, 1, 1)],
)
def test_probabilities_after_any_history_sum_to_one(order, cutoff, min_count):
    texts = random_texts()
    model = train_ngrams(texts, order, Vocabulary.of_texts(texts, min_count), cutoff)
    random = np.random.default_rng(1)
    for length in (0, 1, 2, 3, 6):
        history = random.choice([*WORDS, "neverseen"], length).tolist()
        total = sum(
            probability(model, history, word)
            for word in (*model.vocabulary.words[3:], "neverseen", None)
        )
        assert total == pytest.approx(1, abs=1e-5)


def test_cut_offs_drop_n_grams_by_their_occurrences():
    texts = random_texts()
    full, cut = train_ngrams(texts, 3), train_ngrams(texts, 3, cutoff=1)
    raw = count_ngrams(full.vocabulary.encode(texts), 3, len(full.vocabulary))
    assert [level.keys.size for level in cut.levels[:2]] == [
        level.keys.size for level in full.levels[:2]
    ]
    assert cut.levels[2].keys.size == (raw[2].raw > 1).sum() < full.levels[2].keys.size


def test_discounts_follow_equation_26():
    counts = np.repeat([1, 2, 3, 4, 5, 9], [100, 40, 20, 12, 8, 30])
    share = 100 / (100 + 2 * 40)
    by_hand = (0, 1 - 2 * share * 40 / 100, 2 - 3 * share * 20 / 40, 3 - 4 * share * 12 / 20)
    assert modified_discounts(counts) == pytest.approx(by_hand)


@pytest.mark.parametrize(
    "numbers",
    [[5, 5, 0, 5], [0, 5, 5, 5], [5, 0, 5, 5], [1, 1, 5, 1], [5, 5, 10, 5]],
    ids=[
        "no n_3",
        "no n_1",
        "no n_2",
        "D_2 below 0",
        "D_2 is 0, so nothing is left for other words",
    ],
)
def test_discounts_fall_back_on_small_texts(numbers):
    assert modified_discounts(np.repeat([1, 2, 3, 4], numbers)) == FALL_BACK


def test_a_closed_vocabulary_counts_other_words_as_the_unknown_word():
    texts = ["a b q", "a b r", "a b s", "a c"]
    of_abc = train_ngrams(texts, 2, Vocabulary.of_words("abc"))
    assert probability(of_abc, ["a", "b"], "whatever") > 0.5
    assert UNKNOWN in of_abc.levels[1].keys % len(of_abc.vocabulary)
    assert probability(train_ngrams(texts, 2), ["a", "b"], "whatever") < 0.1


def test_same_texts_same_model_and_numbers_do_as_well_as_texts():
    texts = random_texts()
    vocabulary = Vocabulary.of_texts(texts)
    of_texts, of_numbers = (
        train_ngrams(form, 4, vocabulary) for form in (texts, vocabulary.encode(texts))
    )
    for first, second in zip(of_texts.levels, of_numbers.levels, strict=True):
        assert first.log_probs.tobytes() == second.log_probs.tobytes()
        assert first.backoffs.tobytes() == second.backoffs.tobytes()


@pytest.mark.parametrize(
    "texts", [["a b c"], ["the same text"] * 500, ["", "x", ""]], ids=["one", "alike", "short"]
)
@pytest.mark.parametrize("order", [1, 3, 5])
def test_odd_texts_give_finite_models(texts, order):
    model = train_ngrams(texts, order)
    ids = model.vocabulary.encode([*texts, "other words", ""])
    scores = model.log_probs(ids)
    assert np.isfinite(scores).all()
    assert (scores <= 0).all()
    assert (scores[ids.ids != BEGIN] < 0).any()


@pytest.mark.parametrize(
    ("texts", "settings", "error", "message"),
    [
        (["a"], {"order": 0}, ConfigError, "order=0"),
        (["a"], {"order": 2.5}, ConfigError, "order=2.5"),
        (["a"], {"cutoff": -1}, ConfigError, "cutoff=-1"),
        ([], {}, DataError, "at least one text"),
        (
            ["a b", "c"],
            {"vocabulary": Vocabulary.of_words(["x", "y"])},
            DataError,
            "none of the vocabulary's 2 words",
        ),
    ],
)
def test_what_cannot_be_trained_on_is_refused(texts, settings, error, message):
    with pytest.raises(error, match=message):
        train_ngrams(texts, **{"order": 3, **settings})
