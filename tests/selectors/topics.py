"""Made-up texts of two topics, which share no word."""

import numpy as np

WORDS = {"task": ["cell", "gene", "protein", "kinase", "assay"]}
WORDS |= {"other": ["court", "judge", "appeal", "motion", "tort"]}


def texts(kind: str, count: int, seed: int) -> list[str]:
    """So many texts of six words each."""
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS[kind], 6)) for _ in range(count)]
