"""Examples cut from a tokenised corpus and its weights."""

import mmap
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

from dana.core.errors import ConfigError, DataError
from dana.core.rng import derive_seed
from dana.core.schemas import Document, iterate_documents
from dana.train.examples import SpecialTokens, build_examples
from dana.train.tokens import Tokens, write_tokens

TEXT = "Alpha beta. Gamma delta. Epsilon zeta? Eta theta."  # units 0-11, 12-24, 25-38, 39-49
SPANS = [(0, 11), (12, 24), (25, 38), (39, 49)]


@pytest.fixture
def build(write_corpus, write_weights, tiny_tokenizer):
    """Builds examples of texts; weights are rows of a table, or the weights of the four units of the first text."""

    def call(texts, weights=None, max_tokens=128, exclude=()):
        corpus = write_corpus("c", texts)
        if weights is not None:
            rows = weights if isinstance(weights[0], tuple) else unit_rows("c-0", weights)
            weights = write_weights(rows)
        tokens = Tokens.of(iterate_documents(corpus), tiny_tokenizer)
        return build_examples(tokens, weights, SpecialTokens.of(tiny_tokenizer), max_tokens, exclude)

    return call


def unit_rows(doc_id, weights, segments=(0, 0, 0, 0)):
    return [(doc_id, unit, *SPANS[unit], segments[unit], weight) for unit, weight in enumerate(weights)]


@pytest.fixture
def decode(tiny_tokenizer):
    def call(examples):
        batch = examples.take(np.arange(len(examples)))
        rows = np.split(batch.tokens, batch.offsets[1:-1])
        return [tiny_tokenizer.decode(row, skip_special_tokens=True).replace(" ", "") for row in rows]

    return call


def plain(text):
    return text.lower().replace(" ", "")


def documents(counts):
    return {key: counts[f"documents_{key}"] for key in ("in", "kept", "left_out", "excluded")}


def test_without_weights_every_document_with_tokens_is_one_example(build, decode):
    examples, counts = build(["", TEXT, " \n ", "Iota."])
    assert decode(examples) == [plain(TEXT), "iota."]
    assert examples.weights.tolist() == [1, 1]
    assert documents(counts) == {"in": 4, "kept": 2, "left_out": 2, "excluded": 0}
    assert counts["runs"] == counts["windows"] == 2
    assert decode(examples.rows(np.array([1, 0]))) == ["iota.", plain(TEXT)]


def test_neighbouring_selected_units_are_joined_and_gaps_break(build, decode):
    examples, counts = build([TEXT], [1, 1, 0, 1])
    assert decode(examples) == ["alphabeta.gammadelta.", "etatheta."]
    assert counts["runs"] == 2
    examples, _ = build([TEXT], unit_rows("c-0", [1] * 4, segments=[0, 0, 0, -1]))
    assert decode(examples) == [plain(TEXT[:38])], "the last unit is in no segment"


def test_weights_of_windows_are_means_over_their_tokens(build, tiny_tokenizer):
    weights = [0.25, 1.0, 0.5, 0.75]
    counts = [len(tiny_tokenizer(TEXT[start:end], add_special_tokens=False)["input_ids"]) for start, end in SPANS]
    examples, _ = build([TEXT], weights)
    assert examples.weights[0] == pytest.approx(np.dot(weights, counts) / sum(counts))
    examples, _ = build([TEXT], [0.2, 0.2, 0.8, 0.8], max_tokens=12)
    assert len(examples) >= 3
    assert examples.weights[[0, -1]] == pytest.approx([0.2, 0.8])


