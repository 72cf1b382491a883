"""Tables 2, 5, 6 and Figure 2: compare the published scores, printed and corrected, with those of your runs.

    dana studies topic-gap genre_mix --model MODEL --arms off on augmented_baseline augmented --n 30 100 --out runs/gap
    python recipes/papers/genre/tables.py RUN... [--out FOLDER]

A RUN is an output folder of ``dana studies topic-gap``. Scores are macro-F1 in percent, averaged
over topics; the paper's averages are recomputed from the columns of its Table 5. ``table2.csv`` has
one row per source and N; ``table5.csv`` the differences from off-topic with their tests over
topics, for the paper and every run; ``table6.csv`` one row per number of original and of synthetic
texts; ``figure2.csv`` and ``.png`` the score by number of keywords, from arms
``augmented:keywords=K``.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dana.cli.main import run_script
from dana.core.config import require
from dana.report.svg import Figure
from dana.studies.topic_gap.arms import TOPIC_GAP_ARMS
from dana.studies.topic_gap.page import gap_frame, gap_summary

OFF, RESULTS = "off", "tables/results.csv"
# Our arms to the paper's.
ARMS = {
    "on": "on-topic",
    OFF: "off-topic",
    "augmented_baseline": "aug baseline",
    "augmented": "aug adapt",
}
KEYWORDS = 10  # per text in Table 6
KINDS = {
    "augmented": "topic",
    "random_keywords": "random",
}  # our arms to the kinds of synthetic text in Table 6
MODELS = ("RoBERTa-large", "BERT-large")


def read_published(folder: Path) -> pd.DataFrame:
    """Read the paper's numbers, one per row; ``meant`` is the corrected value, else the printed one."""
    table = pd.read_csv(folder / "published.csv")
    return table.assign(meant=table["corrected"].fillna(table["value"]).astype(float))


def read_run(run: Path) -> pd.DataFrame:
    """Read the results of a run: one row per topic, N, arm and seed, score in percent."""
    table = pd.read_csv(run / RESULTS, keep_default_na=False)
    return table.assign(score=100 * table["score"])


def paper_results(paper: pd.DataFrame) -> pd.DataFrame:
    """Convert Table 5, without its averages, to the results of a run: one row per topic, N and arm."""
    rows = paper[(paper["table"] == "Table 5") & (paper["row"] != "Average")]
    ours = {name: arm for arm, name in ARMS.items()}
    results = []
    for row in rows.itertuples():
        words, _, topic = row.row.rpartition(": ")
        n, _, arm = row.column.removeprefix("N=").partition(", ")
        results.append(
            {
                "topic": int(topic),
                "words": words,
                "n": int(n),
                "arm": ours[arm],
                "seed": 0,
                "score": row.value,
            }
        )
    return pd.DataFrame(results)


def means_by_n(results: pd.DataFrame) -> pd.DataFrame:
    """Average the scores over topics: one row per N, one column per arm."""
    return gap_frame(results).groupby("n")[list(dict.fromkeys(results["arm"]))].mean()


def table2(runs: dict[str, pd.DataFrame], paper: pd.DataFrame) -> pd.DataFrame:
    """Build Table 2, one row per source and N: both models printed and corrected, means of Table 5, and all runs.

    Args:
        runs: Results by name.
        paper: See :func:`read_published`.
    """
    rows = paper[paper["table"] == "Table 2"]
    rows = rows.assign(n=rows["column"].str.extract(r"N=(\d+)").astype(int))
    rows = rows.assign(
        arm=rows["column"].str.partition(", ")[2].map({name: arm for arm, name in ARMS.items()})
    )
    frames = []
    for model in MODELS:
        for kind, column in (("printed", "value"), ("meant", "meant")):
            scores = rows[rows["row"] == model].pivot(index="n", columns="arm", values=column)
            frames.append(scores.assign(source=f"{model}, {kind}"))
    for source, results in {"RoBERTa-large, Table 5's means": paper_results(paper), **runs}.items():
        frames.append(means_by_n(results).assign(source=source))
    table = pd.concat(frames).reset_index()
    others = [name for name in table.columns if name not in ("source", "n", *ARMS)]
    return table[["source", "n", *(arm for arm in ARMS if arm in table), *others]]


def table5(runs: dict[str, pd.DataFrame], paper: pd.DataFrame) -> pd.DataFrame:
    """Summarise the differences from off-topic and their tests, for the paper and each run; see ``gap_summary``."""
    sources = {"RoBERTa-large, Table 5": paper_results(paper), **runs}
    summaries = pd.concat(
        {name: gap_summary(results) for name, results in sources.items()}, names=["source"]
    )
    return summaries.reset_index("source").reset_index(drop=True)


def settings_of(arm: str) -> dict[str, Any]:
    """Parse the settings of an arm's spec, defaults included; empty for an arm that has none."""
    instance = TOPIC_GAP_ARMS.create(arm)
    return asdict(instance) if is_dataclass(instance) else {}


