"""Word vectors: means of them by hand, files in the formats in use, training by hand and against numpy."""

import gzip
import shutil

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.registry import ENCODERS
from dana.encoders import words as words_module
from dana.encoders.words import (
    WordsEncoder,
    WordVectors,
    count_pairs,
    positive_information,
    read_word_vectors,
)
from dana.models.ngram.vocabulary import MARKS, Vocabulary
from dana.selectors.checks import OTHER, TARGET, check_encoder


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("the 1 0\nCourt 0 1\ndenied 3 4\ncourt 9 9\n, 5 5", encoding="utf-8")
    return path


def test_a_vector_is_the_mean_of_those_of_known_words(path):
    encoder = WordsEncoder(str(path))
    vectors = encoder.encode(["The court, the judge!", "DENIED", "no such word", ""])
    by_hand = [[(1 + 0 + 5 + 1) / 4, (0 + 1 + 5 + 0) / 4], [3, 4], [0, 0], [0, 0]]
    torch.testing.assert_close(vectors, torch.tensor(by_hand))
    assert vectors.dtype == torch.float32
    assert encoder.encode([]).shape == (0, 2)


def test_the_batch_changes_no_bit_and_every_check_passes(tmp_path, repository_texts):
    words_module.train_word_vectors(repository_texts, 40, min_count=3).save(
        tmp_path / "repository.txt"
    )
    encoder = ENCODERS.create(f"words:{tmp_path}/repository.txt")
    together = encoder.encode(repository_texts)
    assert together.any(1).all()
    assert torch.equal(torch.cat([encoder.encode([text]) for text in repository_texts]), together)
    assert torch.equal(encoder.encode(repository_texts[::-1]).flip(0), together)
    words_module.train_word_vectors([" ".join(texts) for texts in (TARGET, OTHER)] * 5, 4).save(
        tmp_path / "topics.txt"
    )
    results = check_encoder(f"words:{tmp_path}/topics.txt")
    assert [str(result) for result in results if not result.passed or result.detail] == []


def test_identity_is_content_not_place(path, tmp_path):
    copy = shutil.copy(path, tmp_path / "copy.txt")
    assert WordsEncoder(str(copy)).identity() == WordsEncoder(str(path)).identity()
    path.write_text("the 1 0\n", encoding="utf-8")
    assert WordsEncoder(str(copy)).identity() != WordsEncoder(str(path)).identity()


def test_files_that_are_missing_are_refused(path, tmp_path):
    with pytest.raises(ConfigError, match="missing a required argument: 'vectors'"):
        ENCODERS.create("words")
    with pytest.raises(
        ArtifactError, match=r"vector.txt: word vectors cannot be read.* did you mean .*vectors.txt"
    ):
        WordsEncoder(str(tmp_path / "vector.txt")).identity()
    with pytest.raises(ArtifactError, match="Is a directory"):
        WordsEncoder(str(tmp_path)).identity()
    with pytest.raises(DataError, match=r"none.txt:1: cannot be read"):
        read_word_vectors(tmp_path / "none.txt")


GLOVE = "the 0.5 -1 2e-3\n. . . 1 2 3\nDon't 4 5 6\nDON'T 7 8 9\n"


FORMATS = [("glove.txt", GLOVE.encode()), ("fasttext.vec", f"4 3\n{GLOVE}".encode())]
FORMATS += [("word2vec.txt", f"4 3\n{GLOVE}".replace("\n", " \r\n").encode())]
FORMATS += [
    ("edited.txt", f"\ufeff{GLOVE}\n\n".encode()),
    ("packed.txt.gz", gzip.compress(GLOVE.encode(), mtime=0)),
]