def test_runs_are_cut_into_windows_of_equal_length_without_loss(build, tiny_tokenizer):
    text = " ".join(["alpha beta gamma"] * 40)
    tokens = tiny_tokenizer(text, add_special_tokens=False)["input_ids"]
    examples, counts = build([text], max_tokens=32)
    batch = examples.take(np.arange(len(examples)))
    windows = np.split(batch.tokens, batch.offsets[1:-1])
    assert {(row[0], row[-1]) for row in windows} == {(tiny_tokenizer.cls_token_id, tiny_tokenizer.sep_token_id)}
    assert [token for row in windows for token in row[1:-1]] == tokens
    assert counts["tokens_text"] == len(tokens)
    assert len(examples) == -(-len(tokens) // 30)
    assert np.ptp(examples.lengths) <= 1
    assert examples.lengths.max() <= 32


def test_the_same_text_has_the_same_id_in_every_arm(build, tiny_tokenizer):
    everything, _ = build([TEXT, TEXT])
    second, counts = build([TEXT, TEXT], unit_rows("c-1", [1, 1, 1, 1]))
    assert second.ids.tolist() == everything.ids[1:].tolist()
    assert everything.ids[0] != everything.ids[1], "the id depends on the document, not on its text alone"
    assert counts["documents_left_out"] == 1
    half, _ = build([TEXT], [0, 0, 1, 1])
    offsets = tiny_tokenizer(TEXT, return_offsets_mapping=True, add_special_tokens=False)["offset_mapping"]
    end = next(end for start, end in offsets if start == 25)
    assert half.ids.tolist() == [derive_seed(0, "example", "c-0", end - 1)], "the end of the window's first token"


def test_excluded_documents_are_counted(build, decode):
    texts = [TEXT, "Iota kappa.", "Lambda."]
    examples, counts = build(texts, exclude={"c-1"})
    assert decode(examples) == [plain(TEXT), "lambda."]
    assert documents(counts) == {"in": 3, "kept": 2, "left_out": 0, "excluded": 1}
    assert decode(build(texts, [1] * 4, exclude={"c-1"})[0]) == [plain(TEXT)]


def test_the_weights_of_a_document_may_span_batches(build, decode, monkeypatch):
    original = pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda self, batch_size, **rest: original(self, 3, **rest))
    examples, _ = build([TEXT, TEXT], [*unit_rows("c-0", [1, 1, 1, 1]), *unit_rows("c-1", [1, 0, 1, 1])])
    assert decode(examples) == [plain(TEXT), plain(TEXT[:11]), plain(TEXT[25:])]


def test_selected_text_has_the_tokens_of_the_whole_document(build):
    whole, first, second = (build([TEXT], weights)[0] for weights in (None, [1, 1, 0, 0], [0, 0, 1, 1]))
    tokens = [examples.take(np.array([0])).tokens[1:-1].tolist() for examples in (whole, first, second)]
    assert tokens[1] + tokens[2] == tokens[0]


@pytest.mark.parametrize(
    ("weights", "max_tokens", "kind", "says"),
    [
        (unit_rows("other-0", [1, 1, 1, 1]), 128, DataError, "'other-0'"),
        ([("c-0", 0, 0, 99, 0, 1.0)], 128, DataError, "'c-0' reach character 99"),
        ([0, 0, 0, 0], 128, DataError, "no text to train on"),
        (None, 2, ConfigError, "max_tokens=2: must be at least 3"),
    ],
)
def test_weights_of_another_corpus_and_empty_examples_are_refused(build, weights, max_tokens, kind, says):
    with pytest.raises(kind, match=says):
        build([TEXT], weights, max_tokens)


def test_tokens_on_disk_give_the_examples_of_those_in_memory(write_corpus, tiny_tokenizer, repository_texts, tmp_path):
    corpus = write_corpus("c", repository_texts)
    assert write_tokens(iterate_documents(corpus), tiny_tokenizer, tmp_path) > 1000
    ids = tiny_tokenizer(repository_texts, add_special_tokens=False)["input_ids"]
    assert load_file(tmp_path / "tokens.safetensors")["ids"].tolist() == [token for one in ids for token in one]
    mapped = Tokens.open(tmp_path)
    source = mapped.ids
    while isinstance(source, np.ndarray):
        source = source.base
    assert isinstance(source, mmap.mmap)
    memory = Tokens.of(iterate_documents(corpus), tiny_tokenizer)
    special = SpecialTokens.of(tiny_tokenizer)
    (found, counts), (expected, expected_counts) = (
        build_examples(tokens, None, special, 32) for tokens in (mapped, memory)
    )
    assert counts == expected_counts
    every = np.arange(len(expected))
    for name, value in vars(expected.take(every)).items():
        assert np.array_equal(getattr(found.take(every), name), value), name


def test_the_limit_of_the_tokenizer_truncates_nothing(build, tiny_tokenizer):
    tiny_tokenizer.backend_tokenizer.enable_truncation(4)
    try:
        _, counts = build([TEXT * 3])
    finally:
        tiny_tokenizer.backend_tokenizer.no_truncation()
    assert counts["tokens_text"] > 20


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
