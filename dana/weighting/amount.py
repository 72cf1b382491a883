"""Choose how much of a pool to select (``beta=auto``): the cut of least perplexity, capped by the in-domain share.

N-gram models are trained on growing cuts of the ranked pool. The cut whose model predicts held-out
task text best is the amount to select (Moore and Lewis 2010, Intelligent selection of language
model training data, section 4; Rousseau 2013, XenC, section 3.3).
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
from dana.weighting.mixture import (
    LEAST_UNITS,
    UnitScores,
    in_domain,
    in_domain_probability,
    ranking_values,
)
from dana.weighting.pool import Pool, Sample, document_numbers
from dana.weighting.selection import Segments
from dana.weighting.settings import WeighSettings
from dana.weighting.texts import unit_texts

CUTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
ORDER = 3
LEAST_COUNT = 2  # occurrences of a word in the pool to be in the vocabulary, which all cuts share
MOST_UNITS = 200_000  # units whose n-grams are counted; a larger pool is sampled by document


@dataclass(frozen=True)
class PerplexityCurve:
    """Cross-entropy of held-out documents under the n-gram model of each cut, in nats, with a shared vocabulary.

    Attributes:
        shares: Shape (cuts,), share of the pool's units in each cut, ascending.
        nats: Shape (cuts, documents), under the model of the best units; infinite if no word of the
            cut is known.
        random: Shape (cuts, documents), under the model of equally many random units.
        tokens: Shape (documents,), number of known words and unit ends of each document.
    """

    shares: np.ndarray
    nats: np.ndarray
    random: np.ndarray
    tokens: np.ndarray

    @property
    def per_token(self) -> np.ndarray:
        """Cross-entropy of all documents under each cut's model, nats per token."""
        return self.nats.sum(axis=1) / self.tokens.sum()

    @property
    def random_per_token(self) -> np.ndarray:
        """Cross-entropy under the models of random units, nats per token."""
        return self.random.sum(axis=1) / self.tokens.sum()

    @property
    def best(self) -> int:
        """Index of the cut of least cross-entropy; the smallest on ties."""
        return int(np.argmin(self.per_token))

    @property
    def standard_errors(self) -> np.ndarray:
        """Standard error of each cut's difference to the best, nats per token, paired by document; 0 for one document.

        By linearisation of the ratio of nats to tokens (Cochran 1977, Sampling techniques, section
        6.4).
        """
        documents = self.tokens.size
        if documents < 2:
            return np.zeros(self.shares.size)
        with np.errstate(invalid="ignore"):
            differences = self.nats - self.nats[self.best]
            residuals = (
                differences
                - differences.sum(axis=1, keepdims=True) / self.tokens.sum() * self.tokens
            )
        squares = np.nan_to_num(np.square(residuals)).sum(axis=1)
        return np.sqrt(documents / (documents - 1) * squares) / self.tokens.sum()

    @property
    def smallest(self) -> int:
        """Index of the smallest cut within one standard error of the best."""
        return int(np.argmax(self.per_token - self.per_token[self.best] <= self.standard_errors))


def perplexity_curve(
    pool: Sequence[str],
    order: np.ndarray,
    random: np.ndarray,
    held_out: Sequence[str],
    documents: np.ndarray,
    cuts: Sequence[float] = CUTS,
) -> PerplexityCurve:
    """Train an n-gram model on each cut of the ranked pool and measure the perplexity of held-out text.

    Args:
        pool: Text of each unit.
        order: Rows of the pool, best first.
        random: The same rows in random order.
        held_out: Text of each held-out task unit, used in no fit.
        documents: int64 of shape (held-out units,), the document of each, numbered from 0.
        cuts: Shares of the pool's units, ascending.
    """
    vocabulary = Vocabulary.of_texts(pool, LEAST_COUNT)
    ids, held_out_ids = vocabulary.encode(pool), vocabulary.encode(held_out)

    def cost(rows: np.ndarray) -> np.ndarray:
        """Compute the nats of each held-out document under a model of these rows of the pool."""
        train: WordIds = ids.rows(np.sort(rows))
        if not (train.ids > END).any():  # no known word to train on
            return np.full(int(documents.max()) + 1, np.inf)
        nats = text_entropies(
            train_ngrams(train, ORDER, vocabulary), held_out_ids, unknown=False
        ).nats
        return np.bincount(documents, nats)

    sizes = sorted({max(1, round(share * order.size)) for share in cuts})
    best = [cost(order[:size]) for size in sizes]
    other = [
        nats if size == order.size else cost(random[:size])
        for size, nats in zip(sizes, best, strict=True)
    ]
    words = np.bincount(held_out_ids.text_of, held_out_ids.ids >= END, minlength=len(held_out_ids))
    return PerplexityCurve(
        np.array(sizes) / order.size, np.stack(best), np.stack(other), np.bincount(documents, words)
    )


@dataclass(frozen=True)
class Amount:
    """Chosen amount of text, with the evidence.

    Attributes:
        beta: Chosen share of the units.
        by_perplexity: The smallest cut within one standard error of the least perplexity.
        by_likeness: Share of the pool that is more likely in-domain than not; None if unknown.
        reason: Explanation of the choice.
        held_out_documents: Number of task documents that chose.
        counted_units: Number of the pool's units in the largest n-gram model.
        curve: One row per cut of the ranked pool, ascending. ``share`` of the pool's units and
            their number ``units``; ``perplexity`` of held-out task text under an n-gram model of
            the cut, ``perplexity_random`` of equally many random units, None without a known word;
            nats per token ``above_best``, the cut of least perplexity, with the ``standard_error``
            over held-out documents; ``in_domain``, the estimated in-domain share of the cut, None
            if unknown.
    """

    beta: float
    by_perplexity: float
    by_likeness: float | None
    reason: str
    held_out_documents: int
    counted_units: int
    curve: list[dict[str, Any]]


