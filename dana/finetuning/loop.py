"""Fine-tuning for one seed, which decides order, head and dropout: examples to token ids, and to test predictions."""

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.core.errors import ArtifactError
from dana.core.logging import progress
from dana.core.rng import derive_seed, generator, seeded
from dana.finetuning.results import SeedResult
from dana.models.classifier import Classifier, new_classifier
from dana.tasks.card import TaskCard
from dana.tasks.examples import Example
from dana.tasks.kinds.base import Kind
from dana.tasks.settings import Preset
from dana.train.execution import Precision
from dana.train.schedule import learning_rate_at
from dana.train.supervised import batches_by_length, make_optimizer, train_supervised


def tokenise_words(
    words: Sequence[Sequence[str]], tokenizer: Any, max_tokens: int
) -> tuple[list[list[int]], list[np.ndarray]]:
    """Tokenise texts of given words, each cut to `max_tokens`.

    The words are joined by spaces, and a token is of the word that its last character is in. So any fast tokenizer will
    do, whatever it makes of spaces.

    Args:
        words: Of each text.
        tokenizer: The checkpoint's.
        max_tokens: Special tokens included.

    Returns:
        Token ids of each text; and of each text the place of each word's first token, int64 of shape (words,), -1 of a
        word that was cut off or has no token.

    Raises:
        ArtifactError: If the tokenizer is a slow one, which does not say where its tokens are from.
    """
    if not tokenizer.is_fast:
        raise ArtifactError(f"{type(tokenizer).__name__}: a slow tokenizer; labels of words need a fast one")
    texts = [" ".join(own) for own in words]
    made = tokenizer(texts, truncation=True, max_length=max_tokens, return_offsets_mapping=True)
    places = []
    for own, offsets in zip(words, made["offset_mapping"], strict=True):
        starts = np.cumsum([0, *(len(word) + 1 for word in own[:-1])]).tolist()
        found = np.full(len(own), -1, dtype=np.int64)
        for place, (start, end) in enumerate(offsets):
            if end > start:
                word = bisect_right(starts, end - 1) - 1
                found[word] = place if found[word] < 0 else found[word]
        places.append(found)
    return made["input_ids"], places


