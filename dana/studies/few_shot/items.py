"""Items of a few-shot study (a text, two classes, examples by arm): drawn from a task, or read from JSON lines."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.artifacts import open_artifact
from dana.core.errors import Damage, DataError, nearest_path
from dana.core.files import file_digest, json_lines
from dana.core.lines import read_lines
from dana.core.rng import generator
from dana.corpus.readers import parse_json_lines
from dana.stages.settings import RunSettings
from dana.studies.topic_gap.documents import SetSizes, split_by_topic
from dana.studies.topic_gap.settings import ALL
from dana.studies.topic_gap.stage import SHARES, check_task_of_topics, degenerate_topics, open_documents, prepare_shares

PassagesByLabel = Mapping[str, Sequence["Passage"]]


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
        topic: Of the text, in words or as a number.
        label_a: Label of class A.
        label_b: Label of class B.
        text: To be classified.
        label: Of the text: one of the two.
        examples: By arm, the examples of class A and those of class B.
    """

    id: str
    topic: str
    label_a: str
    label_b: str
    text: Passage
    label: str
    examples: dict[str, tuple[tuple[Passage, ...], tuple[Passage, ...]]]

    def __post_init__(self) -> None:
        if self.label_a == self.label_b or self.label not in (self.label_a, self.label_b):
            labels = f"label={self.label!r}, label_a={self.label_a!r}, label_b={self.label_b!r}"
            raise DataError(f"item {self.id}: {labels}: must be two labels, and the text's must be one of them")
        for arm, (of_a, of_b) in self.examples.items():
            place = f"item {self.id}: arm {arm!r}"
            if not of_a or len(of_a) != len(of_b):
                raise DataError(f"{place}: {len(of_a)} and {len(of_b)} examples; must be equally many")
            if self.text.id in {example.id for example in (*of_a, *of_b)}:
                raise DataError(f"{place}: its text {self.text.id!r} is also an example")


@dataclass(frozen=True)
class TopicTexts:
    """Texts of a topic, by label; no text is in two places.

    Attributes:
        topic: Its number or name.
        test: To ask about, on topic.
        examples: By arm, to show.
    """

    topic: str
    test: PassagesByLabel
    examples: Mapping[str, PassagesByLabel]


def item_source(
    settings: RunSettings, card: str | None, items_from: Path | None
) -> tuple[dict[str, Any], Callable[[], list[Item]]]:
    """All that decides the items, and what makes them.

    Of a card they are drawn from the on- and off-topic sets of a task, which are those of the topic gap: the text is of
    the set to test, on topic; examples on topic are of the set to train on there, those off topic of the other. The
    task is read, topics are fitted or opened, and documents get their shares, now.

    Args:
        settings: Of the run: ``few_shot``, ``topic_gap`` but for its n, arms and validation texts, ``topics``, ...
        card: A task card's name or YAML file, of one label a text; None takes a file of items.
        items_from: See :func:`read_items`.

    Raises:
        ConfigError: If a name or number is not one that there is.
        DataError: If there are too few documents, or no topic tells them apart.
    """
    asked, gap, seed = settings.section("few_shot"), settings.section("topic_gap"), settings.selection.seed
    if card is None:
        path = Path(str(items_from))
        return {"file": file_digest(path) if path.is_file() else None}, lambda: read_items(path, asked.arms)
    check_task_of_topics(card, settings)
    sizes = SetSizes(asked.n, gap.test, 0)
    folders = prepare_shares(card, settings, [sizes])
    documents, theta = open_documents(Path(folders["pool"]), Path(folders["shares"]))
    topics = list(range(theta.shape[1])) if gap.topics == [ALL] else [int(topic) for topic in gap.topics]
    left_out = degenerate_topics(documents, theta, topics, [sizes], settings)
    topics = [topic for topic in topics if topic not in left_out]
    shares = open_artifact(Path(folders["shares"]), SHARES).fingerprint
    drawn = {"draw": gap.draw, "items": asked.items, "shots": asked.shots}

    def by_label(chosen: np.ndarray) -> PassagesByLabel:
        rows = documents[chosen]
        return {str(label): list(map(Passage, of["id"], of["whole"])) for label, of in rows.groupby("label")}

    def draw() -> list[Item]:
        texts = []
        for topic in topics:
            sets = split_by_topic(documents, theta[:, topic], sizes, gap.draw, seed)
            examples = {arm: by_label(sets == arm) for arm in asked.arms}
            texts.append(TopicTexts(str(topic), by_label(sets == "test"), examples))
        return draw_items(texts, asked.items, asked.shots, seed)

    return {"shares": shares, "topics": topics, "sizes": asdict(sizes), **drawn}, draw


