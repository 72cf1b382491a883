"""``dana few-shot``: a chat model asked which of two labels a text has, with examples on and off the text's topic."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import binomtest

from dana.core.artifacts import Artifact, Draft, canonical, differing, fingerprint, make
from dana.core.config import require
from dana.core.errors import ArtifactError, Contradiction, DataError
from dana.core.files import json_lines, sync
from dana.core.logging import progress
from dana.core.registry import blamed, origin_of
from dana.core.rng import derive_seed
from dana.core.text_table import aligned
from dana.stages.settings import RunSettings
from dana.studies.few_shot import ARMS
from dana.studies.few_shot.chat import ChatModel, open_chat
from dana.studies.few_shot.items import Item, item_line, item_source, json_objects
from dana.studies.few_shot.script import CRITERIA, OWN, ForcedChoice, Script, converse, list_criteria, load_script

KIND = "few-shot"
TEXT = "few_shot.md"
OUTCOMES = ("right", "wrong", "abstained", "unparsable")  # of an item; only the first two are answers
CHANCE = 0.5  # of two classes, when the text is of either with equal chance
ALPHA = 0.05
Row = dict[str, Any]


def run_few_shot(settings: RunSettings, card: str | None = None, items_from: Path | None = None) -> Artifact:
    """Ask a chat model about every item, once an arm, and say how often it is right.

    Whatever ends the command, finished conversations are kept in ``OUT/few-shot-begun.jsonl``; the same command goes on
    with the next one, and the outcome is the same to the byte.

    Args:
        settings: Of the run.
        card: A task card's name or YAML file that items are drawn from, or None.
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
    items_of, read_items = item_source(settings, card, items_from)
    decides |= {"items": items_of, "script": fingerprint(asdict(script))}
    depends_on = {**decides, "seed": settings.selection.seed, "method": 1}
    log = out / f"{KIND}-begun.jsonl"

    def write(draft: Draft) -> None:
        items = read_items()
        records = list(_conversations(log, depends_on, items, settings, model, script))
        _write_study(draft, items, records, settings)

    artifact = make(out / KIND, KIND, depends_on, write)
    log.unlink(missing_ok=True)
    return artifact


def _conversations(
    log: Path, depends_on: Row, items: Sequence[Item], settings: RunSettings, model: ChatModel, script: Script
) -> Iterator[Row]:
    """Every conversation, item by item and arm by arm: those that are in the log, then new ones, which are added."""
    asked, root = settings.section("few_shot"), settings.selection.seed
    done = _finished(log, depends_on)
    plan = [(item, arm) for item in items for arm in asked.arms]
    if [(record["item"], record["arm"]) for record in done] != [(item.id, arm) for item, arm in plan[: len(done)]]:
        raise ArtifactError(f"{log}: holds other conversations than these; remove it to begin anew")
    yield from done
    with progress(what="conversations", unit="conversations", total=len(plan), initial=len(done)) as bar:
        for item, arm in plan[len(done) :]:
            seed = derive_seed(root, KIND, item.id, arm) % 2**31
            with blamed("chat model", asked.chat, model):
                turns, choice = converse(model, script, item, arm, seed)
            chosen = {ForcedChoice.A: item.label_a, ForcedChoice.B: item.label_b}.get(choice)
            outcome = choice.value if chosen is None else "right" if chosen == item.label else "wrong"
            record = {"item": item.id, "arm": arm}
            record |= {key: getattr(item, key) for key in ("topic", "label_a", "label_b", "label")}
            record |= {"chosen": chosen, "outcome": outcome, "seed": seed, "model": depends_on["chat"], "turns": turns}
            _append(log, depends_on, record)
            yield record
            bar.update(1)


def _finished(log: Path, depends_on: Row) -> list[Row]:
    """The conversations of a log. A line that a killed process has left unfinished is taken off the file."""
    if not log.exists():
        return []
    os.truncate(log, log.read_bytes().rfind(b"\n") + 1)
    try:
        lines = [line for _, line in json_objects(log)]
    except DataError as error:
        raise ArtifactError(f"{error}: damaged; remove the file to begin anew") from error
    if not lines:  # killed within its first line
        return []
    before, now = lines[0]["depends_on"], json.loads(canonical(depends_on))
    if before != now:
        raise Contradiction(log, KIND, before, now, "; ".join(differing(before, now)))
    return lines[1:]