@dataclass(frozen=True)
class Encoded:
    """One split, tokenised once for all seeds.

    A unit is what a model answers for: an example, or each of its words.

    Attributes:
        tokens: Token ids of each example, special tokens included.
        pad: Token id to pad with.
        types: Of pairs, which of the two texts each token is of, 0 or 1; None where the tokenizer does not say.
        targets: What the loss compares logits with, a row a unit; None where labels are not told.
        references: True answers of shape (examples,); None where labels are not told.
        places: Of each example, the place of each word's first token, -1 of a word that was cut off; None where
            examples are the units.
    """

    tokens: list[list[int]]
    pad: int
    types: list[list[int]] | None = None
    targets: np.ndarray | None = None
    references: np.ndarray | None = None
    places: list[np.ndarray] | None = None

    @classmethod
    def of(cls, examples: list[Example], tokenizer: Any, max_tokens: int) -> "Encoded":
        """Tokenise examples without their labels, each cut to `max_tokens`: of a pair the longer text first.

        Args:
            examples: All with a second text, or none; all with words, or none.
            tokenizer: The checkpoint's.
            max_tokens: Special tokens included.
        """
        pad, words = tokenizer.pad_token_id or 0, [example.words for example in examples if example.words is not None]
        if words:
            tokens, places = tokenise_words(words, tokenizer, max_tokens)
            return cls(tokens, pad, places=places)
        texts = [[example.text for example in examples]]
        pairs = [example.pair for example in examples if example.pair is not None]
        made = tokenizer(*texts, *([pairs] if pairs else []), truncation="longest_first", max_length=max_tokens)
        return cls(made["input_ids"], pad, made.get("token_type_ids") if pairs else None)

    @classmethod
    def labelled(cls, examples: list[Example], tokenizer: Any, max_tokens: int, kind: Kind) -> "Encoded":
        """Tokenise examples, and take their labels with them.

        Args:
            examples: As for :meth:`of`, and so are the next two.
            tokenizer: The checkpoint's.
            max_tokens: Special tokens included.
            kind: What the labels are.
        """
        answers = [example.label for example in examples]
        made = cls.of(examples, tokenizer, max_tokens)
        return replace(made, targets=kind.targets(answers), references=kind.gather(answers))

    @property
    def lengths(self) -> np.ndarray:
        """int64 of shape (examples,), tokens of each."""
        return np.array([len(tokens) for tokens in self.tokens], dtype=np.int64)

    @property
    def sizes(self) -> np.ndarray:
        """int64 of shape (examples,), units of each."""
        ones = np.ones(len(self.tokens), dtype=np.int64)
        return ones if self.places is None else np.array([part.size for part in self.places], dtype=np.int64)

    @cached_property
    def _seen(self) -> list[np.ndarray]:
        """The units of each example that were not cut off."""
        starts = np.cumsum(self.sizes) - self.sizes
        if self.places is None:
            return list(starts[:, None])
        return [start + np.flatnonzero(part >= 0) for start, part in zip(starts, self.places, strict=True)]

    def units(self, rows: np.ndarray) -> np.ndarray:
        """The units that a model answers for, given :meth:`batch` of the same rows, in the order of its logits."""
        return np.concatenate([self._seen[row] for row in rows])

    def batch(self, rows: np.ndarray, device: torch.device) -> tuple[Tensor, ...]:
        """Token ids, attention mask and, where there are some, token types, each int64 of shape (rows, longest).

        Where words are the units, the third is bool: which tokens are the first of a word.
        """
        lengths = torch.tensor([len(self.tokens[row]) for row in rows])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        ids = _filled(self.tokens, rows, mask, self.pad)
        more = [] if self.types is None else [_filled(self.types, rows, mask, 0)]
        if self.places is not None:
            more = [torch.zeros(mask.shape, dtype=torch.bool)]
            for at, row in enumerate(rows):
                more[0][at, self.places[row][self.places[row] >= 0]] = True
        return tuple(part.to(device) for part in (ids, mask.long(), *more))


def _filled(values: list[list[int]], rows: np.ndarray, mask: Tensor, pad: int) -> Tensor:
    """The values of some examples where the mask is true, row by row, and `pad` elsewhere."""
    found = torch.full(mask.shape, pad)
    found[mask] = torch.tensor([value for row in rows for value in values[row]])
    return found


WEIGHT_DECAY = 0.01
CLIP = 1.0
EVALUATION_TOKENS = 16384  # in one forward pass, padding included


