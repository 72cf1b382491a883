"""Number of topics: fits of several numbers and seeds to a table of coherence and diversity, and the number to take."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dana.studies.topics.coherence import COHERENT_WORDS, DIVERSE_WORDS, top_words, topic_coherence, topic_diversity

MEASURES = ("coherence", "diversity", "quality")


def measure_topics(beta: np.ndarray, counts: Any) -> dict[str, float]:
    """Mean coherence of the topics, their diversity, and the product of both, ``quality``.

    Args:
        beta: Of the fit, shape (K, V).
        counts: Documents in which words count as together, sparse of shape (documents, V).
    """
    coherence = float(topic_coherence(top_words(beta, COHERENT_WORDS), counts).mean())
    diversity = topic_diversity(top_words(beta, DIVERSE_WORDS))
    return dict(zip(MEASURES, (coherence, diversity, coherence * diversity), strict=True))


@dataclass(frozen=True)
class TopicChoice:
    """A number of topics and the fit that is kept.

    Attributes:
        k: How many.
        seed: Number of the best fit with so many.
        table: A row a number of topics: k, fits, mean and standard deviation (ddof 1) over seeds of each measure.
        reason: In a sentence.
    """

    k: int
    seed: int
    table: pd.DataFrame
    reason: str


def choose_topics(fits: pd.DataFrame) -> TopicChoice:
    """Choose the number with the best mean quality over seeds, of equals the smallest; and its best fit.

    Args:
        fits: A row a fit: k, seed, and :func:`measure_topics`.

    References:
        Dieng, Ruiz and Blei 2020, section 6: coherence times diversity is the quality of topics.
    """
    rows = []
    for k, own in fits.sort_values("k").groupby("k"):
        row: dict[str, Any] = {"k": k, "fits": len(own)}
        for name in MEASURES:
            row |= {name: own[name].mean(), f"{name}_std": own[name].std(ddof=1) if len(own) > 1 else np.nan}
        rows.append(row)
    table = pd.DataFrame(rows)
    best = table.iloc[int(table["quality"].argmax())]
    k = int(best["k"])
    own = fits[fits["k"] == k].sort_values("seed")
    seed = int(own["seed"].iloc[int(own["quality"].argmax())])
    of = f", the best of {', '.join(map(str, table['k']))}" if len(table) > 1 else ""
    mean = f" as mean of {len(own)} seeds{of}; seed {seed} is kept, with {own['quality'].max():.3f}"
    reason = f"{k} topics: coherence x diversity is {best['quality']:.3f}{mean if len(own) > 1 else of}"
    return TopicChoice(k, seed, table, reason)
