"""Compare clusters with known domains: purity, confusions, outliers.

The measures take any assignment of units to clusters.
"""

import re
from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd

from dana.core.errors import ConfigError, suggestion

ALL = ["all"]
TOKEN = re.compile(r"\w+|[^\w\s]")  # words and single marks
DIGIT = re.compile(r"\d")
# Personal pronouns with their object and possessive forms.
PRONOUN_FORMS = (
    "i me my mine you your yours he him his she her hers it its"
    " we us our ours they them their theirs"
)
PRONOUNS = frozenset(PRONOUN_FORMS.split())


def true_domains(names: Sequence[str], sources: Collection[str]) -> list[str]:
    """Resolve the setting ``true_domains`` to sources of the pool, in alphabetical order.

    Args:
        names: Names of sources, or ``["all"]``; may be empty.
        sources: Sources of the pool.

    Raises:
        ConfigError: If a source is unknown, or only one is named.
    """
    domains = sorted(sources) if list(names) == ALL else sorted(set(names))
    for name in domains:
        if name not in sources:
            raise ConfigError(f"true_domains={name!r}: unknown source{suggestion(name, sources)}")
    if len(domains) == 1:
        raise ConfigError(f"true_domains={domains[0]!r}: expected at least two sources, got one")
    return domains


def contingency(clusters: np.ndarray, domains: np.ndarray, k: int, count: int) -> np.ndarray:
    """Count the units of each cluster and domain.

    Args:
        clusters: Cluster of each unit from 0, int of shape (units,).
        domains: Domain of each unit from 0, int of shape (units,).
        k: Number of clusters.
        count: Number of domains.

    Returns:
        int64 of shape (k, domains).
    """
    cells = np.asarray(clusters) * count + domains
    return np.bincount(cells, minlength=k * count).reshape(k, count)


def majority(counts: np.ndarray) -> np.ndarray:
    """Map each cluster to its most frequent domain, the first of equal ones; int of shape (k,).

    Args:
        counts: From :func:`contingency`.
    """
    domains: np.ndarray = counts.argmax(1)
    return domains


def domain_purity(counts: np.ndarray) -> float:
    """Compute purity: the share of units whose domain is the most frequent one of their cluster.

    It is at least the share of the largest domain.

    Args:
        counts: From :func:`contingency`.

    References:
        Manning, Raghavan and Schütze 2008, Introduction to information retrieval, section 16.3.
        Aharoni and Goldberg 2020, section 2.4.
    """
    return float(counts.max(1).sum() / counts.sum())


def confusion(counts: np.ndarray) -> np.ndarray:
    """Count units by true domain (rows) and by the domain of their cluster (columns).

    The domain of a cluster is that of :func:`majority`.

    Args:
        counts: From :func:`contingency`.

    Returns:
        int64 of shape (domains, domains).
    """
    cluster_domains = majority(counts)
    columns = [counts[cluster_domains == domain].sum(0) for domain in range(counts.shape[1])]
    return np.stack(columns, axis=1)


def surface_of(texts: Sequence[str]) -> pd.DataFrame:
    """Measure surface features of texts.

    Returns:
        One row per text: tokens (count of words and punctuation marks), digits (True if it has
        one), conversational (True if it has an English personal pronoun or a question mark).

    References:
        Aharoni and Goldberg 2020, section 2.6; their tokens and pronouns are not specified.
    """
    rows = []
    for text in texts:
        tokens = TOKEN.findall(text)
        has_pronoun = not PRONOUNS.isdisjoint(map(str.casefold, tokens))
        rows.append((len(tokens), bool(DIGIT.search(text)), has_pronoun or "?" in tokens))
    return pd.DataFrame(rows, columns=["tokens", "digits", "conversational"])


def outlier_table(
    true: np.ndarray, cluster_domains: np.ndarray, names: Sequence[str], surface: pd.DataFrame
) -> pd.DataFrame:
    """Summarise outliers: units whose cluster is mapped to another domain than theirs.

    Args:
        true: Domain of each unit, int of shape (units,).
        cluster_domains: Domain of each unit's cluster, int of shape (units,).
        names: Names of the domains.
        surface: From :func:`surface_of`.

    Returns:
        One row per domain of the cluster, the most outliers first, then ``all outliers`` and ``all
        units``. Columns domain, units, share (of all units), tokens (mean), digits and
        conversational (shares).
    """
    is_outlier = np.asarray(true != cluster_domains)
    groups = []
    for domain, name in enumerate(names):
        groups.append((name, surface[is_outlier & (cluster_domains == domain)]))
    groups.sort(key=lambda group: -len(group[1]))
    groups.append(("all outliers", surface[is_outlier]))
    groups.append(("all units", surface))
    sizes = []
    means = []
    for name, units in groups:
        share = len(units) / len(surface)
        sizes.append({"domain": name, "units": len(units), "share": share})
        means.append(units.mean())
    return pd.DataFrame(sizes).join(pd.DataFrame(means))
