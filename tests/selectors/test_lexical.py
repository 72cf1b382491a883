"""Lexical selector: plain words, scores equal to scikit-learn's pipeline, bad input."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion

from dana.core.errors import ConfigError, DataError
from dana.selectors.hashed_words import LexicalSelector, plain_words

TASK = ["The cell binds a gene, and the gene binds.", "A kinase binds the cell (twice).", "Genes of a cell: 3 of 4."]
GENERAL = [
    "The court denied the motion.",
    "Trains leave at 10:45.",
    "A judge of the court ruled.",
    "The cell phone rang.",
]
PROBES = ["A gene of the cell binds and binds and binds.", "The judge denied it.", "Nothing known here", "", "... !"]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("It does n't end", "it doesnt end"),
        ("it doesn\u2019t end", "it doesnt end"),
        ("He 's the film 's star", "hes the films star"),
        ("<< EGFR >> and [[ ZD1839 ]]", "egfr and zd 0"),
        ("a dose of @.@ mg to @ - @ of @", "a dose of 0 mg to 0 0 of 0"),
        ("a dose of 1,000.5 mg to 4 - 5 of 6", "a dose of 0 mg to 0 0 of 0"),
        ("-LRB- see Fig. 2a -RRB- , e.g. user@host", "see fig 0 a e g user host"),
        ("caf\u00e9_na\u00efve\u2026", "caf\u00e9 na\u00efve"),
    ],
)
def test_plain_words_ignore_preprocessing(raw, words):
    assert plain_words(raw) == words.split()


def test_scores_are_scikit_learns():
    kinds = [(name, TfidfVectorizer(analyzer=part, sublinear_tf=True)) for name, part in (("w", _grams), ("c", _parts))]
    vectorizer = FeatureUnion(kinds)
    rows = vectorizer.fit_transform(TASK + GENERAL)
    model = LogisticRegression(C=2.0, class_weight="balanced", solver="liblinear", max_iter=1000)
    model.fit(rows, [1] * len(TASK) + [0] * len(GENERAL))
    fitted = LexicalSelector(characters=4, c=2.0).fit(TASK, {"background": GENERAL})
    known = [probe for probe in [*PROBES, *TASK] if set(_grams(probe)) <= set(kinds[0][1].vocabulary_)]
    assert len(known) > len(TASK)
    expected = -model.decision_function(vectorizer.transform(known))
    np.testing.assert_allclose(fitted.score(known), expected, atol=1e-3)  # as far as the solver goes


def _grams(text):
    words = plain_words(text)
    return words + [f"{one} {other}" for one, other in pairwise(words)]


def _parts(text):
    padded = [f" {word} " for word in plain_words(text)]
    return [word[at : at + n] for word in padded for n in (2, 3, 4) for at in range(len(word) - n + 1)]


def test_a_text_is_bit_equal_in_any_batch():
    texts = [f"{one} {other} the cells' {one}" for one in TASK + GENERAL for other in PROBES]
    fitted = LexicalSelector().fit(TASK, {"background": GENERAL})
    together = fitted.score(texts)
    for step in (1, 2, 7):
        alone = [fitted.score(texts[first : first + step]) for first in range(0, len(texts), step)]
        np.testing.assert_array_equal(np.concatenate(alone), together)
    np.testing.assert_array_equal(fitted.score(texts[::-1])[::-1], together)


def test_higher_is_more_foreign():
    fitted = LexicalSelector().fit(TASK, {"background": GENERAL})
    inside, outside, _, nothing, _ = fitted.score(PROBES)
    assert inside < nothing < outside
    near, diluted = fitted.score(["gene binds", "gene binds with many words never seen before"])
    assert near < diluted
    many = LexicalSelector().fit(TASK, {"background": GENERAL * 20}).score(PROBES[:2])
    assert many[0] < 0 < many[1], "class sizes do not move the border"
    once, often = (
        LexicalSelector(order=1).fit(TASK, {"background": GENERAL}).score(["gene kinase", "gene kinase " * 50])
    )
    assert once == pytest.approx(often, rel=0.02)  # runs of characters that both words have are damped, not scaled


@pytest.mark.parametrize("setting", [{"order": 0}, {"characters": 1}, {"buckets": 0}, {"c": 0.0}, {"background": 0}])
def test_a_parameter_out_of_range_is_refused(setting):
    (name,) = setting
    with pytest.raises(ConfigError, match=name):
        LexicalSelector(**setting)


def test_bad_text_is_refused():
    with pytest.raises(DataError, match="task"):
        LexicalSelector().fit([], {"background": GENERAL})
    with pytest.raises(DataError, match="background"):
        LexicalSelector().fit(TASK, {"background": ["!", "..."]})
