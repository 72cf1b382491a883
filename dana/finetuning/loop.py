"""Fine-tune a checkpoint for one seed: tokenise the splits, train, choose the epoch on dev, predict the test split."""

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.core.errors import ArtifactError
from dana.core.logging import progress
from dana.core.rng import derive_seed, generator, torch_seed
from dana.encoders.transformer import overflowing
from dana.finetuning.results import SeedResult
from dana.models.classifier import Classifier, new_classifier
from dana.models.folder import padding_id
from dana.tasks.card import TaskCard
from dana.tasks.examples import Example
from dana.tasks.kinds.base import Kind
from dana.tasks.settings import Preset
from dana.train.execution import Precision
from dana.train.half_weights import HalfWeights
from dana.train.schedule import learning_rate_at
from dana.train.supervised import batches_by_length, make_optimizer, train_supervised
from dana.train.trial import try_precision

MOST_WINDOWS = 16  # of a text: the windows of a batch are in memory at once


def tokenise_words(
    words: Sequence[Sequence[str]], tokenizer: Any, max_tokens: int
) -> tuple[list[list[int]], list[np.ndarray]]:
    """Tokenise texts that are lists of words, each truncated to `max_tokens`.

    Words are joined by spaces, and a token belongs to the word of its last character. This works
    for any fast tokenizer, whether or not its tokens contain the space.

    Args:
        words: Words of each text.
        tokenizer: The checkpoint's tokenizer.
        max_tokens: Most tokens of a text, special tokens included.

    Returns:
        Token ids of each text; and for each text the position of each word's first token, int64 of
        shape (words,), -1 for a word that was truncated or has no token.

    Raises:
        ArtifactError: If the tokenizer is a slow one, which does not report the characters of its
            tokens.
    """
    if not tokenizer.is_fast:
        raise ArtifactError(
            f"{type(tokenizer).__name__}: is a slow tokenizer; labels of words need a fast one: "
            "save one as tokenizer.json to the model's folder"
        )
    texts = [" ".join(text) for text in words]
    encoding = tokenizer(texts, truncation=True, max_length=max_tokens, return_offsets_mapping=True)
    first_tokens = []
    for text, offsets in zip(words, encoding["offset_mapping"], strict=True):
        starts = np.cumsum([0, *(len(word) + 1 for word in text[:-1])]).tolist()
        firsts = np.full(len(text), -1, dtype=np.int64)
        for position, (start, end) in enumerate(offsets):
            if end > start:
                word = bisect_right(starts, end - 1) - 1
                firsts[word] = position if firsts[word] < 0 else firsts[word]
        first_tokens.append(firsts)
    return encoding["input_ids"], first_tokens


def mark_tokens(encoding: Any, texts: Sequence[str], markers: Sequence[str]) -> list[list[int]]:
    """Number the tokens at which the markers begin, from 1; other tokens, and those of a marker cut off, are 0.

    Args:
        encoding: The texts, encoded by a fast tokenizer.
        texts: The texts.
        markers: Marks of which each stands at most once in a text.
    """
    numbers = [[0] * len(tokens) for tokens in encoding["input_ids"]]
    for row, text in enumerate(texts):
        for number, marker in enumerate(markers, 1):
            token = encoding.char_to_token(row, text.index(marker)) if marker in text else None
            if token is not None:
                numbers[row][token] = number
    return numbers


