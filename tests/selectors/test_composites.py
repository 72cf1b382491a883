"""Cascade: which encoder scores a unit, the recall that is measured. Fusion: on what its parts are standardised."""

import numpy as np
import pytest

from dana.corpus.unit_stream import Units, draw
from dana.encoders.hashing import HashingEncoder
from dana.selectors.base import SelectorContext
from dana.selectors.build import create_selector
from dana.selectors.cascade import CascadeSelector, recall_at
from tests.selectors.topics import texts

SELECTOR = CascadeSelector(keep=0.3, encoder="hashing:dims=64", first="hashing:dims=16,words=1")


@pytest.fixture(scope="module")
def cascade():
    pool = {
        "contamination": texts("other", 10, 1),
        "geometry": texts("other", 150, 2) + texts("task", 50, 3),
    }
    pool |= {"audit": texts("other", 160, 4) + texts("task", 40, 5)}
    return SELECTOR.fit(texts("task", 100, 0), pool, 0)


def test_best_units_have_the_real_score_the_others_the_expected(cascade, tmp_path):
    units = Units.of_texts(texts("task", 30, 6) + texts("other", 70, 7))
    scores, first, real = (
        cascade.score(units),
        cascade.cheap.score(units),
        cascade.good.score(units),
    )
    best = first <= cascade.threshold
    assert 0 < best.sum() < len(units)
    np.testing.assert_allclose(scores[best], real[best], rtol=1e-6)
    np.testing.assert_allclose(
        scores[~best], np.interp(first[~best], cascade.knots, cascade.values)
    )
    assert scores[:30].mean() < scores[30:].mean()
    assert np.corrcoef(scores, real)[0, 1] > 0.8, "one unit for both kinds"
    assert set(cascade.notes["audit"]["recall"]) == {"0.05", "0.1", "0.2"}
    cascade.save(tmp_path)
    assert SELECTOR.load(tmp_path).notes == cascade.notes


def test_the_real_encoder_sees_the_best_units_only(cascade, monkeypatch):
    counts = []
    encode = HashingEncoder.encode

    def count(encoder, texts):
        counts.append(len(texts) if encoder.dims == 64 else 0)
        return encode(encoder, texts)

    monkeypatch.setattr(HashingEncoder, "encode", count)
    units = Units.of_texts(texts("other", 200, 8))
    cascade.score(units)
    assert sum(counts) == int((cascade.cheap.score(units) <= cascade.threshold).sum()) < 120


def test_recall_at_by_hand():
    scores = np.array([5.0, 1.0, 3.0, 2.0, 4.0, 9.0, 8.0, 7.0, 6.0, 10.0])
    passed_on = np.isin(np.arange(10), [0, 1, 3])
    assert recall_at(scores, passed_on, 0.2) == 1.0
    assert recall_at(scores, passed_on, 0.3) == pytest.approx(2 / 3)
    assert recall_at(scores, passed_on, 0.5) == pytest.approx(3 / 5)
    assert recall_at(scores, passed_on, 0.01) == 1.0, "of the best one at least"


POOL = Units.of_texts(texts("other", 260, 1) + texts("task", 40, 2))


def fit(spec, pool, target=60, **context):
    selector = create_selector(spec, SelectorContext(encoder="hashing:dims=64", **context))
    sizes = {
        name: (number, size) for number, (name, size) in enumerate(selector.samples(target).items())
    }
    return selector.fit(texts("task", target, 0), draw([pool], sizes, selector.runs()), 0)


def test_parts_share_a_small_pool_and_a_constant_one_is_reported(caplog):
    scores = fit("fusion:parts=lexical+knn", POOL).score(POOL)
    assert scores[:260].mean() > scores[260:].mean() + 1
    assert "adds nothing" not in caplog.text
    fit("fusion:parts=lexical+moore_lewis", Units.of_texts(["one text"] * 50))
    assert "moore_lewis gives all 50 pool units the same score" in caplog.text


@pytest.mark.parametrize("target", [19, 60])
def test_moments_exclude_contamination(target):
    both = fit("fusion:parts=random+knn", POOL, target, pool_share=0.1)
    scores = both.parts[1].score(POOL)
    mean, std = both.moments[1]
    assert mean == pytest.approx(scores.mean(), abs=0.1 * scores.std())
    assert std == pytest.approx(scores.std(), rel=0.2)
