"""Masks of tokens and of whole words, as a pure function of seed, epoch and example."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from dana.core.errors import ConfigError
from dana.core.scripts import CHARACTER
from dana.train.examples import Examples, SpecialTokens
from dana.train.objectives.batch import IGNORED
from dana.train.objectives.masked import (
    CONTINUATION,
    HELDOUT_RATE,
    HELDOUT_SEED,
    WORD_START,
    MaskedTokens,
    Masking,
    mask,
    measured_rate,
    word_parts,
    word_starts,
)
from dana.train.run import describe_examples

VOCABULARY = 50
SPECIAL = np.arange(VOCABULARY) < 5
MASK = 4
PARTS = np.where(np.arange(VOCABULARY) % 3 == 0, CONTINUATION, WORD_START).astype(np.int8)
MASKING = Masking(MASK, SPECIAL, seed=7)
WHOLE = replace(MASKING, parts=PARTS)

rows = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=30)
examples = st.lists(st.tuples(rows, st.integers(0, 2**64 - 1)), min_size=1, max_size=8)


def flat(batch):
    tokens = np.concatenate([np.array(row, dtype=np.int32) for row, _ in batch])
    offsets = np.concatenate([[0], np.cumsum([len(row) for row, _ in batch])])
    return tokens, offsets, np.array([key for _, key in batch], dtype=np.uint64)


def mask_one(tokens, key=1, epoch=0, masking=MASKING):
    """Which tokens of one example are masked."""
    return (
        mask(tokens, np.array([0, tokens.size]), np.array([key], dtype=np.uint64), epoch, masking)[
            1
        ]
        != IGNORED
    )


@example(
    batch=[([6, 7], key) for key in range(30)], epoch=0, masking=WHOLE
)  # a word ends with its example
@given(batch=examples, epoch=st.integers(0, 5), masking=st.sampled_from([MASKING, WHOLE]))
@settings(max_examples=60)
def test_an_example_has_the_same_masks_alone_and_in_any_batch(batch, epoch, masking):
    tokens, offsets, ids = flat(batch)
    before = tokens.copy()
    inputs, labels = mask(tokens, offsets, ids, np.full(ids.size, epoch), masking)
    is_masked = labels != IGNORED
    assert np.array_equal(tokens, before)
    assert not is_masked[SPECIAL[tokens]].any()
    np.testing.assert_array_equal(np.where(is_masked, labels, inputs), tokens)
    for at, (row, _) in enumerate(batch):
        alone = mask(*flat(batch[at : at + 1]), epoch, masking)
        span = slice(offsets[at], offsets[at + 1])
        np.testing.assert_array_equal((inputs[span], labels[span]), alone)
        assert is_masked[span].any() == any(token >= 5 for token in row), (
            "an ordinary token is masked if there is one"
        )


def test_shares_are_those_of_bert():
    tokens = np.full(200_000, 30, dtype=np.int32)
    inputs, labels = mask(
        tokens, np.array([0, 100_000, 200_000]), np.array([1, 2], dtype=np.uint64), 0, MASKING
    )
    inputs = inputs[labels != IGNORED]
    assert inputs.size / tokens.size == pytest.approx(0.15, abs=0.005)
    assert (inputs == MASK).mean() == pytest.approx(0.8, abs=0.01)
    assert (inputs == 30).mean() == pytest.approx(0.1 + 0.1 / 45, abs=0.01)
    others = inputs[(inputs != MASK) & (inputs != 30)]
    assert set(others) == set(range(5, VOCABULARY)) - {30}, "any ordinary token, and no special one"


def test_the_masks_of_held_out_text_are_those_of_every_version():
    masking = Masking(MASK, SPECIAL, HELDOUT_SEED, HELDOUT_RATE)
    positions = np.flatnonzero(mask_one(np.full(40, 30, dtype=np.int32), masking=masking)).tolist()
    assert positions == [6, 7, 18, 20, 27, 31, 33, 37, 38], (
        "or losses of two versions could not be compared"
    )
    assert MaskedTokens().mask_rate == HELDOUT_RATE == 0.15


def test_masks_are_independent_over_positions_epochs_seeds_and_examples():
    tokens = np.full(20_000, 30, dtype=np.int32)
    base = mask_one(tokens)
    others = [
        mask_one(tokens, epoch=1),
        mask_one(tokens, key=2),
        mask_one(tokens, masking=Masking(MASK, SPECIAL, 8)),
    ]
    for other in (*others, np.roll(base, 1)):
        assert (base & other).mean() == pytest.approx(0.15**2, abs=0.004)
    ends, ids = np.array([0, tokens.size]), np.ones(1, dtype=np.uint64)
    one, two = (
        mask(tokens, ends, ids, 0, replace(MASKING, rate=1.0, seed=seed))[0] == MASK
        for seed in (7, 8)
    )
    assert (one & two).mean() == pytest.approx(0.8**2, abs=0.02)


def test_masking_of_a_tokenizer(tiny_tokenizer):
    masking = Masking.from_tokenizer(tiny_tokenizer, seed=0)
    assert set(np.flatnonzero(masking.special)) == set(tiny_tokenizer.all_special_ids)
    assert masking.mask_token == tiny_tokenizer.mask_token_id
    with pytest.raises(ConfigError, match="Causal has no mask token"):
        Masking.from_tokenizer(type("Causal", (), {"mask_token_id": None})(), seed=0)
    assert replace(masking, rate=1.0).rate == 1, "every token"
    for rate in (0.0, 1.5):
        with pytest.raises(ConfigError, match=f"mask_rate={rate}"):
            replace(masking, rate=rate)
    with pytest.raises(ConfigError, match="whole_word=True"):
        word_parts(fast(Tokenizer(models.BPE({"a": 0, "b": 1, "<unk>": 2}, []))))


TEXT = 'Unbelievable: "naïve" tokenizers (subwords), re-masking café 123 times. '
WORDS = [
    "Unbelievable",
    ":",
    '"',
    "naïve",
    '"',
    "tokenizers",
    "(",
    "subwords",
    ")",
    ",",
    "re",
    "-",
    "masking",
]
WORDS += ["café", "123", "times", "."]


def fast(core):
    return PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", mask_token="<mask>", cls_token="<s>"
    )


def build(core, pre_tokenizer, trainer, **options):
    core.pre_tokenizer = pre_tokenizer
    special = ["<unk>", "<mask>", "<s>"]
    core.train_from_iterator(
        [TEXT], trainer(vocab_size=300, special_tokens=special, show_progress=False, **options)
    )
    return fast(core)


def words_of(tokenizer, text=TEXT):
    """The words of a text, joined from the tokens of each."""
    ids = np.array(tokenizer(text, add_special_tokens=False)["input_ids"])
    starts = word_starts(ids, word_parts(tokenizer), np.zeros(ids.size, dtype=bool))
    pieces = [
        tokenizer.convert_ids_to_tokens(ids[starts == start].tolist())
        for start in np.unique(starts)
    ]
    words = ["".join(piece.removeprefix("##") for piece in word) for word in pieces]
    return [word.lstrip("Ġ▁") for word in words if word.strip("Ġ▁")]


def test_words_of_wordpiece_sentencepiece_and_byte_level_bpe(tiny_tokenizer):
    words = words_of(tiny_tokenizer)
    assert words[:2] == ["unbelievable", ":"]
    assert words[5:13] == ["tokenizers", "(", "subwords", ")", ",", "re", "-", "masking"]
    core = Tokenizer(models.WordPiece({"<unk>": 0, "##": 1, "##a": 2, "a": 3}, unk_token="<unk>"))
    assert word_parts(fast(core))[:4].tolist() == [WORD_START, WORD_START, CONTINUATION, WORD_START]
    unigram = (Tokenizer(models.Unigram()), pre_tokenizers.Metaspace(), trainers.UnigramTrainer)
    assert words_of(build(*unigram, unk_token="<unk>")) == WORDS
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe = build(Tokenizer(models.BPE()), byte_level, trainers.BpeTrainer, initial_alphabet=alphabet)
    spelling = [word.replace("ï", "Ã¯").replace("é", "Ã©") for word in WORDS]
    spelling[8:10] = ["),"]  # such tokenizers join punctuation
    assert words_of(bpe) == spelling
    assert words_of(bpe, "one\ntwo") == ["one", "Ċ", "two"], (
        "bytes of a line break are spelt as letters"
    )
    assert words_of(bpe, "one\x01two") == ["one", "ā", "two"], "and those of a control character"
    assert words_of(bpe, "one ö") == ["one", "Ã¶"], "halves of a letter are letters"
    assert word_starts(np.array([0, 6, 6, 7]), PARTS, np.arange(4) == 0).tolist() == [0, 1, 1, 3], (
        "after a special one"
    )


def test_a_word_is_masked_with_all_its_tokens_at_the_same_rate(tiny_tokenizer, repository_texts):
    masking = Masking.from_tokenizer(tiny_tokenizer, seed=3, rate=0.2, whole_word=True)
    tokens, offsets, ids = flat(
        [(tiny_tokenizer(text)["input_ids"], at) for at, text in enumerate(repository_texts)]
    )
    edges = masking.special[tokens].copy()
    edges[offsets[:-1]] = True
    starts = word_starts(tokens, masking.parts, edges)
    masks = [mask(tokens, offsets, ids, epoch, masking)[1] != IGNORED for epoch in range(8)]
    assert all(np.array_equal(one, one[starts]) for one in masks)
    assert np.mean([one[~masking.special[tokens]] for one in masks]) == pytest.approx(0.2, abs=0.01)
    assert len({one.tobytes() for one in masks}) == 8
    single = mask(tokens, offsets, ids, 0, replace(masking, parts=None))[1] != IGNORED
    assert (single != single[starts]).any()
    assert (starts != np.arange(tokens.size)).mean() > 0.2, "many words have several tokens"


CHARACTERS = {
    "Han": "今天气很好我们去公园散步看见多人在湖边拍照片医生建议患者每服用两次药物",
    "Kana": "きょうはとてもいいてんきなのでこうえんへさんぽにいきましたデータベース",
    "Thai": "วันนี้อากาศดีมากเราไปเดินเล่นที่สวนสาธารณะแพทย์แนะนำให้ผู้ป่วย",
    "Lao": "ມື້ນີ້ອາກາດດີຫຼາຍພວກເຮົາໄປຍ່າງຫຼິ້ນຢູ່ສວນສາທາລະນະ",
    "Khmer": "ថ្ងៃនេះអាកាសធាតុល្អណាស់យើងទៅដើរលេងនៅសួនច្បារ",
    "Burmese": "ဒီနေ့ရာသီဥတုသာယာတယ်ကျွန်တော်တို့ပန်းခြံမှာလမ်းလျှောက်တယ်",
}
KINDS = ["pieces", "bytes", "bytes of another language", "WordPiece"]


def clauses(script, count=60):
    """Clauses without a space, of characters of a script drawn at random."""
    characters = re.findall(CHARACTER, CHARACTERS[script])
    random = np.random.default_rng(1)
    return ["".join(random.choice(characters, 40)) for _ in range(count)]


def tokenizer_of(kind, texts):
    """A tokenizer trained on texts; of another language, one that never saw the script."""
    special = ["<unk>", "<mask>", "<s>"]
    options = {"vocab_size": 400, "special_tokens": special, "show_progress": False}
    if kind == "pieces":
        core = Tokenizer(models.Unigram())
        core.pre_tokenizer = pre_tokenizers.Metaspace()
        core.train_from_iterator(texts, trainers.UnigramTrainer(unk_token="<unk>", **options))
    elif kind == "WordPiece":
        core = Tokenizer(models.WordPiece(unk_token="<unk>"))
        core.pre_tokenizer = pre_tokenizers.Whitespace()
        core.train_from_iterator(texts, trainers.WordPieceTrainer(**options))
    else:
        core = Tokenizer(models.BPE())
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        seen = [TEXT] if "another" in kind else texts
        core.train_from_iterator(seen, trainers.BpeTrainer(initial_alphabet=alphabet, **options))
    return fast(core)


def examples_of(tokenizer, texts):
    """One example a text."""
    rows = [np.array(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    sizes = np.array([row.size for row in rows])
    return Examples(
        np.concatenate(rows),
        np.cumsum(sizes) - sizes,
        sizes,
        np.arange(sizes.size).astype(np.uint64),
        np.ones(sizes.size, dtype=np.float32),
        SpecialTokens(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("script", CHARACTERS)
def test_whole_words_mask_the_asked_share_in_scripts_without_spaces(script, kind):
    texts = clauses(script)
    tokenizer = tokenizer_of(kind, texts)
    collator = MaskedTokens(whole_word=True).collator(tokenizer, seed=0)
    examples = examples_of(tokenizer, texts)
    rate = measured_rate(examples, collator.masking)
    if "another" in kind and script not in ("Han", "Kana"):
        # Cut into single bytes, the first tells these scripts not from the ones of India.
        assert "whole_word=true masks" in collator.warnings(examples)[0]
        return
    assert 0.11 < rate < 0.2
    assert not collator.warnings(examples)


def test_whole_words_that_mask_many_more_tokens_are_warned_of():
    tokenizer = tokenizer_of("pieces", [TEXT])
    short = examples_of(tokenizer, ["tokenizers", "subwords", "Unbelievable"] * 20)
    collator = MaskedTokens(whole_word=True).collator(tokenizer, seed=0)
    rate = measured_rate(short, collator.masking)
    assert rate > 0.4, "each text is one word or two"
    [warning] = collator.warnings(short)
    assert f"whole_word=true masks {rate:.0%} of the tokens, 15% were asked for" in warning
    assert "whole_word=false" in warning
    assert not MaskedTokens().collator(tokenizer, seed=0).warnings(short), "of single tokens"
    long = examples_of(tokenizer, [TEXT * 3] * 20)
    assert not collator.warnings(long)


def test_a_run_logs_the_warning_once_and_notes_it_for_the_model_card(caplog):
    tokenizer = tokenizer_of("pieces", [TEXT])
    short = examples_of(tokenizer, ["tokenizers", "subwords", "Unbelievable"] * 20)
    collator = MaskedTokens(whole_word=True).collator(tokenizer, seed=0)
    notes = describe_examples(short, SimpleNamespace(epochs=1.0), [collator, collator])
    [warning] = notes["warnings"]
    assert "whole_word=true masks" in warning
    assert caplog.messages == [warning]
