"""Corpus text is text: what looks like a special token is tokenised like everything else."""

from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

from dana.core.schemas import Document
from dana.train.tokens import Tokens, write_tokens

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def byte_level():
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(["a mask is a mask"], trainer)
    return core


def unigram():
    """Whose special tokens are pieces of its model, as those of XLM-RoBERTa are."""
    pieces = [(piece, 0.0) for piece in SPECIAL] + [(piece, -3.0) for piece in "▁<>/abcdefghijklmnopqrstuvwxyz"]
    core = Tokenizer(models.Unigram(pieces, unk_id=3))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.add_special_tokens([AddedToken(piece, special=True) for piece in SPECIAL])
    return core


def ids_of(text, tokenizer):
    return Tokens.of([Document("d", "s", text)], tokenizer).ids


@pytest.mark.parametrize("core", [byte_level(), unigram()], ids=["byte-level", "unigram"])
def test_special_tokens_in_text_are_text(core):
    tokenizer = SimpleNamespace(is_fast=True, backend_tokenizer=core)
    assert core.token_to_id("<mask>") in core.encode("a <mask> b<s>").ids, "what a tokenizer does by itself"
    ids = ids_of("a <mask> b<s>", tokenizer)
    assert not set(ids.tolist()) & {core.token_to_id(piece) for piece in SPECIAL}
    assert "".join(core.id_to_token(token) for token in ids).strip("▁").replace("Ġ", "▁") == "a▁<mask>▁b<s>"
    plain = "a mask b"
    np.testing.assert_array_equal(ids_of(plain, tokenizer), core.encode(plain).ids)


def test_a_mask_in_the_text_of_a_wordpiece_corpus_is_three_words(tiny_tokenizer):
    ids = ids_of("fill the [MASK] and [SEP]", tiny_tokenizer).tolist()
    assert not set(ids) & set(tiny_tokenizer.all_special_ids)
    assert tiny_tokenizer.decode(ids).replace(" ", "") == "fillthe[mask]and[sep]"


class Sized(SimpleNamespace):
    def __len__(self):
        return self.size


@pytest.mark.parametrize(("size", "width"), [(1 << 16, 2), ((1 << 16) + 1, 4)])
def test_ids_take_two_bytes_each_while_they_fit_and_all_are_counted(tmp_path, size, width):
    tokenizer = Sized(is_fast=True, backend_tokenizer=byte_level(), size=size)
    documents = [Document(name, "s", text) for name, text in [("one", "a mask"), ("two", "b")]]
    count = write_tokens(documents, tokenizer, tmp_path)
    tokens = Tokens.open(tmp_path)
    assert tokens.ids.dtype.itemsize == width
    assert count == tokens.ids.size == tokens.last.size
    assert [(one.doc_id, one.characters) for one in tokens.documents()] == [("one", 6), ("two", 1)]
    np.testing.assert_array_equal(tokens.ids, Tokens.of(documents, tokenizer).ids)
