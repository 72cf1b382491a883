import numpy as np
import pytest

from dana.core.errors import ConfigError, DataError
from dana.models.ngram.kneser_ney import FALL_BACK, count_ngrams, modified_discounts, train_ngrams
from dana.models.ngram.vocabulary import BEGIN, UNKNOWN, Vocabulary

WORDS = [f"{first}{last}" for first in "bdfgk" for last in "aeiouy"]


def made_up(texts=150, seed=0):
    """Texts of up to 12 words, some words far more frequent than others."""
    random = np.random.default_rng(seed)
    rare = 1 / np.arange(1, len(WORDS) + 1)
    return [" ".join(random.choice(WORDS, random.integers(0, 13), p=rare / rare.sum())) for _ in range(texts)]


def probability(model, history, word):
    """P(word | history) by the model, where the history begins a text."""
    ids = model.vocabulary.encode([" ".join([*history, word])])
    return 10.0 ** float(model.log_probs(ids)[len(history) + 1])


def end_probability(model, history):
    return 10.0 ** float(model.log_probs(model.vocabulary.encode([" ".join(history)]))[-1])


def test_a_small_example_equals_the_formulas_by_hand():
    model = train_ngrams(["a b", "a b", "a c"], order=2)
    # Single words follow 1, 1, 1 and 2 others: n_3 = 0, so 0.5 and 1 are taken off; 2.5 of 5 over five words.
    # Pairs: n_1 = n_2 = 2, n_3 = 1, n_4 = 0, so Y = 1/3, D = 1/3, 3/2, 3. Left after a: (3/2 + 1/3) / 3 = 11/18.
    assert probability(model, [], "a") == pytest.approx(0 + 1 * 0.2)
    assert probability(model, ["a"], "b") == pytest.approx((2 - 1.5) / 3 + 11 / 18 * 0.2)
    assert probability(model, ["a"], "c") == pytest.approx((1 - 1 / 3) / 3 + 11 / 18 * 0.2)
    assert probability(model, ["a"], "never seen") == pytest.approx(11 / 18 * 0.1)
    assert end_probability(model, ["a"]) == pytest.approx(11 / 18 * 0.3)
    assert end_probability(model, ["a", "b"]) == pytest.approx((2 - 1.5) / 2 + 0.75 * 0.3)


def test_lower_orders_count_the_words_before_and_text_beginnings_count_occurrences():
    texts = ["x a b", "y a b", "y a b", "a b"]
    vocabulary = Vocabulary.of_words("abxy")
    numbers = {word: number for number, word in enumerate(vocabulary.words)}
    ones, twos, threes = count_ngrams(vocabulary.encode(texts), 3, len(vocabulary))
    assert ones.adjusted_counts[numbers["a"]] == 3  # after x, y and the beginning
    assert ones.adjusted_counts[numbers["b"]] == 1
    assert ones.adjusted_counts[BEGIN] == 0

    def pair(first, second):
        return int(np.searchsorted(twos.keys, numbers[first] * len(vocabulary) + numbers[second]))

    assert twos.adjusted_counts[pair("a", "b")] == 3
    assert twos.raw[pair("a", "b")] == 4
    assert twos.adjusted_counts[pair("<s>", "y")] == 2
    assert threes.adjusted_counts.sum() == threes.raw.sum() == 3 * 3 + 2


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("cutoff", [0, 1, 3])
@pytest.mark.parametrize("min_count", [1, 20])
def test_probabilities_after_any_history_sum_to_one(order, cutoff, min_count):
    texts = made_up()
    vocabulary = Vocabulary.of_texts(texts, min_count)
    model = train_ngrams(texts, order, vocabulary, cutoff)
    random = np.random.default_rng(1)
    for length in (0, 1, 2, 3, 6):
        history = random.choice([*WORDS, "neverseen"], length).tolist()
        known = sum(probability(model, history, word) for word in vocabulary.words[3:])
        total = known + probability(model, history, "neverseen") + end_probability(model, history)
        assert total == pytest.approx(1, abs=1e-5)


