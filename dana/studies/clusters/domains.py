"""Clusters against true domains: assignments of units to purity, confusions and outliers; topic model and chance.

Any assignment of units will do: a mixture's, a topic model's, a random one.
"""

import re
from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer
from threadpoolctl import threadpool_limits

from dana.core.errors import ConfigError, DataError, suggestion
from dana.core.rng import derive_seed, generator
from dana.studies.clusters.description import WORD

ALL = ["all"]
TOKEN = re.compile(r"\w+|[^\w\s]")  # words and single marks
DIGIT = re.compile(r"\d")
# Personal pronouns with their object and possessive forms.
PRONOUNS = {
    *("i", "me", "my", "mine", "you", "your", "yours", "he", "him", "his", "she", "her", "hers", "it", "its"),
    *("we", "us", "our", "ours", "they", "them", "their", "theirs"),
}


def true_domains(named: Sequence[str], sources: Collection[str]) -> list[str]:
    """Sources that are taken as domains, in alphabetical order; none if none were named.

    Args:
        named: Sources, or ``all``.
        sources: Of the corpus.

    Raises:
        ConfigError: If one is unknown, or there are fewer than two.
    """
    names = sorted(sources) if list(named) == ALL else sorted(set(named))
    for name in names:
        if name not in sources:
            raise ConfigError(f"true_domains={name!r}: no source of the text{suggestion(name, sources)}")
    if len(names) == 1:
        raise ConfigError(f"true_domains={names[0]!r}: one domain; with a single one every cluster is pure")
    return names


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
    """Share of units whose domain is their cluster's most frequent one; not below the largest domain's share.

    Args:
        counts: Of :func:`contingency`.

    References:
        Manning, Raghavan and Schütze 2008, Introduction to information retrieval, section 16.3. Aharoni and Goldberg
        2020, section 2.4.
    """
    return float(counts.max(1).sum() / counts.sum())


def confusion(counts: np.ndarray) -> np.ndarray:
    """Units of each true domain by the domain that their cluster is mapped to, int64 of shape (domains, domains).

    Args:
        counts: Of :func:`contingency`.
    """
    return np.stack([counts[majority(counts) == domain].sum(0) for domain in range(counts.shape[1])], axis=1)


def surface_of(texts: Sequence[str]) -> pd.DataFrame:
    """What can be counted in texts, a row each.

    Returns:
        tokens (words and single marks of punctuation), digits (whether there are any), conversational (whether there is
        a personal pronoun of English, or a question mark).

    References:
        Aharoni and Goldberg 2020, section 2.6; their tokens and pronouns are not specified.
    """
    tokens = [TOKEN.findall(text) for text in texts]
    conversational = [not PRONOUNS.isdisjoint(map(str.casefold, words)) or "?" in words for words in tokens]
    digits = [bool(DIGIT.search(text)) for text in texts]
    return pd.DataFrame({"tokens": list(map(len, tokens)), "digits": digits, "conversational": conversational})


def outlier_table(true: np.ndarray, assigned: np.ndarray, names: Sequence[str], surface: pd.DataFrame) -> pd.DataFrame:
    """Outliers by the domain that attracts them, the most attractive first, then all outliers, then all units.

    Args:
        true: int of shape (units,), each one's domain.
        assigned: int of shape (units,), the domain that its cluster is mapped to.
        names: Of the domains.
        surface: Of :func:`surface_of`.

    Returns:
        Columns domain, units, share (of all units), tokens (mean), digits and conversational (shares of the units).
    """
    is_outlier = np.asarray(true != assigned)
    groups = [(name, surface[is_outlier & (assigned == domain)]) for domain, name in enumerate(names)]
    groups.sort(key=lambda group: -len(group[1]))
    groups += [("all outliers", surface[is_outlier]), ("all units", surface)]
    sizes = [{"domain": name, "units": len(units), "share": len(units) / len(surface)} for name, units in groups]
    return pd.DataFrame(sizes).join(pd.DataFrame([units.mean() for _, units in groups]))


def outlier_examples(sample: pd.DataFrame, true: np.ndarray, assigned: np.ndarray, most: int) -> pd.DataFrame:
    """The clearest outliers of each pair of domains: those nearest to the centre of the wrong cluster.

    Args:
        sample: A row a unit: text (of equal ones the first is taken), nearness (log density of its own component).
        true: int of shape (units,), each one's domain.
        assigned: The same, of its cluster.
        most: So many of each pair.

    Returns:
        Rows of the sample, with true and assigned, in order of the pairs.
    """
    pair = ["true", "assigned"]
    units = sample.assign(true=true, assigned=assigned).sort_values("nearness", ascending=False, kind="stable")
    outliers = units[units["true"] != units["assigned"]].drop_duplicates([*pair, "text"])
    return outliers.groupby(pair).head(most).sort_values(pair, kind="stable")


def topic_clusters(texts: Sequence[str], k: int, seed: int) -> np.ndarray:
    """The most likely topic of each text, of latent Dirichlet allocation by scikit-learn, fitted on these texts.

    Words of two letters or more, in lower case, are counted; priors are 1/k, ten passes of variational Bayes.

    Args:
        texts: Units.
        k: Number of topics.
        seed: Where the fit begins.

    Returns:
        int64 of shape (texts,), from 0. A text without a word is of topic 0.

    Raises:
        DataError: If there is no word in all texts.

    References:
        Blei, Ng and Jordan 2003, Latent Dirichlet allocation. Aharoni and Goldberg 2020, section 2.3, by Gensim.
    """
    try:
        counts = CountVectorizer(token_pattern=WORD).fit_transform(texts)
    except ValueError as error:
        raise DataError(f"k={k}: no topics without words: none of the {len(texts)} texts has one") from error
    with threadpool_limits(1):  # sums in another order would change the last bits
        model = LatentDirichletAllocation(k, random_state=derive_seed(seed, "topics") % 2**32)
        return model.fit_transform(counts).argmax(1)


def random_clusters(units: int, k: int, seed: int) -> np.ndarray:
    """A cluster a unit, each of the k equally likely.

    Their purity over d equal domains lies a little above 1/d, the least that purity can be.

    Args:
        units: How many.
        k: Number of clusters.
        seed: Of the draw.

    Returns:
        int64 of shape (units,), from 0.

    References:
        Aharoni and Goldberg 2020, section 2.3; the purities in their Table 1, 15 to 18 % over five equal domains, are
        below that least, 20 %.
    """
    return generator(seed, "random clusters").integers(0, k, units)
