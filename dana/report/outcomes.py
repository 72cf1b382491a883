"""Tables of outcomes: held-out losses, fine-tuned scores by arm, differences between arms."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from dana.core.statistics import mean_interval
from dana.report.cells import Finetuned
from dana.report.page import Column, Table, interval_text, number
from dana.report.tables import metric_name
from dana.report.verdicts import ArmComparison


def evaluation_table(evaluations: pd.DataFrame) -> Table:
    """A row an arm and evaluation: what the loss curves draw."""
    return Table("evaluations", "Held-out losses.", evaluations)


def seed_table(cells: Sequence[Finetuned]) -> Table:
    """A row a task, arm and seed: what the dots are."""
    alike = settings_groups(cells)
    rows = [
        {
            "task": cell.task,
            "metric": cell.metric,
            "direction": cell.direction,
            "arm": cell.arm,
            "group": group,
            "seed": seed,
            "score": score,
            "degenerate": seed in cell.collapsed,
        }
        for cell, group in zip(cells, alike, strict=True)
        for seed, score in cell.scores.items()
    ]
    return Table("seeds", "Scores by seed.", pd.DataFrame(rows))


def settings_groups(cells: Sequence[Finetuned]) -> list[str]:
    """A letter for each cell: within a task, only those of one letter can be compared."""
    leaders: dict[str, list[Finetuned]] = {}
    letters = []
    for cell in cells:
        known = leaders.setdefault(cell.task, [])
        place = next((place for place, leader in enumerate(known) if not cell.unlike(leader)), len(known))
        if place == len(known):
            known.append(cell)
        letters.append(chr(ord("A") + place) if place < 26 else str(place))
    return letters


def loss_table(evaluations: pd.DataFrame) -> Table:
    """A row a text and arm: the first and the last loss, nats a masked token."""
    rows = []
    for text, arm in product(("task", "general"), evaluations["arm"].unique()):
        own = evaluations[evaluations["arm"] == arm].sort_values("step", kind="stable")
        first, last = own.iloc[0], own.iloc[-1]
        rows.append(
            {
                "text": text,
                "arm": arm,
                "tokens": last["tokens"],
                "before": first[f"{text}_loss"],
                "before_se": first[f"{text}_loss_se"],
                "after": last[f"{text}_loss"],
                "after_se": last[f"{text}_loss_se"],
                "change": last[f"{text}_loss"] - first[f"{text}_loss"],
                "perplexity_before": np.exp(first[f"{text}_loss"]),
                "perplexity_after": np.exp(last[f"{text}_loss"]),
            }
        )
    columns = (
        Column("held-out text", lambda row: row.text, numeric=False),
        Column("arm", lambda row: row.arm, numeric=False),
        Column("tokens", lambda row: number(row.tokens, 0)),
        Column("loss before", lambda row: f"{number(row.before)} ± {number(row.before_se)}"),
        Column("loss after", lambda row: f"{number(row.after)} ± {number(row.after_se)}"),
        Column("change", lambda row: number(row.change, sign=True)),
        Column(
            "perplexity",
            lambda row: f"{number(row.perplexity_before, 1)} → {number(row.perplexity_after, 1)}",
        ),
    )
    caption = (
        "Nats a masked token ± standard error over examples. The same tokens are masked every time and in "
        "every arm, so differences are surer than these errors say. Perplexity is e to the loss."
    )
    return Table("losses", caption, pd.DataFrame(rows), columns)


def result_table(cells: Sequence[Finetuned]) -> Table:
    """A row a task and arm: mean and standard deviation over seeds. Mirrors Table 3 of the paper."""
    rows = []
    for cell, group in zip(cells, settings_groups(cells), strict=True):
        scores = mean_interval(list(cell.scores.values()))
        row = {"task": cell.task, "metric": cell.metric, "arm": cell.arm, "group": group, "n": scores.n}
        row |= {"mean": scores.mean, "std": scores.std, "ddof": 1, "degenerate": len(cell.collapsed)}
        rows.append(row)
    frame = pd.DataFrame(rows)
    columns = [
        Column("task", lambda row: row.task, numeric=False),
        Column("metric", lambda row: metric_name(row.metric), numeric=False),
        Column("arm", lambda row: row.arm, numeric=False),
        Column("n", lambda row: str(row.n)),
        Column("mean ± std", lambda row: f"{number(row.mean, 4)} ± {number(row.std, 4)}"),
        Column("collapsed seeds", lambda row: str(row.degenerate)),
    ]
    caption = (
        "n: seeds. The standard deviation is over seeds (ddof 1). A collapsed seed predicts (nearly) one class for "
        "everything: its score says nothing about the arm."
    )
    if frame["group"].nunique() > 1:
        columns.insert(3, Column("group", lambda row: row.group, numeric=False))
        caption += " Group: arms of a task with other letters were made differently and cannot be compared."
    return Table("results", caption, frame, tuple(columns))


def difference_table(comparisons: Sequence[ArmComparison]) -> Table | None:
    """A row a task and pair of arms, with the verdict; None where there are no two arms."""
    if not comparisons:
        return None
    frame = pd.DataFrame([asdict(row) for row in comparisons]).rename(columns={"seeds": "seeds_to_decide"})
    frame["reasons"] = ["; ".join(reasons) for reasons in frame["reasons"]]
    frame.insert(list(frame).index("std") + 1, "ddof", 1)
    columns = (
        Column("task", lambda row: row.task, numeric=False),
        Column("difference", lambda row: f"{row.arm} − {row.other}", numeric=False),
        Column("n", lambda row: str(row.n or "–")),
        Column("mean", lambda row: number(row.mean, 4, sign=True)),
        Column("95 % interval", lambda row: interval_text(row.low, row.high)),
        Column("p", lambda row: number(row.p, 4)),
        Column("p, Holm", lambda row: number(row.p_holm, 4)),
        Column("collapsed", lambda row: f"{row.collapsed} of {2 * row.n}" if row.n else "–"),
        Column("verdict", _verdict, numeric=False),
    )
    caption = (
        "Differences of the same seed's scores. Interval: two-level bootstrap over seeds and test examples. p: "
        "two-sided sign-flip (paired permutation) test over seeds, exact up to 12. Holm's adjustment is over the "
        "questions of all tasks: our arms against base and against random text. A verdict needs a p of at most 0.05 "
        "after Holm, an interval without zero, and no collapsed model. The seeds that would decide it do so in four of "
        "five reruns on this test set. It is about these models: another run of adaptation is not drawn. Other rows "
        "are for reading."
    )
    return Table("differences", caption, frame, columns)


def _verdict(row: Any) -> str:
    because = "; ".join(filter(None, [row.reasons, row.plan]))
    return f"{row.verdict}: {because}" if because else row.verdict
