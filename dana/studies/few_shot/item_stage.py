"""Items of the few-shot study: a task's documents, their topics and sets to triples by lot; or a file of items."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.artifacts import open_artifact
from dana.core.files import file_digest
from dana.stages.settings import RunSettings
from dana.studies.few_shot.drawing import TopicTexts, draw_items
from dana.studies.few_shot.items import Item, Passage, read_items
from dana.studies.topic_gap.cells import SHARES, open_documents
from dana.studies.topic_gap.pool import LabelledDocuments
from dana.studies.topic_gap.settings import ALL
from dana.studies.topic_gap.splits import SetSizes, TopicSplit, split_by_topic
from dana.studies.topic_gap.stage import check_task_of_topics, degenerate_topics, prepare_shares


@dataclass(frozen=True)
class ItemSource:
    """Where items are from.

    Attributes:
        depends_on: All that decides them.
        read: Makes them.
    """

    depends_on: dict[str, Any]
    read: Callable[[], list[Item]]


def items_of_file(path: Path, settings: RunSettings) -> ItemSource:
    """The items of a file, see :func:`dana.studies.few_shot.items.read_items`."""
    digest = file_digest(path) if path.is_file() else None
    return ItemSource({"file": digest}, lambda: read_items(path, settings.section("few_shot").arms))


def items_of_card(card: str, settings: RunSettings) -> ItemSource:
    """Items drawn from the on- and off-topic sets of a task, which are those of the topic gap.

    The text is of the set to test, on topic; examples on topic are of the set to train on there, those off topic of
    the other. The task is read, topics are fitted or opened, and documents get their shares, now.

    Args:
        card: A task card's name or YAML file, of one label a text.
        settings: Of the run: ``few_shot``, ``topic_gap`` but for its n, arms and validation texts, ``topics``, ...

    Raises:
        ConfigError: If a name or number is not one that there is.
        DataError: If there are too few documents, or no topic tells them apart.
    """
    asked, gap, seed = settings.section("few_shot"), settings.section("topic_gap"), settings.selection.seed
    check_task_of_topics(card, settings)
    sizes = SetSizes(asked.n, gap.test, 0)
    made = prepare_shares(card, settings, [sizes])
    documents, theta = open_documents(Path(made["pool"]), Path(made["shares"]))
    topics = list(range(theta.shape[1])) if gap.topics == [ALL] else [int(topic) for topic in gap.topics]
    left_out = degenerate_topics(documents, theta, topics, [sizes], settings)
    told = [topic for topic in topics if topic not in left_out]
    depends_on: dict[str, Any] = {"shares": open_artifact(Path(made["shares"]), SHARES).fingerprint, "topics": told}
    depends_on |= {"sizes": asdict(sizes), "draw": gap.draw, "items": asked.items, "shots": asked.shots}

    def read() -> list[Item]:
        drawn_from = []
        for topic in told:
            split = split_by_topic(documents.id, documents.label, theta[:, topic], sizes, gap.draw, seed)
            drawn_from.append(_texts(topic, documents, split, asked.arms))
        return draw_items(drawn_from, asked.items, asked.shots, seed)

    return ItemSource(depends_on, read)


def _texts(topic: int, documents: LabelledDocuments, split: TopicSplit, arms: list[str]) -> TopicTexts:
    def of(places: np.ndarray) -> dict[str, list[Passage]]:
        found: dict[str, list[Passage]] = {label: [] for label in sorted(set(documents.label))}
        for at in map(int, places):
            found[documents.label[at]].append(Passage(documents.id[at], documents.whole[at]))
        return found

    return TopicTexts(str(topic), of(split.test), {arm: of(getattr(split, arm)) for arm in arms})
