"""Tables of selection: ranking of detectors, separation, what was kept; each a frame that is also a CSV file."""

from typing import Any

import numpy as np
import pandas as pd

from dana.report.frames import Ranking, Selected, SelectorChoice
from dana.report.page import Column, Table, number, percent
from dana.tasks.kinds import is_error

FEWEST_BINS, MOST_BINS = 12, 60
TAIL = 0.005  # of each group that the histogram's end bins take in
MOST_SOURCES = 20


def metric_name(metric: str) -> str:
    """As it is written: macro-F1; of an error, that less is better."""
    return metric.replace("_f1", "-F1").replace("_", "-") + (" (lower is better)" if is_error(metric) else "")


def ranking_table(ranking: Ranking) -> Table:
    """A row a detector, the chosen one marked. Mirrors Table 1 of the paper."""
    frame = ranking.rows.copy()
    frame["chosen"] = frame["name"] == ranking.chosen
    columns = [_name_column("detector")]
    has_recall = "recall" in frame and frame["recall"].notna().all()
    if has_recall:
        kept = f"recall at β = {number(ranking.content['budget'], 2)}" if "budget" in ranking.content else "recall"
        columns.append(_interval_column(kept, "recall"))
    columns += [
        Column("F1", lambda row: number(row.f1_mean)),
        Column("AUROC", lambda row: number(row.auroc_mean)),
    ]
    optional = {
        "ap_mean": Column("average precision", lambda row: number(row.ap_mean)),
        "stability": Column("stability", lambda row: number(row.stability, 2)),
        "fit_s": Column("fit\N{NO-BREAK SPACE}(s)", lambda row: number(row.fit_s, 2)),
        "score_s": Column("score\N{NO-BREAK SPACE}(s)", lambda row: number(row.score_s, 2)),
    }
    columns += [column for key, column in optional.items() if key in frame]
    recall = "Recall: share of held-out task units that the budget would keep, with the 95 % interval over documents. "
    caption = (
        f"{recall if has_recall else ''}All other numbers are means over fits. F1: task is the positive class. "
        "Stability: mean Spearman correlation of one general sample's scores between fits."
    )
    return Table("ranking", caption, frame, tuple(columns), tuple(frame["chosen"]))


def choice_table(choice: SelectorChoice) -> Table:
    """A row a selector and one for their fusion, best first, the chosen one marked."""
    frame = choice.rows.sort_values("ap", ascending=False, kind="stable", ignore_index=True)
    frame["chosen"] = frame["name"] == choice.chosen
    columns = (
        _name_column("selector"),
        _interval_column("average precision", "ap"),
        Column("recall at 5\N{NO-BREAK SPACE}%", lambda row: number(row.recall_5)),
        Column("recall at 20\N{NO-BREAK SPACE}%", lambda row: number(row.recall_20)),
        Column("AUROC", lambda row: number(row.auroc)),
        Column("weight", lambda row: number(row.weight, 2)),
    )
    caption = (
        "Pieces of held-out task text against pieces of general text. Average precision: task text weighted to one in "
        "ten, with the 95 % interval over documents. Recall: share of task pieces that score below so many per cent "
        "of the general ones. Weight: in the fusion."
    )
    return Table("choice", caption, frame, columns, tuple(frame["chosen"]))


def _name_column(header: str) -> Column:
    """The name of a row, which says whether it was chosen."""
    return Column(header, lambda row: row.name + (" (chosen)" if row.chosen else ""), numeric=False)


def _interval_column(header: str, name: str) -> Column:
    """A number with the interval that its row has beside it, as `name`_low and `name`_high."""

    def cell(row: Any) -> str:
        value, low, high = (number(getattr(row, key)) for key in (name, f"{name}_low", f"{name}_high"))
        return f"{value} ({low} to {high})"

    return Column(header, cell)


def unit_groups(selected: Selected) -> dict[str, pd.DataFrame]:
    """The texts whose scores are compared, empty ones left out: held-out task, general, planted."""
    planted = selected.units["planted"].to_numpy()
    found = {"task": selected.task, "general": selected.units[~planted], "planted": selected.units[planted]}
    return {name: frame for name, frame in found.items() if len(frame)}


def histogram(selected: Selected) -> Table:
    """Share of each group's units in bins of score; what lies beyond the ends is counted in the end bins."""
    scores = {name: frame["score"].to_numpy() for name, frame in unit_groups(selected).items()}
    low = min(np.quantile(values, TAIL) for values in scores.values())
    high = max(np.quantile(values, 1 - TAIL) for values in scores.values())
    bins = int(np.clip(np.sqrt(min(map(len, scores.values()))), FEWEST_BINS, MOST_BINS))
    edges = np.linspace(low, high if high > low else low + 1, bins + 1)
    frame = pd.DataFrame({"from": edges[:-1], "to": edges[1:]})
    for name, values in scores.items():
        frame[name] = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] / values.size
    return Table("score_histogram", "Share of units by score.", frame)


