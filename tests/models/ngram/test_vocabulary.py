import numpy as np
import pytest

from dana.core.errors import ConfigError
from dana.models.ngram.vocabulary import Vocabulary, split_words

BY_HAND = [
    ("Don't pay $1,200!", "don't pay $ 1 , 200 !"),
    ("l’État — C'EST moi.", "l’état — c'est moi ."),
]
BY_HAND += [("p53-dependent snake_case", "p 53 - dependent snake _ case")]
BY_HAND += [("'quoted' rock'n'roll", "' quoted ' rock'n'roll"), (" \t\n", "")]


@pytest.mark.parametrize(("text", "words"), BY_HAND)
def test_words_are_lower_cased_and_numbers_and_marks_stand_alone(text, words):
    assert " ".join(split_words(text)) == words


def test_a_text_has_the_same_words_whether_or_not_it_has_letters_beyond_ascii():
    characters = [chr(code) for code in range(128)] + list("aA19'_") * 20
    text = "".join(np.random.default_rng(0).choice(characters, 15_000))
    assert split_words(text) == split_words(text + " é")[:-1]


def test_frequent_words_come_first_and_rare_ones_are_unknown():
    vocabulary = Vocabulary.of_texts(["b a b", "c a b"], min_count=2)
    assert vocabulary.words == ("<unk>", "<s>", "</s>", "b", "a")
    ids = vocabulary.encode(["a c", "", "B"])
    assert ids.ids.tolist() == [1, 4, 0, 2, 1, 2, 1, 3, 2]
    assert ids.sizes.tolist() == [4, 2, 3]
    assert ids.text_of.tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 2]


def test_rows_are_what_encoding_these_texts_gives():
    texts = [f"{number} and {number % 3} " * (number % 4) for number in range(9)]
    vocabulary, order = Vocabulary.of_texts(texts), np.array([8, 0, 3, 3])
    rows, again = (
        vocabulary.encode(texts).rows(order),
        vocabulary.encode([texts[row] for row in order]),
    )
    assert rows.ids.tolist() == again.ids.tolist()
    assert rows.sizes.tolist() == again.sizes.tolist()


def test_a_words_list_may_hold_the_marks_and_words_twice():
    assert Vocabulary.of_words(["b", "<unk>", "a", "b"]).words == ("<unk>", "<s>", "</s>", "b", "a")


def test_a_least_count_of_0_is_refused():
    with pytest.raises(ConfigError, match="min_count=0"):
        Vocabulary.of_texts(["a"], min_count=0)
