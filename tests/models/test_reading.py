"""The share of letters that a tokenizer reads as unknown or one by one tells languages that a model does not know."""

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordPiece
from tokenizers.pre_tokenizers import ByteLevel, Whitespace
from transformers import PreTrainedTokenizerFast

from dana.models.folder import load_own_tokenizer
from dana.models.reading import unread_share

PIECES = ["[UNK]", "house", "ho", "##use", "a", "##b", "##c", "о", "##д", "##ом", "房", "子"]


@pytest.fixture
def tokenizer():
    inner = Tokenizer(
        WordPiece({piece: number for number, piece in enumerate(PIECES)}, unk_token="[UNK]")
    )
    inner.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]")


@pytest.mark.parametrize(
    ("texts", "share"),
    [
        (["house"], 0),
        (["a house"], 0),  # a word of one letter is one
        (["abc"], 1),  # a, b, c
        (["од"], 1),
        (["оом"], 1 / 3),  # о, ом
        (["house xyz"], 3 / 8),  # unknown
        (["house", "xyz"], 3 / 8),
        (["房", "房 子 房"], 0),  # one by one is usual there
        (["房 屋"], 1 / 2),  # unknown is not
        (["a 1 2 3 xyz"], 3 / 4),  # digits are no letters
        (["1 !"], 0),
        ([], 0),
    ],
)
def test_letters_count_that_are_unknown_or_read_one_by_one(tokenizer, texts, share):
    assert unread_share(tokenizer, texts) == pytest.approx(share)


def test_a_letter_of_several_pieces_counts_once_and_long_texts_to_their_end():
    letters = sorted(ByteLevel.alphabet())
    inner = Tokenizer(BPE({letter: number for number, letter in enumerate(letters)}, []))
    inner.pre_tokenizer = ByteLevel(add_prefix_space=False)
    inner.enable_truncation(3)
    bytewise = PreTrainedTokenizerFast(tokenizer_object=inner)
    assert unread_share(bytewise, ["дом " * 10 + "a"]) == pytest.approx(30 / 31)


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("The printer on the second floor has stopped, and nobody can scan invoices.", 0, 0.06),
        ("Der Drucker im zweiten Stock druckt nicht, niemand kann Rechnungen scannen.", 0.1, 0.25),
        ("Принтер на втором этаже перестал работать, никто не сканирует счета.", 0.9, 1),
        ("توقفت الطابعة في الطابق الثاني عن العمل ولا يستطيع أحد مسح الفواتير.", 0.9, 1),
    ],
)
def test_the_smallest_base_reads_english_some_german_and_hardly_other_scripts(text, least, most):
    assert least <= unread_share(load_own_tokenizer("dana-mini"), [text]) <= most
