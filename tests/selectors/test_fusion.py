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


def test_parts_of_every_kind_share_a_small_pool(pool):
    found = fitted("fusion:parts=lexical+knn", pool).score(pool)
    assert found[:260].mean() > found[260:].mean() + 1


@pytest.mark.parametrize("task", [19, 60])
def test_general_units_that_are_fitted_with_the_task_are_no_scale(pool, task):
    both = fitted("fusion:parts=random+knn", pool, task, general_share=0.1)
    scores = both.parts[1].score(pool)
    mean, std = both.moments[1]
    assert mean == pytest.approx(scores.mean(), abs=0.1 * scores.std())
    assert std == pytest.approx(scores.std(), rel=0.2)


def test_a_part_that_scores_all_alike_is_told(pool, caplog):
    same = Units.of_texts(["one text"] * 50)
    fitted("fusion:parts=lexical+moore_lewis", same)
    assert "fusion    moore_lewis scores all of 50 general units alike: it adds nothing" in caplog.text
    caplog.clear()
    fitted("fusion:parts=lexical+knn", pool)
    assert "adds nothing" not in caplog.text


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("fusion:parts=lexical+lexical", "each once"),
        ("fusion:parts=lexical++svm", "joined by"),
        ("fusion:parts=lexical+auto", "none of them a fusion or auto"),
        ("fusion:parts=lexical+svm,weights=1", "2 numbers"),
        ("fusion:parts=lexical+svm,weights=1+x", "must be numbers"),
        ("fusion:parts=lexical+svm,weights=0+0", "not all of them 0"),
        ("fusion:parts=lexical+svm,weights=1+-1", "numbers from 0"),
    ],
)
def test_parts_and_weights_that_are_none_are_refused(spec, says):
    with pytest.raises(ConfigError, match=says):
        create_selector(spec, SelectorContext())
