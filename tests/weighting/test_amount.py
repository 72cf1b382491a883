"""How much to keep: perplexity by cut and likeness, the smaller of the two, and texts by which one cannot be told."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

from dana.core.errors import DataError
from dana.core.schemas import SCORES
from dana.models.ngram.kneser_ney import train_ngrams
from dana.models.ngram.model import text_entropies
from dana.models.ngram.vocabulary import Vocabulary
from dana.weighting import in_domain
from dana.weighting.in_domain import PerplexityCurve, choose_amount, perplexity_curve
from dana.weighting.selection import Pool, cut_segments
from dana.weighting.settings import WeighSettings

CELLS = ["cell", "gene", "kinase", "enzyme", "ligand", "assay"]
COURTS = ["court", "judge", "appeal", "verdict", "motion", "tort"]


def sentences(words, count, random):
    return [" ".join(random.choice(words, 8)) for _ in range(count)]


@pytest.fixture(scope="module")
def texts():
    """60 sentences like the task, 240 others, and 20 of the task in five documents; a curve by them."""
    random = np.random.default_rng(0)
    pool, held_out = (
        sentences(CELLS, 60, random) + sentences(COURTS, 240, random),
        sentences([*CELLS, "x"], 20, random),
    )
    order = np.random.default_rng(1).permutation(300)
    documents, cuts = np.repeat(np.arange(5), 4), (0.1, 0.2, 0.5, 1.0)
    curve = perplexity_curve(pool, np.arange(300), order, held_out, documents, cuts)
    return SimpleNamespace(pool=pool, held_out=held_out, order=order, curve=curve)


def test_each_cut_costs_what_its_model_says(texts):
    vocabulary, curve = Vocabulary.of_texts(texts.pool, 2), texts.curve
    for row, size in enumerate((30, 60, 150, 300)):
        rows_of = {"per_token": np.arange(size), "random_per_token": np.sort(texts.order[:size])}
        for name, rows in rows_of.items():
            model = train_ngrams([texts.pool[one] for one in rows], 3, vocabulary)
            perplexity = text_entropies(model, texts.held_out, unknown=False).perplexity
            assert getattr(curve, name)[row] == pytest.approx(np.log(perplexity), rel=1e-6)
    assert (
        curve.tokens.sum()
        == sum(word != "x" for text in texts.held_out for word in text.split()) + 20
    )  # each end


def test_perplexity_is_least_at_the_end_of_similar_text(texts):
    curve = texts.curve
    assert curve.shares[curve.best] == 0.2
    assert (curve.nats[:3].sum(axis=1) < curve.random_nats[:3].sum(axis=1)).all()
    np.testing.assert_array_equal(curve.nats[3], curve.random_nats[3])


def test_one_standard_error_by_hand():
    # differences to the last cut over documents of 10 tokens: 4 and -1, mean 3 / 20, residuals 2.5
    # and -2.5, error sqrt(2 / 1 * 12.5) / 20 = 0.25; 10 and 9, mean 0.95, residuals 0.5 and -0.5,
    # error 0.05
    shares, tokens = np.array([0.1, 0.5, 1.0]), np.array([10, 10])
    nats = np.array([[24.0, 19.0], [30.0, 29.0], [20.0, 20.0]])
    curve = PerplexityCurve(shares, nats, nats, tokens)
    np.testing.assert_allclose(curve.standard_errors, [0.25, 0.05, 0.0])
    assert (curve.best, curve.smallest) == (2, 0)
    alike = np.array([[24.0, 22.0], [30.0, 29.0], [20.0, 20.0]])  # 4 and 2: 0.3 worse, error 0.1
    assert PerplexityCurve(shares, alike, nats, tokens).smallest == 2
    ties = np.full((3, 4), 5.0)
    tied = PerplexityCurve(shares, ties, ties, np.full(4, 10))
    assert (tied.best, tied.smallest) == (0, 0)
    alone = PerplexityCurve(shares[[0, 2]], np.array([[5.1], [5.0]]), nats, np.array([10]))
    assert alone.smallest == 1
    np.testing.assert_array_equal(alone.standard_errors, [0.0, 0.0])


def test_a_cut_without_known_words_is_never_chosen():
    pool = ["zyx", "wvu", *["a cell has a gene"] * 8]
    curve = perplexity_curve(
        pool, np.arange(10), np.arange(10), ["a gene"] * 3, np.arange(3), (0.1, 0.2, 0.5, 1.0)
    )
    assert np.isinf(curve.per_token[:2]).all()
    assert curve.shares[curve.smallest] >= 0.5
    assert np.isfinite(curve.standard_errors).all()


def score_table(units, scores, size=1):
    """The scores of the units of documents of so many units."""
    count = len(units) // size
    unit = np.tile(np.arange(size, dtype=np.int32), count)
    columns = {
        "doc_id": np.repeat([f"d{row:04d}" for row in range(count)], size).tolist(),
        "source": ["pool"] * len(units),
        "unit": unit,
        "start": unit.astype(np.int64),
        "end": unit + 1,
        "score": scores,
        "short": [False] * len(units),
    }
    return pa.table(columns, schema=SCORES)


def amount_of(
    like=60, others=540, held_out=40, distance=6.0, like_words=None, text=None, size=1, **settings
):
    """Of units that score like the task and others; the best `like_words`, by default the former, have its words."""
    random, settings = np.random.default_rng(0), WeighSettings(**settings)
    like_words = like if like_words is None else like_words
    pool = sentences(CELLS, like_words, random) + sentences(
        COURTS, like + others - like_words, random
    )
    target = sentences(CELLS, held_out, random)
    pool, target = ([text] * len(part) if text else part for part in (pool, target))
    scores = np.sort(
        np.concatenate([random.normal(0, 1, like), random.normal(distance, 1, others)])
    )
    order = random.permutation(like + others)
    texts = np.array([pool[row] for row in order])
    table = Pool.from_tables([score_table(texts.tolist(), scores[order])], len(texts))
    held_out_table = SCORES.empty_table()
    if target:
        held_out_table = score_table(target, random.normal(0, 1, held_out), size)
    return choose_amount(
        held_out_table,
        target,
        table,
        cut_segments(table, settings),
        lambda mask: texts[mask].tolist(),
        settings,
    )


def test_in_domain_share_caps_the_amount():
    """A fifth of the pool has the task's words, but half of that scores like other text."""
    result = amount_of(like_words=120)
    assert result.by_perplexity == 0.2
    assert result.beta == result.by_likeness == pytest.approx(0.1, abs=0.03)
    assert (result.held_out_documents, result.counted_units) == (40, 600)
    assert [cut["units"] for cut in result.curve] == [6, 12, 30, 60, 120, 210, 300, 450, 600]
    *cuts, last = [(cut["perplexity"], cut["perplexity_random"]) for cut in result.curve]
    assert last[0] == last[1]  # of all units in another order
    assert all(by_score < by_chance for by_score, by_chance in cuts)
    assert cuts[0][1] > 2 * last[1]  # more text at random says more