def draw_items(topics: Sequence[TopicTexts], items: int, shots: int, seed: int) -> list[Item]:
    """Draw items: a pair of labels and a topic, which label is class A, a text of either with equal chance, examples.

    Triples are drawn without putting back until all were there, and then anew; no text is asked about twice. More items
    begin with the same ones, and all arms of an item have the same text.

    Args:
        topics: All with the same labels and arms.
        items: How many.
        shots: Examples of each label and arm.
        seed: Root seed.

    Raises:
        DataError: If a label has too few texts in a topic.

    References:
        Roussinov and Sharoff 2023, section 4.3: 72 random triples, five random examples of each genre.
    """
    triples = [(topic, pair) for topic in topics for pair in combinations(sorted(topic.test), 2)]
    if not triples:
        raise DataError(f"items: {len(topics)} topics with texts of fewer than two labels; there is nothing to part")
    asked: set[str] = set()
    drawn: list[Item] = []
    while len(drawn) < items:
        order = generator(seed, "few-shot", "triples", len(drawn)).permutation(len(triples))
        for place in order[: items - len(drawn)]:
            topic, pair = triples[place]
            random = generator(seed, "few-shot", "item", len(drawn))
            label_a, label_b = pair if random.random() < 0.5 else pair[::-1]
            label = label_a if random.random() < 0.5 else label_b
            left = [text for text in topic.test[label] if text.id not in asked]
            if not left:
                texts = f"all {len(topic.test[label])} texts to test of label {label!r} in topic {topic.topic}"
                remedy = "ask for fewer items, or test more"
                raise DataError(f"items: {texts} are asked about after {len(drawn)} items; {remedy}")
            text = left[random.integers(len(left))]
            examples = {
                arm: (
                    _shown(of[label_a], label_a, shots, topic, random),
                    _shown(of[label_b], label_b, shots, topic, random),
                )
                for arm, of in topic.examples.items()
            }
            drawn.append(Item(str(len(drawn)), topic.topic, label_a, label_b, text, label, examples))
            asked.add(text.id)
    return drawn


def _shown(
    passages: Sequence[Passage], label: str, shots: int, topic: TopicTexts, random: np.random.Generator
) -> tuple[Passage, ...]:
    """Examples of a label in an arm, without repeats."""
    if len(passages) < shots:
        raise DataError(f"shots={shots}: label {label!r} has {len(passages)} texts to show in topic {topic.topic}")
    return tuple(passages[place] for place in random.permutation(len(passages))[:shots])


def item_line(item: Item) -> str:
    """An item as a line of JSON."""
    return json_lines([asdict(item)])


def read_items(path: Path, arms: Sequence[str]) -> list[Item]:
    """Read what :func:`item_line` wrote, or items of one's own of the same form.

    Args:
        path: JSONL.
        arms: That each item must have examples for; others are left out.

    Raises:
        DataError: Naming file and line, if it is no item or its id was there before; or if there is none.
    """
    items: dict[str, Item] = {}
    for place, values in json_objects(path):
        try:
            item = _item(values, arms)
            item_line(item).encode()
        except (KeyError, TypeError, UnicodeEncodeError, DataError) as error:  # half a surrogate pair cannot be encoded
            problem = f"no {error}" if isinstance(error, KeyError) else error
            raise DataError(f"{place}: no item: {problem}") from error
        if items.setdefault(item.id, item) is not item:
            raise DataError(f"{place}: the id {item.id!r} was there before")
    if not items:
        raise DataError(f"{path}: holds no items")
    return list(items.values())


def json_objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with its file and line; a line separator within ends no line.

    Raises:
        DataError: If the file cannot be read, or naming the line that holds no object.
    """
    if not path.is_file():
        raise DataError(f"{path}: cannot be read: no such file{nearest_path(path)}")
    try:
        for record in parse_json_lines(path, read_lines(path, "strict")):
            if record.problem:
                raise DataError(f"{record.place}: {record.problem}")
            yield record.place, record.fields
    except Damage as damage:
        raise DataError(f"{path}:{damage.line}: {damage}") from damage


def _item(values: Mapping[str, Any], arms: Sequence[str]) -> Item:
    examples = {arm: tuple(map(_passages, values["examples"][arm])) for arm in arms}
    if any(len(classes) != 2 for classes in examples.values()):
        raise DataError("examples of an arm must be two lists, of class A and of class B")
    strings = {key: str(values[key]) for key in ("id", "topic", "label_a", "label_b", "label")}
    return Item(**strings, text=_passages([values["text"]])[0], examples=examples)  # type: ignore[arg-type]


def _passages(values: Any) -> tuple[Passage, ...]:
    passages = tuple(Passage(str(value["id"]), value["text"]) for value in values)
    for passage in passages:
        if not isinstance(passage.text, str) or not passage.text.strip():
            raise DataError(f"the text of {passage.id!r} is empty, or no text")
    return passages
