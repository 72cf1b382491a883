"""Examples cut from a tokenised pool and its weights."""

import mmap
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from dana.core.errors import ConfigError, DataError
from dana.core.rng import derive_seed
from dana.core.schemas import Document, iterate_documents
from dana.train.examples import SpecialTokens, build_examples
from dana.train.tokens import Tokens, write_tokens

TEXT = "Alpha beta. Gamma delta. Epsilon zeta? Eta theta."
SPANS = [(0, 11), (12, 24), (25, 38), (39, 49)]  # of its units


def unit_rows(doc_id, weights, segments=(0, 0, 0, 0)):
    return [
        (doc_id, unit, *SPANS[unit], segments[unit], weight) for unit, weight in enumerate(weights)
    ]


@pytest.fixture
def build(write_corpus, write_weights, tiny_tokenizer):
    """Builds examples of texts; weights are rows of a table, or the weights of the four units of the first text."""

    def call(texts, weights=None, max_tokens=128, exclude=()):
        pool = write_corpus("c", texts)
        if weights is not None:
            weights = write_weights(
                weights if isinstance(weights[0], tuple) else unit_rows("c-0", weights)
            )
        tokens = Tokens.from_documents(iterate_documents(pool), tiny_tokenizer)
        return build_examples(
            tokens, weights, SpecialTokens.from_tokenizer(tiny_tokenizer), max_tokens, exclude
        )

    return call


def windows(examples):
    batch = examples.take(np.arange(len(examples)))
    return [row.tolist() for row in np.split(batch.tokens, batch.offsets[1:-1])]


@pytest.fixture
def texts_of(tiny_tokenizer):
    """The texts of examples, without spaces."""
    return lambda examples: [
        tiny_tokenizer.decode(row, skip_special_tokens=True).replace(" ", "")
        for row in windows(examples)
    ]


def plain(text):
    return text.lower().replace(" ", "")


def test_without_weights_every_document_with_tokens_is_one_example(build, texts_of):
    texts = ["", TEXT, " \n ", "Iota kappa.", "Lambda."]
    for exclude, documents in (
        (set(), [plain(TEXT), "iotakappa.", "lambda."]),
        ({"c-3"}, [plain(TEXT), "lambda."]),
    ):
        examples, counts = build(texts, exclude=exclude)
        assert texts_of(examples) == documents
        assert texts_of(examples.rows(np.array([1, 0]))) == documents[1::-1]
        assert examples.weights.tolist() == [1] * len(documents)
        assert counts["runs"] == counts["windows"] == len(documents)
        totals = [counts[f"documents_{key}"] for key in ("in", "kept", "left_out", "excluded")]
        assert totals == [5, len(documents), 2, len(exclude)]
    assert texts_of(build([TEXT, "Iota."], [1] * 4, exclude={"c-1"})[0]) == [plain(TEXT)]


def test_neighbouring_selected_units_are_joined_and_gaps_break(build, texts_of, monkeypatch):
    examples, counts = build([TEXT], [1, 1, 0, 1])
    assert texts_of(examples) == ["alphabeta.gammadelta.", "etatheta."]
    assert counts["runs"] == 2
    examples, _ = build([TEXT], unit_rows("c-0", [1] * 4, segments=[0, 0, 0, -1]))
    assert texts_of(examples) == [plain(TEXT[:38])], "the last unit is in no segment"
    original = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile, "iter_batches", lambda self, batch_size, **rest: original(self, 3, **rest)
    )
    examples, _ = build(
        [TEXT, TEXT], [*unit_rows("c-0", [1, 1, 1, 1]), *unit_rows("c-1", [1, 0, 1, 1])]
    )
    assert texts_of(examples) == [plain(TEXT), plain(TEXT[:11]), plain(TEXT[25:])], (
        "a document may span batches"
    )


def test_selected_text_has_the_tokens_of_the_whole_document(build):
    [everything], [first], [second] = (
        windows(build([TEXT], weights)[0]) for weights in (None, [1, 1, 0, 0], [0, 0, 1, 1])
    )
    assert first[1:-1] + second[1:-1] == everything[1:-1]


