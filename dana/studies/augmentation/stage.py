"""Write synthetic texts of every label from the keywords of documents on a topic."""

import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from dana.core.artifacts import Artifact, Draft, fingerprint, make, write_text
from dana.core.errors import ConfigError, DataError
from dana.core.files import to_json_lines
from dana.core.schemas import Document
from dana.core.text_table import tabulate
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
    tell_apart,
)
from dana.studies.topics.model import Topics
from dana.studies.topics.stage import open_topics
from dana.tasks.card import TaskCard
from dana.tasks.examples import read_splits
from dana.tasks.kinds import DEFAULT

Splits = Mapping[str, Sequence[LabelledText]]  # train, dev and test


def read_card_texts(card: TaskCard, data: str | None = None) -> Splits:
    """Read the labelled texts of a task card by split.

    Args:
        card: Task card with one text field and one label per text.
        data: Folder of the data, see :meth:`dana.tasks.card.TaskCard.files`.

    Raises:
        ConfigError: If the card has pairs of texts, a template, or another kind of label.
        DataError: If a split is missing or bad, a label has no training text, or a text has the id
            of a synthetic one.
    """
    field = _unsupported_field(card)
    if field is not None:
        raise ConfigError(
            f"task {card.name}: {field}: must be a card with one text field and one label per text"
        )
    splits = {}
    for split, examples in read_splits(card, data).items():
        splits[split] = [
            LabelledText(example.id, example.text, card.labels[int(str(example.label))])
            for example in examples
        ]
    labels = {row.label for row in splits["train"]}
    for label in card.labels:
        if label not in labels:
            raise DataError(f"task {card.name}: label {label!r} has no training text")
    for row in splits["train"]:
        if row.id.startswith("synthetic-"):
            raise DataError(
                f"task {card.name}: {row.id!r} is a synthetic text; give the original data"
            )
    return splits


def _unsupported_field(card: TaskCard) -> str | None:
    """Name the first field of a card that augmentation cannot handle; None if there is none."""
    if card.kind != DEFAULT:
        return f"kind {card.kind}"
    if card.text_pair:
        return "text_pair"
    if card.template:
        return "template"
    return None


def augment_stage(
    card: TaskCard,
    data: str | None,
    topics_of: Path,
    settings: AugmentSettings,
    out: Path,
    *,
    topic: int | None = None,
    pool: Sequence[str] = (),
    transductive: bool = False,
) -> Artifact:
    """Write synthetic texts of every label on a topic, and the training data with them.

    A call that was killed resumes with the missing labels.

    Args:
        card: Task card of the texts to augment.
        data: Folder of its data, see :func:`read_card_texts`.
        topics_of: Folder of a run with topics.
        settings: How texts are written.
        out: Folder of the artifact.
        topic: Number of the topic, from 0.
        pool: Keyword pool: files, folders, globs or ``hf:`` names of unlabelled text.
        transductive: Allow test texts in the pool; without `pool`, the pool is the test texts.

    Returns:
        The artifact: ``synthetic.jsonl``
        (:class:`dana.studies.augmentation.synthetic.SyntheticRow`), ``train.jsonl`` (real and
        synthetic texts with the card's names of id, text and label), ``dev.jsonl`` and
        ``test.jsonl``.

    Raises:
        ConfigError: If the card is invalid, the topic does not exist, or the pool is missing or has
            no effect.
        DataError: If the pool has test texts, or no document on the topic.
        ArtifactError: If there are no topics, or the folder has another artifact.
    """
    splits = read_card_texts(card, data)
    train = splits["train"]
    fields = (card.id or "id", card.text, card.label_fields[0])
    model = open_topics(topics_of)
    topics = Topics.load(model.path)
    identity = generator_identity(settings.generator)
    count = max(counts_by_label(train, settings.ratio).values())
    if settings.control == TOPIC:
        if topic is None or not 0 <= topic < len(topics.beta):
            raise ConfigError(
                f"topic={topic}: must be a number from 0 to {len(topics.beta) - 1}"
                " (dana studies topics show lists them)"
            )
        documents = _pool_documents(splits["test"], pool, transductive)
        on_topic = find_on_topic(documents, topics, topic, count)
        prompts = on_topic_prompts(topics, topic, on_topic, settings, count)
    else:
        given = {"topic": topic is not None, "pool": bool(pool), "transductive": transductive}
        for name, is_given in given.items():
            if is_given:
                raise ConfigError(
                    f"{name} has no effect with control={settings.control}; remove it"
                )
        prompts = choose_prompts(topics, train, settings)
    texts = {split: list(map(asdict, rows)) for split, rows in splits.items()}
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
        rows = synthesize(topics, train, prompts, settings, parts)
        _write_files(draft, splits, fields, rows)
        draft.notes["auroc_real_or_synthetic"] = tell_apart(train, rows, settings.seed)
        draft.seeds["augmentation"] = settings.seed

    artifact = make(out, "augmentation", depends_on, write)
    shutil.rmtree(parts, ignore_errors=True)
    return artifact


def _pool_documents(
    test: Sequence[LabelledText], pool: Sequence[str], transductive: bool
) -> Iterable[Document]:
    """Yield the keyword pool; test texts in it are an error."""
    if pool:
        documents = read_documents(pool, "fail", Tally())
        return documents if transductive else refuse_test_text(documents, test)
    if not transductive:
        raise ConfigError(
            "pool: must be a keyword pool, unlabelled text with documents on the topic; or the"
            " test texts (transductive)"
        )
    return [Document(row.id, "test", row.text) for row in test]


def _write_files(
    draft: Draft, splits: Splits, fields: tuple[str, str, str], rows: Sequence[SyntheticRow]
) -> None:
    """Write the synthetic texts, and the splits with the card's names of id, text and label."""
    write_text(draft.path / SYNTHETIC, to_json_lines(map(asdict, rows)))
    id_field, text_field, label_field = fields
    for split, real in splits.items():
        texts = [*real, *rows] if split == "train" else real
        records = [
            {id_field: row.id, text_field: row.text, label_field: row.label} for row in texts
        ]
        write_text(draft.path / f"{split}.jsonl", to_json_lines(records))
    draft.counts = {
        "real": len(splits["train"]),
        "synthetic": len(rows),
        "labels": dict(sorted(Counter(row.label for row in rows).items())),
        "documents": len({row.keywords_of for row in rows if row.keywords_of}),
    }


def augmentation_text(artifact: Artifact) -> str:
    """Format how many texts are synthetic, by label, and real, and how well they are told apart."""
    counts = artifact.manifest["counts"]
    rows = [{"label": label, "synthetic": count} for label, count in counts["labels"].items()]
    text = (
        f"{tabulate(rows)}\n\n{counts['real']:,} real and {counts['synthetic']:,} synthetic texts,"
        f" keywords of {counts['documents']:,} documents"
    )
    auroc = artifact.manifest.get("auroc_real_or_synthetic")
    if auroc is not None:
        text += (
            f"\na classifier of words tells them apart: AUROC {auroc:.2f} on texts it has not seen"
        )
    return text
