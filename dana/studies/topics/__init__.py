"""Topics: documents to shares of topics, topics to words; by an embedded topic model or latent Dirichlet allocation."""

from dana.core.studies import Study

STUDY = Study(
    "topics",
    settings=f"{__name__}.settings:TopicSettings",
    commands={
        "topics": (
            "Fit topics to the general text, show what they are, or say of each document how much of it is of each",
            f"{__name__}.command:add_topics",
        )
    },
)
