"""DSIR: the log weights of the published package, per n-gram and as a sum."""

import math

import numpy as np
import pytest

from dana.core.errors import ConfigError, DataError
from dana.corpus.hashed_ngrams import HashedNgrams
from dana.selectors.hashed_words import DSIRSelector

TASK = [
    "The enzyme binds its ligand; the receptor doesn't move.",
    "A kinase phosphorylates the receptor (twice).",
    "Ligand-binding assays: 3 of 4 enzymes were inhibited!",
]
GENERAL = [
    "The court denied the motion, and counsel appealed.",
    "Trains leave at 10:45; the receptor of this phone is broken.",
    "The enzyme court rests.",
    "\u00c9t\u00e9 in Paris: caf\u00e9s, na\u00efve tourists...",
]
PUBLISHED = [
    -228.4433407728877,
    -295.85464896343154,
    -72.0188014698358,
    -227.09122561627436,
    230.29458359872615,
    172.9119623348341,
    300.1503401673988,
]


def test_sums_are_the_published_log_weights():
    """PUBLISHED was made by data-selection 1.0.3, with the texts as {"text": ...} lines of two files.

    dsir = HashedNgramDSIR([general_file], [task_file], cache, num_proc=1, min_example_length=0)
    dsir.fit_importance_estimator(num_tokens_to_fit="all")
    [float(dsir.importance_estimator(dsir.featurizer(text))) for text in GENERAL + TASK]
    """
    fitted = DSIRSelector(normalise="none").fit(TASK, {"background": GENERAL})
    np.testing.assert_allclose(-fitted.score(GENERAL + TASK), PUBLISHED, rtol=0, atol=1e-6)


def test_by_token_is_the_mean_per_ngram():
    fitted = DSIRSelector().fit(TASK, {"background": GENERAL})
    ngrams = HashedNgrams().counts(GENERAL + TASK).sum(axis=1)
    np.testing.assert_allclose(-fitted.score(GENERAL + TASK) * ngrams, PUBLISHED, rtol=0, atol=1e-6)
    assert fitted.score(["", "  "]).tolist() == [0.0, 0.0]


def test_smoothing_by_hand():
    fitted = DSIRSelector(order=1, buckets=1000, smoothing=0.25).fit(["cell cell gene"], {"background": ["gene"]})
    (found,) = fitted.score(["cell"])
    assert found == pytest.approx(-math.log((2 / 3 + 0.25) / 0.25))


@pytest.mark.parametrize("setting", [{"normalise": "length"}, {"order": 0}, {"buckets": 0}, {"smoothing": 0.0}])
def test_a_parameter_out_of_range_is_refused(setting):
    (name,) = setting
    with pytest.raises(ConfigError, match=name):
        DSIRSelector(**setting)


def test_text_without_words_is_refused():
    with pytest.raises(DataError, match="task"):
        DSIRSelector().fit(["", " "], {"background": GENERAL})
    with pytest.raises(DataError, match="background"):
        DSIRSelector().fit(TASK, {"background": [" "]})


def test_identical_samples_score_zero():
    fitted = DSIRSelector().fit(["one text"] * 3, {"background": ["one text"] * 5})
    np.testing.assert_allclose(fitted.score(["one text", "another"]), [0.0, 0.0], atol=1e-12)