def choose_amount(
    held_out: pa.Table,
    task: Path,
    pool: Pool,
    segments: Segments,
    corpus: Path,
    settings: WeighSettings,
) -> Amount:
    """Choose beta: the cut of least perplexity, but not more than the in-domain share of the pool.

    Two estimates. (a) The smallest cut of the ranked pool whose n-gram model is within one standard
    error of the best on held-out task text. (b) The share of the pool that is more likely in-domain
    than not (:func:`dana.weighting.mixture.in_domain_probability`). The smaller one is chosen,
    because in a small pool any text lowers perplexity at first. If (b) is unknown or 0, (a) is
    chosen.

    Args:
        held_out: Scores of held-out task text, used in no fit, :data:`dana.core.schemas.SCORES`.
        task: Folder of the held-out task documents.
        pool: The scored corpus.
        segments: Segments of the pool.
        corpus: Folder of the corpus documents.
        settings: Settings of the weighing; the policy decides whether units or segments are ranked.

    Raises:
        DataError: If there is no held-out text, or no word occurs twice in the pool.
    """
    if held_out.num_rows == 0:
        raise DataError(
            "beta='auto': needs held-out task text, and there is none; give a share in (0, 1]"
        )
    sample = sampled_units(pool, segments, settings)
    values, segment = (
        sample["value"].to_numpy(),
        np.unique(sample["segment"].to_numpy(), return_inverse=True)[1],
    )
    order = np.argsort(values, kind="stable")
    random_keys = generator(settings.seed, "weights", "random cuts").permutation(
        int(segment.max()) + 1
    )[segment]
    of_task = UnitScores(
        ranking_values(held_out, settings, segments.components), document_numbers(held_out)
    )
    by_chance, texts = (
        np.argsort(random_keys, kind="stable"),
        [unit_texts(sample, corpus), unit_texts(held_out, task)],
    )
    curve = perplexity_curve(texts[0], order, by_chance, texts[1], of_task.documents)
    if not np.isfinite(curve.per_token).any():
        raise DataError("beta='auto': needs a pool in which words repeat; give a share in (0, 1]")
    probability = _probability(of_task, UnitScores(values, document_numbers(sample)), settings.seed)
    likeness = None if probability is None else float((probability >= 0.5).mean())
    sizes = [round(float(share) * values.size) for share in curve.shares]
    units = [round(float(share) * pool.rows) for share in curve.shares]
    in_domain = (
        np.nan if probability is None else [probability[order[:size]].mean() for size in sizes]
    )
    losses = {
        "perplexity": np.exp(curve.per_token),
        "perplexity_random": np.exp(curve.random_per_token),
    }
    losses |= {
        "above_best": curve.per_token - curve.per_token[curve.best],
        "standard_error": curve.standard_errors,
    }
    table = pd.DataFrame({"share": curve.shares, "units": units, **losses, "in_domain": in_domain})
    plain = table.astype(object).where(np.isfinite(table), None)
    rows = [dict(zip(table.columns, row, strict=True)) for row in plain.to_numpy().tolist()]
    smallest = float(curve.shares[curve.smallest])
    beta = min(smallest, likeness) if likeness else smallest
    return Amount(
        beta, smallest, likeness, _reason(curve, likeness), curve.tokens.size, sample.num_rows, rows
    )


def _reason(curve: PerplexityCurve, likeness: float | None) -> str:
    """Explain the choice between the two estimates, for the manifest."""
    best, smallest = float(curve.shares[curve.best]), float(curve.shares[curve.smallest])
    perplexity, random = (
        np.exp(curve.per_token[curve.best]),
        np.exp(curve.random_per_token[curve.best]),
    )
    reason = f"a model of the best {_percent(best)} of the pool predicts held-out task text best (perplexity "
    reason += f"{perplexity:.4g}, {random:.4g} of as much random text)"
    reason += (
        f", one of {_percent(smallest)} as well to within a standard error"
        if smallest < best
        else ""
    )
    if likeness == 0:
        return f"{reason}; by the scores none of the pool is like the task"
    if likeness is None:
        return f"{reason}; how much of the pool is like the task cannot be told by the scores"
    cap = "but no more than" if likeness < smallest else "up to"
    return f"{reason}; {cap} {_percent(likeness)} of the pool is like the task"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _probability(of_task: UnitScores, of_pool: UnitScores, seed: int) -> np.ndarray | None:
    """Estimate the in-domain probability of each unit of the pool; None if scores do not separate the two."""
    if of_task.scores.size < LEAST_UNITS:
        return None
    estimate = in_domain(
        of_task, np.zeros(of_task.scores.size), of_pool, 1.0, generator(seed, "mixture")
    )
    return (
        in_domain_probability(of_task, of_pool, estimate.pool.value)
        if estimate.tells_apart
        else None
    )


def sampled_units(pool: Pool, segments: Segments, settings: WeighSettings) -> pa.Table:
    """Read the units that are in segments, or a sample of them, with their ranking ``value`` and ``segment``."""
    sample = Sample(segments.units, MOST_UNITS, generator(settings.seed, "weights", "counted"))
    for block in pool.blocks(["start", "end", "score"], settings):
        value = (
            block.scores()
            if settings.policy == "sigmoid"
            else block.of_units(segments.values, np.inf)
        )
        rows = block.table.append_column("value", pa.array(value)).append_column(
            "segment", pa.array(block.segment)
        )
        sample.add(block.documents[block.inside], rows.filter(pa.array(block.inside)))
    return sample.table()