def test_weights_of_windows_are_means_over_their_tokens(build, tiny_tokenizer):
    weights = [0.25, 1.0, 0.5, 0.75]
    counts = [
        len(tiny_tokenizer(TEXT[start:end], add_special_tokens=False)["input_ids"])
        for start, end in SPANS
    ]
    examples, _ = build([TEXT], weights)
    assert examples.weights[0] == pytest.approx(np.dot(weights, counts) / sum(counts))
    examples, _ = build([TEXT], [0.2, 0.2, 0.8, 0.8], max_tokens=12)
    assert len(examples) >= 3
    assert examples.weights[[0, -1]] == pytest.approx([0.2, 0.8])


def test_runs_are_cut_into_windows_of_equal_length_without_loss(build, tiny_tokenizer):
    text = " ".join(["alpha beta gamma"] * 40)
    tokens = tiny_tokenizer(text, add_special_tokens=False)["input_ids"]
    examples, counts = build([text], max_tokens=32)
    rows = windows(examples)
    assert {(row[0], row[-1]) for row in rows} == {
        (tiny_tokenizer.cls_token_id, tiny_tokenizer.sep_token_id)
    }
    assert [token for row in rows for token in row[1:-1]] == tokens
    assert counts["tokens_text"] == len(tokens)
    assert len(rows) == -(-len(tokens) // 30)
    assert np.ptp(examples.lengths) <= 1
    assert examples.lengths.max() <= 32


def test_the_same_text_has_the_same_id_in_every_arm(build, tiny_tokenizer):
    everything, _ = build([TEXT, TEXT])
    second, counts = build([TEXT, TEXT], unit_rows("c-1", [1, 1, 1, 1]))
    assert second.ids.tolist() == everything.ids[1:].tolist()
    assert everything.ids[0] != everything.ids[1], (
        "the id depends on the document, not on its text alone"
    )
    assert counts["documents_left_out"] == 1
    half, _ = build([TEXT], [0, 0, 1, 1])
    offsets = tiny_tokenizer(TEXT, return_offsets_mapping=True, add_special_tokens=False)[
        "offset_mapping"
    ]
    end = next(end for start, end in offsets if start == 25)
    assert half.ids.tolist() == [derive_seed(0, "example", "c-0", end - 1)], (
        "the end of the window's first token"
    )


@pytest.mark.parametrize(
    ("weights", "max_tokens", "kind", "problem"),
    [
        (unit_rows("other-0", [1, 1, 1, 1]), 128, DataError, "'other-0'"),
        ([("c-0", 0, 0, 99, 0, 1.0)], 128, DataError, "'c-0' reach character 99"),
        (
            [0, 0, 0, 0],
            128,
            DataError,
            r"no text to train on remains of 1 documents \(1 without selected text, 0 held",
        ),
        (None, 2, ConfigError, "max_tokens=2: must be at least 3"),
    ],
)
def test_weights_of_another_pool_and_empty_examples_are_refused(
    build, weights, max_tokens, kind, problem
):
    with pytest.raises(kind, match=problem):
        build([TEXT], weights, max_tokens)


def test_tokens_on_disk_give_the_examples_of_those_in_memory(
    write_corpus, tiny_tokenizer, repository_texts, tmp_path
):
    pool, texts = write_corpus("c", repository_texts[:50]), repository_texts[:50]
    assert write_tokens(iterate_documents(pool), tiny_tokenizer, tmp_path) > 1000
    ids = tiny_tokenizer(texts, add_special_tokens=False)["input_ids"]
    assert load_file(tmp_path / "tokens.safetensors")["ids"].tolist() == [
        token for one in ids for token in one
    ]
    disk, memory = (
        Tokens.open(tmp_path),
        Tokens.from_documents(iterate_documents(pool), tiny_tokenizer),
    )
    source = disk.ids
    while isinstance(source, np.ndarray):
        source = source.base
    assert isinstance(source, mmap.mmap)
    special = SpecialTokens.from_tokenizer(tiny_tokenizer)
    (one, counts), (other, other_counts) = (
        build_examples(tokens, None, special, 32) for tokens in (disk, memory)
    )
    assert counts == other_counts
    every = np.arange(len(other))
    for name, value in vars(other.take(every)).items():
        assert np.array_equal(getattr(one.take(every), name), value), name


class OtherPieces:
    """A tokenizer that cuts a text otherwise beside special tokens."""

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [1, 6, 2] if add_special_tokens else [5]}


