"""Ask a chat model which of two labels a text has; compare examples on and off its topic."""

import shutil
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import binomtest

from dana.core.artifacts import Artifact, Draft, make, read_json, write_json, write_text
from dana.core.config import require
from dana.core.files import file_digest, to_json_lines
from dana.core.logging import monitor
from dana.core.registry import origin_of, plugin_errors
from dana.core.rng import derive_seed
from dana.core.text_table import csv_text, tabulate
from dana.stages.settings import RunSettings
from dana.studies.few_shot import ARMS
from dana.studies.few_shot.chat import ChatModel, open_chat
from dana.studies.few_shot.items import Item, items_of_task
from dana.studies.few_shot.script import SCRIPT, ForcedChoice, converse

KIND = "few-shot"
TEXT = "few_shot.md"
CONVERSATIONS = "conversations.json"
OUTCOMES = ("right", "wrong", "abstained", "unparsable")  # only the first two are answers
CHANCE = 0.5  # accuracy of guessing: both classes are equally likely
ALPHA = 0.05
Row = dict[str, Any]


def run_few_shot(settings: RunSettings, card: str) -> Artifact:
    """Ask a chat model about every item in every arm and measure its accuracy.

    Conversations that a model answers together are an artifact in ``OUT/few-shot-begun`` until all
    are finished, so an interrupted run resumes with the next ones and writes the same bytes.

    Args:
        settings: Settings of the run.
        card: Name or YAML file of the task card to draw items from.

    Returns:
        The artifact ``OUT/few-shot``: ``few_shot.md`` (the result in words), ``summary.csv`` (one
        row per arm), ``paired.csv`` (comparison of the arms), ``results.csv`` (one row per item and
        arm), ``transcripts.jsonl`` (one line per conversation), ``items.jsonl``.

    Raises:
        ConfigError: If the chat model is invalid.
        DataError: If there are too few texts.
        EndpointError: If the model gives no reply.
        Contradiction: If the folder has a study with other settings.
    """
    study = settings.section("few_shot")
    seed = settings.selection.seed
    out = Path(settings.out)
    require(bool(study.chat), "chat", study.chat, "a chat model, for example local:smollm2")
    model = open_chat(study.chat)
    identity = model.identity()  # fail on a bad model before any text is read
    code = origin_of(model)
    inputs, items = items_of_task(settings, card)
    depends_on: Row = {
        "chat": identity,
        "code": code,
        "script": file_digest(SCRIPT),
        "items": inputs,
        "seed": seed,
        "method": 4,
    }
    begun = out / f"{KIND}-begun"

    def write(draft: Draft) -> None:
        pairs = list(product(items, ARMS))
        batch_size = getattr(model, "batch", 1)
        batches = [pairs[start : start + batch_size] for start in range(0, len(pairs), batch_size)]
        records: list[Row] = []
        for number, batch in enumerate(monitor(batches, what="conversations", unit="batches")):
            hold = partial(
                _hold_conversations, model=model, spec=study.chat, pairs=batch, seed=seed
            )
            part = make(begun / str(number), KIND, {**depends_on, "number": number}, hold)
            for row in read_json(part.path / CONVERSATIONS):
                records.append({**row, "model": identity})
        _write_study(draft, items, records)
        draft.seeds = {"study": seed}

    artifact = make(out / KIND, KIND, depends_on, write)
    shutil.rmtree(begun, ignore_errors=True)
    return artifact


def _hold_conversations(
    draft: Draft, model: ChatModel, spec: str, pairs: Sequence[tuple[Item, str]], seed: int
) -> None:
    """Ask about items in conversations, and write these and their outcomes.

    Args:
        draft: Draft of the artifact.
        model: The chat model.
        spec: Its spec, for errors.
        pairs: Items, each with the arm whose examples are shown.
        seed: Root seed.
    """
    seeds = [derive_seed(seed, KIND, item.id, arm) % 2**31 for item, arm in pairs]
    with plugin_errors("chat model", spec, model):
        conversations = converse(model, pairs, seeds)
    rows = []
    for (item, arm), turns_seed, (turns, choice) in zip(pairs, seeds, conversations, strict=True):
        chosen = {ForcedChoice.A: item.label_a, ForcedChoice.B: item.label_b}.get(choice)
        row: Row = {
            "item": item.id,
            "arm": arm,
            "topic": item.topic,
            "label_a": item.label_a,
            "label_b": item.label_b,
            "label": item.label,
            "chosen": chosen,
            "outcome": _outcome(choice, chosen, item.label),
            "seed": turns_seed,
            "turns": turns,
        }
        rows.append(row)
    write_json(draft.path / CONVERSATIONS, rows)


def _outcome(choice: ForcedChoice, chosen: str | None, label: str) -> str:
    """Return the outcome of a choice, one of :data:`OUTCOMES`, from the label that it chose."""
    if chosen is None:
        return choice.value
    return "right" if chosen == label else "wrong"


