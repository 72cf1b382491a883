import gzip
import json
import mmap

import numpy as np
import pytest

from dana.core.errors import ConfigError, DataError
from dana.core.rng import derive_seed
from dana.core.schemas import iterate_documents
from dana.train.examples import SpecialTokens
from dana.train.examples import build_examples as cut_examples
from dana.train.tokens import Tokens, write_tokens

TEXT = "Alpha beta. Gamma delta. Epsilon zeta? Eta theta."  # units 0-11, 12-24, 25-38, 39-49
SPANS = [(0, 11), (12, 24), (25, 38), (39, 49)]


def build_examples(corpus, weights, tokenizer, max_tokens, exclude=()):
    tokens = Tokens.of(iterate_documents(corpus), tokenizer)
    return cut_examples(tokens, weights, SpecialTokens.of(tokenizer), max_tokens, exclude)


def rows(doc_id, weights, segments=None):
    return [(doc_id, unit, *SPANS[unit], (segments or [0] * 4)[unit], weight) for unit, weight in enumerate(weights)]


def texts(examples, tokenizer):
    batch = examples.take(np.arange(len(examples)))
    return [
        tokenizer.decode(batch.tokens[first:last], skip_special_tokens=True).replace(" ", "")
        for first, last in zip(batch.offsets[:-1], batch.offsets[1:], strict=True)
    ]


def plain(text):
    return text.lower().replace(" ", "")


def test_without_weights_every_document_is_kept_whole(write_corpus, tiny_tokenizer):
    examples, counts = build_examples(write_corpus("c", [TEXT, "Iota."]), None, tiny_tokenizer, 128)
    assert texts(examples, tiny_tokenizer) == [plain(TEXT), "iota."]
    assert examples.weights.tolist() == [1, 1]
    assert (counts["documents_in"], counts["documents_kept"], counts["windows"]) == (2, 2, 2)


def test_neighbouring_kept_units_are_joined_and_a_gap_breaks(write_corpus, write_weights, tiny_tokenizer):
    weights = write_weights(rows("c-0", [1, 1, 0, 1]))
    examples, counts = build_examples(write_corpus("c", [TEXT]), weights, tiny_tokenizer, 128)
    assert texts(examples, tiny_tokenizer) == ["alphabeta.gammadelta.", "etatheta."]
    assert counts["runs"] == 2


def test_a_unit_in_no_segment_is_left_out(write_corpus, write_weights, tiny_tokenizer):
    weights = write_weights(rows("c-0", [1, 1, 1, 1], segments=[0, 0, 0, -1]))
    examples, _ = build_examples(write_corpus("c", [TEXT]), weights, tiny_tokenizer, 128)
    assert texts(examples, tiny_tokenizer) == [plain(TEXT[:38])]


def test_weight_of_an_example_is_the_mean_over_its_tokens(write_corpus, write_weights, tiny_tokenizer):
    unit_weights = [0.25, 1.0, 0.5, 0.75]
    counts = [len(tiny_tokenizer(TEXT[start:end], add_special_tokens=False)["input_ids"]) for start, end in SPANS]
    examples, _ = build_examples(
        write_corpus("c", [TEXT]), write_weights(rows("c-0", unit_weights)), tiny_tokenizer, 128
    )
    assert examples.weights[0] == pytest.approx(np.dot(unit_weights, counts) / sum(counts))


