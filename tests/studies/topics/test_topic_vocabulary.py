"""Vocabulary of topics, coherence and diversity, the choice of their number."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from dana.core.errors import ConfigError, DataError
from dana.studies.topics.model import choose_vocabulary
from dana.studies.topics.settings import TopicSettings
from dana.studies.topics.stage import choose_topics, measure_topics, top_words, topic_coherence

ALL = TopicSettings(min_documents=1, max_share=1.0, stop_words="none")


def test_words_are_runs_of_three_letters_without_contractions():
    bags = choose_vocabulary(["Don't DON’T isn't we've the judge's cells, Cells; Zürich x2y to 1999"], ALL)
    assert dict(zip(bags.words, bags.counts.toarray()[0].tolist(), strict=True)) == {
        "cells": 2, "judge": 1, "the": 1, "zürich": 1,
    }  # fmt: skip
    assert bags.words[0] == "cells"


def test_limits_by_documents_are_inclusive():
    texts = ["common middle rare common", "common middle", "common single", "common pair pair"]
    limits = TopicSettings(min_documents=2, max_share=0.5, stop_words="none")
    with pytest.raises(DataError, match=r"1 of the 5 words of 4 documents \(min_documents=2"):
        choose_vocabulary(texts, limits)
    every = choose_vocabulary(texts, TopicSettings(min_documents=1, max_share=0.5, stop_words="none"))
    assert every.words == ("middle", "pair", "rare", "single")
    assert every.sizes.tolist() == [2, 1, 1, 2]
    assert "common" in choose_vocabulary(texts, TopicSettings(min_documents=2, max_share=1.0)).words


def test_the_most_frequent_words_are_kept_equally_frequent_ones_by_the_alphabet():
    limits = TopicSettings(vocabulary=3, min_documents=1, max_share=1.0, stop_words="none")
    assert choose_vocabulary(["pear plum apple plum", "fig pear plum"], limits).words == ("plum", "pear", "apple")


def test_stop_words_are_english_or_those_of_a_file(tmp_path):
    texts = ["the judge and the cell", "those judges"]
    english = TopicSettings(min_documents=1, max_share=1.0)
    assert choose_vocabulary(texts, english).words == ("cell", "judge", "judges")
    path = tmp_path / "stop.txt"
    path.write_text("Judge\ncell\n", encoding="utf-8")
    from_file = TopicSettings(min_documents=1, max_share=1.0, stop_words=str(path))
    assert choose_vocabulary(texts, from_file).words == ("the", "and", "judges", "those")
    with pytest.raises(ConfigError, match="stop_words='german'"):
        choose_vocabulary(texts, TopicSettings(min_documents=1, max_share=1.0, stop_words="german"))


def test_only_known_words_are_chosen_where_they_are_given():
    assert choose_vocabulary(["one two three"], ALL, {"three", "one", "four"}).words == ("one", "three")
    with pytest.raises(DataError, match="vector"):
        choose_vocabulary(["one two three"], ALL, {"four"})


def test_coherence_by_hand():
    """Words a and b are always together, a and c are independent, a and d are never together, e is everywhere."""
    counts = csr_matrix([[1, 2, 1, 0, 1], [3, 1, 0, 0, 1], [0, 0, 1, 1, 1], [0, 0, 0, 0, 2]])
    pairs = {(0, 1): 1.0, (0, 2): 0.0, (0, 3): -1.0, (4, 4): 0.0, (2, 3): np.log(0.25 / (0.5 * 0.25)) / np.log(4)}
    for pair, npmi in pairs.items():
        assert topic_coherence(np.array([pair]), counts)[0] == pytest.approx(npmi)
    three = topic_coherence(np.array([[0, 1, 3], [0, 1, 2]]), counts)
    assert three.tolist() == [pytest.approx((1 - 1 - 1) / 3), pytest.approx(1 / 3)]


@given(st.integers(0, 2**32 - 1), st.integers(2, 12))
def test_coherence_is_between_minus_one_and_one_and_knows_no_order(seed, width):
    random = np.random.default_rng(seed)
    counts = csr_matrix(random.integers(0, 2, (9, 12)) | (np.arange(9) == 0)[:, None])
    top = random.permutation(12)[None, :width]
    scores = topic_coherence(top, counts)[0]
    assert -1 <= scores <= 1 + 1e-12
    assert topic_coherence(top[:, ::-1], counts)[0] == pytest.approx(scores)


def test_top_words_by_probability_then_place():
    beta = np.array([[0.1, 0.4, 0.4, 0.1], [0.25, 0.25, 0.25, 0.25]])
    assert top_words(beta, 3).tolist() == [[1, 2, 0], [0, 1, 2]]
    assert top_words(beta, 9).shape == (2, 4)


def test_measures_take_ten_words_for_coherence_and_twenty_five_for_diversity():
    alike = measure_topics(np.full((3, 4), 0.25), csr_matrix(np.ones((2, 4), dtype=int)))
    assert alike["diversity"] == 1 / 3, "all topics have the same four words"
    beta = np.vstack([np.linspace(2, 1, 40), np.roll(np.linspace(2, 1, 40), 20)])
    counts = csr_matrix(np.repeat([[1] * 10 + [0] * 30, [0] * 20 + [1] * 10 + [0] * 10, [0] * 40], 2, axis=0))
    scores = measure_topics(beta / beta.sum(1, keepdims=True), counts)
    assert scores == pytest.approx({"coherence": 1.0, "diversity": 40 / 50, "quality": 0.8})


def test_the_number_with_the_best_mean_over_seeds_is_taken_and_its_best_seed():
    columns = ["k", "seed", "coherence", "diversity", "quality"]
    rows = [(10, 0, 0.5, 0.5, 0.25), (10, 1, 0.1, 0.1, 0.01), (5, 0, 0.3, 0.5, 0.15), (5, 1, 0.4, 0.5, 0.20)]
    k, seed, reason = choose_topics(pd.DataFrame(rows, columns=columns))
    assert (k, seed) == (5, 1)
    assert {"5", "10:", "0.175"} <= {*reason.split()}
    equal = pd.DataFrame([(9, 0, 0.5, 0.5, 0.25), (4, 0, 0.5, 0.5, 0.25)], columns=columns)
    assert choose_topics(equal)[:2] == (4, 0), "of equally good numbers the smallest"
