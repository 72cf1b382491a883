"""Examples as token ids: texts, pairs of texts, lists of words; the order of an epoch."""

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from dana.core.errors import ArtifactError
from dana.finetuning.loop import EncodedSplit, order, tokenise_words
from dana.tasks.examples import Example
from dana.tasks.kinds import find_kind
from dana.tasks.kinds.single_label import SingleLabel

CPU = torch.device("cpu")
BOTH = np.array([1, 0])


def test_texts_are_truncated_and_padded_to_the_longest_of_the_batch(checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    examples, kind = [Example("a", "apple pear", 1), Example("b", "iron " * 20, 0)], SingleLabel.from_count(2)
    split = EncodedSplit.with_labels(examples, tokenizer, 6, kind)
    assert split.lengths.tolist() == [4, 6]
    assert split.targets.tolist() == split.references.tolist() == [1, 0]
    ids, mask = split.batch(BOTH, CPU)
    assert mask.tolist() == [[1] * 6, [1, 1, 1, 1, 0, 0]]
    assert ids[1].tolist() == [*tokenizer("apple pear")["input_ids"], *[tokenizer.pad_token_id] * 2]
    assert split.batch(BOTH[1:], CPU)[0].shape == (1, 4)


def test_pairs_are_joined_with_token_types_and_the_longer_text_is_truncated_first(pair_tokenizer):
    examples = [Example("a", "apple pear", 1, "iron"), Example("b", "owl", 0, "wren " * 20)]
    split = EncodedSplit.of(examples, pair_tokenizer, 8)
    ids, mask, types = split.batch(BOTH, CPU)
    words = [pair_tokenizer.convert_ids_to_tokens(row) for row in ids]
    assert words[0] == ["[CLS]", "owl", "[SEP]", *["wren"] * 4, "[SEP]"]
    assert words[1] == ["[CLS]", "apple", "pear", "[SEP]", "iron", "[SEP]", "[PAD]", "[PAD]"]
    assert types.tolist() == [[0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 0, 0]]
    assert mask.tolist() == [[1] * 8, [1] * 6 + [0] * 2]
    assert len(EncodedSplit.of([Example("a", "apple", 1)], pair_tokenizer, 24).batch(BOTH[1:], CPU)) == 2, "no types"


def test_a_word_is_its_first_token(tiny_tokenizer, byte_level):
    """As transformers reads lists of words, and for a tokenizer that joins the space before a word to it."""
    words = ["Unbelievable", "fine-tuning", "of", "checkpoints", ",", "again"]
    [ids], [firsts] = tokenise_words([words], tiny_tokenizer, 64)
    encoding = tiny_tokenizer(words, is_split_into_words=True)
    assert ids == encoding["input_ids"]
    assert firsts.tolist() == [encoding.word_ids().index(at) for at in range(len(words))]
    [ids], [firsts] = tokenise_words([["ab", "é", "c d", "e"]], byte_level, 64)
    assert len(ids) == len("ab é c d e".encode())
    assert firsts.tolist() == [0, 3, 6, 10]
    with pytest.raises(ArtifactError, match="Slow: "):
        tokenise_words([["a"]], type("Slow", (), {"is_fast": False})(), 8)


def test_truncated_words_have_no_unit(checkpoint):
    kind = find_kind("token_labels")(("O", "B-x", "I-x"))
    rows = [(["wren", "owl"], (0, 1)), (["zinc", "iron", "lead", "word1"], (1, 2, 0, 2))]
    examples = [Example("", " ".join(words), labels, words=tuple(words)) for words, labels in rows]
    split = EncodedSplit.with_labels(examples, AutoTokenizer.from_pretrained(checkpoint), 5, kind)
    assert [part.tolist() for part in split.first_tokens] == [[1, 2], [1, 2, 3, -1]]
    assert split.sizes.tolist() == [2, 4]
    ids, mask, first = split.batch(BOTH, CPU)
    assert first.tolist() == [[False, True, True, True, False], [False, True, True, False, False]]
    assert ids.shape == mask.shape == first.shape
    assert split.units(BOTH).tolist() == [2, 3, 4, 0, 1]
    assert split.targets[split.units(BOTH)].tolist() == [1, 2, 0, 0, 1]


def test_the_order_is_a_function_of_seed_and_epoch():
    split = EncodedSplit([[1] * (1 + row % 17) for row in range(100)], 0)
    one, same, seed, epoch = (np.concatenate(order(split, 8, *at)).tolist() for at in ((0, 0), (0, 0), (1, 0), (0, 1)))
    assert one == same
    assert one not in (seed, epoch)
