"""Word vectors that recipes/papers/domain_clusters trains: by hand, against numpy, and read back to the bit."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from dana.core.errors import ConfigError, DataError
from dana.encoders.words import WordVectors, read_word_vectors
from dana.models.ngram.vocabulary import MARKS, Vocabulary

RECIPE = Path(__file__).parents[2] / "recipes" / "papers" / "domain_clusters" / "word_vectors.py"
spec = spec_from_file_location("word_vectors", RECIPE)
recipe = module_from_spec(spec)
spec.loader.exec_module(recipe)


@example(torch.randn(400, generator=torch.Generator().manual_seed(0)).tolist())
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=2, max_size=12)
)
def test_what_is_written_is_read_back_to_the_bit(tmp_path_factory, numbers):
    path = tmp_path_factory.mktemp("vectors") / "vectors.txt"
    word_vectors = WordVectors(
        ("the", "über"), torch.tensor(numbers[: len(numbers) // 2 * 2]).reshape(2, -1)
    )
    recipe.save_word_vectors(word_vectors, path)
    copy = read_word_vectors(path)
    assert copy.words == word_vectors.words
    assert torch.equal(copy.vectors, word_vectors.vectors)


TEXTS = ["a b rare a", "b a", "b"]  # by frequency: a and b, three times each


def test_pairs_by_hand():
    vocabulary = Vocabulary.of_texts(TEXTS, 2)
    assert vocabulary.words[len(MARKS) :] == ("a", "b")
    # Window 2: a-b next to each other twice (2 each), b-a two apart once (1); the rare word keeps
    # its place.
    assert recipe.count_pairs(TEXTS, vocabulary, 2).toarray().tolist() == [[0, 5], [5, 0]]
    assert recipe.count_pairs(TEXTS, vocabulary, 3).toarray().tolist() == [[2, 8], [8, 0]]


def test_pairs_do_not_depend_on_how_many_texts_are_counted_at_once(monkeypatch, repository_texts):
    vocabulary = Vocabulary.of_texts(repository_texts, 3)
    at_once = recipe.count_pairs(repository_texts, vocabulary, 4)
    monkeypatch.setattr(recipe, "TEXTS_AT_ONCE", 7)
    assert (recipe.count_pairs(repository_texts, vocabulary, 4) != at_once).nnz == 0


def test_positive_information_by_hand():
    information = recipe.positive_information(
        csr_array(np.array([[0.0, 4, 1], [4, 0, 4], [1, 4, 0]]))
    ).toarray()
    a, b = 5**0.75 / (2 * 5**0.75 + 8**0.75), 8**0.75 / (2 * 5**0.75 + 8**0.75)
    with_b, with_a = np.log(4 / 18 / (5 / 18 * b)), np.log(4 / 18 / (8 / 18 * a))
    assert np.log(1 / 18 / (5 / 18 * a)) < 0, (
        "the first and the last meet less often than by chance"
    )
    np.testing.assert_allclose(information, [[0, with_b, 0], [with_a, 0, with_a], [0, with_b, 0]])


def test_vectors_are_the_leading_singular_ones_times_the_root_and_the_same_bits_again(
    repository_texts,
):
    once, again = (recipe.train_word_vectors(repository_texts, 12, 4, 5) for _ in range(2))
    assert torch.equal(once.vectors, again.vectors)
    assert once.words == again.words
    vocabulary = Vocabulary.of_texts(repository_texts, 5)
    information = recipe.positive_information(
        recipe.count_pairs(repository_texts, vocabulary, 4)
    ).toarray()
    directions, values, _ = np.linalg.svd(information)
    exact, vectors = directions[:, :12] * np.sqrt(values[:12]), once.vectors.double().numpy()
    np.testing.assert_allclose(vectors, exact * np.sign((vectors * exact).sum(0)), atol=1e-5)


def test_bad_numbers_are_refused_by_name():
    with pytest.raises(ConfigError, match="window=0: must be at least 1"):
        recipe.train_word_vectors(TEXTS, window=0)
    with pytest.raises(DataError, match="dims=2: must be below 2"):
        recipe.train_word_vectors(TEXTS, dims=2, min_count=2)
