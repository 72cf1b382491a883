"""``dana task check``: report sizes, labels and overlap of a task's splits and of a pool, with warnings."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dana.core.logging import get_logger
from dana.core.text_table import Value, tabulate
from dana.corpus.documents import Tally, read_documents
from dana.tasks.card import SPLITS, TaskCard, load_card
from dana.tasks.examples import Example, split_by_fold, stream_examples
from dana.tasks.tables import Row, label_rows, overlap_rows, pool_row, split_rows

log = get_logger(__name__)

Rows = list[Row]
ONLY_TRAINS = -1  # the fold of a text that is never tested


@dataclass(frozen=True)
class TaskCheck:
    """Report on a task's data.

    Attributes:
        tables: Rows by name: ``splits``, ``labels``, ``overlap``; ``pool`` if one was given.
        warnings: Problems and what to do about them, one per line.
    """

    tables: dict[str, Rows]
    warnings: list[str]

    def __str__(self) -> str:
        tables = {**self.tables, "labels": _by_split(self.tables["labels"])}
        parts = [f"{name}\n{tabulate(rows)}" for name, rows in tables.items()]
        warnings = [f"warning: {warning}" for warning in self.warnings]
        parts.append("\n".join(warnings) or "no warnings")
        return "\n\n".join(parts)


def check_task(name: str, data: str | None = None, pool: Sequence[str] = ()) -> TaskCheck:
    """Read all splits of a task, of a card with ``folds`` those of the first, and report on them.

    Args:
        name: A task card's name or YAML file.
        data: Folder that holds the card's data.
        pool: Files, folders, globs or ``hf:`` names of text; its overlap with the test texts, of
            all folds, is measured. Records that cannot be read are counted.

    Raises:
        ConfigError: If the card is unknown.
        DataError: If a split is missing, or a record is bad: see
            :func:`dana.tasks.examples.stream_examples`.
    """
    card = load_card(name)
    if card.folds is None:
        splits = {split: _read_split(card, split, data) for split in SPLITS}
        tested = splits["test"]
    else:
        every = _read_split(card, "test", data)  # the one file
        splits = split_by_fold(every, 0)
        tested = [example for example in every if example.fold != ONLY_TRAINS]
    tables = {
        "splits": split_rows(card, splits),
        "labels": label_rows(card, splits),
        "overlap": overlap_rows({name: _with_text(part) for name, part in splits.items()}),
    }
    if pool:
        tally = Tally()
        documents = read_documents(pool, "skip", tally)
        tables["pool"] = [pool_row(_with_text(tested), documents)]
        log.info("pool      %s", tally)
    return TaskCheck(tables, [*_of_splits(card, tables["splits"]), *_of_overlap(card, tables)])


def _read_split(card: TaskCard, split: str, data: str | None) -> list[Example]:
    return [example for _, example in stream_examples(card, split, data)]


def _with_text(examples: Iterable[Example]) -> list[Example]:
    """Return the examples without those that have an empty text."""
    return [example for example in examples if all(example.texts)]


def _by_split(rows: Rows) -> Rows:
    """Make one row per label, with its count and share in each split."""
    by_label: dict[Value, Row] = {}
    for row in rows:
        of_label = by_label.setdefault(row["label"], {"label": row["label"]})
        of_label[f"{row['split']}"] = row["count"]
        of_label[f"share_{row['split']}"] = row["share"]
    return list(by_label.values())


def _of_splits(card: TaskCard, rows: Rows) -> Iterable[str]:
    """Warn of unexpected sizes, empty texts and missing labels."""
    for row in rows:
        split = row["split"]
        examples = f"{row['examples']:,}"
        if row["expected"] and row["examples"] not in card.accepted_sizes(str(split)):
            remedy = f"put the number into {card.origins[0]}"
            if not card.is_one_file:  # which dana itself would split
                remedy = f"get the whole split, or {remedy}"
            yield (
                f"{split}: {examples} examples where the card expects {row['expected']}: {remedy}; "
                "scores do not compare with published ones"
            )
        if row["empty"]:
            yield (
                f"{split}: {row['empty']:,} of {examples} texts are empty: remove them, commands "
                "refuse them"
            )
        if row["absent_labels"]:
            effect = "they count 0 in a mean over the labels"
            if split == "train":
                effect = "no model can learn them"
            yield (
                f"{split}: no example of {row['absent_labels']}: {effect}; split again, or report "
                "it with the scores"
            )


def _of_overlap(card: TaskCard, tables: dict[str, Rows]) -> Iterable[str]:
    """Warn of repeated texts and of text shared by splits, or by test and the pool."""
    for row in tables["overlap"]:
        if not row["examples"]:
            continue
        split = row["split"]
        within = row["within"]
        number = f"{row['examples']:,} of {row['of']:,} examples ({row['share']:.1%})"
        if row["kind"] == "contradicting":
            where = "in it" if split == within else f"in {within}"
            yield (
                f"{split}: {number} have another label for the same text {where}: correct or "
                "remove these labels"
            )
        elif split == within:
            yield f"{split}: {number} repeat an earlier text: keep one of each"
        else:
            yield (
                f"{split}: {number} are also in {within}: remove them from {within}, or report "
                "scores without them"
            )
    for row in tables.get("pool", []):
        if row["examples"]:
            yield (
                f"test: {row['examples']:,} of {row['of']:,} examples ({row['share']:.1%}) share text "
                f"with the pool (documents: {row['documents']:,}): rank and score with "
                f"--decontaminate {card.name}"
            )
