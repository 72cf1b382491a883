"""Fusion selector: on what its parts are standardised, parts that add nothing, and pools too small for every sample."""

import pytest

from dana.corpus.unit_stream import Units, draw
from dana.selectors.base import SelectorContext
from dana.selectors.build import create_selector
from tests.selectors.topics import texts

POOL = Units.of_texts(texts("other", 260, 1) + texts("task", 40, 2))


def fit(spec, pool, task=60, **context):
    selector = create_selector(spec, SelectorContext(encoder="hashing:dims=64", **context))
    sizes = {name: (number, size) for number, (name, size) in enumerate(selector.samples(task).items())}
    return selector.fit(texts("task", task, 0), draw([pool], sizes, selector.runs()), 0)


def test_parts_share_a_small_pool_and_a_constant_one_is_reported(caplog):
    scores = fit("fusion:parts=lexical+knn", POOL).score(POOL)
    assert scores[:260].mean() > scores[260:].mean() + 1
    assert "adds nothing" not in caplog.text
    fit("fusion:parts=lexical+moore_lewis", Units.of_texts(["one text"] * 50))
    assert "moore_lewis gives all 50 general units the same score" in caplog.text


@pytest.mark.parametrize("task", [19, 60])
def test_moments_exclude_contamination(task):
    both = fit("fusion:parts=random+knn", POOL, task, general_share=0.1)
    scores = both.parts[1].score(POOL)
    mean, std = both.moments[1]
    assert mean == pytest.approx(scores.mean(), abs=0.1 * scores.std())
    assert std == pytest.approx(scores.std(), rel=0.2)
