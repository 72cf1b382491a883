"""Measure the topic gap: what a classifier loses if it is trained off its test topic."""

from dana.core.studies import Study

HELP = "Measure how much a classifier relies on topic: train on or off a topic, test on it"
STUDY = Study(
    "topic_gap",
    settings=f"{__name__}.settings:TopicGapSettings",
    commands={"topic-gap": (HELP, f"{__name__}.command:add_topic_gap")},
)
