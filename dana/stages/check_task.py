"""``dana task check``: report sizes, labels and overlap of a task's splits and of a pool, with warnings."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dana.core.logging import get_logger
from dana.core.text_table import Value, tabulate
from dana.corpus.documents import Tally, read_documents
from dana.tasks.card import SPLITS, TaskCard, load_card
from dana.tasks.examples import split_by_fold, stream_examples
from dana.tasks.tables import Row, label_rows, overlap_rows, pool_row, split_rows

log = get_logger(__name__)

Rows = list[Row]


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
        return "\n\n".join(
            [*parts, "\n".join(f"warning: {warning}" for warning in self.warnings) or "no warnings"]
        )


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
    files = ("test",) if card.folds else SPLITS  # each of a card with folds holds all its texts
    every = {
        split: [example for _, example in stream_examples(card, split, data)] for split in files
    }
    test_examples = [
        example for example in every["test"] if all(example.texts) and example.fold != -1
    ]
    every = split_by_fold(every["test"], 0) if card.folds else every
    splits = {
        split: [example for example in examples if all(example.texts)]
        for split, examples in every.items()
    }
    tables = {
        "splits": split_rows(card, every),
        "labels": label_rows(card, every),
        "overlap": overlap_rows(splits),
    }
    if pool:
        tally = Tally()
        tables["pool"] = [pool_row(test_examples, read_documents(pool, "skip", tally))]
        log.info("pool      %s", tally)
    return TaskCheck(tables, [*_of_splits(card, tables["splits"]), *_of_overlap(card, tables)])


def _by_split(rows: Rows) -> Rows:
    """Make one row per label, with its count and share in each split."""
    by_label: dict[Value, Row] = {}
    for row in rows:
        both = {f"{row['split']}": row["count"], f"share_{row['split']}": row["share"]}
        by_label.setdefault(row["label"], {"label": row["label"]}).update(both)
    return list(by_label.values())


def _of_splits(card: TaskCard, rows: Rows) -> Iterable[str]:
    """Warn of unexpected sizes, empty texts and missing labels."""
    for row in rows:
        split = row["split"]
        if row["expected"] and row["examples"] not in card.accepted_sizes(str(split)):
            remedy = (
                "" if card.is_one_file else "get the whole split, or "
            )  # dana itself splits one file
            yield (
                f"{split}: {row['examples']:,} examples where the card expects {row['expected']}:"
                f" {remedy}put the number into {card.origins[0]}; scores do not compare with published ones"
            )
        if row["empty"]:
            yield f"{split}: {row['empty']:,} of {row['examples']:,} texts are empty: remove them, commands refuse them"
        if row["absent_labels"]:
            what = (
                "no model can learn them"
                if split == "train"
                else "they count 0 in a mean over the labels"
            )
            yield f"{split}: no example of {row['absent_labels']}: {what}; split again, or report it with the scores"


def _of_overlap(card: TaskCard, tables: dict[str, Rows]) -> Iterable[str]:
    """Warn of repeated texts and of text shared by splits, or by test and the pool."""
    for row in [row for row in tables["overlap"] if row["examples"]]:
        split, within = row["split"], row["within"]
        number = f"{row['examples']:,} of {row['of']:,} examples ({row['share']:.1%})"
        if row["kind"] == "contradicting":
            where = "in it" if split == within else f"in {within}"
            yield f"{split}: {number} have another label for the same text {where}: correct or remove these labels"
        elif split == within:
            yield f"{split}: {number} repeat an earlier text: keep one of each"
        else:
            yield f"{split}: {number} are also in {within}: remove them from {within}, or report scores without them"
    for row in tables.get("pool", []):
        if row["examples"]:
            yield (
                f"test: {row['examples']:,} of {row['of']:,} examples ({row['share']:.1%}) share text with"
                f" the pool (documents: {row['documents']:,}): rank and score with --decontaminate {card.name}"
            )
