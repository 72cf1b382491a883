import sys

import pytest
import torch
from transformers import (
    AlbertConfig,
    AutoModelForMaskedLM,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    GPT2Config,
    ModernBertConfig,
    MPNetConfig,
    RobertaConfig,
    T5Config,
    XLNetConfig,
)

from dana.models.heads import HEADS, SelectedLogits, positions_of

SHAPE = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SHAPE |= {"intermediate_size": 32, "max_position_embeddings": 40}
TOKENS = {
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}
DISTIL = DistilBertConfig(
    vocab_size=60, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=40
)
CONFIGS = [
    BertConfig(**SHAPE),
    RobertaConfig(**SHAPE),
    DISTIL,
    ElectraConfig(**SHAPE, embedding_size=8),
]
CONFIGS += [ModernBertConfig(**SHAPE, **TOKENS), MPNetConfig(**SHAPE)]
UNKNOWN = AlbertConfig(**SHAPE, embedding_size=8)


def batch():
    tokens = torch.arange(30).reshape(3, 10) + 5
    attention = torch.ones(3, 10, dtype=torch.long)
    tokens[2, 6:], attention[2, 6:] = 1, 0
    return tokens, attention, torch.tensor([0, 3, 14, 22])


@pytest.mark.parametrize("config", [*CONFIGS, UNKNOWN], ids=lambda config: config.model_type)
def test_logits_and_gradients_are_the_models_own_and_only_of_the_asked_positions(config):
    model = AutoModelForMaskedLM.from_config(config).eval()
    tokens, attention, where = batch()
    logits = model(input_ids=tokens, attention_mask=attention).logits.flatten(0, 1)[where]
    logits.square().sum().backward()
    gradients = {
        name: value.grad.clone()
        for name, value in model.named_parameters()
        if value.grad is not None
    }
    model.zero_grad()
    shapes = []
    model.get_output_embeddings().register_forward_hook(
        lambda module, inputs, output: shapes.append(output.shape)
    )
    selection = SelectedLogits(model)(tokens, where, attention_mask=attention)
    selection.square().sum().backward()
    torch.testing.assert_close(selection, logits, atol=1e-5, rtol=1e-5)
    for name, value in model.named_parameters():
        if value.grad is not None:
            torch.testing.assert_close(value.grad, gradients[name], atol=1e-4, rtol=1e-4)
    assert (config.model_type in HEADS) == (config is not UNKNOWN)
    assert shapes == ([(4, 60)] if config is not UNKNOWN else [(3, 10, 60)])


def test_asking_nothing_still_reaches_every_parameter():
    model = AutoModelForMaskedLM.from_config(CONFIGS[0])
    tokens, attention, _ = batch()
    SelectedLogits(model)(
        tokens, torch.zeros(0, dtype=torch.long), attention_mask=attention
    ).sum().backward()
    assert all(value.grad is not None and not value.grad.any() for value in model.parameters())


def test_the_longest_text_is_what_a_model_has_positions_for():
    assert positions_of(RobertaConfig(max_position_embeddings=514)) == 512
    assert positions_of(GPT2Config(n_positions=1024)) == 1024
    assert positions_of(XLNetConfig()) == sys.maxsize
    assert positions_of(T5Config()) == sys.maxsize