def separation_table(selected: Selected) -> Table:
    """A row a group: size, median score, AUROC against general, and how its score follows its length."""
    found = unit_groups(selected)
    general = found.get("general")
    rows = []
    for name, frame in found.items():
        against = auroc(frame["score"], general["score"]) if general is not None and name != "general" else np.nan
        rows.append(
            {
                "text": name,
                "units": len(frame),
                "median_score": frame["score"].median(),
                "auroc_against_general": against,
                "spearman_score_length": spearman(frame["score"], frame["characters"]),
            }
        )
    columns = (
        Column("text", lambda row: TEXTS[row.text], numeric=False),
        Column("units", lambda row: number(row.units, 0)),
        Column("median score", lambda row: number(row.median_score)),
        Column("AUROC against general", lambda row: number(row.auroc_against_general)),
        Column("score ~ length (Spearman)", lambda row: number(row.spearman_score_length, 2, sign=True)),
    )
    caption = (
        "AUROC: how often a unit of this text scores as more relevant than a general unit (0.5 is chance). "
        "Score ~ length: rank correlation of score and characters; far from 0, selection follows length. "
        "What lies beyond the histogram is counted in its end bins."
    )
    return Table("separation", caption, pd.DataFrame(rows), columns)


TEXTS = {"task": "task, held out", "general": "general", "planted": "planted in general"}


def auroc(relevant: pd.Series, foreign: pd.Series) -> float:
    """Probability that a relevant unit has the lower score; ties count half."""
    from sklearn.metrics import roc_auc_score

    labels = np.concatenate([np.ones(len(relevant)), np.zeros(len(foreign))])
    return float(roc_auc_score(labels, -np.concatenate([relevant, foreign])))


def spearman(first: pd.Series, second: pd.Series) -> float:
    """Rank correlation; NaN where one of them does not vary."""
    if first.nunique() < 2 or second.nunique() < 2:
        return float("nan")
    return float(np.corrcoef(first.rank(), second.rank())[0, 1])


def kept_table(selected: Selected) -> Table:
    """A row a source, by share of what was kept. Mirrors Table 2 of the paper, by units and by characters."""
    units = selected.units
    columns = {
        "units": np.ones(len(units)),
        "characters": units["characters"],
        "kept_units": units["weight"],
        "kept_characters": units["weight"] * units["characters"],
        "partly_kept_units": units["weight"].between(0, 1, inclusive="neither"),
    }
    frame = pd.DataFrame(columns).groupby(units["source"], observed=True).sum()
    totals = frame.sum()
    frame["share_of_its_units_kept"] = frame["kept_units"] / frame["units"]
    for name in ("units", "kept_units", "characters", "kept_characters"):
        frame[f"share_of_{name}"] = frame[name] / max(totals[name], 1e-300)
    frame = frame.sort_values("kept_characters", ascending=False, kind="stable").reset_index()
    frame["source"] = frame["source"].astype(str)
    shown = (
        Column("source", lambda row: row.source, numeric=False),
        Column("units", lambda row: number(row.units, 0)),
        Column("of them kept", lambda row: percent(row.share_of_its_units_kept)),
        Column("share of the corpus", lambda row: percent(row.share_of_characters)),
        Column("share of kept units", lambda row: percent(row.share_of_kept_units)),
        Column("share of kept text", lambda row: percent(row.share_of_kept_characters)),
    )
    caption = "Shares of the corpus and of kept text are by characters. Kept is the sum of weights."
    return Table("kept_by_source", caption, frame, shown, most=MOST_SOURCES)


def planted_table(selected: Selected) -> Table | None:
    """Recall and precision of planted units, and what a random choice of the same size would reach."""
    planted, weight = selected.units["planted"].to_numpy(), selected.units["weight"].to_numpy()
    if not planted.any() or weight.sum() == 0:
        return None
    frame = pd.DataFrame(
        {
            "measure": ["recall", "precision"],
            "value": [weight[planted].mean(), weight[planted].sum() / weight.sum()],
            "by_chance": [weight.mean(), planted.mean()],
            "units": [planted.sum(), weight.sum()],
        }
    )
    meanings = {"recall": "of planted units, kept", "precision": "of kept units, planted"}
    columns = (
        Column("planted text", lambda row: f"{row.measure} ({meanings[row.measure]})", numeric=False),
        Column("share", lambda row: percent(row.value)),
        Column("by chance", lambda row: percent(row.by_chance)),
        Column("out of units", lambda row: number(row.units, 0)),
    )
    caption = "By chance: keeping the same mass at random."
    return Table("planted", caption, frame, columns)