def _write_study(draft: Draft, items: Sequence[Item], records: list[Row]) -> None:
    """Write items, transcripts, results and their summary from the rows of all conversations."""
    folder = draft.path
    (folder / "items.jsonl").write_text(to_json_lines(map(asdict, items)), encoding="utf-8")
    (folder / "transcripts.jsonl").write_text(to_json_lines(records), encoding="utf-8")
    results = pd.DataFrame(records).drop(columns=["model", "turns"])
    accuracies = []
    for arm in ARMS:
        outcomes = results["outcome"][results["arm"] == arm]
        accuracies.append(arm_accuracy(arm, outcomes.tolist()))
    write_text(folder / "results.csv", csv_text(results))
    write_text(folder / "summary.csv", csv_text(pd.DataFrame(accuracies)))
    difference = compare_on_with_off(results)
    write_text(folder / "paired.csv", csv_text(pd.DataFrame([difference])))
    title = f"Few-shot study: {len(items)} texts, examples on and off topic"
    (folder / TEXT).write_text(study_text(title, accuracies, difference), encoding="utf-8")
    draft.counts = {"items": len(items), "conversations": len(records)}
    for row in accuracies:
        draft.counts[row["arm"]] = {outcome: row[outcome] for outcome in OUTCOMES}


def exact_interval(right: int, items: int) -> tuple[float, float]:
    """Compute the exact 95 % binomial interval of a share; (NaN, NaN) without items.

    References:
        Clopper and Pearson 1934, The use of confidence or fiducial limits illustrated in the case
        of the binomial.
    """
    if items == 0:
        return float("nan"), float("nan")
    interval = binomtest(right, items).proportion_ci(method="exact")
    return float(interval.low), float(interval.high)


def arm_accuracy(arm: str, outcomes: Sequence[str]) -> Row:
    """Summarise the outcomes of an arm: a row of ``summary.csv``.

    Args:
        arm: Name of the arm.
        outcomes: Outcomes of its items, at least one.

    Returns:
        ``arm``, ``items``; counts ``right``, ``wrong``, ``abstained`` and ``unparsable``;
        ``accuracy``, the share of all items that are right, with its exact 95 % interval ``low`` to
        ``high``; ``answered``, the count of right and wrong, and among these ``accuracy_answered``
        (NaN if there are none), ``low_answered``, ``high_answered``.
    """
    counts = {outcome: outcomes.count(outcome) for outcome in OUTCOMES}
    right = counts["right"]
    items = len(outcomes)
    answers = right + counts["wrong"]
    low, high = exact_interval(right, items)
    low_answered, high_answered = exact_interval(right, answers)
    return {
        "arm": arm,
        "items": items,
        **counts,
        "accuracy": right / items,
        "low": low,
        "high": high,
        "answered": answers,
        "accuracy_answered": right / answers if answers else float("nan"),
        "low_answered": low_answered,
        "high_answered": high_answered,
    }


def compare_on_with_off(results: pd.DataFrame) -> Row:
    """Compare the accuracy with examples on and off topic by the exact McNemar test.

    Both arms have the same items.

    Args:
        results: One row per item and arm: ``item``, ``arm``, ``outcome``.

    Returns:
        Counts of items that are right in ``both`` arms, ``only_on``, ``only_off``, ``neither``;
        ``difference`` of the accuracies, on minus off; two-sided ``p``.

    References:
        McNemar 1947, Note on the sampling error of the difference between correlated proportions;
        exact as binomial.
    """
    is_right = results.assign(right=results["outcome"] == "right")
    is_right = is_right.pivot(index="item", columns="arm", values="right")
    on = is_right["on"].to_numpy(bool)
    off = is_right["off"].to_numpy(bool)
    only_on = int((on & ~off).sum())
    only_off = int((off & ~on).sum())
    discordant = only_on + only_off
    p = float(binomtest(only_on, discordant, 0.5).pvalue) if discordant else 1.0
    return {
        "both": int((on & off).sum()),
        "only_on": only_on,
        "only_off": only_off,
        "neither": int((~on & ~off).sum()),
        "difference": (only_on - only_off) / len(is_right),
        "p": p,
    }


def study_text(title: str, accuracies: Sequence[Row], difference: Row) -> str:
    """Format the study in Markdown, the result first.

    Args:
        title: Title of the study.
        accuracies: Rows of the arms, from :func:`arm_accuracy`.
        difference: Comparison of on with off topic, from :func:`compare_on_with_off`.
    """
    lines = [
        f"# {title}",
        "",
        *map(_accuracy_text, accuracies),
        f"Guessing is right about {CHANCE * 100:.0f} %, as both classes are equally likely.",
        "",
        _difference_text(difference),
        "",
        "Abstentions and replies that cannot be parsed count as wrong; answered counts the others.",
        "",
        "```",
        tabulate(accuracies),
        "```",
        "",
    ]
    return "\n".join(lines)


def _accuracy_text(row: Row) -> str:
    """Put the accuracy of an arm in words."""
    if row["low"] > CHANCE:
        verdict = "better than"
    elif row["high"] < CHANCE:
        verdict = "worse than"
    else:
        verdict = "may be"
    interval = f"exact 95 % interval {row['low'] * 100:.0f} to {row['high'] * 100:.0f} %"
    share = f"{row['right']} of {row['items']} ({row['accuracy'] * 100:.0f} %, {interval})"
    return f"With {ARMS[row['arm']]} the model is right about {share} texts: {verdict} guessing."


def _difference_text(difference: Row) -> str:
    """Put the comparison of on with off topic in words."""
    points = f"{abs(difference['difference']) * 100:.0f} points"
    better, worse = ("on", "off") if difference["difference"] > 0 else ("off", "on")
    verdict = f"It does better with {ARMS[better]} than with {ARMS[worse]}, by {points}"
    if difference["p"] > ALPHA:
        verdict = f"The difference of {points} may be chance"
    return (
        f"{verdict} (exact McNemar test on the same texts: p = {difference['p']:.2g}; right with"
        f" on-topic examples alone {difference['only_on']}, with off-topic examples alone"
        f" {difference['only_off']})."
    )
