"""Words encoder: means by hand, words without a vector, the contract, identity by content."""

import shutil

import pytest
import torch

from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.registry import ENCODERS
from dana.encoders.words import WordsEncoder, train_word_vectors
from dana.selectors.checks import OTHER, TASK, check_encoder

LINES = ["the 1 0", "Court 0 1", "denied 3 4", "court 9 9", ", 5 5"]


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("\n".join(LINES), encoding="utf-8")
    return path


def test_a_vector_is_the_mean_of_those_of_known_words(vectors):
    found = WordsEncoder(str(vectors)).encode(["The court, the judge!", "DENIED", "no such word", ""])
    expected = torch.tensor([[(1 + 0 + 5 + 1) / 4, (0 + 1 + 5 + 0) / 4], [3, 4], [0, 0], [0, 0]])
    torch.testing.assert_close(found, expected)
    assert found.dtype == torch.float32


def test_no_texts_give_no_rows(vectors):
    assert WordsEncoder(str(vectors)).encode([]).shape == (0, 2)


def test_the_batch_changes_no_bit(tmp_path, repository_texts):
    train_word_vectors(repository_texts, 40, min_count=3).save(tmp_path / "own.txt")
    encoder = ENCODERS.create(f"words:{tmp_path}/own.txt")
    together = encoder.encode(repository_texts)
    assert together.any(1).all()
    assert torch.equal(torch.cat([encoder.encode([text]) for text in repository_texts]), together)
    assert torch.equal(encoder.encode(repository_texts[::-1]).flip(0), together)


def test_every_check_of_the_contract_passes(tmp_path):
    train_word_vectors([" ".join(words) for words in (TASK, OTHER)] * 5, 4).save(tmp_path / "topics.txt")
    results = check_encoder(f"words:{tmp_path}/topics.txt")
    assert [str(result) for result in results if not result.passed or result.detail] == []


def test_identity_is_content_not_place(vectors, tmp_path):
    moved = shutil.copy(vectors, tmp_path / "moved.txt")
    assert WordsEncoder(str(moved)).identity() == WordsEncoder(str(vectors)).identity()
    vectors.write_text("the 1 0\n", encoding="utf-8")
    assert WordsEncoder(str(moved)).identity() != WordsEncoder(str(vectors)).identity()


def test_files_that_are_missing_or_no_vectors_are_refused(vectors, tmp_path):
    with pytest.raises(ConfigError, match="missing a required argument: 'vectors'"):
        ENCODERS.create("words")
    with pytest.raises(ArtifactError, match=r"vector.txt: word vectors cannot be read.* did you mean .*vectors.txt"):
        WordsEncoder(str(tmp_path / "vector.txt")).identity()
    with pytest.raises(ArtifactError, match="Is a directory"):
        WordsEncoder(str(tmp_path)).identity()
    vectors.write_text("<html>\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"vectors.txt:1: expected a word"):
        WordsEncoder(str(vectors)).encode(["the"])
