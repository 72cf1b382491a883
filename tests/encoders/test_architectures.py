"""Transformer encoder over BERT, DistilBERT, RoBERTa, GPT-2 and XLNet: as one sentence at a time by transformers."""

import string

import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    DistilBertConfig,
    GPT2Config,
    GPT2Tokenizer,
    RobertaConfig,
    RobertaTokenizer,
    XLNetConfig,
    XLNetTokenizer,
)

from dana.core.errors import ConfigError, DataError
from dana.core.registry import ENCODERS
from dana.encoders.transformer import TransformerEncoder

LONGEST = 64  # positions, of those that have some
TEXTS = [
    "A short one.",
    "x",
    "The sampler draws from the posterior until the chain has converged.",
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
    return XLNetTokenizer(vocab=[("<unk>", 0.0), *((piece, -1.0 - at / 100) for at, piece in enumerate(pieces))])


def _parts(name, word_pieces):
    """Configuration of a tiny model and a tokenizer as its architecture has."""
    shape = {"vocab_size": 800, "initializer_range": 0.3, "hidden_size": 32, "num_hidden_layers": 3}
    shape |= {"num_attention_heads": 2}
    inner = {"intermediate_size": 40}
    if name == "bert":
        return BertConfig(**shape, **inner, max_position_embeddings=LONGEST), word_pieces
    if name == "distilbert":
        sizes = {"dim": 32, "n_layers": 3, "n_heads": 2, "hidden_dim": 40, "max_position_embeddings": LONGEST}
        return DistilBertConfig(vocab_size=800, initializer_range=0.3, **sizes), word_pieces
    if name == "roberta":
        made = _byte_level(RobertaTokenizer, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
        return RobertaConfig(**shape, **inner, max_position_embeddings=LONGEST + 2), made
    if name == "gpt2":
        ends = {"bos_token_id": 0, "eos_token_id": 0}
        return GPT2Config(**shape, **ends, n_positions=LONGEST), _byte_level(GPT2Tokenizer, ["<|endoftext|>"])
    sizes = {"d_model": 32, "n_layer": 3, "n_head": 2, "d_inner": 40}
    return XLNetConfig(vocab_size=800, initializer_range=0.3, **sizes), _xlnet_tokenizer()


@pytest.fixture(scope="module", params=["bert", "distilbert", "roberta", "gpt2", "xlnet"])
def model(request, tiny_tokenizer, tmp_path_factory):
    """A tiny model folder with random weights."""
    folder = tmp_path_factory.mktemp("models") / request.param
    config, tokenizer = _parts(request.param, tiny_tokenizer)
    torch.manual_seed(1)
    network = AutoModel.from_config(config)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _hidden(model, text, most, layer=-1):
    """Hidden states (tokens, dims) of one text by transformers alone."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    made = tokenizer(text, truncation=True, max_length=most, return_tensors="pt")
    with torch.no_grad():
        return AutoModel.from_pretrained(model).eval()(**made, output_hidden_states=True).hidden_states[layer][0]


def _close(found, expected):
    torch.testing.assert_close(found, torch.stack(expected), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("layer", "most"), [(-1, 256), (-2, 16), (1, 256), (0, 256)])
def test_mixed_lengths_in_one_call_give_what_each_text_gives_alone(model, layer, most):
    encoder = ENCODERS.create(f"transformer:{model},layer={layer},max_tokens={most}")
    positions = most if model.name == "xlnet" else min(most, LONGEST)
    _close(encoder.encode(TEXTS), [_hidden(model, text, positions, layer).mean(0) for text in TEXTS])


def test_the_others_of_a_batch_change_no_bit(model):
    encoder = TransformerEncoder(str(model))
    alone = torch.cat([encoder.encode([text]) for text in TEXTS])
    assert torch.equal(encoder.encode(TEXTS), alone)
    assert torch.equal(encoder.encode(TEXTS[::-1]).flip(0), alone)


def test_a_text_of_one_token_is_a_mean_of_its_own_and_a_text_of_none_is_refused(model):
    encoder = TransformerEncoder(str(model))
    if model.name == "gpt2":  # its tokenizer adds nothing
        _close(encoder.encode(["x"]), [_hidden(model, "x", 8)[0]])
        with pytest.raises(DataError, match="text 1 of the batch has no token: ''"):
            encoder.encode(["x", ""])
    else:
        _close(encoder.encode(["", "x"]), [_hidden(model, text, 8).mean(0) for text in ("", "x")])


def test_the_classification_token_is_found_where_the_tokenizer_puts_it(model):
    encoder = TransformerEncoder(str(model), pooling="cls")
    if model.name == "gpt2":
        with pytest.raises(ConfigError, match=r"pooling='cls': .*gpt2 has no classification token"):
            encoder.encode(TEXTS)
        return
    most, place = (256, -1) if model.name == "xlnet" else (LONGEST, 0)
    _close(encoder.encode(TEXTS), [_hidden(model, text, most)[place] for text in TEXTS])


def test_a_layer_that_is_not_there_is_refused(model):
    for layer in (-5, 4):
        with pytest.raises(ConfigError, match=f"layer={layer}: "):
            TransformerEncoder(str(model), layer=layer).encode(TEXTS)
