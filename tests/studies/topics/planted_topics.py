"""Documents drawn from known topics: what tests of topic models share."""

from functools import cache

import numpy as np
from scipy.sparse import csr_matrix

from dana.studies.topics.model import Bags

DOCUMENTS, LENGTH, CLARITY = 600, 60, 0.9


@cache
def known_topics(topics: int = 3, own: int = 10) -> tuple[Bags, np.ndarray, np.ndarray]:
    """Documents; the shares of topics in each, and the words of each topic: some of its own hold nine tenths."""
    random, words = np.random.default_rng(0), topics * own
    beta = np.full((topics, words), (1 - CLARITY) / words)
    for topic in range(topics):
        beta[topic, topic * own : topic * own + own] += CLARITY * random.dirichlet(
            np.full(own, 5.0)
        )
    theta = random.dirichlet(np.full(topics, 0.9 / topics), DOCUMENTS)
    counts = np.stack([random.multinomial(LENGTH, row @ beta) for row in theta])
    return (
        Bags(tuple(f"word{number:02d}" for number in range(words)), csr_matrix(counts)),
        theta,
        beta,
    )


def agreement(fitted_beta: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each true topic, the place of the fitted one that is nearest, and their cosine."""
    norms = np.linalg.norm(beta, axis=1)[:, None] * np.linalg.norm(fitted_beta, axis=1)
    cosines = beta @ fitted_beta.T / norms
    return cosines.argmax(1), cosines.max(1)