def test_scores_of_few_documents_cap_nothing():
    few = amount_of(held_out=40, size=10)
    assert few.held_out_documents == 4
    assert few.by_likeness is None
    assert few.beta == few.by_perplexity
    assert amount_of(held_out=40, size=8).by_likeness is not None


def test_overlapping_scores_count_units_more_likely_in_domain():
    """Normal scores, task at 0 and others at 2: P(task | s) = 1/2 at s = 1 - ln((1 - π) / π) / 2."""
    result = amount_of(like=900, others=2100, held_out=400, distance=2.0)
    middle = 1 - np.log(0.7 / 0.3) / 2
    assert result.by_likeness == pytest.approx(
        0.3 * norm.cdf(middle) + 0.7 * norm.cdf(middle - 2), abs=0.07
    )


def test_perplexity_may_choose_less():
    result = amount_of(like=300, others=300, like_words=60)
    assert result.by_likeness == pytest.approx(0.5, abs=0.1)
    assert result.beta == result.by_perplexity <= 0.1


def test_a_large_pool_is_sampled(monkeypatch):
    all_units = amount_of(others=1940, like=60)
    monkeypatch.setattr(in_domain, "MOST_UNITS", 1000)
    result = amount_of(others=1940, like=60)
    assert 900 < result.counted_units < 1100
    assert result.curve[-1]["units"] == all_units.curve[-1]["units"] == 2000
    assert result.beta == pytest.approx(all_units.beta, abs=0.015)


def test_random_cuts_are_whole_segments(monkeypatch):
    random, orders = np.random.default_rng(0), []
    monkeypatch.setattr(
        in_domain,
        "perplexity_curve",
        lambda *arguments: orders.append(arguments[1:3]) or perplexity_curve(*arguments),
    )
    texts = np.array(sentences(COURTS, 280, random))
    pool = Pool.from_tables([score_table(texts.tolist(), random.normal(size=280), 14)], 280)
    task_texts = sentences(CELLS, 40, random)
    target = score_table(task_texts, random.normal(size=40))
    settings = WeighSettings(gamma=4, min_tail=4)  # of 14 units 12 are in segments
    segments = cut_segments(pool, settings)
    choose_amount(target, task_texts, pool, segments, lambda mask: texts[mask].tolist(), settings)
    ((order, by_chance),) = orders
    for rows in (order, by_chance):
        np.testing.assert_array_equal(np.sort(rows), np.arange(240))
        segments = rows.reshape(-1, 4) // 4
        assert (segments == segments[:, :1]).all()
    assert (order != by_chance).mean() > 0.5


@pytest.mark.parametrize(
    ("texts", "likeness"),
    [
        *[({"held_out": 3}, None), ({"held_out": 19}, None), ({"distance": 0.0}, None)],
        ({"like": 0, "others": 600, "like_words": 60, "distance": 9.0}, 0),
    ],
)
def test_perplexity_alone_chooses(texts, likeness):
    result = amount_of(**texts)
    assert result.by_likeness == likeness
    assert result.beta == result.by_perplexity > 0
    if "held_out" in texts:
        assert result.beta <= 0.1
        assert all(cut["in_domain"] is None for cut in result.curve)


@pytest.mark.parametrize(
    "texts", [{"held_out": 0}, {"like": 1, "others": 0, "text": "one short document"}]
)
def test_too_little_text_is_refused(texts):
    with pytest.raises(DataError, match="beta='auto'"):
        amount_of(**texts)
