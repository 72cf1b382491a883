"""Sequence-to-sequence generator: a pretrained encoder-decoder, tuned to write texts of one label from keywords."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.config import require
from dana.core.device import device_named
from dana.core.errors import ArtifactError
from dana.core.rng import derive_seed, generator
from dana.core.torch_seed import seeded
from dana.models.folder import check_checkpoint, load_own_tokenizer, loading, located, model_identity
from dana.studies.augmentation.base import Pair
from dana.studies.augmentation.keywords import Keywords
from dana.studies.augmentation.row_sampling import RowSampling

IGNORED = -100  # a target that has no loss


@dataclass(frozen=True)
class Sequence2Sequence:
    """Tunes a sequence-to-sequence checkpoint, T5 say, by Adafactor with a constant learning rate, and samples from it.

    Attributes:
        model: A folder or a Hub name.
        epochs: Passes over the pairs.
        learning_rate: Of Adafactor, constant.
        batch: Pairs in a step.
        tokens: Most tokens of an input and of a text; what is longer is cut.
        top_k: Sample among so many of the most probable tokens; 1 always takes the most probable one.
        top_p: And among the fewest of these that hold this share of the probability.
        prefix: Goes before the keywords.

    References:
        Roussinov and Sharoff 2023, section 3.2.2: one generator a genre, 16 epochs, learning rate 1e-3, one beam, top-k
        50, top-p 0.95. The optimizer is what its library, Simple Transformers, takes for T5, with that library's
        clipping of gradients at norm 1.
    """

    model: str = "t5-small"
    epochs: int = 16
    learning_rate: float = 1e-3
    batch: int = 4
    tokens: int = 512
    top_k: int = 50
    top_p: float = 0.95
    prefix: str = "generate:"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require(bool(self.model.strip()), "model", self.model, "a folder or a Hub name")
        for name in ("epochs", "batch", "tokens", "top_k"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(self.learning_rate > 0, "learning_rate", self.learning_rate, "above 0")
        require(0 < self.top_p <= 1, "top_p", self.top_p, "in (0, 1]")

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.studies.augmentation.base.Generator`; the checkpoint counts by its content.

        Raises:
            ArtifactError: If there is no such checkpoint, or it is no sequence-to-sequence model.
        """
        check_seq2seq(self.model)
        return {**asdict(self), "model": model_identity(self.model)}

    def fit(self, pairs: Sequence[Pair], seed: int) -> "FittedSequence2Sequence":
        """See :class:`dana.studies.augmentation.base.Generator`; bits depend on device and number of threads."""
        model, tokenizer = load_seq2seq(self.model)
        device = device_named()
        model.to(device)
        inputs = self.encode([keywords for keywords, _ in pairs], tokenizer)
        targets = tokenizer([text for _, text in pairs], truncation=True, max_length=self.tokens)["input_ids"]
        with seeded(derive_seed(seed, "seq2seq", "dropout"), device):
            self._train(model, inputs, targets, tokenizer.pad_token_id, seed)
        return FittedSequence2Sequence(self, model, tokenizer)

    def encode(self, keywords: Sequence[Keywords], tokenizer: Any) -> list[list[int]]:
        """The tokens of each input: the prefix and the keywords."""
        texts = [" ".join([self.prefix, *words]) for words in keywords]
        return tokenizer(texts, truncation=True, max_length=self.tokens)["input_ids"]

    def _train(self, model: Any, inputs: list[list[int]], targets: list[list[int]], pad: int, seed: int) -> None:
        from transformers.optimization import Adafactor

        fixed = {"scale_parameter": False, "relative_step": False, "warmup_init": False}
        optimizer = Adafactor(model.parameters(), lr=self.learning_rate, **fixed)
        model.train()
        for epoch in range(self.epochs):
            order = generator(seed, "seq2seq", "order", epoch).permutation(len(inputs))
            for rows in _batches(order, self.batch):
                ids, mask = pad_rows([inputs[row] for row in rows], pad, model.device)
                labels, _ = pad_rows([targets[row] for row in rows], IGNORED, model.device)
                model(input_ids=ids, attention_mask=mask, labels=labels).loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        model.eval()


@dataclass(frozen=True)
class FittedSequence2Sequence:
    """A tuned model.

    Attributes:
        settings: How it samples.
        model: The transformers model, on its device.
        tokenizer: Its tokenizer.
    """

    settings: Sequence2Sequence
    model: Any
    tokenizer: Any
    rows: int = 16

    def generate(self, keywords: Sequence[Keywords], seeds: Sequence[int]) -> list[str]:
        """See :class:`dana.studies.augmentation.base.FittedGenerator`; texts are independent but for rounding."""
        texts = []
        for rows in _batches(np.arange(len(keywords)), self.rows):
            texts += self._sample([keywords[row] for row in rows], [seeds[row] for row in rows])
        return texts

    @torch.no_grad()
    def _sample(self, keywords: Sequence[Keywords], seeds: Sequence[int]) -> list[str]:
        from transformers import LogitsProcessorList

        inputs = self.settings.encode(keywords, self.tokenizer)
        ids, mask = pad_rows(inputs, self.tokenizer.pad_token_id, self.model.device)
        sampling = LogitsProcessorList([RowSampling(self.settings.top_k, self.settings.top_p, seeds)])
        limit = self.settings.tokens
        made = self.model.generate(input_ids=ids, attention_mask=mask, logits_processor=sampling, max_new_tokens=limit)
        return self.tokenizer.batch_decode(made, skip_special_tokens=True)


def check_seq2seq(model: str) -> None:
    """Refuse what is no sequence-to-sequence checkpoint, from its configuration alone.

    Raises:
        ArtifactError: Saying what it is.
    """
    from transformers import AutoConfig

    check_checkpoint(model)
    with loading(model):
        config = AutoConfig.from_pretrained(located(model))
    if not config.is_encoder_decoder:
        raise ArtifactError(f"{model}: is a {config.model_type}, not a sequence-to-sequence model such as T5 or BART")


def load_seq2seq(model: str) -> tuple[Any, Any]:
    """A sequence-to-sequence model in float32 that decodes greedily, and its tokenizer.

    Raises:
        ArtifactError: If it cannot be loaded.
    """
    from transformers import AutoModelForSeq2SeqLM, GenerationConfig

    check_seq2seq(model)
    with loading(model):
        loaded = AutoModelForSeq2SeqLM.from_pretrained(located(model), use_safetensors=True, dtype=torch.float32)
    own = loaded.generation_config
    # A checkpoint's own may ask for beams, penalties or lengths, also where generate() is told nothing of them.
    loaded.generation_config = GenerationConfig(
        decoder_start_token_id=own.decoder_start_token_id, eos_token_id=own.eos_token_id, pad_token_id=own.pad_token_id
    )
    return loaded, load_own_tokenizer(model)


def pad_rows(rows: Sequence[list[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows of tokens as one tensor, int64 of shape (rows, longest), and which tokens are real, 1 or 0."""
    longest = max(map(len, rows))
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows], device=device)
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=device)
    return ids, mask


def _batches(rows: np.ndarray, size: int) -> Iterator[list[int]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size].tolist()
