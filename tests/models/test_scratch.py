import pytest
import torch

from dana.core.errors import ConfigError
from dana.models.scratch import SIZES, new_encoder, train_tokenizer


def test_the_same_text_gives_the_same_tokenizer(repository_texts, tiny_tokenizer):
    again = train_tokenizer(lambda: repository_texts, 800, 64)
    assert again.get_vocab() == tiny_tokenizer.get_vocab()
    assert len(again) == 800


def test_the_tokenizer_marks_ends_folds_case_and_reads_back(tiny_tokenizer):
    ids = tiny_tokenizer("The Weights, détaillés")["input_ids"]
    assert ids[0] == tiny_tokenizer.cls_token_id
    assert ids[-1] == tiny_tokenizer.sep_token_id
    assert tiny_tokenizer.decode(ids, skip_special_tokens=True) == "the weights, detailles"


def test_a_cased_tokenizer_tells_case_apart(repository_texts):
    cased = train_tokenizer(lambda: repository_texts, 800, 64, lowercase=False)
    assert cased("The")["input_ids"] != cased("the")["input_ids"]


def test_sizes_are_those_of_the_bert_miniatures():
    assert {name: (size.layers, size.width) for name, size in SIZES.items()} == {
        "tiny": (2, 128),
        "mini": (4, 256),
        "small": (4, 512),
        "medium": (8, 512),
        "base": (12, 768),
    }


def test_a_new_model_depends_on_its_seed_alone_and_has_no_dropout_if_told(tiny_tokenizer):
    one, same, other = (new_encoder("bert", "tiny", tiny_tokenizer, 0.0, seed).model for seed in (0, 0, 1))
    weights = [model.bert.embeddings.word_embeddings.weight for model in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert one.config.hidden_dropout_prob == one.config.attention_probs_dropout_prob == 0
    assert (one.config.num_hidden_layers, one.config.hidden_size, one.config.vocab_size) == (2, 128, 800)


def test_an_unknown_size_is_refused(tiny_tokenizer):
    with pytest.raises(ConfigError, match="size='huge': must be one of tiny, mini, small, medium, base"):
        new_encoder("bert", "huge", tiny_tokenizer, 0.0, seed=0)