def _append(log: Path, depends_on: Row, conversation: Row) -> None:
    """Add a conversation to the log, below a first line that says what it depends on; at the end it is on the disk."""
    with log.open("a", encoding="utf-8") as stream:
        if not stream.tell():
            stream.write(canonical({"depends_on": depends_on}) + "\n")
        stream.write(json_lines([conversation]))
    sync(log)
    sync(log.parent)


def _write_study(draft: Draft, items: Sequence[Item], records: list[Row], settings: RunSettings) -> None:
    arms, folder = settings.section("few_shot").arms, draft.path
    (folder / "items.jsonl").write_text("".join(map(item_line, items)), encoding="utf-8")
    (folder / "transcripts.jsonl").write_text(json_lines(records), encoding="utf-8")
    results = pd.DataFrame(records).drop(columns=["model", "turns"])
    accuracies = [arm_accuracy(arm, list(results["outcome"][results["arm"] == arm])) for arm in arms]
    difference = compare_on_items(results, "on", "off") if len(arms) == 2 else None
    about = ["item", "arm", "topic", "label_a", "label_b"]
    criteria = [
        {**{key: record[key] for key in about}, "number": number, "criterion": criterion}
        for record in records
        for turn in record["turns"]
        if turn["name"] == CRITERIA
        for number, criterion in enumerate(list_criteria(turn["reply"]), 1)
    ]
    results.to_csv(folder / "results.csv", index=False)
    pd.DataFrame(accuracies).to_csv(folder / "summary.csv", index=False)
    pd.DataFrame(criteria, columns=[*about, "number", "criterion"]).to_csv(folder / "criteria.csv", index=False)
    if difference is not None:
        pd.DataFrame([difference]).to_csv(folder / "paired.csv", index=False)
    title = f"Few-shot study: {len(items)} texts, examples {' and '.join(arms)} topic"
    (folder / TEXT).write_text(study_text(title, accuracies, difference), encoding="utf-8")
    draft.counts = {"items": len(items), "conversations": len(records)}
    draft.counts |= {row["arm"]: {outcome: row[outcome] for outcome in OUTCOMES} for row in accuracies}
    draft.seeds = {"study": settings.selection.seed}


def exact_interval(right: int, items: int, level: float = 0.95) -> tuple[float, float]:
    """Exact binomial interval of a share; (NaN, NaN) of no items.

    References:
        Clopper and Pearson 1934, The use of confidence or fiducial limits illustrated in the case of the binomial.
    """
    if items == 0:
        return float("nan"), float("nan")
    interval = binomtest(right, items).proportion_ci(level, method="exact")
    return float(interval.low), float(interval.high)


def arm_accuracy(arm: str, outcomes: Sequence[str]) -> Row:
    """The row of an arm in ``summary.csv``.

    Args:
        arm: Its name.
        outcomes: Of its items, at least one.

    Returns:
        ``arm``, ``items``; how many are ``right``, ``wrong``, ``abstained`` (the model would not choose) and
        ``unparsable``; ``accuracy``, the share of all items that are right (who abstains is wrong, as guessing is
        always possible), its exact 95 % interval ``low`` to ``high``, and ``p_chance``, the exact two-sided p of it
        against 0.5; how many are ``answered``, and of these the same: ``accuracy_answered`` (NaN if there are none),
        ``low_answered``, ``high_answered``.
    """
    counts = {outcome: outcomes.count(outcome) for outcome in OUTCOMES}
    right, answered = counts["right"], counts["right"] + counts["wrong"]
    row: Row = {"arm": arm, "items": len(outcomes), **counts, "accuracy": right / len(outcomes)}
    row["low"], row["high"] = exact_interval(right, len(outcomes))
    row["p_chance"] = float(binomtest(right, len(outcomes), CHANCE).pvalue)
    row |= {"answered": answered, "accuracy_answered": right / answered if answered else float("nan")}
    row["low_answered"], row["high_answered"] = exact_interval(right, answered)
    return row


