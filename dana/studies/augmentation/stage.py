"""``dana augment``: labelled texts, topics and a keyword pool to synthetic labelled texts, a label at a time."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from dana.core.artifacts import Artifact, Draft, fingerprint, make, write_text
from dana.core.config import require
from dana.core.errors import ConfigError
from dana.core.files import json_lines
from dana.core.logging import get_logger
from dana.core.schemas import Document
from dana.core.text_table import aligned
from dana.corpus.documents import Tally, read_documents
from dana.studies.augmentation.by_label import SYNTHETIC, generator_identity, read_synthetic, synthesize_by_label
from dana.studies.augmentation.labelled import LabelledData
from dana.studies.augmentation.pool import find_on_topic, on_topic_prompts, refuse_test_text
from dana.studies.augmentation.synthetic import (
    TOPIC,
    AugmentSettings,
    LabelledText,
    Prompt,
    SyntheticRow,
    choose_prompts,
    counts_by_label,
    shuffle_labels,
)
from dana.studies.topics.model import Topics
from dana.studies.topics.stage import fitted_topics

log = get_logger(__name__)

ALL = "all"
SHOWN, CHARACTERS = 3, 300


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
    model = fitted_topics(topics_of)
    topics = Topics.load(model.path)
    identity = generator_identity(settings.generator)
    most = max(counts_by_label(data.train, settings.ratio).values())
    if settings.control == TOPIC:
        wanted, documents = _wanted(topic, len(topics.beta)), _pool(data, general, transductive)
        prompts = _prompts_on(documents, topics, wanted, settings, most)
    else:
        _check_no_pool(settings.control, topic, general, transductive)
        prompts = choose_prompts(topics, data.train, settings)
    depends_on = {
        "topics": model.fingerprint,
        "texts": data.fingerprint,
        "prompts": fingerprint([asdict(prompt) for prompt in prompts]),
        **asdict(settings),
        "generator": identity,
        "topic": topic,
    }
    parts = out.with_name(f"{out.name}-labels-{fingerprint(depends_on)[:12]}")

    def write(draft: Draft) -> None:
        rows = synthesize_by_label(topics, data.train, prompts, settings, parts)
        _write_files(draft, data, shuffle_labels(rows, settings.seed) if settings.shuffle_labels else rows)
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


def _check_no_pool(control: str, topic: str | None, general: Sequence[str], transductive: bool) -> None:
    """Refuse what only the control ``topic`` looks at."""
    given = "a topic" if topic is not None else "a keyword pool" if general or transductive else ""
    require(not given, "control", control, f"{TOPIC} where {given} is given")


def _pool(data: LabelledData, general: Sequence[str], transductive: bool) -> Iterable[Document]:
    """The keyword pool, checked while it is read."""
    if general:
        documents = read_documents(general, "fail", Tally())
        return documents if transductive else refuse_test_text(documents, data.test)
    if not transductive:
        raise ConfigError(
            "general: name the keyword pool, text without labels that holds documents on the topic; or take the test "
            "texts (transductive), without their labels"
        )
    if not data.test:
        raise ConfigError("transductive: there is no test text; a task card has some")
    return [Document(row.id, "test", row.text) for row in data.test]


def _prompts_on(
    documents: Iterable[Document], topics: Topics, wanted: Sequence[int], settings: AugmentSettings, count: int
) -> list[Prompt]:
    """Prompts of the pool's documents on topics; says what the topics are, and which have no document."""
    found = find_on_topic(documents, topics, wanted, count)
    prompts = on_topic_prompts(topics, found, settings, count)
    for topic in wanted:
        words = " ".join(topics.words[word] for word in topics.beta[topic].argsort()[::-1][:5])
        log.info("topic     %d (%s): %s documents for keywords", topic, words, f"{len(found[topic]):,}")
    return prompts


def _write_files(draft: Draft, data: LabelledData, rows: Sequence[SyntheticRow]) -> None:
    write_text(draft.path / SYNTHETIC, json_lines(map(asdict, rows)))
    for split, real in data.splits.items():
        texts: list[LabelledText | SyntheticRow] = [*real, *(rows if split == "train" else ())]
        named = (dict(zip(data.fields, (row.id, row.text, row.label), strict=True)) for row in texts)
        write_text(draft.path / f"{split}.jsonl", json_lines(named))
    by_label = {label: 0 for label in sorted({row.label for row in data.train})}
    draft.counts = {
        "real": len(data.train),
        "synthetic": len(rows),
        "labels": {label: sum(row.label == label for row in rows) for label in by_label},
        "documents": len({row.keywords_of for row in rows if row.keywords_of}),
    }


def augmented_text(artifact: Artifact) -> str:
    """What was written: numbers by label, and how the first texts of some labels begin."""
    rows = read_synthetic(artifact.path)
    counts = artifact.manifest["counts"]
    lines = [aligned([{"label": label, "synthetic": count} for label, count in counts["labels"].items()]), ""]
    for row in _first_of_labels(rows):
        about = f" on topic {row.topic}" if row.topic is not None else ""
        source = f", keywords of {row.keywords_of}: {' '.join(row.keywords)}" if row.keywords else ""
        begins = " ".join(row.text.split())[:CHARACTERS]
        lines += [f"{row.id} ({row.label}{about}{source})", f"  {begins}", ""]
    said = f"{counts['real']:,} real and {counts['synthetic']:,} synthetic texts"
    return "\n".join([*lines, f"{said}, keywords of {counts['documents']:,} documents"])


def _first_of_labels(rows: Sequence[SyntheticRow]) -> Iterator[SyntheticRow]:
    seen: set[str] = set()
    for row in rows:
        if row.written_for not in seen and len(seen) < SHOWN:
            seen.add(row.written_for)
            yield row
