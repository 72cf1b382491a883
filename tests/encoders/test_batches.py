"""Batches of token ids: every text once, shapes by its own length, made ahead; no thread is left, whatever happens."""

import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertConfig, BertModel

from dana.core.workers import prefetch
from dana.encoders import transformer as batches
from dana.encoders.transformer import (
    TransformerEncoder,
    batch_rows,
    batch_width,
    batches_on,
    token_batches,
)

META = torch.device(
    "meta"
)  # not a CPU, and everywhere: a thread makes its batches; it computes nothing


PAD = 999


class Words:
    """A tokenizer whose ids are numbers: the text "7 8 9" is [7, 8, 9]."""

    pad_token_id = PAD

    def __call__(self, texts, truncation, max_length, **settings):
        return {"input_ids": [[int(word) for word in text.split()][:max_length] for text in texts]}


def text_of(row, length):
    return " ".join([str(row + 1)] * length)


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def test_a_batch_by_hand():
    (batch,) = token_batches(Words(), ["1 2", "3", "4 5 6"], 8, 40)
    assert batch.rows.tolist() == [2, 0, 1], "the longest text first"
    assert batch.tokens[:, :4].tolist() == [
        [4, 5, 6, PAD], [1, 2, PAD, PAD], [3, PAD, PAD, PAD], [4, 5, 6, PAD], [4, 5, 6, PAD],
    ]  # fmt: skip
    assert batch.mask.sum(1).tolist() == [3, 2, 1, 3, 3]
    assert batch.tokens.dtype == batch.mask.dtype == torch.int64


@given(
    st.lists(st.integers(1, 330), max_size=200),
    st.integers(300, 5000),
    st.sampled_from([1, 7, 256]),
)
def test_every_text_is_in_one_batch_whose_shape_follows_from_it_alone(lengths, limit, at_once):
    texts = [text_of(row, length) for row, length in enumerate(lengths)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "TEXTS_AT_ONCE", at_once)
        all_batches = list(token_batches(Words(), texts, 300, limit))
    assert sorted(row for batch in all_batches for row in batch.rows.tolist()) == list(
        range(len(texts))
    )
    for batch in all_batches:
        size, width = batch.tokens.shape
        assert len(batch.rows) <= size == batch_rows(width, limit)
        assert size * width <= limit
        for tokens, mask, row in zip(batch.tokens, batch.mask, batch.rows.tolist(), strict=False):
            length = min(lengths[row], 300)
            assert tokens.tolist() == [row + 1] * length + [PAD] * (width - length)
            assert mask.tolist() == [1] * length + [0] * (width - length)
            assert width == batch_width(length, 300)


def test_those_that_are_not_full_come_last_the_widest_first():
    texts = [text_of(row, length) for row, length in enumerate([9, 20, 9, 3, 1, 9])]
    for part, rows in ((texts, [[0, 2, 5], [1], [3, 4]]), (texts[1:5], [[0], [1], [2, 3]])):
        assert [batch.rows.tolist() for batch in token_batches(Words(), part, 300, 48)] == rows


def test_who_leaves_early_and_keeps_the_iterator_leaves_no_thread():
    with batches_on(META, Words(), [text_of(row, 300) for row in range(50)], 300, 300) as iterator:
        next(iterator)
        assert threads()
    assert not threads()
    assert not list(iterator)


def test_a_few_batches_are_made_while_one_is_computed_and_no_more(monkeypatch):
    monkeypatch.setattr(batches, "TEXTS_AT_ONCE", 1)
    requests = []

    class Recording(Words):
        def __call__(self, texts, **settings):
            requests.extend(texts)
            return super().__call__(texts, **settings)

    texts = [text_of(row, 300) for row in range(20)]
    with batches_on(META, Recording(), texts, 300, 300) as iterator:
        for number, _ in enumerate(iterator, start=1):
            ahead = min(number + batches.AHEAD, len(texts))
            until = time.monotonic() + 10
            while len(requests) < ahead and time.monotonic() < until:
                time.sleep(0.001)
            assert len(requests) == ahead
        assert number == 20
    assert not threads()


@pytest.fixture(scope="module")
def model(tiny_tokenizer, tmp_path_factory):
    """A small model folder with random weights."""
    folder = str(tmp_path_factory.mktemp("models") / "small")
    torch.manual_seed(0)
    shape = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
    }
    BertModel(BertConfig(vocab_size=len(tiny_tokenizer), **shape)).save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """A CPU's batches are made by a thread, too."""
    monkeypatch.setattr(
        batches,
        "token_batches",
        lambda *arguments: prefetch(token_batches(*arguments), batches.AHEAD),
    )


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("batch_tokens", [64, 100, 512])
def test_vectors_are_those_of_each_text_by_itself_to_the_last_bit(
    model, repository_texts, monkeypatch, batch_tokens
):
    encoder = TransformerEncoder(model, max_tokens=64, batch_tokens=batch_tokens)
    texts = [text[: 5 + 9 * (row % 12)] for row, text in enumerate(repository_texts[:60])]
    alone = torch.cat([encoder.encode([text]) for text in texts])
    for at_once in (1, 7, 256):
        monkeypatch.setattr(batches, "TEXTS_AT_ONCE", at_once)
        assert torch.equal(encoder.encode(texts), alone)
    assert not threads()


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("error", [KeyboardInterrupt, torch.OutOfMemoryError, SystemExit])
def test_what_ends_the_model_or_the_tokenizer_comes_out_as_it_is_and_leaves_no_thread(model, error):
    class Broken(Words):
        def __call__(self, *inputs, **settings):
            raise error("the reason")

    texts = [f"{row}" for row in range(600)]
    for name in ("tokenizer", "_pool"):
        encoder = TransformerEncoder(model, max_tokens=32, batch_tokens=32)
        encoder.__dict__[name] = Broken()
        with pytest.raises(error, match="the reason"):
            encoder.encode(texts)
        assert not threads()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_vectors_of_a_gpu_are_those_of_the_cpu(model, repository_texts):
    texts = repository_texts * 4
    cpu, cuda = (
        TransformerEncoder(model, device=device).encode(texts) for device in ("cpu", "cuda")
    )
    assert cuda.is_cuda
    torch.testing.assert_close(cuda.cpu(), cpu, atol=1e-4, rtol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_for_a_gpu_are_pinned_and_copied_without_waiting(monkeypatch):
    copies = []
    copy = torch.Tensor.to

    def record(part, *args, **settings):
        copies.append((part.is_pinned(), settings.get("non_blocking")))
        return copy(part, *args, **settings)

    monkeypatch.setattr(torch.Tensor, "to", record)
    with batches_on(torch.device("cuda"), Words(), ["1 2", "3 4 5"], 8, 16) as iterator:
        (batch,) = iterator
    assert copies == [(True, True)] * 3
    assert batch.tokens.cpu()[:, :3].tolist() == [[3, 4, 5], [1, 2, PAD]]


@pytest.mark.parametrize(
    ("length", "limit", "width"),
    [
        (1, 512, 8),
        (8, 512, 8),
        (57, 512, 64),
        (65, 512, 80),
        (128, 512, 128),
        (129, 512, 160),
        (500, 510, 510),
    ],
)
def test_widths_are_multiples_that_grow_with_the_length_within_what_a_model_reads(
    length, limit, width
):
    assert batch_width(length, limit) == width
