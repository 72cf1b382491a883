"""``dana augment``: labelled texts, topics and a keyword pool to synthetic labelled texts, a label at a time."""

import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from dana.core.artifacts import Artifact, Draft, fingerprint, make, write_text
from dana.core.config import require
from dana.core.errors import ConfigError, DataError
from dana.core.files import json_lines
from dana.core.schemas import Document
from dana.core.text_table import aligned
from dana.corpus.documents import Tally, read_documents
from dana.studies.augmentation.synthetic import (
    SYNTHETIC,
    TOPIC,
    AugmentSettings,
    LabelledText,
    SyntheticRow,
    choose_prompts,
    counts_by_label,
    find_on_topic,
    generator_identity,
    on_topic_prompts,
    refuse_test_text,
    synthesize,
)
from dana.studies.topics.model import Topics
from dana.studies.topics.stage import open_topics
from dana.tasks.card import TaskCard
from dana.tasks.examples import read_splits
from dana.tasks.kinds import DEFAULT

Splits = Mapping[str, Sequence[LabelledText]]  # train, dev and test


def read_card_texts(card: TaskCard, data: str | None = None) -> Splits:
    """The labelled texts of a task card, by split.

    Args:
        card: Of texts with one label each.
        data: See :meth:`dana.tasks.card.TaskCard.files`.

    Raises:
        ConfigError: If the card is of pairs of texts, or of another kind of target.
        DataError: If a split is missing or bad, a label has no training text, or a text has the id of a synthetic one.
    """
    if card.kind != DEFAULT or card.text_pair or card.template:
        given = f"kind {card.kind}" if card.kind != DEFAULT else "text_pair" if card.text_pair else "template"
        raise ConfigError(f"task {card.name}: {given}: synthetic texts are of one field and one label")
    splits = {
        split: [LabelledText(example.id, example.text, card.labels[int(str(example.label))]) for example in examples]
        for split, examples in read_splits(card, data).items()
    }
    train = splits["train"]
    if lacking := [label for label in card.labels if label not in {row.label for row in train}]:
        problem = "has no training text; a generator of it has nothing to learn from"
        raise DataError(f"task {card.name}: label {lacking[0]!r} {problem}")
    if augmented := [row.id for row in train if row.id.startswith("synthetic-")]:
        problem = "is the id of a synthetic text; give the texts as they were before"
        raise DataError(f"task {card.name}: {augmented[0]!r} {problem}")
    return splits


def augment_stage(
    card: TaskCard,
    data: str | None,
    topics_of: Path,
    settings: AugmentSettings,
    out: Path,
    *,
    topic: int | None = None,
    general: Sequence[str] = (),
    transductive: bool = False,
) -> Artifact:
    """Write synthetic texts of every label on a topic, and the training data with them.

    Killed, the same call goes on with the labels that are missing. Same input and seed, same bytes.

    Args:
        card: Of the texts to augment.
        data: Folder of its data, see :func:`read_card_texts`.
        topics_of: A run's folder with topics.
        settings: See :class:`dana.studies.augmentation.synthetic.AugmentSettings`.
        out: The artifact's folder.
        topic: Number of the topic, from 0.
        general: Keyword pool: files, folders, globs or ``hf:`` names of text without labels.
        transductive: Let the pool hold test text; without `general`, it is the test text.

    Returns:
        The artifact: ``synthetic.jsonl`` (:class:`dana.studies.augmentation.synthetic.SyntheticRow`), ``train.jsonl``
        (real and synthetic texts with the card's names of id, text and label), ``dev.jsonl`` and ``test.jsonl``.

    Raises:
        ConfigError: If the card is refused, the topic is not there, there is no pool, or there is one that the control
            does not look at.
        DataError: If the pool holds test text, or nothing on the topic.
        ArtifactError: If there are no topics, or the folder holds something else.
    """
    splits, fields = read_card_texts(card, data), (card.id or "id", card.text, card.label)
    model, train = open_topics(topics_of), splits["train"]
    topics = Topics.load(model.path)
    identity = generator_identity(settings.generator)
    most = max(counts_by_label(train, settings.ratio).values())
    if settings.control == TOPIC:
        if topic is None or not 0 <= topic < len(topics.beta):
            allowed = f"a number from 0 to {len(topics.beta) - 1} (dana topics show says what they are)"
            raise ConfigError(f"topic={topic}: must be {allowed}")
        on_topic = find_on_topic(_pool(splits["test"], general, transductive), topics, topic, most)
        prompts = on_topic_prompts(topics, topic, on_topic, settings, most)
    else:
        given = "a topic" if topic is not None else "a keyword pool" if general or transductive else ""
        require(not given, "control", settings.control, f"{TOPIC} where {given} is given")
        prompts = choose_prompts(topics, train, settings)
    texts = {split: [asdict(row) for row in rows] for split, rows in splits.items()}
    depends_on = {
        "topics": model.fingerprint,
        "texts": fingerprint([fields, texts]),
        "prompts": fingerprint([asdict(prompt) for prompt in prompts]),
        **asdict(settings),
        "generator": identity,
        "topic": None if topic is None else str(topic),
    }
    parts = out.with_name(f"{out.name}-labels-{fingerprint(depends_on)[:12]}")

    def write(draft: Draft) -> None:
        _write_files(draft, splits, fields, synthesize(topics, train, prompts, settings, parts))
        draft.seeds["augmentation"] = settings.seed

    artifact = make(out, "augmentation", depends_on, write)
    shutil.rmtree(parts, ignore_errors=True)
    return artifact


def _pool(test: Sequence[LabelledText], general: Sequence[str], transductive: bool) -> Iterable[Document]:
    """The keyword pool, checked while it is read."""
    if general:
        documents = read_documents(general, "fail", Tally())
        return documents if transductive else refuse_test_text(documents, test)
    if not transductive:
        raise ConfigError(
            "general: name the keyword pool, text without labels that holds documents on the topic; or take the test "
            "texts (transductive), without their labels"
        )
    return [Document(row.id, "test", row.text) for row in test]


def _write_files(draft: Draft, splits: Splits, fields: tuple[str, str, str], rows: Sequence[SyntheticRow]) -> None:
    write_text(draft.path / SYNTHETIC, json_lines(map(asdict, rows)))
    for split, real in splits.items():
        texts = [*real, *(rows if split == "train" else ())]
        named = (dict(zip(fields, (row.id, row.text, row.label), strict=True)) for row in texts)
        write_text(draft.path / f"{split}.jsonl", json_lines(named))
    draft.counts = {
        "real": len(splits["train"]),
        "synthetic": len(rows),
        "labels": dict(sorted(Counter(row.label for row in rows).items())),
        "documents": len({row.keywords_of for row in rows if row.keywords_of}),
    }


def augmented_text(artifact: Artifact) -> str:
    """What was written: numbers of synthetic texts by label, of real texts, and of documents that gave keywords."""
    counts = artifact.manifest["counts"]
    table = aligned([{"label": label, "synthetic": count} for label, count in counts["labels"].items()])
    numbers = f"{counts['real']:,} real and {counts['synthetic']:,} synthetic texts"
    return f"{table}\n\n{numbers}, keywords of {counts['documents']:,} documents"
