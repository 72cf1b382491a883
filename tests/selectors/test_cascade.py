import numpy as np
import pytest

from dana.errors import ConfigError
from dana.selectors.cascade import CascadeSelector, as_units, recall_at
from dana.selectors.detector import DetectorSelector

WORDS = {
    "task": ["cell", "gene", "protein", "kinase", "assay"],
    "other": ["court", "judge", "appeal", "motion", "tort"],
}


def texts(kind, count, seed):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS[kind], 6)) for _ in range(count)]


@pytest.fixture
def fitted():
    selector = CascadeSelector(keep=0.3, encoder="hashing:dims=64", first="hashing:dims=16,words=1")
    general = {
        "contamination": texts("other", 10, 1),
        "geometry": texts("other", 150, 2) + texts("task", 50, 3),
        "audit": texts("other", 160, 4) + texts("task", 40, 5),
    }
    return selector, selector.fit(texts("task", 100, 0), general, 0)


def test_what_passes_has_the_real_score_and_the_rest_the_expected_one(fitted):
    _, both = fitted
    units = as_units(texts("task", 30, 6) + texts("other", 70, 7))
    scores, first, real = both.score(units), both.cheap.score(units), both.good.score(units)
    passed = first <= both.threshold
    assert 0 < passed.sum() < len(units)
    np.testing.assert_allclose(scores[passed], real[passed], rtol=1e-6)
    np.testing.assert_allclose(scores[~passed], np.interp(first[~passed], both.knots, both.values))
    assert scores[:30].mean() < scores[30:].mean()
    assert np.corrcoef(scores, real)[0, 1] > 0.8, "one unit for both kinds"


def test_the_real_encoder_sees_only_what_passes(fitted, monkeypatch):
    _, both = fitted
    seen = []
    original = type(both.good.encoder).encode

    def watched(self, texts):
        if self.dims == 64:
            seen.extend(texts)
        return original(self, texts)

    monkeypatch.setattr(type(both.good.encoder), "encode", watched)
    units = as_units(texts("other", 200, 8))
    both.score(units)
    assert len(seen) == int((both.cheap.score(units) <= both.threshold).sum()) < 120


def test_a_units_score_does_not_depend_on_the_others(fitted):
    _, both = fitted
    units = as_units(texts("task", 20, 9) + texts("other", 20, 10))
    alone = np.concatenate([both.score(units.rows(np.array([row]))) for row in range(40)])
    np.testing.assert_allclose(alone, both.score(units), rtol=1e-5)


def test_the_audit_counts_what_is_lost_by_hand():
    scores = np.array([5.0, 1.0, 3.0, 2.0, 4.0, 9.0, 8.0, 7.0, 6.0, 10.0])
    passed = np.array([True, True, False, True, False, False, False, False, False, False])
    assert recall_at(scores, passed, 0.2) == 1.0
    assert recall_at(scores, passed, 0.3) == pytest.approx(2 / 3)
    assert recall_at(scores, passed, 0.5) == pytest.approx(3 / 5)


def test_what_was_saved_scores_the_same(fitted, tmp_path):
    selector, both = fitted
    both.save(tmp_path)
    units = as_units(texts("task", 20, 11) + texts("other", 20, 12))
    again = selector.load(tmp_path)
    assert np.array_equal(again.score(units), both.score(units))
    assert again.audit == both.audit
    assert set(both.audit["recall"]) == {"0.05", "0.1", "0.2"}


def test_it_is_registered_and_checked():
    from dana.stages.score import build_selector
    from dana.stages.selection import Selection

    built = build_selector("cascade:keep=0.5,first=hashing", "auto", Selection(store="somewhere"))
    assert (built.keep, built.first, built.store) == (0.5, "hashing", "somewhere")
    assert isinstance(build_selector("detector", "knn", Selection()), DetectorSelector)
    with pytest.raises(ConfigError, match=r"keep=1\.5: must be in"):
        CascadeSelector(keep=1.5)
