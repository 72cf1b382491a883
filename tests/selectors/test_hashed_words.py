"""Lexical selector: plain words, scikit-learn's scores. DSIR: log weights of the published package."""

import math
from itertools import pairwise

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion

from dana.corpus.hashed_ngrams import HashedNgrams
from dana.selectors.hashed_words import DSIRSelector, LexicalSelector, plain_words

TARGET = [
    "The cell binds a gene, and the gene binds.",
    "A kinase binds the cell (twice).",
    "Genes of a cell: 3 of 4.",
]
POOL = ["The court denied the motion.", "Trains leave at 10:45.", "A judge of the court ruled."]
POOL += ["The cell phone rang."]
PROBES = [
    "A gene of the cell binds and binds and binds.",
    "The judge denied it.",
    "Nothing known here",
    "",
    "... !",
]


PLAIN_BY_HAND = [("It does n't end", "it doesnt end"), ("it doesn\u2019t end", "it doesnt end")]
PLAIN_BY_HAND += [
    ("He 's the film 's star", "hes the films star"),
    ("<< EGFR >> and [[ ZD1839 ]]", "egfr and zd 0"),
]
PLAIN_BY_HAND += [("a dose of @.@ mg to @ - @ of @", "a dose of 0 mg to 0 0 of 0")]
PLAIN_BY_HAND += [("a dose of 1,000.5 mg to 4 - 5 of 6", "a dose of 0 mg to 0 0 of 0")]
PLAIN_BY_HAND += [("-LRB- see Fig. 2a -RRB- , e.g. user@host", "see fig 0 a e g user host")]
PLAIN_BY_HAND += [("caf\u00e9_na\u00efve\u2026", "caf\u00e9 na\u00efve")]


@pytest.mark.parametrize(("raw", "words"), PLAIN_BY_HAND)
def test_plain_words_ignore_preprocessing(raw, words):
    assert plain_words(raw) == words.split()


def word_grams(text):
    words = plain_words(text)
    return words + [f"{one} {other}" for one, other in pairwise(words)]


def character_grams(text):
    words = [f" {word} " for word in plain_words(text)]
    return [
        word[at : at + n] for word in words for n in (2, 3, 4) for at in range(len(word) - n + 1)
    ]


def lexical(pool=POOL, **parameters):
    return LexicalSelector(**parameters).fit(TARGET, {"background": pool})


def test_scores_are_scikit_learns():
    kinds = [
        (of.__name__, TfidfVectorizer(analyzer=of, sublinear_tf=True))
        for of in (word_grams, character_grams)
    ]
    vectorizer = FeatureUnion(kinds)
    rows = vectorizer.fit_transform(TARGET + POOL)
    model = LogisticRegression(C=2.0, class_weight="balanced", solver="liblinear", max_iter=1000)
    model.fit(rows, [1] * len(TARGET) + [0] * len(POOL))
    known_texts = [
        probe
        for probe in [*PROBES, *TARGET]
        if set(word_grams(probe)) <= set(kinds[0][1].vocabulary_)
    ]
    assert len(known_texts) > len(TARGET)
    reference = -model.decision_function(vectorizer.transform(known_texts))
    scores = lexical(characters=4, c=2.0).score(known_texts)
    np.testing.assert_allclose(scores, reference, atol=1e-3)  # as far as the solver goes


def test_unknown_repeated_and_rare_text_is_between():
    model = lexical()
    inside, outside, _, nothing, _ = model.score(PROBES)
    assert inside < nothing < outside
    near, far = model.score(["gene binds", "gene binds with many words never seen before"])
    assert near < far
    inside, outside = lexical(POOL * 20).score(PROBES[:2])
    assert inside < 0 < outside, "class sizes do not move the border"
    once, often = lexical(order=1).score(["gene kinase", "gene kinase " * 50])
    assert once == pytest.approx(
        often, rel=0.02
    )  # runs of characters that both words have are damped, not scaled


DSIR_TASK = [
    "The enzyme binds its ligand; the receptor doesn't move.",
    "A kinase phosphorylates the receptor (twice).",
]
DSIR_TASK += ["Ligand-binding assays: 3 of 4 enzymes were inhibited!"]
DSIR_POOL = ["The court denied the motion, and counsel appealed."]
DSIR_POOL += [
    "Trains leave at 10:45; the receptor of this phone is broken.",
    "The enzyme court rests.",
]
DSIR_POOL += ["\u00c9t\u00e9 in Paris: caf\u00e9s, na\u00efve tourists..."]
PUBLISHED = [-228.4433407728877, -295.85464896343154, -72.0188014698358, -227.09122561627436]
PUBLISHED += [230.29458359872615, 172.9119623348341, 300.1503401673988]


def test_dsir_scores_are_the_published_log_weights():
    """PUBLISHED was made by data-selection 1.0.3, with the texts as {"text": ...} lines of two files.

    dsir = HashedNgramDSIR([general_file], [task_file], cache, num_proc=1, min_example_length=0)
    dsir.fit_importance_estimator(num_tokens_to_fit="all")
    [float(dsir.importance_estimator(dsir.featurizer(text))) for text in DSIR_POOL + DSIR_TASK]
    """
    texts, ngrams = (
        DSIR_POOL + DSIR_TASK,
        HashedNgrams().counts(DSIR_POOL + DSIR_TASK).sum(axis=1),
    )
    by_sum = DSIRSelector(normalise="none").fit(DSIR_TASK, {"background": DSIR_POOL})
    by_token = DSIRSelector().fit(DSIR_TASK, {"background": DSIR_POOL})
    np.testing.assert_allclose(-by_sum.score(texts), PUBLISHED, rtol=0, atol=1e-6)
    np.testing.assert_allclose(-by_token.score(texts) * ngrams, PUBLISHED, rtol=0, atol=1e-6)
    assert by_token.score(["", "  "]).tolist() == [0.0, 0.0]
    alike = DSIRSelector().fit(["one text"] * 3, {"background": ["one text"] * 5})
    np.testing.assert_allclose(alike.score(["one text", "another"]), [0.0, 0.0], atol=1e-12)


def test_dsir_smoothing_by_hand():
    model = DSIRSelector(order=1, buckets=1000, smoothing=0.25).fit(
        ["cell cell gene"], {"background": ["gene"]}
    )
    assert model.score(["cell"]) == pytest.approx([-math.log((2 / 3 + 0.25) / 0.25)])
