import numpy as np
import pytest

from dana.core.errors import ConfigError
from dana.models.ngram.kneser_ney import train_ngrams
from dana.models.ngram.vocabulary import Vocabulary
from dana.studies.comparison.measures import (
    PoolWords,
    best_documents,
    budget_measures,
    planted_precision,
    precision_interval,
    ranking_measures,
)
from dana.studies.comparison.settings import CompareSettings
from tests.studies.comparison.made_up import BAKING, OTHERS, sentence

PLANTED = np.array([True, False, True, False, False, False, False, False])


def test_precision_at_r_and_auroc_of_a_ranking_by_hand():
    scores = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    found = ranking_measures(scores, PLANTED)
    assert found["precision_at_r"] == 0.5  # of the two best one is a plant
    assert found["auroc"] == pytest.approx(11 / 12)  # of 12 pairs one is the wrong way round
    assert found["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["chance"] == 0.25


def test_ties_earn_chance():
    assert planted_precision(np.zeros(8), PLANTED, 3) == pytest.approx(0.25)
    assert planted_precision(np.array([0.0, 1, 1, 1, 2, 2, 2, 2]), PLANTED, 2) == pytest.approx((1 + 1 / 3) / 2)


def test_ceilings_are_what_the_oracle_earns():
    oracle = np.where(PLANTED, 0.0, 1.0)
    for count in (1, 2, 4, 8):
        found = budget_measures(oracle, PLANTED, count)
        assert found["precision"] == pytest.approx(found["precision_ceiling"])
        assert found["recall"] == pytest.approx(found["recall_ceiling"])


def test_budgets_count_documents_shares_and_tokens():
    words = np.array([10, 20, 30, 40])
    scores = np.array([0.0, 1.0, 0.0, 2.0])
    expected = {"0.5": [0, 2], "3 documents": [0, 2, 1], "45 tokens": [0, 2], "1 tokens": [0]}
    assert {text: best_documents(scores, words, text).tolist() for text in expected} == expected
    for bad in ("0", "1.5", "many", "3 pages", "-2 documents", "nan", "inf tokens", "1e400 documents"):
        with pytest.raises(ConfigError, match="budgets="):
            best_documents(scores, words, bad)


@pytest.mark.parametrize(
    ("key", "values"),
    [("fit", [100, 100]), ("fit", [3]), ("selectors", []), ("budgets", ["0.2", "0.2"]), ("tasks", ["a/b", "a-b"])],
)
def test_settings_that_make_no_sense_are_refused_by_name(key, values):
    with pytest.raises(ConfigError, match=f"{key}="):
        CompareSettings(**{key: values})


@pytest.fixture(scope="module")
def pool():
    random = np.random.default_rng(0)
    bread = [sentence(BAKING, random, 12) for _ in range(40)]
    others = [sentence(words, random, 12) for words in OTHERS.values() for _ in range(40)]
    return PoolWords([*bread, *others], [sentence(BAKING, random, 12) for _ in range(40)])


def test_length_of_what_is_kept():
    texts = ["one two three four five"] * 2 + ["six seven eight nine ten eleven twelve", "a b c"]
    measured = PoolWords(texts, ["one two three"]).measures(np.array([0, 1, 3]))
    assert measured["length_ratio"] == pytest.approx((13 / 3) / 5)
    assert (measured["kept_documents"], measured["kept_tokens"]) == (3, 13)


def test_perplexity_of_task_text_is_lower_under_task_text_and_needs_no_known_word(pool):
    mine, others = (pool.measures(rows)["perplexity"] for rows in (np.arange(40), np.arange(120, 160)))
    assert mine < 0.7 * others
    foreign = PoolWords(["one two three one two"] * 3, ["entirely other words"])
    assert np.isfinite(foreign.measures(np.arange(3))["perplexity"])


def test_perplexity_counts_unknown_words_and_ends_by_hand():
    texts = ["the cat sat", "the dog sat down", "a cat and a dog", "down sat the cat", "a dog and the cat fled"]
    held_out = ["the newt sat", "a cat fled"]
    model = train_ngrams(texts[:3], 3, Vocabulary.of_words(["the", "cat", "sat", "dog", "down", "a", "and"]))
    steps = [model.log_probs(model.vocabulary.encode([text]))[1:] for text in held_out]
    assert [one.size for one in steps] == [4, 4]
    expected = 10 ** -np.concatenate(steps).mean()
    assert PoolWords(texts, held_out).measures(np.arange(3))["perplexity"] == pytest.approx(expected)


def test_the_interval_holds_the_precision_and_narrows_with_documents():
    random = np.random.default_rng(0)
    widths = []
    for size in (200, 3200):
        planted = random.random(size) < 0.2
        scores = [random.normal(size=size) - 1.5 * planted for _ in range(3)]
        mean = np.mean([planted_precision(one, planted, int(planted.sum())) for one in scores])
        low, high = precision_interval(scores, planted)
        assert low < mean < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 3
    assert precision_interval([np.where(planted, 0.0, 1.0)], planted) == (1.0, 1.0)
