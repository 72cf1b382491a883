"""``dana few-shot``: a chat model asked which of two labels a text has, with examples on and off the text's topic."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from dana.core.artifacts import Artifact, Draft, fingerprint, make
from dana.core.config import require
from dana.core.errors import ArtifactError
from dana.core.json_lines import json_lines
from dana.core.logging import progress
from dana.core.origin import blamed, origin_of
from dana.core.rng import derive_seed
from dana.stages.settings import RunSettings
from dana.studies.few_shot.accuracy import ItemOutcome, arm_accuracy, compare_on_items
from dana.studies.few_shot.base import ChatModel, open_chat
from dana.studies.few_shot.conversations import ConversationLog
from dana.studies.few_shot.criteria import list_criteria
from dana.studies.few_shot.in_words import study_text
from dana.studies.few_shot.item_stage import items_of_card, items_of_file
from dana.studies.few_shot.items import Item, item_line
from dana.studies.few_shot.parse import ForcedChoice
from dana.studies.few_shot.script import CRITERIA, OWN, Script, converse, load_script

KIND = "few-shot"
ITEMS, TRANSCRIPTS, TEXT = "items.jsonl", "transcripts.jsonl", "few_shot.md"
RESULTS, SUMMARY, PAIRED, CRITERIA_TABLE = "results.csv", "summary.csv", "paired.csv", "criteria.csv"


def run_few_shot(settings: RunSettings, card: str | None = None, items_from: Path | None = None) -> Artifact:
    """Ask a chat model about every item, once an arm, and say how often it is right.

    Items are drawn from a task (:func:`dana.studies.few_shot.item_stage.items_of_card`), or those of a file.

    Whatever ends the command, finished conversations are kept in ``OUT/few-shot-begun.jsonl``; the same command goes on
    with the next one, and the outcome is the same to the byte.

    Args:
        settings: Of the run.
        card: A task card's name or YAML file, or None.
        items_from: Items (:func:`dana.studies.few_shot.items.read_items`), or None.

    Returns:
        The artifact ``OUT/few-shot``: ``few_shot.md`` (the answer in words), ``summary.csv`` (a row an arm),
        ``paired.csv`` (arms item by item), ``results.csv`` (a row an item and arm), ``criteria.csv`` (a row a
        criterion), ``transcripts.jsonl`` (a line a conversation), ``items.jsonl``.

    Raises:
        ConfigError: If the chat model or the script is refused, or there is not one of card and items.
        DataError: If there are too few texts, or an item is refused.
        EndpointError: If the model gives no reply.
        Contradiction: If what is there, or was begun, is of other settings.
    """
    asked, out = settings.section("few_shot"), Path(settings.out)
    require(bool(asked.chat), "chat", asked.chat, "a chat model, for example scripted:FILE")
    require(
        (card is None) != (items_from is None), "CARD", card, "a task card, or --items-from a file of items instead"
    )
    model, script = open_chat(asked.chat), load_script(Path(asked.script) if asked.script else OWN)
    decides = {"arms": asked.arms, "chat": model.identity(), "code": origin_of(model)}  # before any text is read
    source = items_of_file(items_from, settings) if items_from else items_of_card(str(card), settings)
    decides |= {"items": source.depends_on, "script": fingerprint(asdict(script))}
    log = ConversationLog(out / f"{KIND}-begun.jsonl", {**decides, "seed": settings.selection.seed, "method": 1})

    def write(draft: Draft) -> None:
        items = source.read()
        records = list(_conversations(log, items, settings, model, script))
        _write_study(draft, items, records, settings)

    artifact = make(out / KIND, KIND, log.depends_on, write)
    log.path.unlink(missing_ok=True)
    return artifact


def _conversations(
    log: ConversationLog, items: Sequence[Item], settings: RunSettings, model: ChatModel, script: Script
) -> Iterator[dict[str, Any]]:
    """Every conversation, item by item and arm by arm: those that are in the log, then new ones, which are added."""
    done = log.read()
    plan = [(item, arm) for item in items for arm in settings.section("few_shot").arms]
    if [(record["item"], record["arm"]) for record in done] != [(item.id, arm) for item, arm in plan[: len(done)]]:
        raise ArtifactError(f"{log.path}: holds other conversations than these; remove it to begin anew")
    yield from done
    with progress(what="conversations", unit="conversations", total=len(plan), initial=len(done)) as bar:
        for item, arm in plan[len(done) :]:
            seed = derive_seed(settings.selection.seed, KIND, item.id, arm) % 2**31
            with blamed("chat model", settings.section("few_shot").chat, model):
                turns, choice = converse(model, script, item, arm, seed)
            record = _record(item, arm, log.depends_on["chat"], seed, choice)
            record["turns"] = [asdict(turn) for turn in turns]
            log.append(record)
            yield record
            bar.update(1)


def _record(item: Item, arm: str, chat: dict[str, Any], seed: int, choice: ForcedChoice) -> dict[str, Any]:
    """What is known of a conversation besides its turns."""
    chosen = {ForcedChoice.A: item.label_a, ForcedChoice.B: item.label_b}.get(choice)
    outcome = (
        ItemOutcome(choice) if chosen is None else ItemOutcome.RIGHT if chosen == item.label else ItemOutcome.WRONG
    )
    about = {key: getattr(item, key) for key in ("topic", "label_a", "label_b", "label")}
    return {
        "item": item.id,
        "arm": arm,
        **about,
        "chosen": chosen,
        "outcome": outcome.value,
        "seed": seed,
        "model": chat,
    }


def _write_study(draft: Draft, items: Sequence[Item], records: list[dict[str, Any]], settings: RunSettings) -> None:
    arms, folder = settings.section("few_shot").arms, draft.path
    (folder / ITEMS).write_text("".join(map(item_line, items)), encoding="utf-8")
    (folder / TRANSCRIPTS).write_text(json_lines(records), encoding="utf-8")
    results = pd.DataFrame(records).drop(columns=["model", "turns"])
    difference = compare_on_items(results, "on", "off") if len(arms) == 2 else None
    accuracies = [arm_accuracy(arm, list(results["outcome"][results["arm"] == arm])) for arm in arms]
    tables = {RESULTS: results, SUMMARY: pd.DataFrame(map(asdict, accuracies)), CRITERIA_TABLE: _criteria(records)}
    if difference is not None:
        tables[PAIRED] = pd.DataFrame([asdict(difference)])
    for name, table in tables.items():
        table.to_csv(folder / name, index=False)
    title = f"Few-shot study: {len(items)} texts, examples {' and '.join(arms)} topic"
    (folder / TEXT).write_text(study_text(title, accuracies, difference), encoding="utf-8")
    draft.counts = {"items": len(items), "conversations": len(records)}
    draft.counts |= {one.arm: {str(outcome): getattr(one, outcome) for outcome in ItemOutcome} for one in accuracies}
    draft.seeds = {"study": settings.selection.seed}


def _criteria(records: list[dict[str, Any]]) -> pd.DataFrame:
    """A row a criterion that the model named, in the turn called criteria."""
    rows = [
        {**{key: record[key] for key in ("item", "arm", "topic", "label_a", "label_b")}, "number": at, "criterion": one}
        for record in records
        for turn in record["turns"]
        if turn["name"] == CRITERIA
        for at, one in enumerate(list_criteria(turn["reply"]), 1)
    ]
    return pd.DataFrame(rows, columns=["item", "arm", "topic", "label_a", "label_b", "number", "criterion"])
