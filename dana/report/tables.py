"""Make the tables of a report: rankings, separation, selected text, losses and results.

Each is also a CSV file.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd

from dana.core.statistics import TwoLevel, mean_interval
from dana.report.arm_results import ArmResult
from dana.report.page import (
    Column,
    Table,
    decimals,
    interval_text,
    number,
    p_text,
    shares,
    text_columns,
)
from dana.report.probes import ProbeResult
from dana.report.run import ADAPTED, Candidates, ScoreFrames
from dana.report.verdicts import INCOMPARABLE, ArmComparison, contrasts, models_of_both
from dana.tasks.kinds import is_error

# Of a histogram.
FEWEST_BINS = 12
MOST_BINS = 60
TAIL = 0.005  # share of each group that falls into the end bins of the histogram
MOST_SOURCES = 20
TEXTS = {"target": "target, held out", "pool": "pool"}
TEXT = Column("text", lambda row: TEXTS[row.text], numeric=False)


def metric_name(metric: str) -> str:
    """Format the name of a metric ("macro-F1") and say if lower is better."""
    name = metric.replace("_f1", "-F1").replace("_", "-")
    return f"{name} (lower is better)" if is_error(metric) else name


# Names of arms for a reader who knows no arms.
ARM_NAMES = {
    "dana": "adapted",
    ADAPTED: "adapted",
    "base": "not adapted",
    "random": "random text",
    "unlabelled": "unlabelled text",
}


def arm_name(arm: str) -> str:
    """Name an arm for a reader who knows no arms: "adapted", "not adapted"."""
    return ARM_NAMES.get(arm, arm)


# Fields of ArmComparison whose columns in differences.csv have other names.
CSV_COLUMNS = {
    "units_needed": "units_to_decide",
    "texts_needed": "texts_to_decide",
    "collapsed_models": "collapsed",
}
METRIC = Column("metric", lambda row: metric_name(row.metric), numeric=False)
ARM = Column("model", lambda row: arm_name(row.arm), numeric=False)
DIFFERENCE = Column("models", lambda row: pair_name(row), numeric=False)
SEEDS = Column("n", lambda row: str(row.n or "–"))
INTERVAL = Column("95 % interval", lambda row: interval_text(row.low, row.high, 3))
P = Column("p", lambda row: p_text(row.p))
P_HOLM = Column("p, adjusted", lambda row: p_text(row.p_holm))


def pair_name(row: Any) -> str:
    """Name the two arms of a difference: "adapted − not adapted"."""
    return f"{arm_name(row.arm)} − {arm_name(row.other)}"


def _task_columns(frame: pd.DataFrame) -> tuple[Column, ...]:
    """Return the columns of task and metric if they differ between rows.

    Otherwise the headline names them.
    """
    columns: tuple[Column, ...] = ()
    if frame["task"].nunique() > 1:
        columns += text_columns("task")
    if frame["metric"].nunique() > 1:
        columns += (METRIC,)
    return columns


def _name(header: str) -> Column:
    """Make a column of the names of candidates that says which one was chosen."""

    def cell(row: Any) -> str:
        return f"{row.name} (chosen)" if row.chosen else str(row.name)

    return Column(header, cell, numeric=False)


def _with_interval(header: str, name: str) -> Column:
    """Make a column of a number with its interval, in the frame NAME_low and NAME_high."""

    def cell(row: Any) -> str:
        value = number(getattr(row, name))
        low = number(getattr(row, f"{name}_low"))
        high = number(getattr(row, f"{name}_high"))
        return f"{value} ({low} to {high})"

    return Column(header, cell)


def _score_interval(row: Any) -> str:
    """Format the interval of a score, which has no sign."""
    return interval_text(row.low, row.high, 3, sign=False)


SCORE_INTERVAL = Column("95 % interval", _score_interval)


def ranking_table(ranking: Candidates) -> Table:
    """Tabulate the ranking of detectors, the chosen one in bold, like Table 1 of the paper."""
    frame = ranking.rows
    columns = [_name("detector")]
    caption = ""
    if has_recall(frame):
        budget = number(ranking.notes.get("budget"), 2)
        columns.append(_with_interval(f"recall at β = {budget}", "recall"))
        caption = (
            "Recall: share of held-out target units that the budget would select, with the 95 % "
            "interval. "
        )
    columns += [
        *decimals(3, "f1_mean", "auroc_mean", "ap_mean"),
        *decimals(2, "stability", "fit_s", "score_s"),
    ]
    caption += (
        "Other numbers are means over fits. F1: task is the positive class. Stability: mean "
        "Spearman correlation of the scores of one pool sample between fits."
    )
    return Table("ranking", caption, frame, tuple(columns), tuple(frame["chosen"]))


def has_recall(frame: pd.DataFrame) -> bool:
    """Return True if detectors were ranked by recall; the paper's protocol has only F1."""
    return "recall" in frame and bool(frame["recall"].notna().all())


