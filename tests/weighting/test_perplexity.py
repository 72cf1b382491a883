"""Perplexity by cut: the numbers are those of the n-gram models, and the smallest cut that is as good counts."""

import numpy as np
import pytest

from dana.models.ngram.kneser_ney import train_ngrams
from dana.models.ngram.model import text_entropies
from dana.models.ngram.vocabulary import Vocabulary
from dana.weighting.amount import PerplexityCurve, perplexity_curve

CELLS = ["cell", "gene", "kinase", "enzyme", "ligand", "assay"]
COURTS = ["court", "judge", "appeal", "verdict", "motion", "tort"]


def sentences(words, count, random):
    return [" ".join(random.choice(words, 8)) for _ in range(count)]


@pytest.fixture
def texts():
    """60 sentences like the task, 240 others, and 20 of the task in five documents."""
    random = np.random.default_rng(0)
    return sentences(CELLS, 60, random) + sentences(COURTS, 240, random), sentences([*CELLS, "nowhere"], 20, random)


def curve_of(texts, cuts=(0.1, 0.2, 0.5, 1.0)):
    pool, held_out = texts
    drawn = np.random.default_rng(1).permutation(300)
    return perplexity_curve(pool, np.arange(300), drawn, held_out, np.repeat(np.arange(5), 4), cuts), drawn


def test_each_cut_costs_what_its_model_says(texts):
    pool, held_out = texts
    curve, drawn = curve_of(texts)
    vocabulary = Vocabulary.of_texts(pool, 2)
    for row, size in enumerate((30, 60, 150, 300)):
        for found, chosen in ((curve.per_token, np.arange(size)), (curve.random_per_token, np.sort(drawn[:size]))):
            model = train_ngrams([pool[one] for one in chosen], 3, vocabulary)
            assert found[row] == pytest.approx(
                np.log(text_entropies(model, held_out, unknown=False).perplexity), rel=1e-6
            )
    known = sum(word != "nowhere" for text in held_out for word in text.split())
    assert curve.tokens.sum() == known + 20  # and the end of each


def test_perplexity_is_least_at_the_end_of_similar_text(texts):
    curve, _ = curve_of(texts)
    assert curve.shares[curve.best] == 0.2
    assert (curve.nats[:3].sum(axis=1) < curve.random[:3].sum(axis=1)).all()
    np.testing.assert_array_equal(curve.nats[3], curve.random[3])


def test_one_standard_error_by_hand():
    # differences to the last cut over documents of 10 tokens: 4 and -1, mean 3 / 20, residuals 2.5 and -2.5, error
    # sqrt(2 / 1 * 12.5) / 20 = 0.25; 10 and 9, mean 0.95, residuals 0.5 and -0.5, error 0.05
    nats = np.array([[24.0, 19.0], [30.0, 29.0], [20.0, 20.0]])
    curve = PerplexityCurve(np.array([0.1, 0.5, 1.0]), nats, nats, np.array([10, 10]))
    np.testing.assert_allclose(curve.standard_errors, [0.25, 0.05, 0.0])
    assert (curve.best, curve.smallest) == (2, 0)
    alike = np.array([[24.0, 22.0], [30.0, 29.0], [20.0, 20.0]])  # 4 and 2: 0.3 worse, error 0.1
    assert PerplexityCurve(curve.shares, alike, nats, curve.tokens).smallest == 2


def test_ties_give_the_smallest_cut():
    nats = np.full((3, 4), 5.0)
    assert PerplexityCurve(np.array([0.1, 0.5, 1.0]), nats, nats, np.full(4, 10)).smallest == 0
    alone = PerplexityCurve(np.array([0.1, 1.0]), np.array([[5.1], [5.0]]), nats, np.array([10]))
    assert alone.smallest == 1
    np.testing.assert_array_equal(alone.standard_errors, [0.0, 0.0])


def test_a_cut_without_known_words_is_never_chosen():
    pool = ["zyx", "wvu", *["a cell has a gene"] * 8]
    curve = perplexity_curve(pool, np.arange(10), np.arange(10), ["a gene"] * 3, np.arange(3), (0.1, 0.2, 0.5, 1.0))
    assert np.isinf(curve.per_token[:2]).all()
    assert curve.shares[curve.smallest] >= 0.5
    assert np.isfinite(curve.standard_errors).all()