@dataclass(frozen=True)
class EncodedSplit:
    """One split, tokenised once for all seeds.

    A unit has one prediction: it is an example, or each of its words.

    Attributes:
        tokens: Token ids of each example, special tokens included.
        pad: Id of the padding token.
        types: For pairs, the text of each token, 0 or 1; None if the tokenizer has no token types.
            For marked entities, the number of the marker that begins at each token, from 1, else 0.
        loss_labels: Targets of the loss, one row per unit; None without labels.
        labels: Labels of shape (examples,); None without labels.
        first_tokens: For each example, the position of each word's first token, -1 for a truncated
            word; None if examples are the units.
        windows: For each example, the token ids of its windows, special tokens included; None where
            an example is one row.
    """

    tokens: list[list[int]]
    pad: int
    types: list[list[int]] | None = None
    loss_labels: np.ndarray | None = None
    labels: np.ndarray | None = None
    first_tokens: list[np.ndarray] | None = None
    windows: list[list[list[int]]] | None = None

    @classmethod
    def from_examples(
        cls,
        examples: list[Example],
        tokenizer: Any,
        max_tokens: int,
        markers: Sequence[str] = (),
        windows: bool = False,
    ) -> "EncodedSplit":
        """Tokenise examples without their labels, cut to `max_tokens`; of a pair the longer text is cut first.

        Args:
            examples: All with a second text, or none; all with words, or none.
            tokenizer: The checkpoint's tokenizer.
            max_tokens: Most tokens of an example, special tokens included.
            markers: Where the texts are pooled: the marks before the entities.
            windows: Cut each text into windows of `max_tokens`, at most :data:`MOST_WINDOWS`,
                instead of cutting it off.
        """
        if windows:
            parts = cut_windows([example.text for example in examples], tokenizer, max_tokens)
            whole = [[token for window in part for token in window] for part in parts]
            return cls(whole, padding_id(tokenizer), windows=parts)
        pad, words = (
            padding_id(tokenizer),
            [example.words for example in examples if example.words is not None],
        )
        if words:
            tokens, first_tokens = tokenise_words(words, tokenizer, max_tokens)
            return cls(tokens, pad, first_tokens=first_tokens)
        texts = [[example.text for example in examples]]
        pairs = [example.pair for example in examples if example.pair is not None]
        encoding = tokenizer(
            *texts, *([pairs] if pairs else []), truncation="longest_first", max_length=max_tokens
        )
        types = encoding.get("token_type_ids") if pairs else None
        return cls(
            encoding["input_ids"],
            pad,
            mark_tokens(encoding, texts[0], markers) if markers else types,
        )

    @classmethod
    def with_labels(
        cls,
        examples: list[Example],
        tokenizer: Any,
        max_tokens: int,
        kind: Kind,
        markers: Sequence[str] = (),
        windows: bool = False,
    ) -> "EncodedSplit":
        """Tokenise examples with their labels.

        Args:
            examples: See :meth:`from_examples`.
            tokenizer: See :meth:`from_examples`.
            max_tokens: See :meth:`from_examples`.
            kind: Kind of the labels.
            markers: See :meth:`from_examples`.
            windows: See :meth:`from_examples`.
        """
        label_values = [example.label for example in examples]
        encoding = cls.from_examples(examples, tokenizer, max_tokens, markers, windows)
        return replace(
            encoding, loss_labels=kind.loss_labels(label_values), labels=kind.gather(label_values)
        )

    @property
    def lengths(self) -> np.ndarray:
        """int64 of shape (examples,), tokens of each."""
        return np.array([len(tokens) for tokens in self.tokens], dtype=np.int64)

    @property
    def sizes(self) -> np.ndarray:
        """int64 of shape (examples,), units of each."""
        if self.first_tokens is None:
            return np.ones(len(self.tokens), dtype=np.int64)
        return np.array([part.size for part in self.first_tokens], dtype=np.int64)

    @cached_property
    def _visible_units(self) -> list[np.ndarray]:
        starts = np.cumsum(self.sizes) - self.sizes
        if self.first_tokens is None:
            return list(starts[:, None])
        return [
            start + np.flatnonzero(part >= 0)
            for start, part in zip(starts, self.first_tokens, strict=True)
        ]

    def units(self, rows: np.ndarray) -> np.ndarray:
        """Return the units of a :meth:`batch`, in the order of the logits; truncated words are left out."""
        return np.concatenate([self._visible_units[row] for row in rows])

    def batch(self, rows: np.ndarray, device: torch.device) -> tuple[Tensor, ...]:
        """Pad token ids, attention mask and, if present, token types to int64 of shape (rows, longest).

        If words are the units, the third tensor is bool and marks the first token of each word. If
        texts are cut into windows, these are the rows, and the third tensor is the text of each.
        """
        if self.windows is not None:
            return tuple(part.to(device) for part in self._windows_of(rows, self.windows))
        lengths = torch.tensor([len(self.tokens[row]) for row in rows])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        ids = _pad_rows(self.tokens, rows, mask, self.pad)
        more = [] if self.types is None else [_pad_rows(self.types, rows, mask, 0)]
        if self.first_tokens is not None:
            more = [torch.zeros(mask.shape, dtype=torch.bool)]
            for place, row in enumerate(rows):
                more[0][place, self.first_tokens[row][self.first_tokens[row] >= 0]] = True
        return tuple(part.to(device) for part in (ids, mask.long(), *more))

    def _windows_of(self, rows: np.ndarray, windows: list[list[list[int]]]) -> list[Tensor]:
        """Pad the windows of some texts; with the mask, and the text of each."""
        parts = [window for row in rows for window in windows[row]]
        owners = [text for text, row in enumerate(rows) for _ in windows[row]]
        lengths = torch.tensor([len(window) for window in parts])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        ids = _pad_rows(parts, np.arange(len(parts)), mask, self.pad)
        return [ids, mask.long(), torch.tensor(owners)]

    def count_cut(self, max_tokens: int) -> int:
        """Count the examples that have all the tokens that are read, so that longer ones are cut."""
        if self.windows is not None:
            return sum(len(windows) >= MOST_WINDOWS for windows in self.windows)
        return int((self.lengths >= max_tokens).sum())