def test_cut_offs_drop_n_grams_by_their_occurrences():
    texts = made_up()
    full, cut = train_ngrams(texts, 3), train_ngrams(texts, 3, cutoff=1)
    raw = count_ngrams(full.vocabulary.encode(texts), 3, len(full.vocabulary))
    assert [level.keys.size for level in cut.levels[:2]] == [level.keys.size for level in full.levels[:2]]
    assert cut.levels[2].keys.size == (raw[2].raw > 1).sum() < full.levels[2].keys.size


def test_discounts_follow_equation_26():
    counts = np.repeat([1, 2, 3, 4, 5, 9], [100, 40, 20, 12, 8, 30])
    share = 100 / (100 + 2 * 40)
    by_hand = (0, 1 - 2 * share * 40 / 100, 2 - 3 * share * 20 / 40, 3 - 4 * share * 12 / 20)
    assert modified_discounts(counts) == pytest.approx(by_hand)


@pytest.mark.parametrize(
    "numbers",
    [[5, 5, 0, 5], [0, 5, 5, 5], [5, 0, 5, 5], [1, 1, 5, 1], [5, 5, 10, 5]],
    ids=["no n_3", "no n_1", "no n_2", "D_2 below 0", "D_2 is 0, so nothing is left for other words"],
)
def test_discounts_fall_back_on_small_texts(numbers):
    assert modified_discounts(np.repeat([1, 2, 3, 4], numbers)) == FALL_BACK


def test_a_closed_vocabulary_counts_other_words_as_the_unknown_word():
    texts = ["a b q", "a b r", "a b s", "a c"]
    closed = train_ngrams(texts, 2, Vocabulary.of_words("abc"))
    assert probability(closed, ["a", "b"], "whatever") > 0.5
    assert UNKNOWN in closed.levels[1].keys % len(closed.vocabulary)
    opened = train_ngrams(texts, 2)
    assert probability(opened, ["a", "b"], "whatever") < 0.1


def test_same_texts_same_model_and_numbers_do_as_well_as_texts():
    texts = made_up()
    vocabulary = Vocabulary.of_texts(texts)
    once, again = train_ngrams(texts, 4, vocabulary), train_ngrams(vocabulary.encode(texts), 4, vocabulary)
    for first, second in zip(once.levels, again.levels, strict=True):
        assert first.log_probs.tobytes() == second.log_probs.tobytes()
        assert first.backoffs.tobytes() == second.backoffs.tobytes()


@pytest.mark.parametrize("texts", [["a b c"], ["the same text"] * 500, ["", "x", ""]], ids=["one", "alike", "short"])
@pytest.mark.parametrize("order", [1, 3, 5])
def test_odd_texts_give_finite_models(texts, order):
    model = train_ngrams(texts, order)
    ids = model.vocabulary.encode([*texts, "other words", ""])
    scores = model.log_probs(ids)
    assert np.isfinite(scores).all()
    assert (scores <= 0).all()
    assert (scores[ids.ids != BEGIN] < 0).any()


@pytest.mark.parametrize("order", [0, -1, 2.5])
def test_an_order_below_1_or_no_whole_number_is_refused(order):
    with pytest.raises(ConfigError, match=f"order={order}"):
        train_ngrams(["a"], order)


def test_a_negative_cut_off_is_refused():
    with pytest.raises(ConfigError, match="cutoff=-1"):
        train_ngrams(["a b c"], 3, cutoff=-1)


def test_no_texts_and_a_vocabulary_of_other_words_are_refused():
    with pytest.raises(DataError, match="at least one text"):
        train_ngrams([])
    with pytest.raises(DataError, match="none of the 2 words"):
        train_ngrams(["a b", "c"], vocabulary=Vocabulary.of_words(["x", "y"]))
