"""Corpus text is text: what looks like a special token is tokenised like everything else."""

from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

from dana.core.schemas import Document
from dana.train.tokens import Tokens, write_tokens

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


class Wrapper(SimpleNamespace):
    is_fast = True
    size = 0

    def __len__(self):
        return self.size


def byte_level():
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"vocab_size": 300, "initial_alphabet": alphabet, "show_progress": False}
    core.train_from_iterator(["a mask is a mask"], trainers.BpeTrainer(special_tokens=SPECIAL, **options))
    return core


def unigram():
    """Whose special tokens are pieces of its model, as those of XLM-RoBERTa are."""
    pieces = [(piece, 0.0) for piece in SPECIAL] + [(piece, -3.0) for piece in "▁<>/abcdefghijklmnopqrstuvwxyz"]
    core = Tokenizer(models.Unigram(pieces, unk_id=3))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.add_special_tokens([AddedToken(piece, special=True) for piece in SPECIAL])
    return core


def tokenise(text, tokenizer):
    return Tokens.of([Document("d", "s", text)], tokenizer).ids


@pytest.mark.parametrize("core", [byte_level(), unigram()], ids=["byte-level", "unigram"])
def test_special_tokens_in_text_are_text(core):
    assert core.token_to_id("<mask>") in core.encode("a <mask> b<s>").ids, "without dana"
    ids = tokenise("a <mask> b<s>", Wrapper(backend_tokenizer=core))
    assert not set(ids.tolist()) & {core.token_to_id(piece) for piece in SPECIAL}
    assert "".join(core.id_to_token(token) for token in ids).strip("▁").replace("Ġ", "▁") == "a▁<mask>▁b<s>"
    np.testing.assert_array_equal(tokenise("a mask b", Wrapper(backend_tokenizer=core)), core.encode("a mask b").ids)


def test_a_mask_in_text_is_three_words_of_wordpiece(tiny_tokenizer):
    ids = tokenise("fill the [MASK] and [SEP]", tiny_tokenizer).tolist()
    assert not set(ids) & set(tiny_tokenizer.all_special_ids)
    assert tiny_tokenizer.decode(ids).replace(" ", "") == "fillthe[mask]and[sep]"


@pytest.mark.parametrize(("size", "width"), [(1 << 16, 2), ((1 << 16) + 1, 4)])
def test_ids_have_two_bytes_while_they_fit(tmp_path, size, width):
    tokenizer = Wrapper(backend_tokenizer=byte_level(), size=size)
    documents = [Document("one", "s", "a mask"), Document("two", "s", "b")]
    count = write_tokens(documents, tokenizer, tmp_path)
    tokens = Tokens.open(tmp_path)
    assert tokens.ids.dtype.itemsize == width
    assert count == tokens.ids.size == tokens.last.size
    assert [(one.doc_id, one.characters) for one in tokens.documents()] == [("one", 6), ("two", 1)]
    np.testing.assert_array_equal(tokens.ids, Tokens.of(documents, tokenizer).ids)