def cut_windows(
    texts: Sequence[str], tokenizer: Any, max_tokens: int, most: int | None = MOST_WINDOWS
) -> list[list[list[int]]]:
    """Cut each text into windows of at most `max_tokens`, special tokens included.

    Args:
        texts: The texts.
        tokenizer: A fast tokenizer.
        max_tokens: Most tokens of a window.
        most: Most windows of a text; None for all.

    Returns:
        Token ids of the windows of each text.
    """
    windows: list[list[list[int]]] = [[] for _ in texts]
    for text, ids in overflowing(texts, tokenizer, max_tokens):
        if most is None or len(windows[text]) < most:
            windows[text].append(ids)
    return windows


def _pad_rows(values: list[list[int]], rows: np.ndarray, mask: Tensor, pad: int) -> Tensor:
    matrix = torch.full(mask.shape, pad)
    matrix[mask] = torch.tensor([value for row in rows for value in values[row]])
    return matrix


WEIGHT_DECAY = 0.01
CLIP = 1.0
EVALUATION_TOKENS = 16384  # in one forward pass, padding included


@dataclass(frozen=True)
class Callbacks:
    """Functions that a seed calls while it is run.

    Attributes:
        check_in: Called before every step and every batch of an evaluation; may raise to end the
            seed.
        track: Called with numbers by name, and the step: the loss of each step, the dev score of
            each epoch. None computes no score of an epoch that is not tested.
    """

    check_in: Callable[[], None] = lambda: None
    track: Callable[[dict[str, float], int], None] | None = None


