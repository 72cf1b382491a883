"""Draw the items of a few-shot study.

An item is a text, two candidate classes, and examples of both on and off the text's topic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from dana.core.artifacts import open_artifact
from dana.core.errors import DataError
from dana.core.rng import generator
from dana.stages.settings import RunSettings
from dana.studies.few_shot import ARMS
from dana.studies.topic_gap.documents import TopicSplit, split_by_topic
from dana.studies.topic_gap.stage import (
    SHARES,
    check_task_of_topics,
    open_documents,
    prepare_shares,
    select_topics,
)

# Disjoint texts of a topic by set (``test`` to classify; ``on`` and ``off`` as examples), then by
# label.
TopicTexts = Mapping[str, Mapping[str, Sequence["Passage"]]]


@dataclass(frozen=True)
class Passage:
    """A text.

    Attributes:
        id: Id of its document.
        text: Never empty.
    """

    id: str
    text: str


@dataclass(frozen=True)
class Item:
    """A text to classify as one of two classes, with examples.

    Attributes:
        id: Unique in the study.
        topic: Number of the text's topic.
        label_a: Label of class A.
        label_b: Label of class B.
        text: The text to classify.
        label: Its true label, one of the two.
        examples: Examples of class A and of class B by arm, equally many; the text is none of them.
    """

    id: str
    topic: str
    label_a: str
    label_b: str
    text: Passage
    label: str
    examples: dict[str, list[list[Passage]]]


def items_of_task(settings: RunSettings, card: str) -> tuple[dict[str, Any], list[Item]]:
    """Draw the items of a task from the sets of the topic gap.

    Texts are from ``test``, examples from ``on`` and ``off``. Reads the task, fits or opens topics,
    and computes the documents' shares.

    Args:
        settings: Settings of the run: ``few_shot``, ``topics``, ``topic_gap`` without n, arms and
            validation, ...
        card: Name or YAML file of a task card, with one label per text.

    Returns:
        Inputs of the fingerprint, and the items.

    Raises:
        ConfigError: If a name or number is unknown.
        DataError: If there are too few documents, or no topic separates them.
    """
    study = settings.section("few_shot")
    gap = settings.section("topic_gap")
    seed = settings.selection.seed
    check_task_of_topics(card, settings)
    split = TopicSplit(study.n, gap.test, 0, gap.draw, seed)
    steps = prepare_shares(card, settings, [split])
    documents, theta = open_documents(steps)
    topics, _ = select_topics(documents, theta, gap.topics, [split])
    texts: dict[str, TopicTexts] = {}
    for topic in topics:
        sets = split_by_topic(documents, theta[:, topic], split)
        texts[str(topic)] = _passages_by_set(documents.assign(set=sets))
    inputs = {
        "shares": open_artifact(steps / "shares", SHARES).fingerprint,
        "topics": topics,
        "split": asdict(split),
        "items": study.items,
        "shots": study.shots,
    }
    return inputs, draw_items(texts, study.items, study.shots, seed)


def _passages_by_set(documents: pd.DataFrame) -> TopicTexts:
    """Group documents by set, then by label.

    Args:
        documents: One row per document: id, label, whole, set.
    """
    by_set: dict[str, dict[str, list[Passage]]] = {}
    for part, of_part in documents.groupby("set"):
        by_set[str(part)] = {}
        for label, rows in of_part.groupby("label"):
            by_set[str(part)][str(label)] = list(map(Passage, rows["id"], rows["whole"]))
    return by_set


def draw_items(topics: Mapping[str, TopicTexts], count: int, shots: int, seed: int) -> list[Item]:
    """Draw items.

    Drawn are a topic and a pair of labels, the order of the labels, the label and the text to
    classify, and examples. Each topic and pair is drawn once before any is drawn again, and each
    text at most once. A larger count begins with the same items.

    Args:
        topics: Texts by number of the topic, all with the same labels and at least `shots` examples
            of each.
        count: Number of items.
        shots: Examples of each label and arm.
        seed: Root seed.

    Raises:
        DataError: If a label has too few texts in a topic.

    References:
        Roussinov and Sharoff 2023, section 4.3: 72 random triples, five random examples of each
        genre.
    """
    triples = []  # of a topic and two labels
    for topic, sets in topics.items():
        for pair in combinations(sorted(sets["test"]), 2):
            triples.append((topic, pair))
    if not triples:
        raise DataError(f"items: expected texts of two labels or more in {len(topics)} topics")
    used_ids: set[str] = set()
    items: list[Item] = []
    while len(items) < count:
        order = generator(seed, "few-shot", "triples", len(items)).permutation(len(triples))
        for number in order[: count - len(items)]:
            topic, pair = triples[number]
            sets = topics[topic]
            random = generator(seed, "few-shot", "item", len(items))
            labels = pair if random.random() < 0.5 else pair[::-1]
            label = labels[0] if random.random() < 0.5 else labels[1]
            test_texts = sets["test"][label]
            candidates = [text for text in test_texts if text.id not in used_ids]
            if not candidates:
                raise DataError(
                    f"items={count}: all {len(test_texts)} test texts of label {label!r} in topic"
                    f" {topic} are used after {len(items)} items; lower items or raise test"
                )
            text = candidates[random.integers(len(candidates))]
            examples = {}
            for arm in ARMS:
                examples[arm] = [_draw_examples(sets[arm][name], shots, random) for name in labels]
            item = Item(
                id=str(len(items)),
                topic=topic,
                label_a=labels[0],
                label_b=labels[1],
                text=text,
                label=label,
                examples=examples,
            )
            items.append(item)
            used_ids.add(text.id)
    return items


def _draw_examples(
    passages: Sequence[Passage], shots: int, random: np.random.Generator
) -> list[Passage]:
    return [passages[number] for number in random.permutation(len(passages))[:shots]]
