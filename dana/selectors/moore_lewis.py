"""Moore-Lewis selector: a unit's cross-entropy under an n-gram model of the task minus that under one of general text.

References:
    Moore and Lewis 2010, Intelligent selection of language model training data, section 2.
    Çelikten, Enlarging in-domain data using perplexity differences (blog post), whose score is ``score=perplexity``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dana.core.artifacts import read_json, write_json
from dana.core.config import require
from dana.core.errors import DataError
from dana.corpus.unit_stream import Units
from dana.models.ngram.arpa import KenLM, check_kenlm
from dana.models.ngram.kneser_ney import count_ngrams, estimate_model, train_ngrams
from dana.models.ngram.model import NgramModel, TextEntropies, text_entropies
from dana.models.ngram.vocabulary import Vocabulary, count_words, split_words
from dana.selectors.base import FittedSelector, Selector
from dana.selectors.build import BACKGROUND

SCORES = ("cross_entropy", "perplexity")
NORMALISE = ("token", "none")
VOCABULARIES = ("both", "task")
ENGINES = ("numpy", "kenlm")
AS_TASK = "task"  # a background of as many units as the task has


@dataclass(frozen=True)
class FittedMooreLewis(FittedSelector):
    """Two n-gram models with one vocabulary.

    Attributes:
        task: Model of the task.
        background: Model of general text.
        score_by: ``cross_entropy`` or ``perplexity``.
        normalise: ``token`` or ``none``.
        engine: ``numpy`` or ``kenlm``.
    """

    task: NgramModel
    background: NgramModel
    score_by: str
    normalise: str
    engine: str

    def score_units(self, units: Units) -> np.ndarray:
        """Difference of cross-entropies in nats a word, or as the parameters say; higher = more foreign."""
        task, background = self._entropies(units)
        if self.score_by == "perplexity":
            return np.exp(task.per_token) - np.exp(background.per_token)
        difference = task.nats - background.nats
        return difference / np.maximum(task.tokens, 1) if self.normalise == "token" else difference

    def _entropies(self, units: Units) -> tuple[TextEntropies, TextEntropies]:
        if self.engine == "numpy":
            ids = self.task.vocabulary.encode(units.texts)
            return text_entropies(self.task, ids), text_entropies(self.background, ids)
        split = [split_words(text) for text in units.texts]
        texts = [" ".join(words) for words in split]
        tokens = np.array([len(words) + 1 for words in split], dtype=np.int64)
        first, second = (TextEntropies.of_log10(model.log10(texts), tokens) for model in self._in_kenlm)
        return first, second

    @cached_property
    def _in_kenlm(self) -> tuple[KenLM, KenLM]:
        return KenLM.of(self.task), KenLM.of(self.background)

    def save(self, folder: Path) -> None:
        """Write both models, each in a folder of its own, and how to score by them."""
        self.task.save(folder / "task")
        self.background.save(folder / "background")
        how = {"score_by": self.score_by, "normalise": self.normalise, "engine": self.engine}
        write_json(folder / "selector.json", how)


@dataclass(frozen=True)
class MooreLewisSelector(Selector):
    """Cross-entropy under an n-gram model of the task minus that under one of general text; higher = more foreign.

    Both models have one vocabulary; other words count as the unknown word. A unit's end is a word, too.

    Attributes:
        order: Words of the longest n-grams.
        min_count: Least occurrences of a word in the vocabulary. How often words come that are not in it says much of
            a domain: with 2 more planted text is found than with 1 (docs/results/moore-lewis.md).
        vocabulary: Text whose words it has: ``both``, task and background, or ``task``.
        cutoff: Occurrences up to which n-grams of three and more words are left out.
        background: General units that the other model is trained on, or ``task``: as many as the task has (the paper).
        score: ``cross_entropy``: H_task - H_general, in nats (Moore and Lewis); ``perplexity``: exp H_task - exp
            H_general (the blog post), which is largest in size where both models find a unit unlikely.
        normalise: ``token``: a word; ``none``: over the unit, as scripts with KenLM's total scores rank.
        engine: ``numpy``, or ``kenlm``, which scores 1.6 times as fast and is an optional package.
    """

    order: int = 3
    min_count: int = 2
    vocabulary: str = "both"
    cutoff: int = 0
    background: int | str = 5000
    score: str = "cross_entropy"
    normalise: str = "token"
    engine: str = "numpy"
    version: ClassVar[int] = 1
    fitted_type: ClassVar[type] = FittedMooreLewis

    def __post_init__(self) -> None:
        require(self.order >= 1, "order", self.order, "at least 1")
        require(self.min_count >= 1, "min_count", self.min_count, "at least 1")
        require(self.cutoff >= 0, "cutoff", self.cutoff, "at least 0")
        good = self.background == AS_TASK or (isinstance(self.background, int) and self.background >= 1)
        require(good, "background", self.background, f"a number of units from 1, or {AS_TASK}")
        require(self.vocabulary in VOCABULARIES, "vocabulary", self.vocabulary, f"one of {', '.join(VOCABULARIES)}")
        require(self.score in SCORES, "score", self.score, f"one of {', '.join(SCORES)}")
        require(self.normalise in NORMALISE, "normalise", self.normalise, f"one of {', '.join(NORMALISE)}")
        whole = self.score == "perplexity" and self.normalise == "none"
        require(not whole, "normalise", self.normalise, "token for score=perplexity, which is a word's by definition")
        require(self.engine in ENGINES, "engine", self.engine, f"one of {', '.join(ENGINES)}")
        if self.engine == "kenlm":
            check_kenlm()  # before any corpus is read

    def samples(self, task_units: int) -> Mapping[str, int]:
        """``background``: what the general corpus looks like."""
        return {BACKGROUND: task_units if self.background == AS_TASK else int(self.background)}

    def learn(self, task: Units, general: Mapping[str, Units], seed: int) -> FittedMooreLewis:
        """Train both models; nothing is random.

        Raises:
            DataError: If the vocabulary has no word of the task.
        """
        sample = general[BACKGROUND]
        texts = [*task.texts, *sample.texts] if self.vocabulary == "both" else task.texts
        vocabulary = Vocabulary.of_texts(texts, self.min_count)
        cutoffs = (0, 0, self.cutoff)[: self.order]
        try:
            model = train_ngrams(task.texts, self.order, vocabulary, cutoffs)
        except DataError as error:
            hint = f"; min_count={self.min_count} can be lower" if count_words(task.texts) else ""
            raise DataError(f"the task: {error}{hint}") from error
        # Not by train_ngrams, since general text of another language may hold no word of the task's vocabulary.
        counts = count_ngrams(vocabulary.encode(sample.texts), self.order, len(vocabulary))
        background = estimate_model(counts, vocabulary, cutoffs)
        return FittedMooreLewis(model, background, self.score, self.normalise, self.engine)

    def load(self, folder: Path) -> FittedMooreLewis:
        """See :meth:`dana.selectors.base.Selector.load`."""
        how: dict[str, Any] = read_json(folder / "selector.json")
        task, background = (NgramModel.load(folder / name) for name in ("task", "background"))
        return FittedMooreLewis(task, background, **how)