def test_special_tokens_that_change_the_text_are_refused():
    with pytest.raises(ConfigError, match="cuts the letter a otherwise"):
        SpecialTokens.from_tokenizer(OtherPieces())


SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


class Wrapper(SimpleNamespace):
    is_fast = True
    size = 0

    def __len__(self):
        return min(self.size, 5)  # a vocabulary may have gaps

    def get_vocab(self):
        return {"last": self.size - 1}


def with_special_tokens(model, pre_tokenizer):
    core = Tokenizer(model)
    core.pre_tokenizer = pre_tokenizer
    core.add_special_tokens([AddedToken(piece, special=True) for piece in SPECIAL])
    return core


def byte_level():
    pieces = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    model = models.BPE({piece: at for at, piece in enumerate(pieces)}, [])
    return with_special_tokens(model, pre_tokenizers.ByteLevel(add_prefix_space=False))


def unigram():
    """Whose special tokens are pieces of its model, as those of XLM-RoBERTa are."""
    pieces = [(piece, 0.0) for piece in SPECIAL] + [
        (piece, -3.0) for piece in "▁<>/abcdefghijklmnopqrstuvwxyz"
    ]
    return with_special_tokens(models.Unigram(pieces, unk_id=3), pre_tokenizers.Metaspace())


def tokenise(text, tokenizer):
    return Tokens.from_documents([Document("d", "s", text)], tokenizer).ids.tolist()


@pytest.mark.parametrize("core", [byte_level(), unigram()], ids=["byte-level", "unigram"])
def test_special_tokens_in_text_are_text_and_no_text_is_truncated(core):
    assert core.token_to_id("<mask>") in core.encode("a <mask> b<s>").ids, "without dana"
    tokenizer, ordinary = Wrapper(backend_tokenizer=core), core.encode("a mask b").ids
    core.enable_truncation(2)
    ids = tokenise("a <mask> b<s>", tokenizer)
    assert not set(ids) & {core.token_to_id(piece) for piece in SPECIAL}
    assert (
        "".join(core.id_to_token(token) for token in ids).strip("▁").replace("Ġ", "▁")
        == "a▁<mask>▁b<s>"
    )
    assert tokenise("a mask b", tokenizer) == ordinary


def test_a_mask_in_text_is_three_words_of_wordpiece(tiny_tokenizer):
    ids = tokenise("fill the [MASK] and [SEP]", tiny_tokenizer)
    assert not set(ids) & set(tiny_tokenizer.all_special_ids)
    assert tiny_tokenizer.decode(ids).replace(" ", "") == "fillthe[mask]and[sep]"


@pytest.mark.parametrize(("size", "width"), [(1 << 16, 2), ((1 << 16) + 1, 4)])
def test_ids_have_two_bytes_while_they_fit(tmp_path, size, width):
    tokenizer = Wrapper(backend_tokenizer=byte_level(), size=size)
    count = write_tokens(
        [Document("one", "s", "a mask"), Document("two", "s", "b")], tokenizer, tmp_path
    )
    tokens = Tokens.open(tmp_path)
    assert tokens.ids.dtype.itemsize == width
    assert count == tokens.ids.size == tokens.last.size
    assert [(one.doc_id, one.characters) for one in tokens.documents()] == [("one", 6), ("two", 1)]
    assert tokens.ids.tolist() == tokenise("a mask", tokenizer) + tokenise("b", tokenizer)
