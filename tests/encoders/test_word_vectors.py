"""Files of word vectors: the text formats in use, what is written, and what is refused."""

import gzip

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from dana.core.errors import DataError
from dana.encoders.words import WordVectors, read_word_vectors

GLOVE = "the 0.5 -1 2e-3\n. . . 1 2 3\nDon't 4 5 6\n"


def _read(tmp_path, text, name="vectors.txt"):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return read_word_vectors(path)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (GLOVE, "glove.txt"),
        (f"3 3\n{GLOVE}", "fasttext.vec"),
        (f"3 3\n{GLOVE}".replace("\n", " \r\n"), "word2vec.txt"),
        (f"\ufeff{GLOVE}\n\n", "edited.txt"),
        (GLOVE, "packed.txt.gz"),
    ],
)
def test_every_text_format_gives_the_same_words_and_numbers(tmp_path, text, name):
    found = _read(tmp_path, text, name)
    assert found.words == ("the", ". . .", "Don't")
    torch.testing.assert_close(found.vectors, torch.tensor([[0.5, -1, 2e-3], [1, 2, 3], [4, 5, 6]]), rtol=0, atol=0)


def test_of_words_that_differ_in_case_the_first_counts(tmp_path):
    assert _read(tmp_path, "Apple 1\nfruit 2\napple 3\n").row_by_word == {"apple": 0, "fruit": 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "0 words with vectors; expected at least one"),
        ("5 2\nthe 1 2\n", "1 words with vectors; expected 5"),
        ("the 1 2\nof 3\n", "vectors.txt:2: expected a word and 2 numbers"),
        ("the\n", "vectors.txt:1: expected a word and its numbers"),
        ("2 2\nthe 1 2 3\nof 1 2 3\n", "vectors.txt:2: expected a word and 2 numbers"),
        ("2 3\nthe 1 2\nof 1 2\n", "vectors.txt:2: expected a word and 3 numbers"),
        ("the 1 2\nof 3 x\n", "vectors.txt:2: could not convert string to float: 'x'"),
        ("the 1 2\nof 3 nan\n", "vectors.txt:2: a number is not finite"),
        ("the 1 2\nof 3 1e39\n", "vectors.txt:2: a number is not finite"),
        ("the\t1\t2\n", "vectors.txt:1: expected a word and its numbers"),
    ],
)
def test_what_is_no_file_of_vectors_is_refused_by_line(tmp_path, text, says):
    with pytest.raises(DataError) as caught:
        _read(tmp_path, text)
    assert says in str(caught.value)


def test_binary_and_missing_files_are_refused(tmp_path):
    (tmp_path / "google.bin").write_bytes(b"2 4\nthe \x00\x00\x80?\x00\x00\x80?\x00\x00\x80?\x00\x00\x80?\nof ")
    with pytest.raises(DataError, match=r"google.bin:"):
        read_word_vectors(tmp_path / "google.bin")
    with pytest.raises(DataError, match=r"none.txt:1: cannot be read"):
        read_word_vectors(tmp_path / "none.txt")


@example(torch.randn(400, generator=torch.Generator().manual_seed(0)).tolist())
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=2, max_size=12))
def test_what_is_written_is_read_back_to_the_bit(tmp_path_factory, numbers):
    path = tmp_path_factory.mktemp("vectors") / "vectors.txt"
    vectors = torch.tensor(numbers[: len(numbers) // 2 * 2]).reshape(2, -1)
    written = WordVectors(("the", "über"), vectors)
    written.save(path)
    read = read_word_vectors(path)
    assert read.words == written.words
    assert torch.equal(read.vectors, vectors)
    once = path.read_bytes()
    read.save(path)
    assert path.read_bytes() == once
