"""Words of topics: which are counted, which the limits leave out, what an empty vocabulary says."""

import pytest

from dana.core.errors import ConfigError, DataError
from dana.studies.topics.model import choose_vocabulary, count_known_words
from dana.studies.topics.settings import TopicSettings

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


@pytest.mark.parametrize("texts", [[], ["", "12 7", "a b"]])
def test_texts_without_words_are_refused(texts):
    with pytest.raises(DataError, match=f"vocabulary: .* {len(texts)} "):
        choose_vocabulary(texts, ALL)


def test_known_words_are_counted_in_any_text():
    bags = count_known_words(["Plum plum fig", "", "other"], ("fig", "plum"))
    assert bags.counts.toarray().tolist() == [[1, 2], [0, 0], [0, 0]]
    assert count_known_words([], ("fig", "plum")).counts.shape == (0, 2)
