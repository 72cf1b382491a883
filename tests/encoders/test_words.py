"""Word vectors: means of them by hand, files in the formats in use."""

import gzip
import shutil

import numpy as np
import pytest
import torch

from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.registry import ENCODERS
from dana.encoders.words import WordsEncoder, read_word_vectors
from dana.models.ngram.vocabulary import split_words
from dana.selectors.checks import OTHER, TARGET, check_encoder


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("the 1 0\nCourt 0 1\ndenied 3 4\ncourt 9 9\n, 5 5", encoding="utf-8")
    return path


def write_vectors(path, texts):
    """Write a random vector for each word of texts."""
    words = sorted({word for text in texts for word in split_words(text)})
    numbers = np.random.default_rng(0).standard_normal((len(words), 20))
    rows = [f"{word} {' '.join(map(str, row))}" for word, row in zip(words, numbers, strict=True)]
    path.write_text("\n".join(rows), encoding="utf-8")


def test_a_vector_is_the_mean_of_those_of_known_words(path):
    encoder = WordsEncoder(str(path))
    vectors = encoder.encode(["The court, the judge!", "DENIED", "no such word", ""])
    by_hand = [[(1 + 0 + 5 + 1) / 4, (0 + 1 + 5 + 0) / 4], [3, 4], [0, 0], [0, 0]]
    torch.testing.assert_close(vectors, torch.tensor(by_hand))
    assert vectors.dtype == torch.float32
    assert encoder.encode([]).shape == (0, 2)


def test_the_batch_changes_no_bit_and_every_check_passes(tmp_path, repository_texts):
    write_vectors(tmp_path / "repository.txt", repository_texts)
    encoder = ENCODERS.create(f"words:{tmp_path}/repository.txt")
    together = encoder.encode(repository_texts)
    assert together.any(1).all()
    assert torch.equal(torch.cat([encoder.encode([text]) for text in repository_texts]), together)
    assert torch.equal(encoder.encode(repository_texts[::-1]).flip(0), together)
    write_vectors(tmp_path / "topics.txt", [*TARGET, *OTHER])
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