def choice_table(choice: Candidates) -> Table:
    """Tabulate the comparison of selectors and their fusion, best first, the chosen one in bold."""
    frame = choice.rows.sort_values("ap", ascending=False, kind="stable", ignore_index=True)
    columns = (
        _name("selector"),
        _with_interval("average precision", "ap"),
        *decimals(3, "recall_5", "recall_20", "auroc"),
        *decimals(2, "weight"),
    )
    caption = (
        "Units of held-out target text against units of pool text. Average precision: target text "
        "weighted to one tenth of all, with the 95 % interval over documents. Recall: share of "
        "target units that score below the 5 % or 20 % quantile of pool units. Weight: in the "
        "fusion."
    )
    return Table("choice", caption, frame, columns, tuple(frame["chosen"]))


def _groups(scores: ScoreFrames) -> dict[str, pd.DataFrame]:
    """Return the scored units of held-out target text and of the pool, each if it has some."""
    groups = {"target": scores.target, "pool": scores.units}
    return {name: frame for name, frame in groups.items() if len(frame)}


def histogram(frames: ScoreFrames) -> Table:
    """Tabulate the histogram of each group's scores, as shares of its units.

    Scores beyond the ends count in the end bins.
    """
    scores = {name: frame["score"].to_numpy() for name, frame in _groups(frames).items()}
    low = min(np.quantile(values, TAIL) for values in scores.values())
    high = max(np.quantile(values, 1 - TAIL) for values in scores.values())
    if not high > low:
        high = low + 1
    smallest = min(len(values) for values in scores.values())
    bins = int(np.clip(np.sqrt(smallest), FEWEST_BINS, MOST_BINS))
    edges = np.linspace(low, high, bins + 1)
    frame = pd.DataFrame({"from": edges[:-1], "to": edges[1:]})
    for name, values in scores.items():
        counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
        frame[name] = counts / values.size
    return Table("score_histogram", "Share of units by score.", frame)


def separation_table(scores: ScoreFrames) -> Table:
    """Tabulate how well scores separate each group from pool text, and if they follow length."""
    groups = _groups(scores)
    rows = []
    for name, frame in groups.items():
        against_pool = np.nan
        if "pool" in groups and name != "pool":
            against_pool = auroc(frame["score"], groups["pool"]["score"])
        rows.append(
            {
                "text": name,
                "units": len(frame),
                "median_score": frame["score"].median(),
                "auroc_against_pool": against_pool,
                "spearman_score_length": spearman(frame["score"], frame["characters"]),
            }
        )
    columns = (
        TEXT,
        *decimals(0, "units"),
        *decimals(3, "median_score", "auroc_against_pool"),
        *decimals(2, "spearman_score_length", sign=True),
    )
    caption = (
        "AUROC: probability that a unit of this text scores as more relevant than a pool unit "
        "(chance: 0.5). Score ~ length: rank correlation of score and characters; far from 0, "
        "selection depends on length. Scores beyond the histogram are counted in its end bins."
    )
    return Table("separation", caption, pd.DataFrame(rows), columns)


def auroc(relevant: pd.Series, foreign: pd.Series) -> float:
    """Compute the probability that a relevant unit has the lower score; ties count half."""
    from sklearn.metrics import roc_auc_score

    labels = np.repeat([1, 0], [len(relevant), len(foreign)])
    return float(roc_auc_score(labels, -np.concatenate([relevant, foreign])))


def spearman(first: pd.Series, second: pd.Series) -> float:
    """Compute Spearman's rank correlation; NaN if one series is constant."""
    if first.nunique() < 2 or second.nunique() < 2:
        return float("nan")
    return float(np.corrcoef(first.rank(), second.rank())[0, 1])


