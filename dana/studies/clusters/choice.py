"""Choice of k: candidates to their information criterion, how far their seeds agree, and the number that is taken."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from dana.core.errors import DataError
from dana.studies.clusters.fit import Candidate
from dana.studies.clusters.mixture import Mixture

MARGIN = 0.1  # of stability: numbers of clusters so near to the best count as equally stable
RULE = f"of the numbers whose stability is within {MARGIN} of the best, the one with the lowest BIC"


@dataclass(frozen=True)
class KChoice:
    """Which number of clusters, and why.

    Attributes:
        k: The number.
        mixture: Its likeliest fit.
        reason: In a sentence.
        table: A row a candidate: k, log_likelihood (mean a unit) and bic of its likeliest fit, stability (mean adjusted
            Rand index between its fits), chosen. NaN where every fit leaves a cluster empty.
    """

    k: int
    mixture: Mixture
    reason: str
    table: pd.DataFrame


def choose(candidates: Sequence[Candidate]) -> KChoice:
    """The number of clusters to take: :data:`RULE`.

    More clusters always fit better; the criterion charges for them, but with many units hardly, and stability falls
    where clusters are split at random.

    Raises:
        DataError: If every fit of every candidate leaves a cluster empty.

    References:
        Schwarz 1978, Estimating the dimension of a model. Ben-Hur, Elisseeff and Guyon 2002, A stability based method
        for discovering structure in clustered data.
    """
    rows = [_row(candidate) for candidate in candidates]
    table = pd.DataFrame(rows)
    able = table["bic"].notna()
    if not able.any():
        ks = ", ".join(map(str, table["k"]))
        raise DataError(f"k={ks}: every fit leaves a cluster empty; ask for fewer clusters")
    is_stable = ~(table["stability"] < table["stability"][able].max() - MARGIN)  # NaN, of one seed, is no reason
    chosen = int(np.nanargmin(table["bic"].where(able & is_stable).to_numpy()))
    table["chosen"] = table.index == chosen
    found = candidates[chosen]
    assert found.mixture is not None
    return KChoice(found.k, found.mixture, _reason(rows[chosen], len(rows)), table)


def _row(candidate: Candidate) -> dict[str, float]:
    row = {"k": candidate.k, "log_likelihood": np.nan, "bic": np.nan}
    row["stability"] = seed_stability([fit.clusters for fit in candidate.fits])
    if candidate.mixture is not None:
        best = candidate.fits[candidate.best]
        row |= {"log_likelihood": best.log_likelihood, "bic": best.bic}
    return row


def _reason(row: dict[str, float], count: int) -> str:
    said = f"{row['k']:.0f} clusters"
    if count > 1:
        said += f", chosen of {count} numbers: {RULE}"
    agree = "" if np.isnan(row["stability"]) else f", stability {row['stability']:.2f}"
    return f"{said} (BIC {row['bic']:,.0f}{agree})"


def seed_stability(clusters: Sequence[np.ndarray]) -> float:
    """Mean adjusted Rand index over all pairs of clusterings of the same units; NaN of fewer than two.

    1 means that all group alike, 0 that they agree as random ones do.

    References:
        Hubert and Arabie 1985, Comparing partitions.
    """
    from sklearn.metrics import adjusted_rand_score

    found = [adjusted_rand_score(one, other) for one, other in combinations(clusters, 2)]
    return float(np.mean(found)) if found else float("nan")
