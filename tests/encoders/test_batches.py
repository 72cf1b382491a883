"""Batches of token ids: every text once, shapes by its own length, made ahead; no thread is left, whatever happens."""

import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertConfig, BertModel

from dana.core.errors import DataError
from dana.core.workers import prefetch
from dana.encoders import transformer as batches
from dana.encoders.transformer import (
    TransformerEncoder,
    batch_rows,
    batch_width,
    batches_on,
    padded_batch,
    token_batches,
)

META = torch.device("meta")  # not a CPU, and everywhere: a thread makes its batches; it computes nothing


class Words:
    """A tokenizer whose ids are numbers: the text "7 8 9" is [7, 8, 9]."""

    pad_token_id = 0

    def __call__(self, texts, truncation, max_length, **ignored):
        return {"input_ids": [[int(word) for word in text.split()][:max_length] for text in texts]}


def text_of(row, length):
    return " ".join([str(row + 1)] * length)


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def test_a_batch_by_hand():
    tokens, mask = padded_batch([[5, 6, 7], [8]], 4, 9)
    assert tokens.tolist() == [[5, 6, 7, 9], [8, 9, 9, 9]]
    assert mask.tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]
    assert tokens.dtype == mask.dtype == torch.int64
    (made,) = token_batches(Words(), ["1 2", "3", "4 5 6"], 8, 40)
    assert made.rows.tolist() == [2, 0, 1], "the longest text first"
    assert made.tokens[:, :3].tolist() == [[4, 5, 6], [1, 2, 0], [3, 0, 0], [4, 5, 6], [4, 5, 6]]
    assert made.mask.sum(1).tolist() == [3, 2, 1, 3, 3]


@given(st.lists(st.integers(1, 330), max_size=200), st.integers(300, 5000), st.sampled_from([1, 7, 256]))
def test_every_text_is_in_one_batch_whose_shape_follows_from_it_alone(lengths, most, at_once):
    texts = [text_of(row, length) for row, length in enumerate(lengths)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "TEXTS_AT_ONCE", at_once)
        made = list(token_batches(Words(), texts, 300, most))
    assert sorted(row for batch in made for row in batch.rows.tolist()) == list(range(len(texts)))
    for batch in made:
        size, width = batch.tokens.shape
        assert len(batch.rows) <= size == batch_rows(width, most)
        assert size * width <= most
        for place, row in enumerate(batch.rows.tolist()):
            length = min(lengths[row], 300)
            assert batch.tokens[place].tolist() == [row + 1] * length + [0] * (width - length)
            assert batch.mask[place].tolist() == [1] * length + [0] * (width - length)
            (alone,) = token_batches(Words(), [texts[row]], 300, most)
            assert alone.tokens.shape == batch.tokens.shape
            assert torch.equal(alone.tokens[0], batch.tokens[place])


def test_those_that_are_not_full_come_last_the_widest_first():
    texts = [text_of(row, length) for row, length in enumerate([9, 20, 9, 3, 1, 9])]
    made = list(token_batches(Words(), texts, 300, 48))
    assert [batch.rows.tolist() for batch in made] == [[0, 2, 5], [1], [3, 4]]
    assert [batch.rows.tolist() for batch in token_batches(Words(), texts[1:5], 300, 48)] == [[0], [1], [2, 3]]


def test_who_leaves_early_and_keeps_the_iterator_leaves_no_thread():
    with batches_on(META, Words(), [text_of(row, 300) for row in range(50)], 300, 300) as made:
        next(made)
        assert threads()
    assert not threads()
    assert not list(made)


def test_a_text_without_tokens_is_refused_by_its_place():
    with pytest.raises(DataError, match="text 2 of the batch has no token: ' '"):
        list(token_batches(Words(), ["1 2", "1", " "], 8, 40))


def test_a_few_batches_are_made_while_one_is_computed_and_no_more(monkeypatch):
    monkeypatch.setattr(batches, "TEXTS_AT_ONCE", 1)
    asked = []

    class Watched(Words):
        def __call__(self, texts, **settings):
            asked.extend(texts)
            return super().__call__(texts, **settings)

    texts = [text_of(row, 300) for row in range(50)]
    with batches_on(META, Watched(), texts, 300, 300) as made:
        for computed, _ in enumerate(made, start=1):
            ahead = min(computed + batches.AHEAD, len(texts))
            until = time.monotonic() + 10
            while len(asked) < ahead and time.monotonic() < until:
                time.sleep(0.001)
            assert len(asked) == ahead
        assert computed == 50
    assert not threads()


@pytest.fixture(scope="module")
def model(tiny_tokenizer, tmp_path_factory):
    """A small model folder with random weights."""
    folder = str(tmp_path_factory.mktemp("models") / "small")
    torch.manual_seed(0)
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    BertModel(BertConfig(vocab_size=len(tiny_tokenizer), **shape)).save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """A CPU's batches are made by a thread, too."""
    monkeypatch.setattr(batches, "token_batches", lambda *given: prefetch(token_batches(*given), batches.AHEAD))


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("batch_tokens", [64, 100, 512])
def test_vectors_are_those_of_each_text_by_itself_to_the_last_bit(model, repository_texts, monkeypatch, batch_tokens):
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
        def __call__(self, *given, **settings):
            raise error("said")

    texts = [f"{row}" for row in range(600)]
    for name in ("tokenizer", "_pool"):
        encoder = TransformerEncoder(model, max_tokens=32, batch_tokens=32)
        encoder.__dict__[name] = Broken()
        with pytest.raises(error, match="said"):
            encoder.encode(texts)
        assert not threads()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_vectors_of_a_gpu_are_those_of_the_cpu(model, repository_texts):
    texts = repository_texts * 4
    here = TransformerEncoder(model, device="cpu").encode(texts)
    there = TransformerEncoder(model, device="cuda").encode(texts)
    assert there.is_cuda
    torch.testing.assert_close(there.cpu(), here, atol=1e-4, rtol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_for_a_gpu_are_pinned_and_copied_without_waiting(monkeypatch):
    pinned, ways = [], []
    pin, to = torch.Tensor.pin_memory, torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda part: pinned.append(part) or pin(part))

    def watched(part, *args, **settings):
        ways.append((part.is_pinned(), settings.get("non_blocking")))
        return to(part, *args, **settings)

    monkeypatch.setattr(torch.Tensor, "to", watched)
    with batches_on(torch.device("cuda"), Words(), ["1 2", "3 4 5"], 8, 16) as made:
        (batch,) = made
    assert len(pinned) == 3
    assert ways == [(True, True)] * 3
    assert batch.tokens.cpu()[:, :3].tolist() == [[3, 4, 5], [1, 2, 0]]


@pytest.mark.parametrize(
    ("length", "most", "width"),
    [(1, 512, 8), (8, 512, 8), (57, 512, 64), (65, 512, 80), (128, 512, 128), (129, 512, 160), (500, 510, 510)],
)
def test_widths_are_multiples_that_grow_with_the_length_within_what_a_model_reads(length, most, width):
    assert batch_width(length, most) == width
