"""Baselines of clustering: texts to clusters by a topic model, and by chance; neither sees a vector."""

from collections.abc import Sequence

import numpy as np

from dana.core.errors import DataError
from dana.core.rng import derive_seed, generator
from dana.studies.clusters.names import WORD


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
    from sklearn.decomposition import LatentDirichletAllocation
    from sklearn.feature_extraction.text import CountVectorizer
    from threadpoolctl import threadpool_limits

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