def source_table(scores: ScoreFrames) -> Table:
    """Tabulate the selected text by source, largest first, like Table 2 of the paper."""
    units = scores.units
    amounts = pd.DataFrame(
        {
            "units": np.ones(len(units)),
            "characters": units["characters"],
            "selected_units": units["weight"],
            "selected_characters": units["weight"] * units["characters"],
            "partly_selected_units": units["weight"].between(0, 1, inclusive="neither"),
        }
    )
    frame = amounts.groupby(units["source"], observed=True).sum()
    totals = frame.sum()
    frame["share_of_its_units_selected"] = frame["selected_units"] / frame["units"]
    for name in ("units", "selected_units", "characters", "selected_characters"):
        frame[f"share_of_{name}"] = frame[name] / max(totals[name], 1e-300)
    frame = frame.sort_values("selected_characters", ascending=False, kind="stable").reset_index()
    frame["source"] = frame["source"].astype(str)
    columns = (
        *text_columns("source"),
        *decimals(0, "units"),
        *shares("share_of_its_units_selected", "share_of_characters"),
        *shares("share_of_selected_units", "share_of_selected_characters"),
    )
    caption = "Unit: a sentence or window of a text, which is scored. Selected: the sum of weights."
    return Table("selected_by_source", caption, frame, columns, max_rows=MOST_SOURCES)


# Captions of the table of losses.
LOSS_PER_PREDICTION = (
    "Loss on held-out text, mean per prediction, ± standard error over examples, and the share of "
    "predictions that is right. The head that predicts is new, so all it can do, it learnt here; "
    "what counts is what the vectors are worth for your labels, above."
)
LOSS_PER_CHARACTER = (
    "Loss on held-out text a character, ± standard error over examples: the mean negative natural "
    "logarithm of the probability that the model gave to the right token, divided by the mean "
    "length of a token in characters. Words were added to the vocabulary of an arm, so that a "
    "token of one arm is not that of another; characters are the same. Lower is better. Perplexity "
    "is exp(loss), a character."
)
LOSS_PER_TOKEN = (
    "Loss on held-out text, mean per predicted token, ± standard error over examples. It is the "
    "negative natural logarithm of the probability that the model gave to the right token (the "
    "unit is called nat): 0 if it was always sure of it; lower is better. The same tokens are "
    "predicted every time and by every model, so differences are more certain than these errors "
    "suggest. Perplexity is exp(loss)."
)


def loss_table(evaluations: pd.DataFrame) -> Table:
    """Tabulate the first and the last held-out loss of each arm on each text that was measured."""
    frame = _loss_frame(evaluations)
    if "unit" in evaluations:
        frame["unit"] = evaluations["unit"].iloc[0]
    columns = (
        TEXT,
        ARM,
        *decimals(0, "tokens"),
        Column("loss before", lambda row: f"{number(row.before)} ± {number(row.before_se)}"),
        Column("loss after", lambda row: f"{number(row.after)} ± {number(row.after_se)}"),
        *decimals(3, "change", sign=True),
    )
    if predicts_classes(frame):
        columns += shares("right_before", "right_after", "guessing")
        caption = LOSS_PER_PREDICTION
    elif "unit" in evaluations:
        caption = LOSS_PER_CHARACTER
    else:
        caption = LOSS_PER_TOKEN
    return Table("losses", caption, frame, columns)