def compare_on_items(results: pd.DataFrame, first: str, second: str) -> Row:
    """Compare two arms on the same items; only a right answer counts.

    Args:
        results: A row an item and arm, with ``item``, ``arm``, ``outcome``.
        first: Name of an arm.
        second: Name of the other.

    Returns:
        ``first``, ``second``; items that are right in ``both``, ``only_first``, ``only_second``, ``neither``;
        ``difference``, the accuracy of the first minus that of the second; ``p`` of the exact McNemar test: how often a
        fair coin would part ``only_first + only_second`` items as unevenly.

    References:
        McNemar 1947, Note on the sampling error of the difference between correlated proportions; exact as binomial.
    """
    right = results.assign(right=results["outcome"] == "right").pivot(index="item", columns="arm", values="right")
    one, other = right[first].to_numpy(bool), right[second].to_numpy(bool)
    only_one, only_other = int((one & ~other).sum()), int((other & ~one).sum())
    return {
        "first": first,
        "second": second,
        "both": int((one & other).sum()),
        "only_first": only_one,
        "only_second": only_other,
        "neither": int((~one & ~other).sum()),
        "difference": (only_one - only_other) / len(one),
        "p": float(binomtest(only_one, only_one + only_other, 0.5).pvalue) if only_one + only_other else 1.0,
    }


def study_text(title: str, accuracies: Sequence[Row], difference: Row | None) -> str:
    """The study in Markdown, the answer first.

    Args:
        title: What was studied.
        accuracies: Of the arms, from :func:`arm_accuracy`.
        difference: Of on against off topic, from :func:`compare_on_items`, where both were asked.
    """
    lines = [f"# {title}", ""]
    for row in accuracies:
        share = _share(row["right"], row["items"], row["low"], row["high"])
        beside = "more than" if row["low"] > CHANCE else "less than" if row["high"] < CHANCE else "not told from"
        lines.append(f"With {ARMS[row['arm']]} the model is right about {share} texts: {beside} guessing.")
    lines.append(f"Guessing is right about {CHANCE * 100:.0f} %, as a text is of either class with equal chance.")
    if difference is not None:
        lines += ["", _compared(difference)]
    lines.append("")
    for row in accuracies:
        silent = f"{row['abstained']} abstained, {row['unparsable']} could not be parsed; both count as wrong above"
        lines.append(f"With {ARMS[row['arm']]}: {silent}.")
        if row["answered"]:
            share = _share(row["right"], row["answered"], row["low_answered"], row["high_answered"])
            lines[-1] += f" Of the answers {share} are right."
    shown = ("arm", "items", *OUTCOMES, "accuracy", "low", "high", "p_chance")
    table = aligned([{name: row[name] for name in shown} for row in accuracies])
    return "\n".join([*lines, "", "```", table, "```", ""])


def _share(right: int, items: int, low: float, high: float) -> str:
    percent = f"{right / items * 100:.0f} %, exact 95 % interval {low * 100:.0f} to {high * 100:.0f} %"
    return f"{right} of {items} ({percent})"


def _compared(row: Mapping[str, Any]) -> str:
    points = f"{abs(row['difference']) * 100:.0f} points"
    first, second = row["first"], row["second"]
    better, worse = (first, second) if row["difference"] > 0 else (second, first)
    verdict = f"It does better with {ARMS[better]} than with {ARMS[worse]}, by {points}"
    if row["p"] > ALPHA:
        verdict = f"The difference of {points} may be chance"
    texts = sum(row[name] for name in ("both", "only_first", "only_second", "neither"))
    alone = f"{first}-topic examples alone {row['only_first']}, with {second}-topic examples alone {row['only_second']}"
    return f"{verdict} (exact McNemar test on the same {texts} texts: p = {row['p']:.2g}; right with {alone})."
