"""Items of a few-shot study: a text of a task, two classes it may be of, and examples of both, on and off its topic."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from dana.core.artifacts import open_artifact
from dana.core.errors import DataError
from dana.core.rng import generator
from dana.stages.settings import RunSettings
from dana.studies.few_shot import ARMS
from dana.studies.topic_gap.documents import TopicSplit, split_by_topic
from dana.studies.topic_gap.stage import SHARES, check_task_of_topics, measured_topics, open_documents, prepare_shares

# The texts of a topic by set (``test`` to ask about, and an arm's to show), then by label; none is in two of them.
TopicTexts = Mapping[str, Mapping[str, Sequence["Passage"]]]


@dataclass(frozen=True)
class Passage:
    """A text.

    Attributes:
        id: Of the document that it is from.
        text: Never empty.
    """

    id: str
    text: str


@dataclass(frozen=True)
class Item:
    """One question: which of two classes a text is of.

    Attributes:
        id: Unique in the study.
        topic: Number of the text's.
        label_a: Label of class A.
        label_b: Label of class B.
        text: To be classified.
        label: Of the text: one of the two.
        examples: By arm those of class A, then those of class B, as many; none is the text.
    """

    id: str
    topic: str
    label_a: str
    label_b: str
    text: Passage
    label: str
    examples: dict[str, list[list[Passage]]]


def items_of_task(settings: RunSettings, card: str) -> tuple[dict[str, Any], list[Item]]:
    """All that decides the items of a task, and the items.

    They are drawn from the on- and off-topic sets of a task, which are those of the topic gap: the text is of the set
    to test, on topic; examples on topic are of the set to train on there, those off topic of the other. The task is
    read, topics are fitted or opened, and documents get their shares.

    Args:
        settings: Of the run: ``few_shot``, ``topic_gap`` but for its n, arms and validation texts, ``topics``, ...
        card: A task card's name or YAML file, of one label a text.

    Raises:
        ConfigError: If a name or number is not one that there is.
        DataError: If there are too few documents, or no topic tells them apart.
    """
    asked, gap, seed = settings.section("few_shot"), settings.section("topic_gap"), settings.selection.seed
    check_task_of_topics(card, settings)
    split = TopicSplit(asked.n, gap.test, 0, gap.draw, seed)
    grid = prepare_shares(card, settings, [split])
    documents, theta = open_documents(grid)
    topics, _ = measured_topics(documents, theta, gap.topics, [split])
    shares = open_artifact(grid / "shares", SHARES).fingerprint

    texts: dict[str, TopicTexts] = {}
    for topic in topics:
        sets = documents.assign(set=split_by_topic(documents, theta[:, topic], split))
        texts[str(topic)] = {
            str(part): {str(label): list(map(Passage, of["id"], of["whole"])) for label, of in rows.groupby("label")}
            for part, rows in sets.groupby("set")
        }
    decides = {"shares": shares, "topics": topics, "split": asdict(split), "items": asked.items, "shots": asked.shots}
    return decides, draw_items(texts, asked.items, asked.shots, seed)


def draw_items(topics: Mapping[str, TopicTexts], items: int, shots: int, seed: int) -> list[Item]:
    """Draw items: a pair of labels and a topic, which label is class A, a text of either with equal chance, examples.

    Triples are drawn without putting back until all were there, and then anew; no text is asked about twice. More items
    begin with the same ones, and all arms of an item have the same text.

    Args:
        topics: By number, all with the same labels, and at least `shots` examples of each.
        items: How many.
        shots: Examples of each label and arm.
        seed: Root seed.

    Raises:
        DataError: If a label has too few texts in a topic.

    References:
        Roussinov and Sharoff 2023, section 4.3: 72 random triples, five random examples of each genre.
    """
    triples = [(topic, pair) for topic, sets in topics.items() for pair in combinations(sorted(sets["test"]), 2)]
    if not triples:
        raise DataError(f"items: {len(topics)} topics with texts of fewer than two labels; there is nothing to part")
    asked: set[str] = set()
    drawn: list[Item] = []
    while len(drawn) < items:
        order = generator(seed, "few-shot", "triples", len(drawn)).permutation(len(triples))
        for place in order[: items - len(drawn)]:
            topic, pair = triples[place]
            random = generator(seed, "few-shot", "item", len(drawn))
            labels = pair if random.random() < 0.5 else pair[::-1]
            label = labels[0] if random.random() < 0.5 else labels[1]
            of_label = topics[topic]["test"][label]
            left = [text for text in of_label if text.id not in asked]
            if not left:
                texts = f"all {len(of_label)} texts to test of label {label!r} in topic {topic}"
                remedy = "ask for fewer items, or test more"
                raise DataError(f"items: {texts} are asked about after {len(drawn)} items; {remedy}")
            text = left[random.integers(len(left))]
            examples = {arm: [_shown(topics[topic][arm][name], shots, random) for name in labels] for arm in ARMS}
            drawn.append(Item(str(len(drawn)), topic, labels[0], labels[1], text, label, examples))
            asked.add(text.id)
    return drawn


def _shown(passages: Sequence[Passage], shots: int, random: np.random.Generator) -> list[Passage]:
    """Examples of a label in an arm, without repeats."""
    return [passages[place] for place in random.permutation(len(passages))[:shots]]