def test_long_runs_become_windows_of_equal_length_and_no_token_is_lost(write_corpus, tiny_tokenizer):
    text = " ".join(["alpha beta gamma"] * 40)
    whole = tiny_tokenizer(text, add_special_tokens=False)["input_ids"]
    examples, counts = build_examples(write_corpus("c", [text]), None, tiny_tokenizer, 32)
    inside = np.concatenate([examples.take(np.array([row])).tokens[1:-1] for row in range(len(examples))])
    assert inside.tolist() == whole
    assert counts["tokens_text"] == len(whole)
    assert len(examples) == -(-len(whole) // 30)
    assert np.ptp(examples.lengths) <= 1
    assert examples.lengths.max() <= 32


def test_every_window_has_the_special_tokens(write_corpus, tiny_tokenizer):
    examples, _ = build_examples(write_corpus("c", [TEXT * 5]), None, tiny_tokenizer, 20)
    batch = examples.take(np.arange(len(examples)))
    assert (batch.tokens[batch.offsets[:-1]] == tiny_tokenizer.cls_token_id).all()
    assert (batch.tokens[batch.offsets[1:] - 1] == tiny_tokenizer.sep_token_id).all()


def test_windows_are_weighted_by_their_own_units(write_corpus, write_weights, tiny_tokenizer):
    weights = write_weights(rows("c-0", [0.2, 0.2, 0.8, 0.8]))
    examples, _ = build_examples(write_corpus("c", [TEXT]), weights, tiny_tokenizer, 12)
    assert len(examples) >= 3
    assert examples.weights[0] == pytest.approx(0.2)
    assert examples.weights[-1] == pytest.approx(0.8)


def test_the_same_text_has_the_same_id_in_every_arm(write_corpus, write_weights, tiny_tokenizer):
    corpus = write_corpus("c", [TEXT, TEXT])
    everything, _ = build_examples(corpus, None, tiny_tokenizer, 128)
    weights = write_weights(rows("c-1", [1, 1, 1, 1]))
    second, counts = build_examples(corpus, weights, tiny_tokenizer, 128)
    assert second.ids.tolist() == everything.ids[1:].tolist()
    assert everything.ids[0] != everything.ids[1], "the id depends on the document, not on its text alone"
    assert counts["documents_left_out"] == 1


def test_the_id_names_the_document_and_where_the_windows_first_token_ends(write_corpus, write_weights, tiny_tokenizer):
    corpus, weights = write_corpus("c", [TEXT]), write_weights(rows("c-0", [0, 0, 1, 1]))
    examples, _ = build_examples(corpus, weights, tiny_tokenizer, 128)
    first = tiny_tokenizer(TEXT, return_offsets_mapping=True, add_special_tokens=False)["offset_mapping"]
    end = next(end for start, end in first if start == 25)
    assert examples.ids.tolist() == [derive_seed(0, "example", "c-0", end - 1)]


def test_excluded_documents_are_left_out_and_counted(write_corpus, write_weights, tiny_tokenizer):
    corpus = write_corpus("c", [TEXT, "Iota kappa.", "Lambda."])
    examples, counts = build_examples(corpus, None, tiny_tokenizer, 128, exclude={"c-1"})
    assert texts(examples, tiny_tokenizer) == [plain(TEXT), "lambda."]
    assert (counts["documents_in"], counts["documents_kept"], counts["documents_excluded"]) == (3, 2, 1)
    weighed, _ = build_examples(corpus, write_weights(rows("c-0", [1] * 4)), tiny_tokenizer, 128, exclude={"c-1"})
    assert texts(weighed, tiny_tokenizer) == [plain(TEXT)]


def test_a_document_may_be_cut_by_the_batches_of_its_weights(write_corpus, write_weights, tiny_tokenizer, monkeypatch):
    import pyarrow.parquet as pq

    original = pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda self, batch_size, **given: original(self, 3, **given))
    weights = write_weights([*rows("c-0", [1, 1, 1, 1]), *rows("c-1", [1, 0, 1, 1])])
    examples, _ = build_examples(write_corpus("c", [TEXT, TEXT]), weights, tiny_tokenizer, 128)
    assert texts(examples, tiny_tokenizer) == [plain(TEXT), plain(TEXT[:11]), plain(TEXT[25:])]


def test_weights_of_another_corpus_are_refused(write_corpus, write_weights, tiny_tokenizer):
    weights = write_weights(rows("other-0", [1, 1, 1, 1]))
    with pytest.raises(DataError, match="document 'other-0' is not next in the corpus"):
        build_examples(write_corpus("c", [TEXT]), weights, tiny_tokenizer, 128)


def test_weights_that_reach_behind_a_document_are_refused(write_corpus, write_weights, tiny_tokenizer):
    weights = write_weights([("c-0", 0, 0, 99, 0, 1.0)])
    with pytest.raises(DataError, match="weights of 'c-0' reach character 99, but it has 49"):
        build_examples(write_corpus("c", [TEXT]), weights, tiny_tokenizer, 128)


def test_nothing_left_is_refused(write_corpus, write_weights, tiny_tokenizer):
    weights = write_weights(rows("c-0", [0, 0, 0, 0]))
    with pytest.raises(DataError, match="no text to train on"):
        build_examples(write_corpus("c", [TEXT]), weights, tiny_tokenizer, 128)


def test_windows_too_short_for_a_token_are_refused(write_corpus, tiny_tokenizer):
    with pytest.raises(ConfigError, match="max_tokens=2: must be at least 3 for this tokenizer"):
        build_examples(write_corpus("c", [TEXT]), None, tiny_tokenizer, 2)


