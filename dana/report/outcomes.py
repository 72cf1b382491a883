"""The tables about what adaptation did: to losses on held-out text, and to scores of fine-tuned models."""

from itertools import product

import numpy as np
import pandas as pd

from dana.report.collect import ADAPTED
from dana.report.statistics import differences, holm, mean_interval, paired_difference, sign_flip_p
from dana.report.tables import Column, Table, number

BETTER, WORSE, UNDECIDED = "better", "worse", "undecided"


def own_arm(arms: pd.Series) -> str:
    """The arm that was selected and weighted: dana, or the only one a run has."""
    return "dana" if "dana" in set(arms) else ADAPTED


def evaluation_table(evaluations: pd.DataFrame) -> Table:
    """A row an arm and evaluation: what the loss curves draw."""
    return Table("evaluations", "Held-out losses.", evaluations)


def seed_table(results: pd.DataFrame) -> Table:
    """A row a task, arm and seed: what the dots are."""
    return Table("seeds", "Scores by seed.", results)


def loss_table(evaluations: pd.DataFrame) -> Table:
    """A row a text and arm: the first and the last loss, nats a hidden token."""
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
        "Nats a hidden token ± standard error over examples. The same tokens are hidden every time and in "
        "every arm, so differences are surer than these errors say. Perplexity is e to the loss."
    )
    return Table("losses", caption, pd.DataFrame(rows), columns)


def result_table(results: pd.DataFrame) -> Table:
    """A row a task and arm: mean and standard deviation over seeds. Mirrors Table 3 of the paper."""
    rows = []
    for (task, arm), own in results.groupby(["task", "arm"], sort=False):
        scores = mean_interval(own["score"].tolist())
        metric = own["metric"].iloc[0]
        degenerate = int(own["degenerate"].sum())
        rows.append({"task": task, "metric": metric, "arm": arm, **vars(scores), "ddof": 1, "degenerate": degenerate})
    columns = (
        Column("task", lambda row: row.task, numeric=False),
        Column("metric", lambda row: row.metric.replace("_", "-"), numeric=False),
        Column("arm", lambda row: row.arm, numeric=False),
        Column("n", lambda row: str(row.n)),
        Column("mean ± std", lambda row: f"{number(row.mean, 4)} ± {number(row.std, 4)}"),
        Column("degenerate seeds", lambda row: str(row.degenerate)),
    )
    caption = (
        "n: seeds. The standard deviation is over seeds (ddof 1). A degenerate seed predicts one class for "
        "everything: its training collapsed, and its score says nothing about the arm."
    )
    return Table("results", caption, pd.DataFrame(rows), columns)


def difference_table(results: pd.DataFrame) -> Table | None:
    """A row a task and pair of arms, paired by seed; None where no two arms share a seed."""
    rows = []
    for task, own in results.groupby("task", sort=False):
        scores = {arm: dict(zip(frame["seed"], frame["score"], strict=True)) for arm, frame in own.groupby("arm")}
        for arm, other in contrasts(list(dict.fromkeys(own["arm"]))):
            if scores[arm].keys() & scores[other].keys():
                row = {"task": task, "metric": own["metric"].iloc[0], "arm": arm, "other": other}
                difference = vars(paired_difference(scores[arm], scores[other]))
                p = sign_flip_p(differences(scores[arm], scores[other]))
                sign = 1 if own["direction"].iloc[0] == "higher" else -1
                collapsed = own.loc[own["arm"].isin([arm, other]), "degenerate"].any()
                said = UNDECIDED if collapsed else verdict(difference, sign)
                rows.append({**row, **difference, "p": p, "verdict": said})
    if not rows:
        return None
    frame = pd.DataFrame(rows)
    frame["p_holm"] = holm(frame["p"].tolist())
    columns = (
        Column("task", lambda row: row.task, numeric=False),
        Column("difference", lambda row: f"{row.arm} − {row.other}", numeric=False),
        Column("n", lambda row: str(row.n)),
        Column("mean", lambda row: number(row.mean, 4, sign=True)),
        Column("95 % interval", lambda row: interval(row.low, row.high)),
        Column("p", lambda row: number(row.p, 4)),
        Column("p, Holm", lambda row: number(row.p_holm, 4)),
        Column("verdict", lambda row: row.verdict, numeric=False),
    )
    caption = (
        "Differences of the same seed's scores, with Student's t interval. The verdict is the interval's: "
        "undecided where it holds zero, or where a seed of either arm collapsed to one class. "
        "p: two-sided sign-flip test, "
        f"{_least_p(frame['n'].max())}; Holm's adjustment is over all rows."
    )
    return Table("differences", caption, frame, columns)


def contrasts(arms: list[str]) -> list[tuple[str, str]]:
    """Pairs to compare: every arm with base, then the selected text with the other arms'."""
    ours = own_arm(pd.Series(arms))
    pairs = [(arm, "base") for arm in reversed(arms) if arm != "base" and "base" in arms]
    others = [arm for arm in reversed(arms) if arm not in ("base", ours) and ours in arms]
    return pairs + [(ours, arm) for arm in others]


def verdict(difference: dict[str, float], sign: int = 1) -> str:
    """What a paired difference's interval says; `sign` is -1 where lower scores are better."""
    low, high = sorted((sign * difference["low"], sign * difference["high"]))
    return BETTER if low > 0 else WORSE if high < 0 else UNDECIDED


def interval(low: float, high: float, digits: int = 4) -> str:
    """Both ends of an interval; an en dash for one that cannot be computed."""
    return f"{number(low, digits, sign=True)} to {number(high, digits, sign=True)}" if np.isfinite(low) else "–"


def _least_p(n: int) -> str:
    return f"which cannot go below {number(2 / 2**n, 4)} with {n} seeds"
