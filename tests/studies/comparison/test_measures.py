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

PLANTED = np.array([True, False, True, False, False, False, False, False])


def test_precision_at_r_and_auroc_of_a_ranking_by_hand():
    scores = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    measures = ranking_measures(scores, PLANTED)
    assert measures["precision_at_r"] == 0.5  # of the two best one is a plant
    assert measures["auroc"] == pytest.approx(11 / 12)  # of 12 pairs one is the wrong way round
    assert measures["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert measures["chance"] == 0.25


def test_ties_earn_chance():
    assert planted_precision(np.zeros(8), PLANTED, 3) == pytest.approx(0.25)
    assert planted_precision(np.array([0.0, 1, 1, 1, 2, 2, 2, 2]), PLANTED, 2) == pytest.approx((1 + 1 / 3) / 2)


def test_ceilings_are_what_the_oracle_earns():
    oracle = np.where(PLANTED, 0.0, 1.0)
    for count in (1, 2, 4, 8):
        measures = budget_measures(oracle, PLANTED, count)
        assert measures["precision"] == pytest.approx(measures["precision_ceiling"])
        assert measures["recall"] == pytest.approx(measures["recall_ceiling"])


def test_budgets_count_documents_shares_and_tokens():
    words = np.array([10, 20, 30, 40])
    scores = np.array([0.0, 1.0, 0.0, 2.0])
    reference = {"0.5": [0, 2], "3 documents": [0, 2, 1], "45 tokens": [0, 2], "1 tokens": [0]}
    assert {text: best_documents(scores, words, text).tolist() for text in reference} == reference
    for bad in ("0", "1.5", "many", "3 pages", "-2 documents", "nan", "inf tokens", "1e400 documents"):
        with pytest.raises(ConfigError, match="budgets="):
            best_documents(scores, words, bad)


def test_perplexity_counts_unknown_words_and_ends_by_hand():
    texts = ["the cat sat", "the dog sat down", "a cat and a dog", "down sat the cat", "a dog and the cat fled"]
    held_out = ["the newt sat", "a cat fled"]
    model = train_ngrams(texts[:3], 3, Vocabulary.of_words(["the", "cat", "sat", "dog", "down", "a", "and"]))
    steps = [model.log_probs(model.vocabulary.encode([text]))[1:] for text in held_out]
    assert [one.size for one in steps] == [4, 4]
    reference = 10 ** -np.concatenate(steps).mean()
    assert PoolWords(texts, held_out).measures(np.arange(3))["perplexity"] == pytest.approx(reference)


def test_the_interval_holds_the_precision_and_narrows_with_documents():
    random = np.random.default_rng(0)
    widths = []
    for size in (200, 3200):
        is_plant = random.random(size) < 0.2
        scores = [random.normal(size=size) - 1.5 * is_plant for _ in range(3)]
        mean = np.mean([planted_precision(one, is_plant, int(is_plant.sum())) for one in scores])
        low, high = precision_interval(scores, is_plant)
        assert low < mean < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 3
    assert precision_interval([np.where(is_plant, 0.0, 1.0)], is_plant) == (1.0, 1.0)
