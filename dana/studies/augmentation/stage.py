"""``dana augment``: labelled texts, topics and a keyword pool to synthetic labelled texts, a label at a time."""

import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dana.core.artifacts import Artifact, Draft, fingerprint, make, write_text
from dana.core.config import require
from dana.core.errors import ConfigError, DataError
from dana.core.files import json_lines
from dana.core.logging import get_logger
from dana.core.schemas import Document
from dana.core.text_table import aligned
from dana.corpus.documents import Tally, read_documents
from dana.corpus.readers import read_records
from dana.corpus.text import normalise
from dana.studies.augmentation.synthetic import (
    SYNTHETIC,
    TOPIC,
    AugmentSettings,
    LabelledText,
    Prompt,
    SyntheticRow,
    choose_prompts,
    counts_by_label,
    find_on_topic,
    generator_identity,
    on_topic_prompts,
    read_synthetic,
    refuse_test_text,
    synthesize,
)
from dana.studies.topics.model import Topics
from dana.studies.topics.stage import fitted_topics
from dana.tasks.card import TaskCard
from dana.tasks.examples import read_splits
from dana.tasks.kinds import DEFAULT

log = get_logger(__name__)

ALL = "all"
SHOWN, CHARACTERS = 3, 300
FIELDS = ("id", "text", "label")


@dataclass(frozen=True)
class LabelledData:
    """Texts to augment, and those that are kept away from it.

    Attributes:
        splits: Texts by split: ``train``, and of a card ``dev`` and ``test``.
        fields: What the task card calls id, text and label.
    """

    splits: Mapping[str, Sequence[LabelledText]]
    fields: tuple[str, str, str] = FIELDS


def read_card_texts(card: TaskCard, data: str | None = None) -> LabelledData:
    """The labelled texts of a task card.

    Args:
        card: Of texts with one label each.
        data: See :meth:`dana.tasks.card.TaskCard.files`.

    Raises:
        ConfigError: If the card is of pairs of texts, or of another kind of target.
        DataError: If a split is missing or bad, or a label has no training text.
    """
    if card.kind != DEFAULT or card.text_pair or card.template:
        found = f"kind {card.kind}" if card.kind != DEFAULT else "text_pair" if card.text_pair else "template"
        raise ConfigError(f"task {card.name}: {found}: synthetic texts are of one field and one label")
    splits = {
        split: [LabelledText(example.id, example.text, card.labels[int(str(example.label))]) for example in examples]
        for split, examples in read_splits(card, data).items()
    }
    _check_labels(splits["train"], card.labels, f"task {card.name}")
    return LabelledData(splits, (card.id or "id", card.text, card.label))


def read_labelled_file(path: Path) -> LabelledData:
    """The labelled texts of one file with the fields ``text`` and ``label``; ``id``, or else the line, names a text.

    Raises:
        DataError: Naming file and line of a bad record, a missing field or an empty text; if there are fewer than two
            labels.
    """
    rows = []
    for record in read_records([str(path)]):
        text, label, name = (record.get(field) for field in ("text", "label", "id"))
        held, problem = ", ".join(record.fields) or "nothing", record.problem
        if not problem and (not isinstance(text, str) or not normalise(text)):
            problem = f"no text in the field 'text'; found {held}"
        elif not problem and isinstance(label, list | dict):
            problem = f"label {label!r} is {type(label).__name__}, not one label"
        elif not problem and (label is None or not str(label).strip() or label != label):  # NaN: an empty cell
            problem = f"no label in the field 'label'; found {held}"
        if problem:
            raise DataError(f"{record.place}: {problem}")
        rows.append(LabelledText(f"train-{record.line}" if name is None else str(name), normalise(text), str(label)))
    labels = sorted({row.label for row in rows})
    if len(labels) < 2:
        raise DataError(f"{path}: has {len(labels)} label{'' if len(labels) == 1 else 's'}; a task needs two or more")
    _check_labels(rows, labels, str(path))
    return LabelledData({"train": rows})


def _check_labels(rows: Sequence[LabelledText], labels: Sequence[str], where: str) -> None:
    """Refuse a label without text, and names that synthetic texts will get.

    Raises:
        DataError: Naming the label or the text.
    """
    counts = Counter(row.label for row in rows)
    for label in labels:
        if not counts[label]:
            lacks = "has no training text; a generator of it has nothing to learn from"
            raise DataError(f"{where}: label {label!r} {lacks}")
    augmented = next((row.id for row in rows if row.id.startswith("synthetic-")), None)
    if augmented is not None:
        raise DataError(f"{where}: {augmented!r} is the id of a synthetic text; give the texts as they were before")