def _loss_frame(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Return the first and the last loss of each arm, a row per text and arm that was measured."""
    arms = evaluations["arm"].unique()
    by_step = evaluations.sort_values("step", kind="stable")
    first = by_step.drop_duplicates("arm", keep="first").set_index("arm").loc[arms]
    last = by_step.drop_duplicates("arm", keep="last").set_index("arm").loc[arms]
    frames = {}
    for text in ("target", "pool"):
        before = first[f"{text}_loss"]
        after = last[f"{text}_loss"]
        frames[text] = pd.DataFrame(
            {
                "tokens": last["tokens"],
                "before": before,
                "before_se": first[f"{text}_loss_se"],
                "after": after,
                "after_se": last[f"{text}_loss_se"],
                "change": after - before,
                "perplexity_before": np.exp(before),
                "perplexity_after": np.exp(after),
                "right_before": first[f"{text}_accuracy"],
                "right_after": last[f"{text}_accuracy"],
                "guessing": first[f"{text}_guess"],
            }
        )
    frame = pd.concat(frames, names=["text"]).reset_index()
    is_measured = frame["before"].notna() | frame["after"].notna()
    return frame[is_measured].reset_index(drop=True)


def loss_unit(table: Table) -> str:
    """Return what the losses of :func:`loss_table` are measured by: ``token``, or ``character``."""
    return str(table.frame["unit"].iloc[0]) if "unit" in table.frame else "token"


def predicts_classes(losses: pd.DataFrame) -> bool:
    """Return whether the objective predicts a class, such as a sentence's position.

    Perplexity then means nothing.

    Args:
        losses: Frame of :func:`loss_table`.
    """
    return bool(losses["guessing"].notna().any())


def seed_table(results: Sequence[ArmResult]) -> Table:
    """Tabulate the scores: one row per task, arm and seed."""
    rows = []
    for result in results:
        for seed, score in result.scores.items():
            is_collapsed = seed in result.collapsed_seeds
            row = {"seed": seed, "score": score, "degenerate": is_collapsed}
            rows.append({**_head(result), **row})
    return Table("seeds", "Scores by seed.", pd.DataFrame(rows))


def _head(result: ArmResult) -> dict[str, str]:
    """Return the first columns of a result."""
    return {
        "task": result.task,
        "metric": result.metric,
        "direction": result.direction,
        "arm": result.arm,
    }


def result_table(results: Sequence[ArmResult]) -> Table:
    """Tabulate the mean score of each task and arm, like Table 3 of the paper."""
    rows = []
    for result in results:
        mean = result.estimate.mean
        low, high = result.interval
        seeds = mean_interval(list(result.scores.values()) or [mean])
        row = {
            "n": seeds.n,
            "mean": mean,
            "low": low,
            "high": high,
            "std": seeds.std,
            "ddof": 1,
            "degenerate": len(result.collapsed_seeds),  # collapsed, as in metrics.json
        }
        rows.append({**_head(result), **row})
    frame = pd.DataFrame(rows)
    columns = (
        *_task_columns(frame),
        ARM,
        SEEDS,
        *decimals(3, "mean"),
        SCORE_INTERVAL,
        *decimals(3, "std"),
    )
    caption = (
        "Adapted: trained further on the selected text; random text: trained further on as much "
        "random text; not adapted: the model as it was. All are then fine-tuned on the labelled "
        "texts. Rows without a deviation are simple models that need no adaptation. n: fine-tuned "
        "models. Mean: with folds, of the predictions of all folds pooled. Interval: over models "
        "and test texts. Deviation: standard deviation over fine-tunings."
    )
    if (frame["degenerate"] > 0).any():
        columns += decimals(0, "degenerate")
        caption += (
            " A grey row is no measurement: a collapsed model does not beat the largest class, or "
            "predicts nearly one label."
        )
    return Table("results", caption, frame, columns, grey=tuple(frame["degenerate"] > 0))


def difference_table(comparisons: Sequence[ArmComparison]) -> Table | None:
    """Tabulate each task and pair of arms with its verdict; None without a pair."""
    if not comparisons:
        return None
    frame = pd.DataFrame([asdict(row) for row in comparisons]).rename(columns=CSV_COLUMNS)
    numbers = (*decimals(3, "mean", sign=True), INTERVAL, P, P_HOLM)
    columns = (*_task_columns(frame), DIFFERENCE, SEEDS, *map(_if_measured, numbers))
    caption = (
        "Differences on the same texts. n: adaptations, folds, or fine-tunings of one adaptation. "
        "Interval and p: Student's t with a standard error over these and over test texts; p is "
        "how often chance alone would give such a difference. Adjusted: several questions are "
        "asked, those of all tasks, so each p is raised (by Holm's method). A verdict needs an "
        "adjusted p of at most 0.05. Other rows get no verdict."
    )
    has_collapsed = frame["collapsed"] > 0
    if has_collapsed.any():
        columns += (Column("collapsed", _collapsed_models),)
        caption += " Grey rows are no measurement: a model collapsed."
    columns += text_columns("verdict")
    grey = tuple(has_collapsed | (frame["verdict"] == INCOMPARABLE))
    return Table("differences", caption, frame, columns, grey=grey)


def _collapsed_models(row: Any) -> str:
    """Format how many models of two arms collapsed; an en dash if the two are not compared."""
    if not row.n:
        return "–"
    return f"{row.collapsed} of {models_of_both(row)}"


def _if_measured(column: Column) -> Column:
    """Make a column that is a dash where a model collapsed."""
    return replace(column, cell=lambda row: "–" if row.collapsed else column.cell(row))


def probe_table(probes: Sequence[ProbeResult]) -> Table:
    """Tabulate the score of each arm's frozen vectors on each task, by the number of labels."""
    rows = []
    for result in probes:
        estimate = result.estimate
        low, high = result.interval
        rows.append(
            {
                "task": result.task,
                "metric": result.metric,
                "arm": result.arm,
                "measure": result.name,
                "method": result.method,
                "labels": result.labels,
                "draws": result.draws,
                "n": estimate.units,
                "texts": estimate.texts,
                "mean": estimate.mean,
                "low": low,
                "high": high,
            }
        )
    frame = pd.DataFrame(rows)
    columns = (
        *_task_columns(frame),
        ARM,
        *text_columns("measure"),
        SEEDS,
        *decimals(3, "mean"),
        SCORE_INTERVAL,
    )
    caption = (
        "The vectors of each model as it is, not fine-tuned: a linear model fitted to so many "
        "labels, or the vote of the nearest of all labelled texts by cosine. Means over draws of "
        "labels, which are the same for all arms. n: adaptations or folds. Interval: over these "
        "and test texts."
    )
    return Table("probe", caption, frame, columns, folded=True)


def probe_difference_table(probes: Sequence[ProbeResult]) -> Table | None:
    """Tabulate the paired differences of arms by their frozen vectors; None without a pair."""
    by_measure: dict[tuple[str, str, str], dict[str, ProbeResult]] = {}
    for result in probes:
        measure = (result.task, result.method, result.size)
        by_measure.setdefault(measure, {})[result.arm] = result
    rows = []
    for arms in by_measure.values():
        for arm, other in contrasts(list(arms)):
            difference = arms[arm].difference(arms[other])
            if difference is not None:
                rows.append(_probe_difference_row(arms[arm], other, difference))
    if not rows:
        return None
    frame = pd.DataFrame(rows)
    columns = (
        *_task_columns(frame),
        *text_columns("measure"),
        DIFFERENCE,
        SEEDS,
        *decimals(3, "mean", sign=True),
        INTERVAL,
        P,
        *decimals(3, "detectable"),
    )
    caption = (
        "Differences on the same labels and test texts. n: adaptations or folds; with one, "
        "interval and p are over texts alone and say nothing of another adaptation. p is not "
        "adjusted for the number of rows. The last column is what would show in four of five "
        "reruns."
    )
    return Table("probe_differences", caption, frame, columns, folded=True)


def _probe_difference_row(ours: ProbeResult, other: str, difference: TwoLevel) -> dict[str, Any]:
    """Make the row of a difference of two arms by one measure.

    Args:
        ours: Result of the first arm.
        other: Name of the other arm.
        difference: The estimate.
    """
    low, high = difference.interval
    return {
        "task": ours.task,
        "metric": ours.metric,
        "measure": ours.name,
        "labels": ours.labels,
        "arm": ours.arm,
        "other": other,
        "n": difference.units,
        "texts": difference.texts,
        "mean": difference.mean,
        "low": low,
        "high": high,
        "p": difference.p,
        "detectable": difference.detectable(),
    }


def retrieval_table(rows: pd.DataFrame) -> Table:
    """Tabulate how well a sentence finds the rest of its document, by text and arm."""
    names = ["text", "arm", "documents", "mrr_10", "ndcg_10"]
    frame = rows[names].sort_values("text", kind="stable", ignore_index=True)
    columns = (
        TEXT,
        ARM,
        *decimals(0, "documents"),
        Column("MRR@10", lambda row: number(row.mrr_10)),
        Column("nDCG@10", lambda row: number(row.ndcg_10)),
    )
    caption = (
        "Held-out documents: a sentence of each searches, by cosine, for the rest of its document "
        "among those of all. Models of the first adaptation. Text without enough documents of two "
        "sentences has no row."
    )
    return Table("retrieval", caption, frame, columns)