def run_seed(
    model: str,
    splits: dict[str, Encoded],
    card: TaskCard,
    preset: Preset,
    seed: int,
    precision: Precision,
    name: str = "seed",
    check_in: Callable[[], None] = lambda: None,
) -> tuple[Classifier, SeedResult]:
    """Fine-tune a checkpoint once; returns the tested model and what it gave.

    Dev is measured after every epoch that may be the tested one, test once.

    Args:
        model: Folder or Hub name.
        splits: Encoded train and dev with labels; and test, whose labels are not looked at.
        card: The task.
        preset: Hyper-parameters.
        seed: Decides head, order and dropout.
        precision: What to compute in, and where. Nothing is shared between processes: each works on seeds of
            its own.
        name: What the progress bar calls the run: task, and arm or model.
        check_in: Called after every step and every batch of an evaluation; may raise to end the seed.

    Raises:
        ArtifactError: If the checkpoint cannot be used.
        DanaError: If the loss stops being finite.
    """
    started, device, train, dev = time.monotonic(), precision.device, splits["train"], splits["dev"]
    targets, references = train.targets, dev.references
    assert targets is not None  # both were encoded with their labels
    assert references is not None
    kind = card.target.fitted(targets)
    classifier = new_classifier(model, len(kind.outputs), seed, kind.per_word, preset.pooling).to(device)
    if kind != card.target and classifier.out.bias is None:
        raise ArtifactError(f"{model}: its head in transformers has no bias, which {card.kind} needs; use pooling=mean")
    optimizer = make_optimizer(classifier, preset.learning_rate, WEIGHT_DECAY)
    in_epoch = -(-len(train.tokens) // preset.batch_size)
    steps, dev_scores, best = in_epoch * preset.epochs, list[float](), {}

    def losses(batch: tuple[int, np.ndarray]) -> list[Tensor]:
        step, rows = batch
        check_in()
        classifier.train()
        wanted = torch.from_numpy(targets[train.units(rows)]).to(device)
        with seeded(derive_seed(seed, "finetune", "dropout", step), device), precision.autocast():
            logits = classifier(*train.batch(rows, device))
        return [kind.loss(logits.float(), wanted)]

    def rate(step: int) -> float:
        return learning_rate_at(step, steps, preset.learning_rate, preset.warmup)

    batches = enumerate(rows for epoch in range(preset.epochs) for rows in order(train, preset.batch_size, seed, epoch))
    with progress(what=f"{name} seed {seed}", unit="steps", total=steps) as bar:
        for step, _ in enumerate(train_supervised(optimizer, batches, losses, rate, f"seed {seed}", CLIP), 1):
            bar.update(1)
            epoch, more = divmod(step, in_epoch)
            if more or (preset.evaluate == "last" and epoch < preset.epochs):
                continue
            predictions = kind.decode(predict(classifier, dev, kind, precision, check_in), dev.sizes)
            dev_scores.append(kind.scores(predictions, references)[card.metric])
            bar.set_postfix(epoch=f"{epoch}/{preset.epochs}", dev=f"{dev_scores[-1]:.3f}")
            if preset.evaluate == "best" and _best(dev_scores, card) == epoch - 1:
                best = {key: value.clone() for key, value in classifier.state_dict().items()}
    if best:
        classifier.load_state_dict(best)
    tested = _best(dev_scores, card) + 1 if best else preset.epochs
    kind = kind.folded(classifier.out)
    outputs = predict(classifier, splits["test"], kind, precision, check_in)
    return classifier, SeedResult(seed, tested, dev_scores, outputs, round(time.monotonic() - started, 3))


def _best(scores: list[float], card: TaskCard) -> int:
    """The epoch, from 0, with the best score; of a tie, the earlier."""
    return int(np.argmax(card.sign * np.array(scores)))


def order(split: Encoded, size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Rows of each step of an epoch; checkpoints with the same tokenizer see the same order on a seed."""
    return batches_by_length(split.lengths, size, generator(seed, "finetune", "order", epoch))


@torch.no_grad()
def predict(
    classifier: Classifier,
    split: Encoded,
    kind: Kind,
    precision: Precision,
    check_in: Callable[[], None] = lambda: None,
) -> np.ndarray:
    """Probabilities or values, float32 of shape (units, outputs), in the order of the split; 0 of units cut off.

    Args:
        classifier: Gives logits of shape (units, outputs).
        split: What to predict.
        kind: What logits say.
        precision: What to compute in, and where.
        check_in: Called before every batch.
    """
    classifier.eval()
    lengths = split.lengths
    longest_first = np.argsort(-lengths, kind="stable")
    found = np.zeros((int(split.sizes.sum()), len(kind.outputs)), dtype=np.float32)
    start = 0
    while start < longest_first.size:
        check_in()
        rows = longest_first[start : start + max(1, EVALUATION_TOKENS // int(lengths[longest_first[start]]))]
        with precision.autocast():
            logits = classifier(*split.batch(rows, precision.device))
        found[split.units(rows)] = kind.activate(logits.float()).cpu().numpy()
        start += rows.size
    return found