def augment_stage(
    data: LabelledData,
    topics_of: Path,
    settings: AugmentSettings,
    out: Path,
    *,
    topic: str | None = None,
    general: Sequence[str] = (),
    transductive: bool = False,
) -> Artifact:
    """Write synthetic texts of every label on a topic, and the training data with them.

    Killed, the same call goes on with the labels that are missing. Same input and seed, same bytes.

    Args:
        data: Texts to augment.
        topics_of: A run's folder with topics.
        settings: See :class:`dana.studies.augmentation.synthetic.AugmentSettings`.
        out: The artifact's folder.
        topic: Number of the topic, from 0, or ``all``: the topics in turn.
        general: Keyword pool: files, folders, globs or ``hf:`` names of text without labels.
        transductive: Let the pool hold test text; without `general`, it is the test text.

    Returns:
        The artifact: ``synthetic.jsonl`` (:class:`dana.studies.augmentation.synthetic.SyntheticRow`), ``train.jsonl``
        (real and synthetic texts with the card's names of id, text and label) and, of a card, ``dev.jsonl`` and
        ``test.jsonl``.

    Raises:
        ConfigError: If the topic is not there, there is no pool, or there is one that the control does not look at.
        DataError: If the pool holds test text, or nothing on the topic.
        ArtifactError: If there are no topics, or the folder holds something else.
    """
    model, train = fitted_topics(topics_of), data.splits["train"]
    topics = Topics.load(model.path)
    identity = generator_identity(settings.generator)
    most = max(counts_by_label(train, settings.ratio).values())
    if settings.control == TOPIC:
        wanted, documents = _wanted(topic, len(topics.beta)), _pool(data, general, transductive)
        prompts = _prompts_on(documents, topics, wanted, settings, most)
    else:
        given = "a topic" if topic is not None else "a keyword pool" if general or transductive else ""
        require(not given, "control", settings.control, f"{TOPIC} where {given} is given")
        prompts = choose_prompts(topics, train, settings)
    splits = {split: [asdict(row) for row in rows] for split, rows in data.splits.items()}
    depends_on = {
        "topics": model.fingerprint,
        "texts": fingerprint([data.fields, splits]),
        "prompts": fingerprint([asdict(prompt) for prompt in prompts]),
        **asdict(settings),
        "generator": identity,
        "topic": topic,
    }
    parts = out.with_name(f"{out.name}-labels-{fingerprint(depends_on)[:12]}")

    def write(draft: Draft) -> None:
        _write_files(draft, data, synthesize(topics, train, prompts, settings, parts))
        draft.seeds["augmentation"] = settings.seed

    artifact = make(out, "augmentation", depends_on, write)
    shutil.rmtree(parts, ignore_errors=True)
    return artifact


def _wanted(topic: str | None, k: int) -> list[int]:
    """Numbers of the topics that are asked for."""
    if topic == ALL:
        return list(range(k))
    known = topic is not None and topic.isdecimal() and int(topic) < k
    require(known, "topic", topic, f"{ALL}, or a number from 0 to {k - 1} (dana topics show says what they are)")
    return [int(str(topic))]


def _pool(data: LabelledData, general: Sequence[str], transductive: bool) -> Iterable[Document]:
    """The keyword pool, checked while it is read."""
    test = data.splits.get("test", ())
    if general:
        documents = read_documents(general, "fail", Tally())
        return documents if transductive else refuse_test_text(documents, test)
    if not transductive:
        raise ConfigError(
            "general: name the keyword pool, text without labels that holds documents on the topic; or take the test "
            "texts (transductive), without their labels"
        )
    if not test:
        raise ConfigError("transductive: there is no test text; a task card has some")
    return [Document(row.id, "test", row.text) for row in test]


def _prompts_on(
    documents: Iterable[Document], topics: Topics, wanted: Sequence[int], settings: AugmentSettings, count: int
) -> list[Prompt]:
    """Prompts of the pool's documents on topics; says what the topics are, and which have no document."""
    on_topic = find_on_topic(documents, topics, wanted, count)
    prompts = on_topic_prompts(topics, on_topic, settings, count)
    for topic in wanted:
        words = " ".join(topics.words[word] for word in topics.beta[topic].argsort()[::-1][:5])
        log.info("topic     %d (%s): %s documents for keywords", topic, words, f"{len(on_topic[topic]):,}")
    return prompts


def _write_files(draft: Draft, data: LabelledData, rows: Sequence[SyntheticRow]) -> None:
    write_text(draft.path / SYNTHETIC, json_lines(map(asdict, rows)))
    for split, real in data.splits.items():
        texts = [*real, *(rows if split == "train" else ())]
        named = (dict(zip(data.fields, (row.id, row.text, row.label), strict=True)) for row in texts)
        write_text(draft.path / f"{split}.jsonl", json_lines(named))
    train, synthetic = data.splits["train"], Counter(row.label for row in rows)
    draft.counts = {
        "real": len(train),
        "synthetic": len(rows),
        "labels": {label: synthetic[label] for label in sorted({row.label for row in train})},
        "documents": len({row.keywords_of for row in rows if row.keywords_of}),
    }


def augmented_text(artifact: Artifact) -> str:
    """What was written: numbers by label, and how the first texts of some labels begin."""
    counts, first = artifact.manifest["counts"], dict[str, SyntheticRow]()
    for row in read_synthetic(artifact.path):
        first.setdefault(row.written_for, row)
    lines = [aligned([{"label": label, "synthetic": count} for label, count in counts["labels"].items()]), ""]
    for row in list(first.values())[:SHOWN]:
        about = f" on topic {row.topic}" if row.topic is not None else ""
        source = f", keywords of {row.keywords_of}: {' '.join(row.keywords)}" if row.keywords else ""
        lines += [f"{row.id} ({row.label}{about}{source})", f"  {' '.join(row.text.split())[:CHARACTERS]}", ""]
    numbers = f"{counts['real']:,} real and {counts['synthetic']:,} synthetic texts"
    return "\n".join([*lines, f"{numbers}, keywords of {counts['documents']:,} documents"])
