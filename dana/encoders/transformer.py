"""Encode texts as pooled hidden states of any Hugging Face encoder.

The batches are of similar length and fixed shapes. Padding a random batch to its longest text
wastes two thirds of the work on sentences (``docs/results``). Here the width of a text's row and
the number of rows of its batch depend on the text's length alone. So the other texts of a call
cannot change a single bit of a vector, and texts can be tokenised a few at a time: while the device
computes a batch, a thread prepares the next ones in pinned memory, from which they are copied
asynchronously.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.config import require
from dana.core.device import find_device, full_float32, has_bf16
from dana.core.errors import ConfigError, DataError
from dana.core.logging import tick
from dana.core.workers import prefetch
from dana.models.folder import load_own_tokenizer, model_identity, running
from dana.models.heads import positions_of
from dana.models.minilm import minilm_folder
from dana.models.pooling import Pooling, read_pooling

AUTO = "auto"
POOLINGS = ("mean", "cls", "max", AUTO)
DTYPES = (AUTO, "float32", "bfloat16")
WINDOWS = (None, "mean")
MOST_SPECIAL = 8  # special tokens around a text, of any model


@dataclass(frozen=True)
class TransformerEncoder:
    """Pool one hidden layer of any ``AutoModel`` over a text's real tokens.

    Or take the state of its classification token. Texts are padded on the right, whatever the
    tokenizer's default: no real token attends to padding, and positions start at the first real
    token.

    Attributes:
        model: A Hub name or a folder with safetensors weights.
        pooling: ``mean`` over every token but padding, or ``cls``, the classification token: the
            first of BERT, the last of XLNet; tokenizers without one, such as GPT-2's, are refused;
            or ``max`` over every token but padding. ``auto`` does what the model's modules.json
            says, a normalisation included; without that file it is ``mean``.
        layer: Hidden layer, 0 for the embeddings; -1 is the last.
        max_tokens: Length to which texts are truncated, special tokens included; at most the
            model's positions.
        batch_tokens: Most tokens of a forward pass, padding included; on a CPU at most 512.
        device: ``auto`` uses CUDA if available.
        dtype: ``float32``, or ``bfloat16`` by autocast: several times as fast on GPUs and on CPUs
            that support it; vectors then differ by about 1e-2 of their norm. ``auto`` is
            ``bfloat16`` on a GPU that has it, which the identity names, else ``float32``.
        windows: ``mean`` reads a longer text in windows of ``max_tokens``; its vector is the mean
            of theirs, each weighted by its tokens. None truncates it.

    References:
        DANA section 3.1 embeds with a general pre-trained BERT and does not say how it pools.
    """

    model: str
    pooling: str = "mean"
    layer: int = -1
    max_tokens: int = 256
    batch_tokens: int = 8192
    device: str = "auto"
    dtype: str = AUTO
    windows: str | None = None
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require(self.pooling in POOLINGS, "pooling", self.pooling, f"one of {', '.join(POOLINGS)}")
        require(self.dtype in DTYPES, "dtype", self.dtype, f"one of {', '.join(DTYPES)}")
        require(self.windows in WINDOWS, "windows", self.windows, "null or mean")
        require(self.max_tokens >= 3, "max_tokens", self.max_tokens, "at least 3")
        is_enough = self.batch_tokens >= self.max_tokens
        require(is_enough, "batch_tokens", self.batch_tokens, "at least max_tokens")

    @classmethod
    def of_checkpoint(
        cls, model: str, max_tokens: int, windows: str | None = None
    ) -> "TransformerEncoder":
        """Return the encoder of a checkpoint as it is measured.

        It pools as its files say, in float32: no number depends on the device.
        """
        return cls(model, AUTO, max_tokens=max_tokens, dtype="float32", windows=windows)

    @cached_property
    def tokenizer(self) -> Any:
        """The model's fast tokenizer."""
        return load_own_tokenizer(self.model)

    @cached_property
    def is_bf16(self) -> bool:
        """Whether the model computes in bfloat16."""
        if self.dtype != AUTO:
            return self.dtype == "bfloat16"
        device = find_device(self.device)
        return device.type == "cuda" and has_bf16(device)

    @cached_property
    def _network(self) -> Any:
        from dana.models.folder import load_backbone

        return load_backbone(self.model).to(find_device(self.device)).eval()

    @cached_property
    def _cls_position(self) -> int:
        """Position of the classification token in a text: 0, or -1 for the last."""
        token = self.tokenizer.cls_token_id
        empty_text = self.tokenizer("")["input_ids"]
        if token is None or token not in (empty_text[:1] + empty_text[-1:]):
            raise ConfigError(
                f"pooling='cls': {self.model} has no classification token; use pooling='mean'"
            )
        return 0 if empty_text[0] == token else -1

    @cached_property
    def _pools_by(self) -> Pooling:
        """What is done to the states of a text: what the model's files say, or the setting."""
        if self.pooling == AUTO:
            return read_pooling(self.model)
        return Pooling(self.pooling)

    @property
    def longest(self) -> int:
        """The most tokens of a text, or of a window, that the model reads."""
        return min(self.max_tokens, positions_of(self._network.config))

    def count_cut(self, texts: Sequence[str]) -> int:
        """Count the texts that fill the tokens that are read; none where windows read the rest."""
        if self.windows is not None:
            return 0
        longest = self.longest
        # A token of ASCII has a character or more, so that shorter texts of ASCII fit. Any other
        # character may be several tokens: bytes, or the letters of a syllable.
        long_texts = []
        for text in texts:
            if not text.isascii() or len(text) >= longest - MOST_SPECIAL:
                long_texts.append(text)
        if not long_texts:
            return 0
        ids = self.tokenizer(long_texts, truncation=True, max_length=longest, verbose=False)
        return sum(len(tokens) >= longest for tokens in ids["input_ids"])

    def identity(self) -> dict[str, Any]:
        parameters: dict[str, Any] = {
            "pooling": self._pools_by.mode,
            "layer": self.layer,
            "max_tokens": self.max_tokens,
        }
        if self.is_bf16:
            parameters["dtype"] = "bfloat16"
        if self._pools_by.normalize:
            parameters["normalize"] = True
        if self.windows is not None:
            parameters["windows"] = self.windows
        return {"encoder": "transformer", "weights": model_identity(self.model), **parameters}

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode texts as :meth:`dana.encoders.base.Encoder.encode`.

        Raises:
            ConfigError: If the model lacks the layer, or its tokenizer the classification token.
            DataError: If a text has no token.
        """
        network = self._network
        layers = network.config.num_hidden_layers
        bounds = f"from {-layers - 1} to {layers}: the embeddings (0) and {layers} layers"
        require(-layers - 1 <= self.layer <= layers, "layer", self.layer, bounds)
        pooling = self._pools_by  # damaged files are refused before any work
        if not texts:
            return self.encode(["a"])[:0]  # the width is not always config.hidden_size
        position = None  # of the token to take; None pools over all
        if pooling.mode == "cls":
            position = self._cls_position  # before a thread uses the tokenizer
        if self.windows is None:
            vectors = self._encode_texts(network, texts, position)
        else:
            vectors = self._encode_windows(network, texts, position)
        if pooling.normalize:
            vectors = torch.nn.functional.normalize(vectors, dim=1)
        return vectors

    def _encode_texts(self, network: Any, texts: Sequence[str], position: int | None) -> Tensor:
        """Encode texts, cut to the longest that the model reads."""
        device = next(network.parameters()).device
        vectors = torch.empty(0, 0)
        stream = batches_on(device, self.tokenizer, texts, self.longest, self.batch_tokens)
        with torch.no_grad(), stream as batches:
            for batch in batches:
                pooled = self._pool(network, batch, position)[: len(batch.rows)]
                if not vectors.numel():
                    # The width is not always config.hidden_size: some OPT models project their states.
                    vectors = pooled.new_empty(len(texts), pooled.shape[1])
                vectors[batch.rows] = pooled
                tick(len(batch.rows))
        return vectors

    def _encode_windows(self, network: Any, texts: Sequence[str], position: int | None) -> Tensor:
        """Encode texts in windows, of whose vectors a text has the mean, weighted by tokens."""
        device = next(network.parameters()).device
        # Sums in double precision: their order, which depends on other texts, changes no bit.
        sums = torch.zeros(0, 0, dtype=torch.float64)
        totals = torch.zeros(len(texts), dtype=torch.float64)
        stream = batches_on(
            device, self.tokenizer, texts, self.longest, self.batch_tokens, windows=True
        )
        with torch.no_grad(), stream as batches:
            for batch in batches:
                rows = batch.rows.cpu()
                vectors = self._pool(network, batch, position)[: len(rows)].cpu().double()
                weights = batch.mask[: len(rows)].sum(1).cpu().double()
                if not sums.numel():
                    sums = vectors.new_zeros(len(texts), vectors.shape[1])
                sums.index_add_(0, rows, vectors * weights[:, None])
                totals.index_add_(0, rows, weights)
                tick(len(rows))
        return (sums / totals[:, None]).to(device, torch.get_default_dtype())

    def _pool(self, network: Any, batch: "TokenBatch", position: int | None) -> Tensor:
        """Pool the hidden states of a batch: one token, or the mean or maximum over a text.

        Returns:
            Shape (size, dims).
        """
        needs_layers = self.layer != -1
        with (
            torch.autocast(batch.tokens.device.type, torch.bfloat16, enabled=self.is_bf16),
            full_float32(),
            running(network, "set dtype=float32 of the encoder"),
        ):
            output = network(
                input_ids=batch.tokens, attention_mask=batch.mask, output_hidden_states=needs_layers
            )
        layer = output.last_hidden_state
        if needs_layers:
            hidden_states = getattr(output, "hidden_states", None)
            if hidden_states is None:  # of an encoder with a decoder, which has layers of both
                raise ConfigError(
                    f"layer={self.layer}: {self.model} gives its last layer alone; use layer=-1"
                )
            layer = hidden_states[self.layer]
        states: Tensor = layer.float()  # sums in bfloat16 would lose precision
        if position is not None:
            columns = 0 if position == 0 else batch.mask.sum(1) - 1  # the first token, or the last
            return states[torch.arange(len(states), device=states.device), columns]
        if self._pools_by.mode == "max":
            is_padding = batch.mask.unsqueeze(-1) == 0
            return states.masked_fill(is_padding, -torch.inf).amax(1)
        mask = batch.mask.unsqueeze(-1).to(states.dtype)
        return (states * mask).sum(1) / mask.sum(1)


def minilm(
    pooling: str = "mean", layer: int = -1, max_tokens: int = 256, dtype: str = AUTO
) -> TransformerEncoder:
    """Create the packaged sentence encoder MiniLM: 6 layers x 384, 22.7 M parameters.

    Its weights are under Apache-2.0.

    Args:
        pooling: ``mean`` or ``cls``.
        layer: Hidden layer; -1 is the last.
        max_tokens: Length to which texts are truncated.
        dtype: ``float32``, ``bfloat16`` or ``auto``.

    Raises:
        PluginError: If the package is not installed.
        ArtifactError: If its weights are not the published ones.
    """
    return TransformerEncoder(str(minilm_folder()), pooling, layer, max_tokens, dtype=dtype)


# Of a batch on a CPU: more is no faster there, and small batches need less padding.
CPU_TOKENS = 512
TEXTS_AT_ONCE = 1024  # tokenised in one call: few, so that the device starts early
AHEAD = 2  # batches prepared ahead of the device


@dataclass(frozen=True)
class TokenBatch:
    """A padded batch, filled up to its fixed number of rows with copies of its first text.

    Attributes:
        rows: Positions of the texts, int64 of shape (texts,).
        tokens: Token ids, int64 of shape (size, width); the first `texts` rows are the texts.
        mask: 1 on real tokens, int64 of the same shape.
    """

    rows: Tensor
    tokens: Tensor
    mask: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> "TokenBatch":
        """Apply a function to every tensor."""
        return TokenBatch(change(self.rows), change(self.tokens), change(self.mask))


@contextmanager
def batches_on(
    device: torch.device,
    tokenizer: Any,
    texts: Sequence[str],
    longest: int,
    limit: int,
    windows: bool = False,
) -> Iterator[Iterator[TokenBatch]]:
    """Stream batches of texts on a device, until the context ends.

    A thread prepares them while a GPU computes. On a CPU there is no thread, which would take cores
    from the model.

    Args:
        device: Device of the batches.
        tokenizer: Must not be used inside the context.
        texts: Texts in any order.
        longest: Length in tokens to which texts are truncated.
        limit: See :func:`token_batches`; on a CPU at most 512.
        windows: See :func:`token_batches`.

    Raises:
        DataError: From the iterator, if a text has no token.
    """
    if device.type == "cpu":
        limit = min(limit, CPU_TOKENS)
    batches = token_batches(tokenizer, texts, longest, limit, windows)
    if device.type == "cuda":
        batches = (batch.map(Tensor.pin_memory) for batch in batches)
    if device.type != "cpu":
        batches = prefetch(batches, AHEAD)
    with closing(batches):
        yield (batch.map(lambda part: part.to(device, non_blocking=True)) for batch in batches)


def overflowing(
    texts: Sequence[str], tokenizer: Any, longest: int
) -> Iterator[tuple[int, list[int]]]:
    """Cut texts into windows, and yield the text's number and the token ids of each.

    Special tokens are included.

    Raises:
        ConfigError: If the tokenizer is a slow one, which gives no windows.
    """
    name = type(tokenizer).__name__
    if not tokenizer.is_fast:
        raise ConfigError(f"windows: {name} is a slow tokenizer; save a fast one, or windows=null")
    only_ids = {"return_attention_mask": False, "return_token_type_ids": False}
    encoding = tokenizer(
        list(texts),
        truncation=True,
        max_length=longest,
        return_overflowing_tokens=True,
        verbose=False,
        **only_ids,
    )
    yield from zip(encoding["overflow_to_sample_mapping"], encoding["input_ids"], strict=True)


def token_ids(tokenizer: Any, texts: Sequence[str], longest: int) -> list[list[int]]:
    """Return the token ids of texts, special tokens included, cut to `longest` tokens.

    The core of a fast tokenizer is asked directly: transformers would also make offsets and masks.
    """
    if not getattr(tokenizer, "is_fast", False):
        only_ids = {"return_attention_mask": False, "return_token_type_ids": False}
        encoding = tokenizer(
            list(texts), truncation=True, max_length=longest, verbose=False, **only_ids
        )
        ids: list[list[int]] = encoding["input_ids"]
        return ids
    core = tokenizer.backend_tokenizer
    core.no_padding()
    core.enable_truncation(longest, direction=tokenizer.truncation_side)
    core.encode_special_tokens = tokenizer.split_special_tokens
    return [encoding.ids for encoding in core.encode_batch_fast(list(texts))]


def token_batches(
    tokenizer: Any, texts: Sequence[str], longest: int, limit: int, windows: bool = False
) -> Generator[TokenBatch, None, None]:
    """Batch texts of equal padded width.

    Texts are processed from long to short, by characters, so that memory peaks early and the
    remaining time is not underestimated. A batch is returned once it is full; incomplete ones come
    last, filled up.

    Args:
        tokenizer: A tokenizer of transformers.
        texts: Texts in any order.
        longest: Length in tokens to which texts are truncated.
        limit: Most tokens of a batch, padding included, unless one row has more.
        windows: Cut texts into windows instead of cutting them off: a text then has several rows.

    Raises:
        DataError: If a text has no token.
    """
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    pad = tokenizer.pad_token_id or 0
    buckets: dict[int, list[tuple[int, list[int]]]] = {}
    for first in range(0, len(order), TEXTS_AT_ONCE):
        rows = order[first : first + TEXTS_AT_ONCE]
        chunk = [texts[row] for row in rows]
        if windows:
            pairs = [(rows[text], ids) for text, ids in overflowing(chunk, tokenizer, longest)]
        else:
            pairs = list(zip(rows, token_ids(tokenizer, chunk, longest), strict=True))
        for row, ids in pairs:
            if not ids:
                raise DataError(f"text {row} of the batch has no token: {texts[row]!r}; remove it")
            width = batch_width(len(ids), longest)
            bucket = buckets.setdefault(width, [])
            bucket.append((row, ids))
            if len(bucket) == batch_rows(width, limit):
                yield _make_batch(buckets.pop(width), width, limit, pad)
    for width in sorted(buckets, reverse=True):
        yield _make_batch(buckets[width], width, limit, pad)


def _make_batch(
    bucket: list[tuple[int, list[int]]], width: int, limit: int, pad: int
) -> TokenBatch:
    """Make a batch of texts, with copies of the first one up to its fixed number of rows."""
    rows = torch.tensor([row for row, _ in bucket])
    ids = [tokens for _, tokens in bucket]
    fillers = [ids[0]] * (batch_rows(width, limit) - len(ids))
    tokens, mask = padded_batch([*ids, *fillers], width, pad)
    return TokenBatch(rows, tokens, mask)


def padded_batch(ids: Sequence[Sequence[int]], width: int, pad: int) -> tuple[Tensor, Tensor]:
    """Pad token ids to a width.

    Args:
        ids: Token ids of each text, at most `width`.
        width: Tokens of a row.
        pad: Token id to pad with.

    Returns:
        The ids and the attention mask, both int64 of shape (texts, width).
    """
    lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
    mask = np.arange(width) < lengths[:, None]
    tokens = np.full(mask.shape, pad, dtype=np.int64)
    tokens[mask] = np.fromiter(chain.from_iterable(ids), dtype=np.int64, count=int(lengths.sum()))
    return torch.from_numpy(tokens), torch.from_numpy(mask.astype(np.int64))


def batch_rows(width: int, limit: int) -> int:
    """Compute the rows of a batch of some width and at most `limit` tokens: one or more."""
    return max(1, limit // width)


def batch_width(length: int, max_tokens: int) -> int:
    """Round a length up to the width of its row, which is at most `max_tokens`.

    It is a multiple of 8 up to 64, of 16 up to 128, then of 32.
    """
    if length <= 64:
        step = 8
    elif length <= 128:
        step = 16
    else:
        step = 32
    return min(-(-length // step) * step, max(length, max_tokens))
