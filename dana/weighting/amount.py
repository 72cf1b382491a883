"""Choose the share of a pool to keep from its scores and held-out task text: least perplexity, capped by likeness.

The cut whose n-gram model predicts held-out text of the task best is the amount of text that is worth keeping (Moore
and Lewis 2010, Intelligent selection of language model training data, section 4; Rousseau 2013, XenC, section 3.3).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dana.core.errors import DataError
from dana.core.rng import generator
from dana.models.ngram.kneser_ney import train_ngrams
from dana.models.ngram.model import text_entropies
from dana.models.ngram.vocabulary import END, Vocabulary, WordIds
from dana.weighting.mixture import LEAST_UNITS, UnitScores, in_domain, in_domain_probability, ranking_values
from dana.weighting.pool import Pool, Sample, document_numbers
from dana.weighting.selection import Segments
from dana.weighting.settings import WeighSettings
from dana.weighting.texts import unit_texts

CUTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
ORDER = 3
LEAST_COUNT = 2  # of a word in the pool, to be in the vocabulary that all cuts have in common
MOST_UNITS = 200_000  # of the pool whose n-grams are counted; of a larger one, those of documents drawn at random


@dataclass(frozen=True)
class PerplexityCurve:
    """What held-out documents cost under the model of each cut, in nats; all of one vocabulary.

    Attributes:
        shares: Shape (cuts,), share of the pool's units in each cut, ascending.
        nats: Shape (cuts, documents), under the model of the best units; infinite where a cut has no known word.
        random: Shape (cuts, documents), under the model of as many random units.
        tokens: Shape (documents,), known words of each document and the ends of its units.
    """

    shares: np.ndarray
    nats: np.ndarray
    random: np.ndarray
    tokens: np.ndarray

    @property
    def per_token(self) -> np.ndarray:
        """Cross-entropy of all documents under each cut's model, nats a token."""
        return self.nats.sum(axis=1) / self.tokens.sum()

    @property
    def random_per_token(self) -> np.ndarray:
        """The same under the models of random units."""
        return self.random.sum(axis=1) / self.tokens.sum()

    @property
    def best(self) -> int:
        """The cut of least cross-entropy; of equal ones the smallest."""
        return int(np.argmin(self.per_token))

    @property
    def standard_errors(self) -> np.ndarray:
        """Of each cut's difference to the best one, nats a token: over documents, which are paired; 0 of one document.

        By linearisation of the ratio of nats to tokens (Cochran 1977, Sampling techniques, section 6.4).
        """
        documents = self.tokens.size
        if documents < 2:
            return np.zeros(self.shares.size)
        with np.errstate(invalid="ignore"):
            differences = self.nats - self.nats[self.best]
            residuals = differences - differences.sum(axis=1, keepdims=True) / self.tokens.sum() * self.tokens
        squares = np.nan_to_num(np.square(residuals)).sum(axis=1)
        return np.sqrt(documents / (documents - 1) * squares) / self.tokens.sum()

    @property
    def smallest(self) -> int:
        """The smallest cut that is within one standard error of the best."""
        return int(np.argmax(self.per_token - self.per_token[self.best] <= self.standard_errors))


def perplexity_curve(
    pool: Sequence[str],
    order: np.ndarray,
    random: np.ndarray,
    held_out: Sequence[str],
    documents: np.ndarray,
    cuts: Sequence[float] = CUTS,
) -> PerplexityCurve:
    """Train a model on each cut and measure held-out text under it.

    Args:
        pool: Text of each unit.
        order: Rows of the pool, the best first.
        random: The same rows in a random order.
        held_out: Text of each held-out unit, of which nothing was fitted.
        documents: int64 of shape (held-out units,), the document of each, numbered from 0.
        cuts: Shares of the units, ascending.
    """
    vocabulary = Vocabulary.of_texts(pool, LEAST_COUNT)
    ids, held_out_ids = vocabulary.encode(pool), vocabulary.encode(held_out)

    def cost(rows: np.ndarray) -> np.ndarray:
        """Nats of each held-out document under the model of some texts."""
        train: WordIds = ids.rows(np.sort(rows))
        if not (train.ids > END).any():  # no known word: there is nothing to train on
            return np.full(int(documents.max()) + 1, np.inf)
        nats = text_entropies(train_ngrams(train, ORDER, vocabulary), held_out_ids, unknown=False).nats
        return np.bincount(documents, nats)

    sizes = sorted({max(1, round(share * order.size)) for share in cuts})
    best = [cost(order[:size]) for size in sizes]
    drawn = [nats if size == order.size else cost(random[:size]) for size, nats in zip(sizes, best, strict=True)]
    known = np.bincount(held_out_ids.text_of, held_out_ids.ids >= END, minlength=len(held_out_ids))
    return PerplexityCurve(np.array(sizes) / order.size, np.stack(best), np.stack(drawn), np.bincount(documents, known))


@dataclass(frozen=True)
class Amount:
    """How much to keep, and why.

    Attributes:
        beta: Share of the units.
        by_perplexity: The smallest cut within one standard error of the least perplexity.
        by_likeness: Share of the pool that is like the task rather than not; None where that is unknown.
        reason: The choice in words.
        held_out_documents: Of the task, that chose.
        counted_units: Of the pool, that the n-gram models saw in all.
        curve: A row a cut of the ranked pool, ascending: its ``share`` of the pool's units and how many ``units`` that
            is; ``perplexity`` of held-out task text under an n-gram model of it, and ``perplexity_random`` of as many
            random units, None where there is no known word; nats a token ``above_best``, the cut of least perplexity,
            with their ``standard_error`` over held-out documents; and ``in_domain``, the estimated share of the cut
            that is like the task, None where that is unknown.
    """

    beta: float
    by_perplexity: float
    by_likeness: float | None
    reason: str
    held_out_documents: int
    counted_units: int
    curve: list[dict[str, Any]]


