"""Pairs of texts as token ids and token types; saved models of pairs against transformers alone."""

import numpy as np
import pytest
import torch
import toy_pairs
import toy_task
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from dana.core.rng import seeded
from dana.finetuning.loop import EncodedSplit
from dana.finetuning.saved import open_classifier, save_classifier
from dana.models.classifier import Classifier, head_layers
from dana.tasks.examples import Example
from dana.tasks.kinds.single_label import SingleLabel

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return AutoTokenizer.from_pretrained(toy_pairs.write_checkpoint(tmp_path_factory.mktemp("pairs")))


@pytest.fixture(scope="module")
def encoded(tokenizer):
    made = [Example(row["uid"], row["premise"], 0, row["hypothesis"]) for row in toy_pairs.rows(8, 5)]
    return EncodedSplit.of(made, tokenizer, 24)


def test_two_texts_are_joined_and_told_apart(tokenizer):
    split = EncodedSplit.of([Example("a", "apple pear", 1, "iron"), Example("b", "owl", 0, "wren")], tokenizer, 24)
    ids, mask, types = split.batch(np.array([1, 0]), CPU)
    words = [tokenizer.convert_ids_to_tokens(row) for row in ids]
    assert words[1] == ["[CLS]", "apple", "pear", "[SEP]", "iron", "[SEP]"]
    assert words[0] == ["[CLS]", "owl", "[SEP]", "wren", "[SEP]", "[PAD]"]
    assert types.tolist() == [[0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1]]
    assert mask.tolist() == [[1] * 5 + [0], [1] * 6]


def test_the_longer_text_is_cut_first(tokenizer):
    split = EncodedSplit.of(
        [Example("a", "apple " * 20, 1, "iron zinc"), Example("b", "owl", 0, "wren " * 20)], tokenizer, 8
    )
    words = [tokenizer.convert_ids_to_tokens(row) for row in split.tokens]
    assert words[0] == ["[CLS]", "apple", "apple", "apple", "[SEP]", "iron", "zinc", "[SEP]"]
    assert words[1] == ["[CLS]", "owl", "[SEP]", *["wren"] * 4, "[SEP]"]


def test_single_texts_have_no_types_as_before(tokenizer):
    split = EncodedSplit.of([Example("a", "apple pear", 1)], tokenizer, 24)
    assert split.types is None
    assert len(split.batch(np.array([0]), CPU)) == 2


def trained(kind, **config):
    with seeded(3):
        config = AutoConfig.for_model(kind, **{**toy_task.SIZE, **config}, num_labels=3)
        classifier = Classifier(AutoModelForSequenceClassification.from_config(config))
        for layer in head_layers(classifier.model):
            torch.nn.init.normal_(layer.weight, std=0.5)
    return classifier.eval()


@pytest.mark.parametrize(
    ("kind", "config", "told"),
    [
        ("bert", {}, True),
        ("albert", {"embedding_size": 16}, True),
        ("electra", {"embedding_size": 16}, True),
        ("bert", {"type_vocab_size": 1}, False),
        ("roberta", {"type_vocab_size": 1}, False),
        ("distilbert", {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}, False),
    ],
)
def test_a_saved_model_of_pairs_gives_the_same_logits(kind, config, told, tokenizer, encoded, tmp_path):
    """Alone in transformers, too; types are given to the models that tell two apart."""
    classifier, probe = trained(kind, **config), encoded.batch(np.arange(8), CPU)
    with torch.no_grad():
        expected = classifier(*probe)
        assert torch.allclose(classifier(*probe[:2]), expected) != told
    save_classifier(classifier, tokenizer, SingleLabel(tuple(toy_task.SIGNS)), tmp_path)
    opened = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    rows = toy_pairs.rows(8, 5)
    texts = [[row[field] for row in rows] for field in ("premise", "hypothesis")]
    inputs = AutoTokenizer.from_pretrained(tmp_path)(
        *texts, padding=True, truncation=True, max_length=24, return_tensors="pt", return_token_type_ids=told
    )
    with torch.no_grad():
        assert torch.allclose(open_classifier(str(tmp_path)).module(*probe), expected, atol=1e-5)
        assert torch.allclose(opened(**inputs).logits, expected, atol=1e-5)
