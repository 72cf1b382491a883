"""Target texts that repeat are fitted once in Python, as by the command."""

import numpy as np
import pytest

from dana.selectors.base import SelectorContext
from dana.selectors.build import create_selector
from tests.selectors.topics import texts

CONTEXT = SelectorContext(encoder="hashing:dims=64,words=1")


@pytest.mark.parametrize("spec", ["lexical", "moore_lewis", "dsir", "detector", "random"])
def test_repeats_in_the_target_text_change_no_score(spec, caplog):
    selector = create_selector(spec, CONTEXT)
    target = texts("task", 40, 0)
    pool = texts("other", 60, 1)
    again = [*target, *target[:30], *(f"  {text.upper()}!" for text in target[:5])]
    caplog.set_level("INFO", "dana")
    scores = selector.fit(target, pool, 0).score(pool)
    repeats = 40 - len(set(target))
    assert len(caplog.messages) == (repeats > 0)
    np.testing.assert_array_equal(selector.fit(again, pool, 0).score(pool), scores)
    said = caplog.messages[-1]
    assert f"{35 + repeats} of 75 target texts repeat the words of others and are dropped" in said