def choose_amount(
    held_out: pa.Table, task: Path, pool: Pool, segments: Segments, corpus: Path, settings: WeighSettings
) -> Amount:
    """Choose beta: the amount of least perplexity, but no more than there is text like the task.

    Two readings. (a) N-gram models are trained on growing cuts of the ranked pool; the smallest cut under which
    held-out task text costs at most one standard error more than under the best one. (b) The share of the pool that is
    more likely like the task than not (:func:`dana.weighting.mixture.in_domain_probability`). The smaller of the two is
    chosen: a small pool's perplexity falls by any text at first, whatever it is about. Where (b) is unknown or 0, (a).

    Args:
        held_out: Of :data:`dana.core.schemas.SCORES`, of task text that nothing was fitted on.
        task: Folder of the documents that it is of.
        pool: Of the same schema, the scored corpus.
        segments: Of the pool.
        corpus: Folder of its documents.
        settings: Of the weighing; its policy says whether units or segments are ranked.

    Raises:
        DataError: If there is no held-out text, or no word is twice in the pool.
    """
    if held_out.num_rows == 0:
        raise DataError("beta='auto': the task has no held-out text to choose by; give a share in (0, 1]")
    drawn = sampled_units(pool, segments, settings)
    values, segment = drawn["value"].to_numpy(), np.unique(drawn["segment"].to_numpy(), return_inverse=True)[1]
    order = np.argsort(values, kind="stable")
    places = generator(settings.seed, "weights", "random cuts").permutation(int(segment.max()) + 1)[segment]
    of_task = UnitScores(ranking_values(held_out, settings, segments.components), document_numbers(held_out))
    by_chance, texts = np.argsort(places, kind="stable"), [unit_texts(drawn, corpus), unit_texts(held_out, task)]
    curve = perplexity_curve(texts[0], order, by_chance, texts[1], of_task.documents)
    if not np.isfinite(curve.per_token).any():
        raise DataError("beta='auto': no word is twice in the pool, so none can be learned; give a share in (0, 1]")
    probability = _probability(of_task, UnitScores(values, document_numbers(drawn)), settings.seed)
    likeness = None if probability is None else float((probability >= 0.5).mean())
    sizes = [max(1, round(float(share) * values.size)) for share in curve.shares]
    table = pd.DataFrame(
        {
            "share": curve.shares,
            "units": [max(1, round(float(share) * pool.rows)) for share in curve.shares],
            "perplexity": np.exp(curve.per_token),
            "perplexity_random": np.exp(curve.random_per_token),
            "above_best": curve.per_token - curve.per_token[curve.best],
            "standard_error": curve.standard_errors,
            "in_domain": np.nan if probability is None else [probability[order[:size]].mean() for size in sizes],
        }
    )
    plain = table.astype(object).where(np.isfinite(table), None)
    rows = [dict(zip(table.columns, row, strict=True)) for row in plain.to_numpy().tolist()]
    smallest = float(curve.shares[curve.smallest])
    beta = min(smallest, likeness) if likeness else smallest
    return Amount(beta, smallest, likeness, _reason(curve, likeness), curve.tokens.size, drawn.num_rows, rows)


def _reason(curve: PerplexityCurve, likeness: float | None) -> str:
    """Why the smaller reading was chosen, in words."""
    best, smallest = float(curve.shares[curve.best]), float(curve.shares[curve.smallest])
    perplexity, random = np.exp(curve.per_token[curve.best]), np.exp(curve.random_per_token[curve.best])
    reason = f"a model of the best {_percent(best)} of the pool predicts held-out task text best (perplexity "
    reason += f"{perplexity:.4g}, {random:.4g} of as much random text)"
    reason += f", one of {_percent(smallest)} as well to within a standard error" if smallest < best else ""
    if likeness == 0:
        return f"{reason}; by the scores none of the pool is like the task"
    if likeness is None:
        return f"{reason}; how much of the pool is like the task cannot be told by the scores"
    cap = "but no more than" if likeness < smallest else "up to"
    return f"{reason}; {cap} {_percent(likeness)} of the pool is like the task"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _probability(of_task: UnitScores, of_pool: UnitScores, seed: int) -> np.ndarray | None:
    """Probability that each unit of the pool is like the task; None where the scores do not tell."""
    if of_task.scores.size < LEAST_UNITS:
        return None
    found = in_domain(of_task, np.zeros(of_task.scores.size), of_pool, 1.0, generator(seed, "mixture"))
    return in_domain_probability(of_task, of_pool, found.pool.value) if found.tells_apart else None


def sampled_units(pool: Pool, segments: Segments, settings: WeighSettings) -> pa.Table:
    """Units in segments, with the ``value`` that decides their weights and their ``segment``; of a large pool some."""
    sample = Sample(segments.units, MOST_UNITS, generator(settings.seed, "weights", "counted"))
    for block in pool.blocks(["start", "end", "score"], settings):
        value = block.scores() if settings.policy == "sigmoid" else block.of_units(segments.values, np.inf)
        rows = block.table.append_column("value", pa.array(value)).append_column("segment", pa.array(block.segment))
        sample.add(block.documents[block.inside], rows.filter(pa.array(block.inside)))
    return sample.table()
