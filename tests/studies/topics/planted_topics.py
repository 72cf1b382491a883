"""Documents drawn from known topics: what tests of topic models share."""

from functools import cache

import numpy as np
from scipy.sparse import csr_matrix

from dana.studies.topics.model import Bags

TOPICS, WORDS, DOCUMENTS, LENGTH = 3, 30, 600, 60


@cache
def known_topics() -> tuple[Bags, np.ndarray, np.ndarray]:
    """Documents; the shares of three topics in each, and the words of each topic: ten of its own hold nine tenths."""
    random = np.random.default_rng(0)
    beta = np.full((TOPICS, WORDS), 0.1 / WORDS)
    for topic in range(TOPICS):
        beta[topic, topic * 10 : topic * 10 + 10] += 0.9 * random.dirichlet(np.full(10, 5.0))
    theta = random.dirichlet(np.full(TOPICS, 0.3), DOCUMENTS)
    counts = np.stack([random.multinomial(LENGTH, row @ beta) for row in theta])
    return Bags(tuple(f"word{number:02d}" for number in range(WORDS)), csr_matrix(counts)), theta, beta


def agreement(fitted_beta: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each true topic, the place of the fitted one that is nearest, and their cosine."""
    norms = np.linalg.norm(beta, axis=1)[:, None] * np.linalg.norm(fitted_beta, axis=1)
    cosines = beta @ fitted_beta.T / norms
    return cosines.argmax(1), cosines.max(1)
