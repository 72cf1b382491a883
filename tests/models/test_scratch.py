import pytest
import torch

from dana.core.errors import ConfigError
from dana.models.language_model import ARCHITECTURES, new_encoder, train_tokenizer
from dana.train.settings import PretrainSettings


def test_the_same_text_gives_the_same_tokenizer_which_marks_ends_folds_case_and_reads_back(
    repository_texts, tiny_tokenizer
):
    again = train_tokenizer(lambda: repository_texts, 800, 64)
    assert again.get_vocab() == tiny_tokenizer.get_vocab()
    assert len(again) == 800
    ids = tiny_tokenizer("The Weights, détaillés")["input_ids"]
    assert (ids[0], ids[-1]) == (tiny_tokenizer.cls_token_id, tiny_tokenizer.sep_token_id)
    assert tiny_tokenizer.decode(ids, skip_special_tokens=True) == "the weights, detailles"
    with_case = train_tokenizer(lambda: repository_texts, 800, 64, lowercase=False)
    assert with_case("The")["input_ids"] != with_case("the")["input_ids"]


def test_a_new_model_depends_on_its_seed_alone_and_has_no_dropout_if_told(tiny_tokenizer):
    one, same, other = (
        new_encoder("bert", "tiny", tiny_tokenizer, 0.0, seed).model for seed in (0, 0, 1)
    )
    weights = [model.bert.embeddings.word_embeddings.weight for model in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert one.config.hidden_dropout_prob == one.config.attention_probs_dropout_prob == 0
    assert (one.config.num_hidden_layers, one.config.hidden_size, one.config.vocab_size) == (
        2,
        128,
        800,
    )


def test_a_new_modernbert_has_about_the_weights_of_a_bert_and_no_dropout_if_told(tiny_tokenizer):
    bert, modern = (
        new_encoder(name, "mini", tiny_tokenizer, 0.0, seed=0).model for name in ARCHITECTURES
    )
    counts = [sum(weights.numel() for weights in model.parameters()) for model in (bert, modern)]
    assert counts[1] == pytest.approx(counts[0], rel=0.05)
    config = modern.config
    assert (config.model_type, config.num_hidden_layers, config.hidden_size) == (
        "modernbert",
        4,
        256,
    )
    assert set(config.layer_types) == {"full_attention"}
    assert config.embedding_dropout == config.mlp_dropout == config.attention_dropout == 0
    assert (
        new_encoder("modernbert", "tiny", tiny_tokenizer, 0.3, seed=0).model.config.mlp_dropout
        == 0.3
    )
    ids = (config.pad_token_id, config.cls_token_id, config.sep_token_id)
    assert tiny_tokenizer.convert_ids_to_tokens(ids) == ["[PAD]", "[CLS]", "[SEP]"]


def test_an_unknown_architecture_or_size_and_settings_of_no_model_are_refused(tiny_tokenizer):
    with pytest.raises(
        ConfigError, match="size='huge': must be one of tiny, mini, small, medium, base"
    ):
        new_encoder("bert", "huge", tiny_tokenizer, 0.0, seed=0)
    with pytest.raises(ConfigError, match="architecture='gpt': must be one of bert, modernbert"):
        new_encoder("gpt", "tiny", tiny_tokenizer, 0.0, seed=0)
    with pytest.raises(ConfigError, match="architecture='gpt'"):
        PretrainSettings(architecture="gpt")
    assert PretrainSettings(max_positions=64, max_tokens=64).max_positions == 64
    with pytest.raises(ConfigError, match="max_positions=64: must be from max_tokens=65 to"):
        PretrainSettings(max_positions=64, max_tokens=65)
