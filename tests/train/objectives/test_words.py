"""Whole words are masked or not at all, for tokenizers of three kinds, and no more tokens than one by one."""

from dataclasses import replace

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from dana.core.errors import ConfigError
from dana.train.objectives.masked import CONTINUATION, WORD_START, Masking, mask, word_parts, word_starts

TEXT = 'Unbelievable: "naïve" tokenizers (subwords), re-masking café 123 times. '


def fast(core):
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", mask_token="<mask>", cls_token="<s>")


def trained(core, kind, **settings):
    special = ["<unk>", "<mask>", "<s>"]
    core.train_from_iterator([TEXT], kind(vocab_size=300, special_tokens=special, show_progress=False, **settings))
    return fast(core)


@pytest.fixture(scope="module")
def byte_level():
    core = Tokenizer(models.BPE())
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return trained(core, trainers.BpeTrainer, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


@pytest.fixture(scope="module")
def unigram():
    core = Tokenizer(models.Unigram())
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    return trained(core, trainers.UnigramTrainer, unk_token="<unk>")


def split(tokenizer, text):
    """The words that a text falls into, joined from the tokens of each."""
    ids = np.array(tokenizer(text, add_special_tokens=False)["input_ids"])
    starts = word_starts(ids, word_parts(tokenizer), np.zeros(ids.size, dtype=bool))
    pieces = [tokenizer.convert_ids_to_tokens(ids[starts == start].tolist()) for start in np.unique(starts)]
    joined = ["".join(piece.removeprefix("##") for piece in word) for word in pieces]
    return [word.lstrip("Ġ▁") for word in joined if word.strip("Ġ▁")]


WORDS = ["Unbelievable", ":", '"', "naïve", '"', "tokenizers", "(", "subwords", ")", ",", "re", "-", "masking"]
WORDS += ["café", "123", "times", "."]


def test_words_of_wordpiece(tiny_tokenizer):
    found = split(tiny_tokenizer, TEXT)
    assert found[:2] == ["unbelievable", ":"]
    assert found[5:13] == ["tokenizers", "(", "subwords", ")", ",", "re", "-", "masking"]


def test_a_line_break_in_byte_level_pieces_parts_words(byte_level):
    assert split(byte_level, "one\ntwo") == ["one", "Ċ", "two"], "its bytes are spelt as letters"


def test_words_of_sentencepiece(unigram):
    assert split(unigram, TEXT) == WORDS


def test_words_of_bytes_also_where_a_character_is_two_of_them(byte_level):
    spelt = [word.replace("ï", "Ã¯").replace("é", "Ã©") for word in WORDS]
    spelt[8:10] = ["),"]  # such tokenizers join punctuation
    assert split(byte_level, TEXT) == spelt


def test_two_hashes_alone_are_a_word():
    core = Tokenizer(models.WordPiece({"<unk>": 0, "##": 1, "##a": 2, "a": 3}, unk_token="<unk>"))
    assert word_parts(fast(core))[:4].tolist() == [WORD_START, WORD_START, CONTINUATION, WORD_START]


def test_a_vocabulary_that_does_not_mark_words_is_refused():
    core = Tokenizer(models.BPE({"a": 0, "b": 1, "<unk>": 2}, []))
    with pytest.raises(ConfigError, match=r"whole_word=True: .* does not mark where words begin"):
        word_parts(fast(core))


@pytest.fixture(scope="module")
def whole(tiny_tokenizer):
    return Masking.of(tiny_tokenizer, seed=3, rate=0.2, whole_word=True)


def batch_of(tiny_tokenizer, texts):
    rows = [tiny_tokenizer(text)["input_ids"] for text in texts]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return np.concatenate(rows).astype(np.int32), offsets, np.arange(len(rows), dtype=np.uint64)


def test_a_word_is_hidden_with_all_its_tokens_or_not_at_all(tiny_tokenizer, repository_texts, whole):
    tokens, offsets, ids = batch_of(tiny_tokenizer, repository_texts)
    masked = mask(tokens, offsets, ids, 0, whole)
    edges = whole.special[tokens].copy()
    edges[offsets[:-1]] = True
    starts = word_starts(tokens, whole.parts, edges)
    np.testing.assert_array_equal(masked.is_masked, masked.is_masked[starts])
    assert (starts != np.arange(tokens.size)).mean() > 0.2, "many words are of several tokens"
    one_by_one = mask(tokens, offsets, ids, 0, replace(whole, parts=None)).is_masked
    assert (one_by_one != one_by_one[starts]).any(), "which hiding them one by one does not give"


def test_the_expected_share_of_hidden_tokens_is_the_rate(tiny_tokenizer, repository_texts, whole):
    tokens, offsets, ids = batch_of(tiny_tokenizer, [" ".join(repository_texts)])
    ordinary = ~whole.special[tokens]
    hidden = [mask(tokens, offsets, ids, epoch, whole).is_masked[ordinary] for epoch in range(8)]
    assert np.mean(hidden) == pytest.approx(0.2, abs=0.006)
    assert len({row.tobytes() for row in hidden}) == 8, "and every epoch hides other words"


def test_whole_words_are_a_pure_function_of_the_example(tiny_tokenizer, repository_texts, whole):
    texts = repository_texts[:12]
    tokens, offsets, ids = batch_of(tiny_tokenizer, texts)
    together = mask(tokens, offsets, ids, 2, whole)
    for place in range(len(texts)):
        span = slice(offsets[place], offsets[place + 1])
        alone = mask(tokens[span], np.array([0, tokens[span].size]), ids[place : place + 1], 2, whole)
        np.testing.assert_array_equal(together.is_masked[span], alone.is_masked)
        np.testing.assert_array_equal(together.inputs[span], alone.inputs)
        assert alone.is_masked.any()