@pytest.mark.parametrize(("name", "content"), FORMATS)
def test_every_text_format_gives_the_same_words_and_numbers(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    word_vectors = read_word_vectors(tmp_path / name)
    assert word_vectors.words == ("the", ". . .", "Don't", "DON'T")
    assert torch.equal(
        word_vectors.vectors, torch.tensor([[0.5, -1, 2e-3], [1, 2, 3], [4, 5, 6], [7, 8, 9]])
    )
    assert word_vectors.row_by_word == {"the": 0, ". . .": 1, "don't": 2}, (
        "of words that differ in case the first"
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", ": 0 words with vectors; expected at least one"),
        ("5 2\nthe 1 2\n", ": 1 words with vectors; expected 5"),
        ("the 1 2\nof 3\n", ":2: expected a word and 2 numbers"),
        ("the\n", ":1: expected a word and its numbers"),
        ("<html>\n", ":1: expected a word and its numbers"),
        ("2 2\nthe 1 2 3\nof 1 2 3\n", ":2: expected a word and 2 numbers"),
        ("2 3\nthe 1 2\nof 1 2\n", ":2: expected a word and 3 numbers"),
        ("the 1 2\nof 3 x\n", ":2: could not convert string to float: 'x'"),
        ("the 1 2\nof 3 nan\n", ":2: a number is not finite"),
        ("the 1 2\nof 3 1e39\n", ":2: a number is not finite"),
        ("the\t1\t2\n", ":1: expected a word and its numbers"),
        ("2 4\nthe \0\0\x80?\0\0\x80?\0\0\x80?\0\0\x80?\nof ", ":"),  # binary
    ],
)
def test_what_is_no_file_of_vectors_is_refused_by_line(path, content, problem):
    path.write_text(content, encoding="latin-1")
    with pytest.raises(DataError, match=rf"vectors\.txt{problem}"):
        read_word_vectors(path)


@example(torch.randn(400, generator=torch.Generator().manual_seed(0)).tolist())
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=2, max_size=12)
)
def test_what_is_written_is_read_back_to_the_bit(tmp_path_factory, numbers):
    path = tmp_path_factory.mktemp("vectors") / "vectors.txt"
    word_vectors = WordVectors(
        ("the", "über"), torch.tensor(numbers[: len(numbers) // 2 * 2]).reshape(2, -1)
    )
    word_vectors.save(path)
    copy = read_word_vectors(path)
    assert copy.words == word_vectors.words
    assert torch.equal(copy.vectors, word_vectors.vectors)


TEXTS = ["a b rare a", "b a", "b"]  # by frequency: a and b, three times each


def test_pairs_by_hand():
    vocabulary = Vocabulary.of_texts(TEXTS, 2)
    assert vocabulary.words[len(MARKS) :] == ("a", "b")
    # Window 2: a-b next to each other twice (2 each), b-a two apart once (1); the rare word keeps
    # its place.
    assert count_pairs(TEXTS, vocabulary, 2).toarray().tolist() == [[0, 5], [5, 0]]
    assert count_pairs(TEXTS, vocabulary, 3).toarray().tolist() == [[2, 8], [8, 0]]


def test_pairs_do_not_depend_on_how_many_texts_are_counted_at_once(monkeypatch, repository_texts):
    vocabulary = Vocabulary.of_texts(repository_texts, 3)
    at_once = count_pairs(repository_texts, vocabulary, 4)
    monkeypatch.setattr(words_module, "TEXTS_AT_ONCE", 7)
    assert (count_pairs(repository_texts, vocabulary, 4) != at_once).nnz == 0


def test_positive_information_by_hand():
    information = positive_information(
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
    once, again = (words_module.train_word_vectors(repository_texts, 12, 4, 5) for _ in range(2))
    assert torch.equal(once.vectors, again.vectors)
    assert once.words == again.words
    vocabulary = Vocabulary.of_texts(repository_texts, 5)
    information = positive_information(count_pairs(repository_texts, vocabulary, 4)).toarray()
    directions, values, _ = np.linalg.svd(information)
    exact, vectors = directions[:, :12] * np.sqrt(values[:12]), once.vectors.double().numpy()
    np.testing.assert_allclose(vectors, exact * np.sign((vectors * exact).sum(0)), atol=1e-5)


def test_bad_numbers_are_refused_by_name():
    with pytest.raises(ConfigError, match="window=0: must be at least 1"):
        words_module.train_word_vectors(TEXTS, window=0)
    with pytest.raises(DataError, match="dims=2: must be below 2"):
        words_module.train_word_vectors(TEXTS, dims=2, min_count=2)
