"""Purity: clusters against true domains; counts of both to the accuracy of the majority map, its floor, confusions.

Any assignment of units will do: a mixture's, a topic model's, a random one.
"""

from collections.abc import Sequence

import numpy as np


def contingency(clusters: np.ndarray, domains: np.ndarray, k: int, count: int) -> np.ndarray:
    """How many units of each cluster are of each domain, int64 of shape (k, domains).

    Args:
        clusters: int of shape (units,), from 0.
        domains: int of shape (units,), from 0.
        k: Number of clusters.
        count: Number of domains.
    """
    return np.bincount(np.asarray(clusters) * count + domains, minlength=k * count).reshape(k, count)


def majority(counts: np.ndarray) -> np.ndarray:
    """The most frequent domain of each cluster, int of shape (k,); of equal ones the first. Several may share one.

    Args:
        counts: Of :func:`contingency`.
    """
    return counts.argmax(1)


def domain_purity(counts: np.ndarray) -> float:
    """Share of units whose domain is their cluster's most frequent one.

    Args:
        counts: Of :func:`contingency`.

    References:
        Manning, Raghavan and Schütze 2008, Introduction to information retrieval, section 16.3. Aharoni and Goldberg
        2020, section 2.4.
    """
    return float(counts.max(1).sum() / counts.sum())


def purity_floor(counts: np.ndarray) -> float:
    """The least that purity can be: the share of the largest domain. A random assignment lies a little above it."""
    return float(counts.sum(0).max() / counts.sum())


def confusion(counts: np.ndarray) -> np.ndarray:
    """Units of each true domain by the domain that their cluster is mapped to, int64 of shape (domains, domains).

    Args:
        counts: Of :func:`contingency`.
    """
    found = np.zeros((counts.shape[1], counts.shape[1]), dtype=np.int64)
    for domain, own in zip(majority(counts), counts, strict=True):
        found[:, domain] += own
    return found


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation over seeds (ddof 1); NaN of a single one."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
