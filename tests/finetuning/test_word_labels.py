"""Words to tokens and back; saved classifiers of words."""

import numpy as np
import pytest
import torch
import toy_task
from transformers import AutoConfig, AutoModelForTokenClassification, AutoTokenizer

from dana.core.errors import ArtifactError
from dana.core.rng import seeded
from dana.finetuning.loop import EncodedSplit, tokenise_words
from dana.finetuning.saved import open_classifier, save_classifier
from dana.models.classifier import Classifier
from dana.tasks.examples import Example
from dana.tasks.kinds import find_kind

CPU, KIND = (
    torch.device("cpu"),
    find_kind("token_labels")(
        (
            "O",
            "B-x",
            "I-x",
        )
    ),
)
EXAMPLES = [
    Example("a", "wren owl", (0, 1), words=("wren", "owl")),
    Example("b", "zinc iron lead word1", (1, 2, 0, 2), words=("zinc", "iron", "lead", "word1")),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return AutoTokenizer.from_pretrained(toy_task.write_checkpoint(tmp_path_factory.mktemp("toy")))


def test_a_word_is_its_first_token(tiny_tokenizer):
    """As transformers' own way to read words says, for a tokenizer of word parts."""
    words = ["Unbelievable", "fine-tuning", "of", "checkpoints", ",", "again"]
    [ids], [places] = tokenise_words([words], tiny_tokenizer, 64)
    made = tiny_tokenizer(words, is_split_into_words=True)
    assert ids == made["input_ids"]
    assert places.tolist() == [made.word_ids().index(at) for at in range(len(words))]
    assert len(ids) > len(words) + 2


def test_a_byte_level_tokenizer_will_do(byte_level):
    [ids], [places] = tokenise_words([["ab", "é", "c d", "e"]], byte_level, 64)
    assert "".join(byte_level.decode([ids[place]]) for place in places)[0] == "a"
    assert len(ids) == len("ab é c d e".encode())
    assert places.tolist() == [0, 2 + 1, 6, 10]


def test_words_beyond_the_cut_are_unseen(tokenizer):
    split = EncodedSplit.with_labels(EXAMPLES, tokenizer, 5, KIND)
    assert [part.tolist() for part in split.first_tokens] == [[1, 2], [1, 2, 3, -1]]
    assert split.sizes.tolist() == [2, 4]
    ids, mask, first = split.batch(np.array([1, 0]), CPU)
    assert first.tolist() == [[False, True, True, True, False], [False, True, True, False, False]]
    assert ids.shape == mask.shape == first.shape
    assert split.units(np.array([1, 0])).tolist() == [2, 3, 4, 0, 1]
    assert split.targets[split.units(np.array([1, 0]))].tolist() == [1, 2, 0, 0, 1]


def test_a_slow_tokenizer_is_refused():
    class Slow:
        is_fast = False

    with pytest.raises(ArtifactError, match="Slow: is a slow tokenizer; labels of words need a fast one"):
        tokenise_words([["a"]], Slow(), 8)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("bert", {}),
        ("roberta", {}),
        ("electra", {"embedding_size": 16}),
        ("distilbert", {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}),
        ("modernbert", {"cls_token_id": 2, "sep_token_id": 3, "global_attn_every_n_layers": 1}),
    ],
)
def test_a_saved_classifier_of_words_gives_the_same_logits(kind, config, tokenizer, tmp_path):
    with seeded(3):
        config = AutoConfig.for_model(kind, **{**toy_task.SIZE, **config}, num_labels=3)
        classifier = Classifier(AutoModelForTokenClassification.from_config(config), per_word=True).eval()
        torch.nn.init.normal_(classifier.out.bias)
    ids, mask, first = probe = EncodedSplit.of(EXAMPLES, tokenizer, 24).batch(np.arange(2), CPU)
    save_classifier(classifier, tokenizer, KIND, tmp_path)
    saved, opened = open_classifier(str(tmp_path)), AutoModelForTokenClassification.from_pretrained(tmp_path).eval()
    assert saved.kind == KIND
    with torch.no_grad():
        assert classifier(*probe).shape == (6, 3)
        assert torch.allclose(saved.module(*probe), classifier(*probe), atol=1e-5)
        logits = opened(input_ids=ids, attention_mask=mask).logits
        assert torch.allclose(logits[first], classifier(*probe), atol=1e-5)
