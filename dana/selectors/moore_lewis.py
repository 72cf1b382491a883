"""Moore-Lewis selector: the difference of cross-entropies under two n-gram models.

One is of the target text, the other of pool text.

References:
    Moore and Lewis 2010, Intelligent selection of language model training data, section 2.
    Çelikten, Enlarging in-domain data using perplexity differences (blog post), whose score is
    ``score=perplexity``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dana.core.artifacts import read_json, write_json
from dana.core.config import require
from dana.core.errors import DataError
from dana.corpus.unit_stream import Units
from dana.models.ngram.kneser_ney import count_ngrams, estimate_model, train_ngrams
from dana.models.ngram.model import NgramModel, text_entropies
from dana.models.ngram.vocabulary import Vocabulary, split_words
from dana.selectors.base import FittedSelector, Selector
from dana.selectors.build import BACKGROUND

CHOICES = {
    "vocabulary": ("both", "target"),
    "score": ("cross_entropy", "perplexity"),
    "normalise": ("token", "none"),
}
AS_TARGET = "target"  # as many background units as the task has


@dataclass(frozen=True)
class FittedMooreLewis(FittedSelector):
    """Two n-gram models with one vocabulary.

    Attributes:
        target: Model of the task.
        background: Model of pool text.
        score_by: ``cross_entropy`` or ``perplexity``.
        normalise: ``token`` or ``none``.
    """

    target: NgramModel
    background: NgramModel
    score_by: str
    normalise: str

    def score_units(self, units: Units) -> np.ndarray:
        """Compute the difference of cross-entropies in nats per word, by default.

        Higher = more foreign.
        """
        ids = self.target.vocabulary.encode(units.texts)
        target = text_entropies(self.target, ids)
        background = text_entropies(self.background, ids)
        difference: np.ndarray
        if self.score_by == "perplexity":
            difference = np.exp(target.per_token) - np.exp(background.per_token)
            return difference
        difference = target.nats - background.nats
        if self.normalise == "token":
            difference = difference / np.maximum(target.tokens, 1)
        return difference

    def save(self, folder: Path) -> None:
        """Write both models, each to its own folder, and the scoring parameters."""
        self.target.save(folder / "target")
        self.background.save(folder / "background")
        settings = {"score_by": self.score_by, "normalise": self.normalise}
        write_json(folder / "selector.json", settings)


@dataclass(frozen=True)
class MooreLewisSelector(Selector):
    """Cross-entropy under an n-gram model of the target text minus that under one of pool text.

    Higher = more foreign. Both models share a vocabulary with an unknown word. The end of a unit
    counts as a word.

    Attributes:
        order: Order of the n-gram models.
        min_count: Minimum count of a word in the vocabulary. The rate of unknown words is
            informative: 2 finds more planted text than 1 (docs/results/moore-lewis.md).
        vocabulary: Source of the vocabulary: ``both`` task and background, or ``target``.
        cutoff: N-grams of three and more words with at most this count are left out.
        background: Number of pool units for the pool model, or ``target``: as many as the task
            has (the paper).
        score: ``cross_entropy``: H_task - H_general, in nats (Moore and Lewis); ``perplexity``: exp
            H_task - exp H_general (the blog post), which has the largest magnitude where both
            models find a unit unlikely.
        normalise: ``token``: per word; ``none``: per unit, as scripts with KenLM's total scores
            rank.
    """

    order: int = 3
    min_count: int = 2
    vocabulary: str = "both"
    cutoff: int = 0
    background: int | str = 5000
    score: str = "cross_entropy"
    normalise: str = "token"
    version: ClassVar[int] = 2  # 1 had a parameter engine; the numbers are the same
    fitted_type: ClassVar[type] = FittedMooreLewis

    def __post_init__(self) -> None:
        require(self.order >= 1, "order", self.order, "at least 1")
        require(self.min_count >= 1, "min_count", self.min_count, "at least 1")
        require(self.cutoff >= 0, "cutoff", self.cutoff, "at least 0")
        for name, names in CHOICES.items():
            value = getattr(self, name)
            require(value in names, name, value, f"one of {', '.join(names)}")
        is_number = isinstance(self.background, int) and self.background >= 1
        allowed = f"a whole number from 1, or {AS_TARGET}"
        require(self.background == AS_TARGET or is_number, "background", self.background, allowed)
        is_total = self.score == "perplexity" and self.normalise == "none"
        allowed = "token with score=perplexity, which is per word"
        require(not is_total, "normalise", self.normalise, allowed)

    def samples(self, target_units: int) -> Mapping[str, int]:
        """Return the size of ``background``, the text of the pool model."""
        if self.background == AS_TARGET:
            return {BACKGROUND: target_units}
        return {BACKGROUND: int(self.background)}

    def learn(self, target: Units, pool: Mapping[str, Units], seed: int) -> FittedMooreLewis:
        """Train both models; deterministic.

        Raises:
            DataError: If the vocabulary has no word of the task.
        """
        sample = pool[BACKGROUND]
        texts = [*target.texts]
        if self.vocabulary == "both":
            texts += sample.texts
        vocabulary = Vocabulary.of_texts(texts, self.min_count)
        try:
            model = train_ngrams(target.texts, self.order, vocabulary, self.cutoff)
        except DataError as error:
            hint = ""
            if any(map(split_words, target.texts)):
                hint = f"; lower min_count={self.min_count}"
            raise DataError(f"the task: {error}{hint}") from error
        # Not train_ngrams, which needs a known word: pool text may have no word of the target's
        # vocabulary.
        counts = count_ngrams(vocabulary.encode(sample.texts), self.order, len(vocabulary))
        background = estimate_model(counts, vocabulary, self.cutoff)
        return FittedMooreLewis(model, background, self.score, self.normalise)

    def load(self, folder: Path) -> FittedMooreLewis:
        settings: dict[str, Any] = read_json(folder / "selector.json")
        target = NgramModel.load(folder / "target")
        background = NgramModel.load(folder / "background")
        return FittedMooreLewis(target, background, **settings)
