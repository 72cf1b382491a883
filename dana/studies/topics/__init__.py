"""Fit topic models and compute each document's shares of topics.

Models are embedded topics and latent Dirichlet allocation.
"""

from dana.core.studies import Study

HELP = "Fit topics to the pool, show them, or compute each document's shares"
STUDY = Study(
    "topics",
    settings=f"{__name__}.settings:TopicSettings",
    commands={"topics": (HELP, f"{__name__}.command:add_topics")},
)
