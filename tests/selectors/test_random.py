"""Random selector: uniform scores from the seed and the unit alone."""

import numpy as np

from dana.corpus.unit_stream import Units
from dana.selectors.random import RandomSelector

COUNT = 20_000


def a_batch():
    units = Units.of_texts(["text"] * COUNT)
    units.keys[:] = np.arange(COUNT, dtype=np.uint64)
    return units


def test_scores_are_uniform_and_those_of_two_seeds_independent():
    one, other = (RandomSelector().fit([], {}, seed).score(a_batch()) for seed in (0, 1))
    for decile in range(10):
        share = ((one >= decile / 10) & (one < (decile + 1) / 10)).mean()
        assert abs(share - 0.1) < 0.01
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.03
    assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 0.03


def test_a_units_score_is_the_same_in_any_batch_and_after_saving(tmp_path):
    fitted = RandomSelector().fit(["task"], {}, 3)
    scores, chosen = fitted.score(a_batch()), np.array([7, 3, 5])
    np.testing.assert_array_equal(fitted.score(a_batch().rows(chosen)), scores[chosen])
    fitted.save(tmp_path)
    np.testing.assert_array_equal(RandomSelector().load(tmp_path).score(a_batch()), scores)
    assert RandomSelector().identity() == {"selector": "RandomSelector"}
    assert RandomSelector().samples(100) == {}


def test_a_plain_text_has_a_score_of_its_own_in_any_list():
    fitted = RandomSelector().fit(["task"], seed=3)
    one, other, again = fitted.score(["a text", "another text", "a text"])
    assert one == again != other
    assert fitted.score(["a text"])[0] == one