def table6(runs: dict[str, pd.DataFrame], paper: pd.DataFrame) -> pd.DataFrame:
    """Build Table 6, one row per N, number and kind of synthetic texts per label: the paper's two models and the runs.

    Args:
        runs: Results by name; the arms ``off``, ``augmented:ratio=R`` and
            ``random_keywords:ratio=R`` are used.
        paper: See :func:`read_published`.
    """
    rows: list[dict[str, Any]] = []
    for row in paper[paper["table"] == "Table 6"].itertuples():
        n, synthetic, kind = _amounts(row.row)
        rows.append(
            {"n": n, "synthetic": synthetic, "kind": kind, "source": row.column, "score": row.meant}
        )
    for name, results in runs.items():
        means = means_by_n(results)
        for arm in dict.fromkeys(results["arm"]):
            kind = KINDS.get(arm.partition(":")[0], "")
            settings = settings_of(arm) if kind else {"ratio": 0.0, "keywords": KEYWORDS}
            if (kind or arm == OFF) and settings["keywords"] == KEYWORDS:
                for n in means.index:
                    amounts = {"n": n, "synthetic": round(n * settings["ratio"]), "kind": kind}
                    rows.append({**amounts, "source": name, "score": means.loc[n, arm]})
    scores = pd.DataFrame(rows)
    wide = scores.pivot_table(
        "score", ["n", "synthetic", "kind"], "source", sort=False
    ).reset_index()
    wide.columns.name = None
    return wide.sort_values(
        ["n", "kind", "synthetic"], ascending=[False, True, True], ignore_index=True
    )


def _amounts(row: str) -> tuple[int, int, str]:
    """Parse originals, synthetic texts and kind from a row such as ``100 original + 300 random synthetic``."""
    original, synthetic = map(int, re.findall(r"\d+", row))
    kind = "random" if "random" in row else "topic" if synthetic else ""
    return (original, synthetic, kind) if original else (synthetic, synthetic, "synthetic alone")


def figure2(runs: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Build Figure 2's points (one synthetic text per original): run, N, keywords, score, and score off-topic."""
    rows = []
    for name, results in runs.items():
        means = means_by_n(results)
        for arm in dict.fromkeys(results["arm"]):
            if (
                arm.partition(":")[0] == "augmented"
                and (settings := settings_of(arm))["ratio"] == 1
            ):
                key = {"run": name, "keywords": settings["keywords"]}
                rows += [
                    {**key, "n": n, "score": scores[arm], "off": scores[OFF]}
                    for n, scores in means.iterrows()
                ]
    return pd.DataFrame(rows, columns=["run", "n", "keywords", "score", "off"]).sort_values(
        ["run", "n", "keywords"]
    )


def keyword_curve(points: pd.DataFrame) -> Figure:
    """Draw the score by number of keywords, with the score off topic as a dashed line (Figure 2).

    Args:
        points: One row per run, N and number of keywords: run, n, keywords, score, off.
    """

    def paint(axes: Any) -> None:
        for index, ((run, n), group) in enumerate(points.groupby(["run", "n"])):
            colour = f"C{index}"
            label = f"{Path(str(run)).name}, N = {n}"
            axes.plot(group["keywords"], group["score"], "o-", color=colour, label=label)
            axes.axhline(group["off"].iloc[0], color=colour, linestyle="--", linewidth=1)
        axes.set(xlabel="keywords of a synthetic text", ylabel="macro-F1, %", xscale="log")
        axes.legend()

    alt = "Macro-F1 by number of keywords; dashed: trained off topic alone."
    return Figure("figure2", alt, (5, 3.6), paint)


def tables(args: argparse.Namespace) -> None:
    """Print the tables; with ``--out``, write them and the figure."""
    for run in args.runs:
        require(
            (run / RESULTS).is_file(),
            "RUN",
            str(run),
            f"a folder of dana studies topic-gap (no {RESULTS})",
        )
    paper = read_published(Path(__file__).parent)
    if args.dry_run:
        print(f"would compare {len(args.runs)} run(s) with the paper")
        return
    runs = {str(run): read_run(run) for run in args.runs}
    results = {
        "table2": table2(runs, paper),
        "table5": table5(runs, paper),
        "table6": table6(runs, paper),
    }
    points = figure2(runs)
    for name, table in results.items():
        print(f"{name}\n{table.round(4).to_string(index=False, na_rep='')}\n")
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        for name, table in {**results, "figure2": points}.items():
            table.to_csv(args.out / f"{name}.csv", index=False)
        if len(points):
            keyword_curve(points).write(args.out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "runs", nargs="*", type=Path, metavar="RUN", help="none: the published numbers alone"
    )
    parser.add_argument("--out", type=Path)
    return run_script(parser, tables, arguments)


if __name__ == "__main__":
    sys.exit(main())
