"""Ids of a tokenizer are a range with holes where a line of vocab.txt is repeated: no mask falls over one."""

import numpy as np
import pytest

from dana.models.embeddings import token_range, unused_ids
from dana.train.objectives.masked import Masking, mask, word_parts

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["court", "judge", "court", "appeal", "##s", "judge", "statute", "##ory"]


@pytest.fixture
def tokenizer(tmp_path):
    from transformers import BertTokenizer

    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    return BertTokenizer.from_pretrained(tmp_path)


def test_the_range_is_that_of_the_lines_and_the_first_of_repeated_ones_have_no_token(tokenizer):
    assert len(tokenizer) == len(SPECIAL) + len(WORDS) - 2
    assert token_range(tokenizer) == len(SPECIAL) + len(WORDS)
    used = set(tokenizer.get_vocab().values())
    assert unused_ids(tokenizer) == sorted(set(range(13)) - used)
    assert len(unused_ids(tokenizer)) == 2


@pytest.mark.parametrize("whole_word", [False, True])
def test_the_largest_id_is_masked_and_no_token_becomes_one_that_no_text_has(tokenizer, whole_word):
    masking = Masking.from_tokenizer(tokenizer, 0, rate=0.9, whole_word=whole_word)
    text = tokenizer("statuteory courts judge appeals")["input_ids"]
    assert max(text) == token_range(tokenizer) - 1
    tokens = np.array(text * 300)
    offsets = np.arange(0, tokens.size + 1, len(text))
    ids = np.arange(300, dtype=np.uint64)
    inputs, labels = mask(tokens, offsets, ids, 0, masking)
    assert (labels == token_range(tokenizer) - 1).any()
    changed = inputs[(inputs != tokens) & (inputs != tokenizer.mask_token_id)]
    assert changed.size
    assert not np.isin(changed, unused_ids(tokenizer)).any()
    assert not np.isin(changed, tokenizer.all_special_ids).any()


def test_parts_of_words_stand_at_their_ids(tokenizer):
    parts = word_parts(tokenizer)
    vocabulary = tokenizer.get_vocab()
    assert parts.size == token_range(tokenizer)
    for token, number in vocabulary.items():
        assert parts[number] == token.startswith("##"), token
