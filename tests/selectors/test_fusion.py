"""Fusion selector: on what its parts are standardised, parts that add nothing, and pools too small for every sample."""

import pytest

from dana.core.errors import ConfigError
from dana.corpus.unit_stream import Units, draw
from dana.selectors.base import SelectorContext
from dana.selectors.build import create_selector
from tests.selectors.topics import texts


@pytest.fixture
def pool():
    return Units.of_texts(texts("other", 260, 1) + texts("task", 40, 2))


def fitted(spec, pool, task=60, **context):
    selector = create_selector(spec, SelectorContext(encoder="hashing:dims=64", **context))
    wanted = {name: (place, size) for place, (name, size) in enumerate(selector.samples(task).items())}
    return selector.fit(texts("task", task, 0), draw([pool], wanted, selector.runs()), 0)


def test_parts_share_a_small_pool(pool):
    found = fitted("fusion:parts=lexical+knn", pool).score(pool)
    assert found[:260].mean() > found[260:].mean() + 1


@pytest.mark.parametrize("task", [19, 60])
def test_moments_exclude_contamination(pool, task):
    both = fitted("fusion:parts=random+knn", pool, task, general_share=0.1)
    scores = both.parts[1].score(pool)
    mean, std = both.moments[1]
    assert mean == pytest.approx(scores.mean(), abs=0.1 * scores.std())
    assert std == pytest.approx(scores.std(), rel=0.2)


def test_a_constant_part_is_reported(pool, caplog):
    same = Units.of_texts(["one text"] * 50)
    fitted("fusion:parts=lexical+moore_lewis", same)
    assert "moore_lewis gives all 50 general units the same score" in caplog.text
    caplog.clear()
    fitted("fusion:parts=lexical+knn", pool)
    assert "adds nothing" not in caplog.text


@pytest.mark.parametrize(
    "value",
    [
        *("parts=lexical+lexical", "parts=lexical++svm", "parts=lexical+auto", "weights=1", "weights=1+x"),
        *("weights=0+0", "weights=1+-1"),
    ],
)
def test_bad_parts_and_weights_are_refused(value):
    with pytest.raises(ConfigError, match=value.partition("=")[0]):
        create_selector(f"fusion:{value}", SelectorContext())