def run_seed(
    model: str,
    splits: dict[str, EncodedSplit],
    card: TaskCard,
    preset: Preset,
    seed: int,
    precision: Precision,
    name: str = "seed",
    calls: Callbacks = Callbacks(),
) -> tuple[Classifier, SeedResult]:
    """Fine-tune a checkpoint for one seed; returns the tested model and its result.

    The dev score is computed after every epoch that may be tested; the test split is predicted
    once.

    Args:
        model: Folder or Hub name.
        splits: Train and dev with labels, and test, whose labels are not used.
        card: The task.
        preset: Hyper-parameters.
        seed: Decides the head's initial weights, the order of the examples and dropout.
        precision: Device and number format; float32 is taken where the model fails in another.
            Processes share nothing: each works on other seeds.
        name: Name of the run in the progress bar: task, and arm or model.
        calls: What is called meanwhile.

    Raises:
        ArtifactError: If the checkpoint cannot be used.
        DanaError: If the loss is not finite.
    """
    start_time, device, train, dev = (
        time.monotonic(),
        precision.device,
        splits["train"],
        splits["dev"],
    )
    loss_labels, labels = train.loss_labels, dev.labels
    assert loss_labels is not None  # both were encoded with their labels
    assert labels is not None
    kind = card.label_kind.fit(loss_labels)
    weights = None
    if card.class_weight is not None:
        every_unit = train.units(np.arange(len(train.tokens)))
        weights = torch.from_numpy(kind.class_weights(loss_labels[every_unit])).to(device)
    classifier = new_classifier(model, len(kind.outputs), seed, kind.per_word, preset.pooling).to(
        device
    )
    if kind != card.label_kind and classifier.out.bias is None:
        raise ArtifactError(
            f"{model}: its head has no bias, but {card.kind} needs one; use pooling=mean"
        )
    precision = try_precision(precision, classifier, two_rows(classifier, train, device))
    peak = float(preset.learning_rate)
    optimizer = make_optimizer(classifier, peak, WEIGHT_DECAY)
    # On a GPU small steps are bound by their launches, of which casts are up to a fifth.
    saves_casts = device.type == "cuda" and precision.name == "bf16"
    half = HalfWeights(classifier) if saves_casts else None
    in_epoch, epochs = (
        -(-len(train.tokens) // preset.batch_size),
        preset.epochs_of(len(train.tokens)),
    )
    steps, dev_scores, best, log = (
        in_epoch * epochs,
        list[float](),
        {},
        calls.track or (lambda values, step: None),
    )

    def losses(batch: tuple[int, np.ndarray]) -> list[Tensor]:
        step, rows = batch
        calls.check_in()
        classifier.train()
        batch_labels = torch.from_numpy(loss_labels[train.units(rows)]).to(device)
        with (
            torch_seed(derive_seed(seed, "finetune", "dropout", step), device),
            precision.autocast(),
        ):
            logits = classifier(*train.batch(rows, device))
        return [kind.loss(logits.float(), batch_labels, weights)]

    rate = partial(learning_rate_at, steps=steps, peak=peak, warmup=preset.warmup)
    batches = enumerate(
        rows for epoch in range(epochs) for rows in order(train, preset.batch_size, seed, epoch)
    )
    with progress(what=f"{name} seed {seed}", unit="steps", total=steps) as bar:
        for step, loss in enumerate(
            train_supervised(optimizer, batches, losses, rate, f"seed {seed}", CLIP, half), 1
        ):
            bar.update(1)
            log({"train/loss": loss}, step)
            epoch, more = divmod(step, in_epoch)
            if more or (preset.evaluate == "last" and epoch < epochs and calls.track is None):
                continue
            predictions = kind.decode(
                predict(classifier, dev, kind, precision, calls.check_in), dev.sizes
            )
            dev_scores.append(kind.scores(predictions, labels)[card.metric])
            log({f"dev/{card.metric}": dev_scores[-1]}, step)
            bar.set_postfix(epoch=f"{epoch}/{epochs}", dev=f"{dev_scores[-1]:.3f}")
            if preset.evaluate == "best" and _best(dev_scores, card) == epoch - 1:
                best = {key: value.clone() for key, value in classifier.state_dict().items()}
    if best:
        classifier.load_state_dict(best)
    else:
        dev_scores = dev_scores[-1:]
    tested_epoch = _best(dev_scores, card) + 1 if best else epochs
    kind = kind.fold_into(classifier.out)
    outputs = predict(classifier, splits["test"], kind, precision, calls.check_in)
    seconds = round(time.monotonic() - start_time, 3)
    return classifier, SeedResult(seed, tested_epoch, dev_scores, outputs, seconds, precision.name)


def two_rows(
    classifier: Classifier, split: EncodedSplit, device: torch.device
) -> Callable[[], Tensor]:
    """Return a function that computes the logits of the longest and the shortest text of a split."""
    rows = np.unique([split.lengths.argmax(), split.lengths.argmin()])
    inputs = split.batch(rows, device)
    return lambda: classifier(*inputs)


def _best(scores: list[float], card: TaskCard) -> int:
    return int(np.argmax(card.sign * np.array(scores)))


def order(split: EncodedSplit, size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Return the rows of each step of an epoch; the same for all checkpoints with the same tokenizer."""
    return batches_by_length(split.lengths, size, generator(seed, "finetune", "order", epoch))


@torch.no_grad()
def predict(
    classifier: Classifier,
    split: EncodedSplit,
    kind: Kind,
    precision: Precision,
    check_in: Callable[[], None] = lambda: None,
) -> np.ndarray:
    """Predict probabilities or values, float32 of shape (units, outputs), in the order of the split; 0 if truncated.

    Args:
        classifier: Returns logits of shape (units, outputs).
        split: The examples.
        kind: Converts logits to probabilities or values.
        precision: Device and number format.
        check_in: Called before every batch.
    """
    classifier.eval()
    lengths = split.lengths
    longest_first = np.argsort(-lengths, kind="stable")
    outputs, start = np.zeros((int(split.sizes.sum()), len(kind.outputs)), dtype=np.float32), 0
    while start < longest_first.size:
        check_in()
        rows = longest_first[
            start : start + max(1, EVALUATION_TOKENS // int(lengths[longest_first[start]]))
        ]
        with precision.autocast():
            logits = classifier(*split.batch(rows, precision.device))
        outputs[split.units(rows)] = kind.activate(logits.float()).cpu().numpy()
        start += rows.size
    if not np.isfinite(outputs).all():
        raise ArtifactError(
            "the model's outputs are not finite: its weights are damaged (copy them again), or "
            "training diverged (lower finetune.learning_rate)"
        )
    return outputs
