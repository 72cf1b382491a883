"""The topic gap: labelled documents of a task to on- and off-topic sets, and to what a classifier is trained on."""

from dana.core.studies import Study

STUDY = Study(
    "topic_gap",
    settings=f"{__name__}.settings:TopicGapSettings",
    commands={
        "topic-gap": (
            "Measure how much a classifier leans on topic: train on texts about one or not, test on texts about it",
            f"{__name__}.command:add_topic_gap",
        )
    },
)
