"""A topic model whose numbers are written down, and labelled texts about its topics: what these tests share."""

import torch

from dana.studies.augmentation.synthetic import LabelledText
from dana.studies.topics.model import FittedDirichletTopics, Topics

WORDS = ("film", "actor", "scene", "court", "judge", "appeal", "yeast", "enzyme", "cell", "drama")
FILMS, COURTS, CELLS = 0, 1, 2


def few_topics() -> Topics:
    """Three topics over ten words: three words of its own each, and "drama", which films and courts share."""
    few = [0.1] * 3
    counts = [
        [50, 30, 20, *few, *few, 5],
        [*few, 40, 40, 10, *few, 9],
        [*few, *few, 20, 30, 60, 0.1],
    ]
    return Topics(
        "lda", WORDS, FittedDirichletTopics(torch.tensor(counts, dtype=torch.float64), 0.1)
    )


ROWS = [
    LabelledText("n1", "The court heard the judge. Court adjourned!", "news"),
    LabelledText("n2", "An appeal to the court, said the judge.", "news"),
    LabelledText("n3", "A judge and an appeal made the news.", "news"),
    LabelledText("r1", "I loved this Film and its actor, the FILM is great.", "review"),
    LabelledText("r2", "Five stars: what a scene, what an actor.", "review"),
    LabelledText("r3", "Would not see the scene again; the drama bores.", "review"),
]
