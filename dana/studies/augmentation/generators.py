"""Generators: pairs of keywords and text of one label to a writer of texts of that label from keywords.

Two are built in: keyword transplant, and a pretrained encoder-decoder that is tuned.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from dana.core.config import require
from dana.core.device import device_named
from dana.core.errors import ArtifactError
from dana.core.registry import Registry
from dana.core.rng import derive_seed, generator, seeded
from dana.models.folder import (
    check_checkpoint,
    load_own_tokenizer,
    load_transformer,
    loading,
    located,
    model_identity,
)
from dana.studies.topics.model import WORD
from dana.train.supervised import train_supervised

GENERATORS = Registry("dana.generators")

Keywords = tuple[str, ...]  # in order, with repeats; empty where there are none
Pair = tuple[Keywords, str]
IGNORED = -100  # a target that has no loss


class FittedGenerator(Protocol):
    """Writes texts of the label that it was fitted to."""

    def generate(self, keywords: Sequence[Keywords], seeds: Sequence[int]) -> list[str]:
        """A text for each keyword sequence; it depends on no other one's keywords or seed.

        Args:
            keywords: What each text is to be about; an empty sequence leaves it to the generator.
            seeds: One a text: the same keywords and seed give the same text.
        """
        ...


class Generator(Protocol):
    """A generator: a frozen dataclass of settings, registered under the entry-point group ``dana.generators``."""

    def identity(self) -> dict[str, Any]:
        """Plain values for a fingerprint: all that decides a text besides pairs, keywords and seeds.

        Raises:
            DanaError: If something that it needs, such as a checkpoint, is not there or not of the right kind.
        """
        ...

    def fit(self, pairs: Sequence[Pair], seed: int) -> FittedGenerator:
        """Learn to write texts of one label.

        Args:
            pairs: Each text of the label with its keywords, see
                :func:`dana.studies.augmentation.synthetic.extract_keywords`; at least one.
            seed: The same pairs and seed give the same generator.
        """
        ...


@dataclass(frozen=True)
class KeywordTransplant:
    """Writes a text of a label by putting new keywords in the places of a real text's own; needs no checkpoint.

    All that is no keyword stays: function words, punctuation, layout, and with them the genre's style.
    """

    version: ClassVar[int] = 1

    def identity(self) -> dict[str, Any]:
        """See :class:`Generator`."""
        return {"generator": "keyword transplant"}

    def fit(self, pairs: Sequence[Pair], seed: int) -> "FittedTransplant":
        """See :class:`Generator`: keeps the pairs; the seed decides nothing."""
        return FittedTransplant(tuple((tuple(keywords), text) for keywords, text in pairs))


@dataclass(frozen=True)
class FittedTransplant:
    """Texts to put keywords into.

    Attributes:
        pairs: Each with its own keywords.
    """

    pairs: tuple[Pair, ...]

    def generate(self, keywords: Sequence[Keywords], seeds: Sequence[int]) -> list[str]:
        """See :class:`FittedGenerator`: a text is drawn by the seed, keywords replaced.

        Without keywords it stays as it is. Among texts that have no keyword none is drawn as long as others are there.
        """
        able = [pair for pair in self.pairs if pair[0]] or list(self.pairs)
        texts = []
        for new, seed in zip(keywords, seeds, strict=True):
            drawn = able if new else self.pairs
            replaced, text = drawn[int(generator(seed, "transplant").integers(len(drawn)))]
            texts.append(transplant(text, replaced, new))
        return texts


def transplant(text: str, own: Keywords, new: Keywords) -> str:
    """A text with its own keywords replaced by new ones: each word, wherever it stands, by one and the same.

    The first distinct keyword of the text becomes the first distinct new one, and so on; after the last new one the
    first is taken again. Where the replaced word has a capital, or is all capitals, so has what replaces it.

    Args:
        text: Any text.
        own: Its keywords, in lower case; repeats count once.
        new: What replaces them; where empty, nothing is replaced.
    """
    words = list(dict.fromkeys(new))
    if not words:
        return text
    instead = {word: words[place % len(words)] for place, word in enumerate(dict.fromkeys(own))}

    def put(match: re.Match[str]) -> str:
        word, new_word = match[0], instead.get(match[0].lower())
        if new_word is None:
            return word
        return new_word.upper() if word.isupper() else new_word.capitalize() if word[0].isupper() else new_word

    return re.sub(WORD, put, text)


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
        """See :class:`Generator`; the checkpoint counts by its content.

        Raises:
            ArtifactError: If there is no such checkpoint, or it is no sequence-to-sequence model.
        """
        from transformers import AutoConfig

        check_checkpoint(self.model)
        with loading(self.model):
            config = AutoConfig.from_pretrained(located(self.model))
        if not config.is_encoder_decoder:
            kind = f"is a {config.model_type}, not a sequence-to-sequence model such as T5 or BART"
            raise ArtifactError(f"{self.model}: {kind}")
        return {**asdict(self), "model": model_identity(self.model)}

    def fit(self, pairs: Sequence[Pair], seed: int) -> "FittedSequence2Sequence":
        """See :class:`Generator`; bits depend on device and number of threads."""
        from transformers.optimization import Adafactor

        model, tokenizer = load_seq2seq(self.model)
        device = device_named()
        model.to(device)
        model.train()

        def batches() -> Iterator[list[Pair]]:
            for epoch in range(self.epochs):
                order = generator(seed, "seq2seq", "order", epoch).permutation(len(pairs)).tolist()
                for at in range(0, len(order), self.batch):
                    yield [pairs[row] for row in order[at : at + self.batch]]

        def losses(batch: list[Pair]) -> Iterable[Tensor]:
            ids, mask = self.encode([keywords for keywords, _ in batch], tokenizer)
            targets, is_real = self._tokens([text for _, text in batch], tokenizer)
            given = {"input_ids": ids, "attention_mask": mask, "labels": targets.masked_fill(is_real == 0, IGNORED)}
            yield model(**{name: part.to(device) for name, part in given.items()}).loss

        fixed = {"scale_parameter": False, "relative_step": False, "warmup_init": False}
        optimizer = Adafactor(model.parameters(), lr=self.learning_rate, **fixed)
        with seeded(derive_seed(seed, "seq2seq", "dropout"), device):
            for _ in train_supervised(optimizer, batches(), losses, lambda step: self.learning_rate, self.model):
                pass
        return FittedSequence2Sequence(self, model.eval(), tokenizer)

    def encode(self, keywords: Sequence[Keywords], tokenizer: Any) -> tuple[Tensor, Tensor]:
        """The tokens of each input, the prefix and the keywords, and which of them are real, 1 or 0."""
        return self._tokens([" ".join([self.prefix, *words]) for words in keywords], tokenizer)

    def _tokens(self, texts: list[str], tokenizer: Any) -> tuple[Tensor, Tensor]:
        """Tokens and mask, int64 of shape (texts, longest)."""
        rows = tokenizer(texts, truncation=True, max_length=self.tokens, padding=True, return_tensors="pt")
        return rows["input_ids"], rows["attention_mask"]


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

    @torch.no_grad()
    def generate(self, keywords: Sequence[Keywords], seeds: Sequence[int]) -> list[str]:
        """See :class:`FittedGenerator`; texts are independent but for rounding."""
        from transformers import LogitsProcessorList

        sample, texts = self.settings, []
        for at in range(0, len(keywords), self.rows):
            tokens = self.settings.encode(keywords[at : at + self.rows], self.tokenizer)
            ids, mask = (part.to(self.model.device) for part in tokens)
            sampling = LogitsProcessorList([RowSampling(sample.top_k, sample.top_p, seeds[at : at + self.rows])])
            settings = {"logits_processor": sampling, "max_new_tokens": sample.tokens}
            sequences = self.model.generate(input_ids=ids, attention_mask=mask, **settings)
            texts += self.tokenizer.batch_decode(sequences, skip_special_tokens=True)
        return texts


def load_seq2seq(model: str) -> tuple[Any, Any]:
    """A sequence-to-sequence model in float32 that decodes greedily, and its tokenizer.

    Raises:
        ArtifactError: If it cannot be loaded.
    """
    from transformers import AutoModelForSeq2SeqLM, GenerationConfig

    loaded = load_transformer(AutoModelForSeq2SeqLM, model)
    own = loaded.generation_config
    # A checkpoint's own may ask for beams, penalties or lengths, also where generate() is told nothing of them.
    loaded.generation_config = GenerationConfig(
        decoder_start_token_id=own.decoder_start_token_id, eos_token_id=own.eos_token_id, pad_token_id=own.pad_token_id
    )
    return loaded, load_own_tokenizer(model)


class RowSampling:
    """Makes greedy decoding draw a sample of each row, by the row's own random numbers.

    The largest of logits plus independent Gumbel noise is a draw from their softmax, so the token that greedy decoding
    takes is a sample. torch's global generator, which ``do_sample`` uses, would make a row depend on the others.

    Args:
        top_k: Most tokens that can be drawn.
        top_p: Share of the probability that the drawable tokens hold.
        seeds: One a row.

    References:
        Gumbel 1954; Maddison, Tarlow and Minka 2014, A* sampling, section 2.
    """

    def __init__(self, top_k: int, top_p: float, seeds: Sequence[int]) -> None:
        from transformers import TopKLogitsWarper, TopPLogitsWarper

        self.warpers: list[Any] = [TopKLogitsWarper(top_k), *([TopPLogitsWarper(top_p)] if top_p < 1 else [])]
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]  # of the CPU: alike on any device

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Logits of shape (rows, vocabulary) to such of which the largest of a row is the token drawn."""
        for warper in self.warpers:
            scores = warper(input_ids, scores)
        width = scores.shape[1]
        uniform = torch.stack([torch.rand(width, generator=each, dtype=torch.float64) for each in self.generators])
        gumbel = -torch.log(-torch.log(uniform))
        return scores + gumbel.to(scores)