def test_take_reorders_examples(write_corpus, tiny_tokenizer):
    examples, _ = build_examples(write_corpus("c", [TEXT, "Iota.", "Kappa lambda."]), None, tiny_tokenizer, 128)
    assert texts(examples.rows(np.array([2, 0])), tiny_tokenizer) == ["kappalambda.", plain(TEXT)]


def test_real_text_keeps_every_token(dana_data, write_corpus, tiny_tokenizer):
    with gzip.open(dana_data / "general" / "pubmed.jsonl.gz", "rt", encoding="utf-8") as lines:
        documents = [json.loads(line)["text"] for line, _ in zip(lines, range(50), strict=False)]
    examples, counts = build_examples(write_corpus("c", documents), None, tiny_tokenizer, 64)
    expected = sum(len(ids) for ids in tiny_tokenizer(documents, add_special_tokens=False)["input_ids"])
    assert counts["tokens_text"] == expected
    assert examples.lengths.sum() == expected + 2 * len(examples)
    assert len(set(examples.ids.tolist())) == len(examples)


def test_tokens_on_disk_give_the_examples_of_those_in_memory(write_corpus, tiny_tokenizer, repository_texts, tmp_path):
    corpus = write_corpus("c", repository_texts)
    assert write_tokens(iterate_documents(corpus), tiny_tokenizer, tmp_path) > 1000
    mapped = Tokens.open(tmp_path)
    source = mapped.ids
    while isinstance(source, np.ndarray):
        source = source.base
    assert isinstance(source, mmap.mmap)
    assert mapped.ids.dtype == np.uint16
    found, counts = cut_examples(mapped, None, SpecialTokens.of(tiny_tokenizer), 32)
    expected, expected_counts = build_examples(corpus, None, tiny_tokenizer, 32)
    assert counts == expected_counts
    every = np.arange(len(expected))
    for name, value in vars(expected.take(every)).items():
        assert np.array_equal(getattr(found.take(every), name), value), name


def test_safetensors_alone_reads_the_tokens(write_corpus, tiny_tokenizer, repository_texts, tmp_path):
    from safetensors.torch import load_file

    write_tokens(iterate_documents(write_corpus("c", repository_texts[:3])), tiny_tokenizer, tmp_path)
    arrays = load_file(tmp_path / "tokens.safetensors")
    ids = tiny_tokenizer(repository_texts[:3], add_special_tokens=False)["input_ids"]
    assert arrays["ids"].tolist() == [token for one in ids for token in one]


def test_the_tokenizers_own_limit_cuts_nothing(write_corpus, tiny_tokenizer):
    tiny_tokenizer.backend_tokenizer.enable_truncation(4)
    try:
        _, counts = build_examples(write_corpus("c", [TEXT * 3]), None, tiny_tokenizer, 128)
    finally:
        tiny_tokenizer.backend_tokenizer.no_truncation()
    assert counts["tokens_text"] > 20


def test_weights_that_keep_half_a_document_see_the_tokens_of_the_whole(write_corpus, write_weights, tiny_tokenizer):
    whole, _ = build_examples(write_corpus("c", [TEXT]), None, tiny_tokenizer, 128)
    corpus = write_corpus("c", [TEXT])
    halves = [
        build_examples(corpus, write_weights(rows("c-0", keep)), tiny_tokenizer, 128)[0]
        for keep in ([1, 1, 0, 0], [0, 0, 1, 1])
    ]
    inside = [examples.take(np.array([0])).tokens[1:-1].tolist() for examples in halves]
    assert [*inside[0], *inside[1]] == whole.take(np.array([0])).tokens[1:-1].tolist()


def test_documents_without_a_token_are_left_out_and_counted(write_corpus, write_weights, tiny_tokenizer):
    corpus = write_corpus("c", ["", TEXT, " \n "])
    examples, counts = build_examples(corpus, None, tiny_tokenizer, 128)
    documents = {key: counts[f"documents_{key}"] for key in ("in", "kept", "left_out", "excluded")}
    assert documents == {"in": 3, "kept": 1, "left_out": 2, "excluded": 0}
    assert counts["runs"] == len(examples) == 1
    weights = write_weights([("c-1", 0, 0, 11, 0, 1.0), ("c-2", 0, 0, 3, 0, 1.0)])
    assert build_examples(corpus, weights, tiny_tokenizer, 128)[1]["documents_kept"] == 1
