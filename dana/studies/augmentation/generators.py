"""Write texts of a label from keywords.

The generators are a transplant of keywords into real texts, a tuned sequence-to-sequence model, and
a chat model.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Annotated, Any, ClassVar, Protocol

import torch
from pydantic import Field
from torch import Tensor

from dana.core.config import require
from dana.core.device import find_device
from dana.core.errors import ArtifactError
from dana.core.registry import Registry
from dana.core.rng import derive_seed, generator, torch_seed
from dana.core.settings import Count, Positive, Share, settings_model
from dana.models.folder import load_complete, load_config, load_own_tokenizer, model_identity, uncut
from dana.models.generation import ChatDecoder, RowSampling
from dana.studies.topics.model import WORD
from dana.train.supervised import train_supervised

GENERATORS = Registry("dana.generators")

Keywords = tuple[str, ...]  # in order, with repeats; may be empty
Pair = tuple[Keywords, str]
IGNORED = -100  # target without loss


class FittedGenerator(Protocol):
    """Writes texts of the label that it was fitted to."""

    def generate(self, keywords: Sequence[Keywords], seeds: Sequence[int]) -> list[str]:
        """Write a text for each sequence of keywords, independent of the others.

        Args:
            keywords: Keywords of each text; may be empty.
            seeds: Seed of each text.
        """
        ...


class Generator(Protocol):
    """A generator: a frozen dataclass of settings, and an entry point of ``dana.generators``."""

    def identity(self) -> dict[str, Any]:
        """Return plain values for a fingerprint.

        They are all that decides a text but pairs, keywords and seeds.

        Raises:
            DanaError: If a requirement, such as a checkpoint, is missing or of the wrong kind.
        """
        ...

    def fit(self, pairs: Sequence[Pair], seed: int) -> FittedGenerator:
        """Fit the generator to the texts of one label.

        Args:
            pairs: Keywords and text of each text of the label, at least one, see
                :func:`dana.studies.augmentation.synthetic.extract_keywords`.
            seed: Seed of the fit.
        """
        ...


@dataclass(frozen=True)
class KeywordTransplant:
    """Write a text by replacing the keywords of a real text; needs no checkpoint.

    Function words, punctuation and layout stay, and with them the style of the genre.
    """

    version: ClassVar[int] = 1

    def identity(self) -> dict[str, Any]:
        return {"generator": "keyword transplant"}

    def fit(self, pairs: Sequence[Pair], seed: int) -> "FittedTransplant":
        """Store the pairs; the seed has no effect."""
        return FittedTransplant(tuple((tuple(keywords), text) for keywords, text in pairs))


@dataclass(frozen=True)
class FittedTransplant:
    """Texts whose keywords are replaced.

    Attributes:
        pairs: Keywords and text of each text.
    """

    pairs: tuple[Pair, ...]

    def generate(self, keywords: Sequence[Keywords], seeds: Sequence[int]) -> list[str]:
        """Draw a text by each seed and replace its keywords, if there are new ones.

        Texts without keywords are drawn only if there are no new keywords, or no other texts.
        """
        with_keywords = [pair for pair in self.pairs if pair[0]] or list(self.pairs)
        texts = []
        for new, seed in zip(keywords, seeds, strict=True):
            candidates = with_keywords if new else self.pairs
            old, text = candidates[int(generator(seed, "transplant").integers(len(candidates)))]
            texts.append(transplant(text, old, new))
        return texts


def transplant(text: str, keywords: Keywords, new: Keywords) -> str:
    """Replace the keywords of a text by new ones, all occurrences of a word by the same new word.

    The n-th distinct keyword becomes the n-th distinct new one, cyclically. Capitals are kept.

    Args:
        text: Any text.
        keywords: Keywords of the text in lower case; repeats count once.
        new: New keywords; if empty, nothing is replaced.
    """
    words = list(dict.fromkeys(new))
    if not words:
        return text
    distinct_keywords = dict.fromkeys(keywords)
    instead = dict(zip(distinct_keywords, cycle(words), strict=False))

    def new_word_of(match: re.Match[str]) -> str:
        word = match[0]
        new_word = instead.get(word.lower())
        if new_word is None:
            return word
        if word.isupper():
            return new_word.upper()
        if word[0].isupper():
            return new_word.capitalize()
        return new_word

    return re.sub(WORD, new_word_of, text)


@settings_model
class Sequence2Sequence:
    """Fine-tune a sequence-to-sequence checkpoint such as T5 by Adafactor, and sample from it.

    Attributes:
        model: Folder or Hub name.
        epochs: Passes over the pairs.
        learning_rate: Constant learning rate.
        batch: Pairs per step.
        tokens: Maximum tokens of an input and of a text; longer ones are truncated.
        top_k: Sample from so many of the most probable tokens; 1 for greedy decoding.
        top_p: Sample from the fewest of these that have this share of the probability.
        prefix: Text before the keywords.

    References:
        Roussinov and Sharoff 2023, section 3.2.2: one generator per genre, 16 epochs, learning rate
        1e-3, one beam, top-k 50, top-p 0.95. Optimizer and clipping of gradients at norm 1 are the
        defaults of its library, Simple Transformers, for T5.
    """

    model: Annotated[str, Field(min_length=1)] = "t5-small"
    epochs: Count = 16
    learning_rate: Positive = 1e-3
    batch: Count = 4
    tokens: Count = 512
    top_k: Count = 50
    top_p: Share = 0.95
    prefix: str = "generate:"
    version: ClassVar[int] = 1

    def identity(self) -> dict[str, Any]:
        """Return plain values for a fingerprint; the checkpoint enters by its content.

        Raises:
            ArtifactError: If there is no such checkpoint, or it is not a sequence-to-sequence
                model.
        """
        config = load_config(self.model)
        if not config.is_encoder_decoder:
            expected_kind = "must be a sequence-to-sequence model such as T5 or BART"
            raise ArtifactError(f"{self.model}: {expected_kind}, is {config.model_type}")
        return {**asdict(self), "model": model_identity(self.model)}

    def fit(self, pairs: Sequence[Pair], seed: int) -> "FittedSequence2Sequence":
        """Fine-tune the checkpoint; bits depend on the device and the number of threads."""
        from transformers.optimization import Adafactor

        model, tokenizer = load_seq2seq(self.model)
        device = find_device()
        model.to(device)
        model.train()

        def batches() -> Iterator[list[Pair]]:
            for epoch in range(self.epochs):
                order = generator(seed, "seq2seq", "order", epoch).permutation(len(pairs)).tolist()
                for start in range(0, len(order), self.batch):
                    yield [pairs[row] for row in order[start : start + self.batch]]

        def losses(batch: list[Pair]) -> Iterable[Tensor]:
            ids, mask = self.encode([keywords for keywords, _ in batch], tokenizer)
            targets, target_mask = self._tokens([text for _, text in batch], tokenizer)
            labels = targets.masked_fill(target_mask == 0, IGNORED)
            output = model(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                labels=labels.to(device),
            )
            yield output.loss

        optimizer = Adafactor(
            model.parameters(),
            lr=self.learning_rate,
            scale_parameter=False,
            relative_step=False,
            warmup_init=False,
        )
        with torch_seed(derive_seed(seed, "seq2seq", "dropout"), device):
            for _ in train_supervised(
                optimizer, batches(), losses, lambda step: self.learning_rate, self.model
            ):
                pass
        return FittedSequence2Sequence(self, model.eval(), tokenizer)

    def encode(self, keywords: Sequence[Keywords], tokenizer: Any) -> tuple[Tensor, Tensor]:
        """Tokenise prefix and keywords.

        Returns:
            Tokens and mask (1 for tokens, 0 for padding), int64 of shape (texts, longest).
        """
        return self._tokens([" ".join([self.prefix, *words]) for words in keywords], tokenizer)

    def _tokens(self, texts: list[str], tokenizer: Any) -> tuple[Tensor, Tensor]:
        """Tokenise texts: ids and mask, int64 of shape (texts, longest)."""
        rows = tokenizer(
            texts, truncation=True, max_length=self.tokens, padding=True, return_tensors="pt"
        )
        return rows["input_ids"], rows["attention_mask"]


@dataclass(frozen=True)
class FittedSequence2Sequence:
    """A fine-tuned sequence-to-sequence model.

    Attributes:
        settings: Settings of the sampling.
        model: The transformers model, on its device.
        tokenizer: Its tokenizer.
        rows: Texts per batch.
    """

    settings: Sequence2Sequence
    model: Any
    tokenizer: Any
    rows: int = 16

    @torch.no_grad()
    def generate(self, keywords: Sequence[Keywords], seeds: Sequence[int]) -> list[str]:
        """Sample texts; they are independent up to rounding."""
        from transformers import LogitsProcessorList

        settings = self.settings
        device = self.model.device
        texts = []
        for start in range(0, len(keywords), self.rows):
            end = start + self.rows
            ids, mask = settings.encode(keywords[start:end], self.tokenizer)
            sampling = RowSampling(settings.top_k, settings.top_p, seeds[start:end])
            sequences = self.model.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                logits_processor=LogitsProcessorList([sampling]),
                max_new_tokens=settings.tokens,
            )
            texts += self.tokenizer.batch_decode(sequences, skip_special_tokens=True)
        return texts


def load_seq2seq(model: str) -> tuple[Any, Any]:
    """Load a sequence-to-sequence model in float32, set to greedy decoding, and its tokenizer.

    Raises:
        ArtifactError: If it cannot be loaded.
    """
    from transformers import AutoModelForSeq2SeqLM, GenerationConfig

    network = load_complete(AutoModelForSeq2SeqLM, model)
    # Drops the checkpoint's beams, penalties and lengths, which generate() would apply.
    own = network.generation_config
    network.generation_config = GenerationConfig(
        decoder_start_token_id=own.decoder_start_token_id,
        eos_token_id=own.eos_token_id,
        pad_token_id=own.pad_token_id,
    )
    return network, load_own_tokenizer(model)


@dataclass(frozen=True)
class ChatGenerator:
    """Ask a decoder with a chat template for a text with the keywords.

    The conversation begins with texts of the label and their keywords. Nothing is tuned: in the
    conversation the decoder seems to have written texts of the label before.

    Attributes:
        model: Folder, Hub name, or ``smollm2``.
        shots: Texts of the label in the conversation, drawn by the seed of each new text.
        tokens: Maximum tokens of a text; those in the conversation are cut to it.
        temperature: Divides the logits before sampling.
        top_p: Sample from the fewest tokens that have this share of the probability.
        batch: Texts that are written together.
    """

    model: str = "smollm2"
    shots: int = 2
    tokens: int = 128
    temperature: float = 0.8
    top_p: float = 0.95
    batch: int = 16
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        for name in ("shots", "tokens", "batch"):
            value = getattr(self, name)
            require(value >= 1, name, value, "at least 1")
        require(self.temperature > 0, "temperature", self.temperature, "above 0")
        require(0 < self.top_p <= 1, "top_p", self.top_p, "in (0, 1]")

    def identity(self) -> dict[str, Any]:
        """Return plain values for a fingerprint; the decoder enters by its content."""
        return {**asdict(self), "model": model_identity(self.model)}

    def fit(self, pairs: Sequence[Pair], seed: int) -> "FittedChatGenerator":
        """Store the pairs; the seed has no effect."""
        return FittedChatGenerator(self, tuple(pairs), ChatDecoder(self.model))


@dataclass(frozen=True)
class FittedChatGenerator:
    """A chat model, and texts of the label.

    Attributes:
        settings: Settings of the conversation and the sampling.
        pairs: Keywords and text of each text.
        decoder: The chat model.
    """

    settings: ChatGenerator
    pairs: tuple[Pair, ...]
    decoder: ChatDecoder

    def generate(self, keywords: Sequence[Keywords], seeds: Sequence[int]) -> list[str]:
        """Sample texts; they are independent up to rounding."""
        settings = self.settings
        texts: list[str] = []
        for start in range(0, len(keywords), settings.batch):
            end = start + settings.batch
            batch_seeds = seeds[start:end]
            conversations = [
                self.conversation(text_keywords, seed)
                for text_keywords, seed in zip(keywords[start:end], batch_seeds, strict=True)
            ]
            sampling = RowSampling(0, settings.top_p, batch_seeds, settings.temperature)
            texts += self.decoder.answer(conversations, settings.tokens, sampling)
        return texts

    def conversation(self, keywords: Keywords, seed: int) -> list[dict[str, str]]:
        """Write the conversation whose next reply is a text with the keywords."""
        order = generator(seed, "chat generator").permutation(len(self.pairs))
        turns = []
        for row in order[: self.settings.shots]:
            shot_keywords, text = self.pairs[row]
            turns.append({"role": "user", "content": _request(shot_keywords)})
            turns.append({"role": "assistant", "content": self._cut(text)})
        turns.append({"role": "user", "content": _request(keywords)})
        return turns

    def _cut(self, text: str) -> str:
        """Cut a text to the tokens of a new one."""
        encoding = uncut(self.decoder.tokenizer).encode(text, add_special_tokens=False)
        spans = encoding.offsets[: self.settings.tokens]  # first and last character of each token
        if not spans:
            return text
        _, end = spans[-1]
        return text[:end]


def _request(keywords: Keywords) -> str:
    """Ask for a text with the keywords, or for any text if there are none."""
    words = ", ".join(dict.fromkeys(keywords))
    condition = f" with these words: {words}" if words else ""
    return f"Write a text of the same kind{condition}."
