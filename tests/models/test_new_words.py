"""Add words of a domain to a tokenizer: no text gets longer, whatever it holds."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config, RobertaConfig

from dana.core.errors import ConfigError
from dana.models.folder import load_own_tokenizer, uncut
from dana.models.vocabulary import (
    check_vocabulary,
    choose_words,
    count_words,
    extend_tokenizer,
    spelled_out,
    spells_bytes,
)

GENERAL = [
    "The river runs under the old bridge and past the market to the sea.",
    "A painter lived beside the harbour, in a house that he had built himself.",
    "They were talking of ships, of engines and of the things that sailors tell.",
    "In the morning the market was full: bread, fish, violins and a garden of roses.",
] * 3
DOMAIN = [
    "Phosphorylation of the kinase was inhibited by acetylcholinesterase inhibitors.",
    "The kinases phosphorylate the receptor; the inhibitor (a kinase-inhibitor) binds.",
    "Kinase activity, receptor binding and phosphorylation were measured: kinase 2, μ-receptor.",
] * 2
NUMBER = 12
BERT = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
ROBERTA = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}


def word_piece(splitter):
    core = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer()
    core.pre_tokenizer = splitter
    trainer = trainers.WordPieceTrainer(
        vocab_size=120, special_tokens=list(BERT.values()), show_progress=False
    )
    core.train_from_iterator(GENERAL, trainer)
    core.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(tokenizer_object=core, **BERT)


def byte_pairs(splits=True):
    core = Tokenizer(models.BPE())
    if splits:
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=list(ROBERTA.values()),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    core.train_from_iterator(GENERAL, trainer)
    # A mask that is an added token, beyond the vocabulary of the model, as that of XLM-R.
    return PreTrainedTokenizerFast(tokenizer_object=core, mask_token="<mask>", **ROBERTA)


def unigram(scheme):
    core = Tokenizer(models.Unigram())
    core.normalizer = normalizers.NFKC()
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    core.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120,
        special_tokens=list(ROBERTA.values()),
        unk_token="<unk>",
        show_progress=False,
    )
    core.train_from_iterator(GENERAL, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=core, mask_token="<mask>", **ROBERTA)


MAKERS = {
    "bert": lambda: word_piece(pre_tokenizers.BertPreTokenizer()),
    "whitespace": lambda: word_piece(pre_tokenizers.Whitespace()),
    "spaces": lambda: word_piece(pre_tokenizers.WhitespaceSplit()),
    "bpe": byte_pairs,
    "unigram": lambda: unigram("always"),
    "unigram_first": lambda: unigram("first"),
    "dana-mini": lambda: load_own_tokenizer("dana-mini"),
}


class Case:
    """A tokenizer, its words and the longer one, as opened from a folder."""

    def __init__(self, name, folder):
        self.before = MAKERS[name]()
        self.kind = check_vocabulary(self.before)
        texts = [count_words(DOMAIN, self.before), count_words(GENERAL, self.before)]
        self.counts = texts[0]
        self.words = choose_words(texts, NUMBER, self.before)
        extend_tokenizer(self.before, self.words).save_pretrained(folder)
        self.after = AutoTokenizer.from_pretrained(folder)
        self.names = [spelled_out(word, spells_bytes(self.before)) for word in self.words]
        self.encoders = [uncut(self.before), uncut(self.after)]

    def lengths(self, text):
        """Count the tokens of a text before and after."""
        return [len(coder.encode(text, add_special_tokens=False).ids) for coder in self.encoders]


@pytest.fixture(scope="module", params=list(MAKERS))
def case(request, tmp_path_factory):
    return Case(request.param, tmp_path_factory.mktemp("tokenizer"))


def test_the_words_are_tokens_and_all_others_keep_their_ids(case):
    size = len(case.before)
    assert "phosphorylation" in case.names
    assert len(case.words) == NUMBER
    ids = case.after.convert_tokens_to_ids(case.words)
    assert ids == list(range(size, size + NUMBER))
    old = case.before.get_vocab()
    assert {word: case.after.get_vocab()[word] for word in old} == old
    assert case.after.all_special_ids == case.before.all_special_ids
    assert case.after("a kinase b")["input_ids"][0] == case.before("a kinase b")["input_ids"][0]


def test_texts_of_the_domain_get_shorter_as_counted(case):
    before, after = map(sum, zip(*map(case.lengths, DOMAIN), strict=True))
    assert after < 0.8 * before
    if case.kind == "WordPiece":
        assert before - after == case.counts.saved(case.words)


def test_text_that_was_cut_is_read_back(case):
    text = "of the kinase was inhibited"
    ids = case.after(text, add_special_tokens=False)["input_ids"]
    assert case.after.decode(ids).strip() == text


SIGNS = ["", " ", "  ", "\n", "-", "_", "™", "²", "°", "«", "⹃", "s", "ing", "中", "é", "\u0301"]
SIGNS += ["\u200d", "\ue000", "x", "7", "[MASK]", "<mask>", "<s>", ".", "😀"]


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_no_text_gets_longer(case, data):
    parts = st.one_of(
        st.sampled_from(case.names),
        st.sampled_from(case.names).map(str.upper),
        st.sampled_from(case.names).map(lambda word: word[:5]),
        st.sampled_from(SIGNS),
        st.text(max_size=3),
    )
    for text in data.draw(st.lists(st.lists(parts, max_size=8).map("".join), max_size=10)):
        before, after = case.lengths(text)
        assert after <= before


@pytest.mark.parametrize("name", ["bert", "bpe", "unigram"])
def test_special_tokens_in_a_text_stay_text(name, tmp_path):
    case = Case(name, tmp_path)
    encoder = uncut(case.after)
    for token in case.after.all_special_tokens:
        ids = encoder.encode(f"a {token} b", add_special_tokens=False).ids
        assert case.after.convert_tokens_to_ids(token) not in set(ids) - {case.after.unk_token_id}


def test_each_text_counts_alike_however_long():
    tokenizer = MAKERS["bert"]()
    target = count_words(["phosphorylation kinase kinase"] * 2, tokenizer)
    pool = count_words(["violinists sailing engineering"] * 1000, tokenizer)
    first = choose_words([target, pool], 2, tokenizer)
    assert set(first) & {"phosphorylation", "kinase"}
    assert set(first) & {"violinists", "sailing", "engineering"}


def test_a_word_seen_once_is_not_chosen():
    tokenizer = MAKERS["bert"]()
    counts = count_words(["phosphorylation kinase kinase"], tokenizer)
    assert choose_words([counts], 10, tokenizer) == ["kinase"]


def test_equal_text_gives_equal_words_whatever_its_order():
    tokenizer = MAKERS["bert"]()
    forth = choose_words([count_words(DOMAIN, tokenizer)], NUMBER, tokenizer)
    back = choose_words([count_words(reversed(DOMAIN), tokenizer)], NUMBER, tokenizer)
    assert forth == back


def test_a_model_whose_tokenizer_transformers_makes_anew_is_refused():
    tokenizer = MAKERS["bpe"]()
    words = choose_words([count_words(DOMAIN, tokenizer)], NUMBER, tokenizer)
    assert extend_tokenizer(tokenizer, words, RobertaConfig())
    with pytest.raises(ConfigError, match=r"Qwen2Tokenizer.*would not find new words"):
        extend_tokenizer(tokenizer, words, Qwen2Config())


def with_state(tokenizer, change):
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    change(state)
    core = Tokenizer.from_str(json.dumps(state))
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="[UNK]")


def to_digits(state):
    state["pre_tokenizer"] = {"type": "Digits", "individual_digits": False}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: byte_pairs(splits=False), "does not split text into words"),
        (lambda: with_state(MAKERS["bert"](), to_digits), "splits words by Digits"),
        (lambda: Case("bert", "unused").after, "added tokens"),
    ],
)
def test_what_cannot_be_extended_is_refused_by_name(make, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tokenizer = make()
    with pytest.raises(ConfigError, match=reason):
        check_vocabulary(tokenizer)
