"""Manifests to what each step cost: seconds, and how much text went through it."""

from typing import Any

import pandas as pd

from dana.report.files import flatten
from dana.report.frames import RunFrames
from dana.report.page import Column, Table, number, percent
from dana.report.provenance import is_part, steps

# Of a step's kind: the count of what went through it, and what that is.
AMOUNTS = {
    "corpus": ("in", "documents"),
    "ranking": ("task_units", "task units"),
    "scores": ("units", "units"),
    "weights": ("units.in", "units"),
    "tokens": ("tokens", "tokens"),
    "model": ("tokens_seen", "tokens"),
}
WORK = {"scores": "scoring", "model": "training", "finetune": "fine-tuning"}  # named in the sentence


def cost_table(run: RunFrames) -> Table | None:
    """A row a step: seconds, their share, what went through it; None without a manifest."""
    rows = []
    for place, manifest in steps(run).items():
        if is_part(place, manifest):
            continue
        seconds = max(float(manifest.get("seconds", 0)), run.recorded.get(place, 0.0))
        amount, of = _amount(manifest)
        row = {"step": place, "kind": str(manifest.get("kind", "")), "seconds": seconds, "amount": amount, "of": of}
        rows.append({**row, "per_second": amount / seconds if seconds else float("nan")})
    if not rows:
        return None
    frame = pd.DataFrame(rows)
    frame.insert(3, "share", frame["seconds"] / max(frame["seconds"].sum(), 1e-300))
    columns = (
        Column("step", lambda row: row.step, numeric=False),
        Column("seconds", lambda row: number(row.seconds, 1)),
        Column("share", lambda row: percent(row.share)),
        Column("text", lambda row: f"{number(row.amount, 0)} {row.of}" if row.of else "–"),
        Column("a second", lambda row: number(row.per_second, 0 if row.per_second >= 10 else 1)),
    )
    caption = (
        "Seconds by the clock, over every time that a step was begun again; of scoring summed over processes, of "
        "fine-tuning over seeds. What was reused cost nothing again. Tokens of training are those the model saw; "
        "texts of fine-tuning count once an epoch and seed."
    )
    return Table("cost", caption, frame, columns)


def _amount(manifest: dict[str, Any]) -> tuple[float, str]:
    """How much text went through a step, and what is counted; NaN and nothing where that is not known."""
    counts, kind = dict(flatten(manifest.get("counts", {}))), manifest.get("kind")
    preset = manifest.get("depends_on", {}).get("preset")
    if kind == "finetune" and isinstance(preset, dict) and {"epochs", "seeds"} <= preset.keys() and "train" in counts:
        return float(counts["train"] * preset["epochs"] * len(preset["seeds"])), "texts"
    key, of = AMOUNTS.get(str(kind), ("", ""))
    return (float(counts[key]), of) if key in counts else (float("nan"), "")


def cost_finding(table: Table) -> str:
    """The time of all steps, where it went, and how many tokens were trained on at which rate."""
    frame = table.frame
    total = frame["seconds"].sum()
    by_kind = frame.groupby("kind")["seconds"].sum()
    parts = [f"{words} {percent(by_kind[kind] / total)}" for kind, words in WORK.items() if by_kind.get(kind, 0)]
    said = f"{_duration(total)} in all{': ' if parts else ''}{', '.join(parts)}."
    trained = frame[(frame["kind"] == "model") & frame["amount"].gt(0)]
    if len(trained):
        tokens, seconds = trained["amount"].sum(), trained["seconds"].sum()
        said += f" {number(tokens, 0)} tokens were trained on, {number(tokens / seconds, 0)} a second."
    return said


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{number(seconds, 1)} seconds"
    return f"{number(seconds / 60, 1)} minutes" if seconds < 7200 else f"{number(seconds / 3600, 1)} hours"
