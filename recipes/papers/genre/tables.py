"""Tables 2, 5, 6 and Figure 2 of the paper beside runs of one's own: published scores, what they must be, and ours.

    dana topic-gap genre_mix --model MODEL --arms off on augmented_baseline augmented --n 30 100 --out runs/gap
    python recipes/papers/genre/tables.py RUN... [--out FOLDER]

A RUN is a folder of ``dana topic-gap``. Scores are macro-F1 in percent, means over topics; the paper's averages
are computed again from Table 5's columns. ``table2.csv`` has a row a source and N; ``table5.csv`` the differences from
off topic with their tests over topics, of the paper's Table 5 and of every run; ``table6.csv`` a row a number of
originals and of synthetic texts; ``figure2.csv`` and ``.png`` the score by number of keywords, arms
``augmented:keywords=K``.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dana.core.errors import DanaError
from dana.studies.topic_gap.arms import TOPIC_GAP_ARMS
from dana.studies.topic_gap.page import gap_frame, gap_summary, keyword_curve

OFF, RESULTS = "off", "tables/results.csv"
# The paper's arms by ours.
ARMS = {"on": "on-topic", OFF: "off-topic", "augmented_baseline": "aug baseline", "augmented": "aug adapt"}
KEYWORDS = 10  # of a text in Table 6
KINDS = {"augmented": "topic", "random_keywords": "random"}  # of synthetic text in Table 6
MODELS = ("RoBERTa-large", "BERT-large")


def read_published(folder: Path) -> pd.DataFrame:
    """The paper's numbers, a row each; ``meant`` is the correction where one is known."""
    table = pd.read_csv(folder / "published.csv")
    return table.assign(meant=table["corrected"].fillna(table["value"]).astype(float))


def read_run(run: Path) -> pd.DataFrame:
    """Results of a run, a row a topic, N, arm and seed; score in percent."""
    table = pd.read_csv(run / RESULTS, keep_default_na=False)
    return table.assign(score=100 * table["score"])


def paper_results(paper: pd.DataFrame) -> pd.DataFrame:
    """Table 5 as the results of a run: a row a topic, N and arm; without its row of averages."""
    rows = paper[(paper["table"] == "Table 5") & (paper["row"] != "Average")]
    ours = {name: arm for arm, name in ARMS.items()}
    found = []
    for row in rows.itertuples():
        words, _, topic = row.row.rpartition(": ")
        n, _, arm = row.column.removeprefix("N=").partition(", ")
        found.append(
            {"topic": int(topic), "words": words, "n": int(n), "arm": ours[arm], "seed": 0, "score": row.value}
        )
    return pd.DataFrame(found)


def means_by_n(results: pd.DataFrame) -> pd.DataFrame:
    """Means over topics, a row an N and a column an arm."""
    return gap_frame(results).groupby("n")[list(dict.fromkeys(results["arm"]))].mean()


def table2(runs: dict[str, pd.DataFrame], paper: pd.DataFrame) -> pd.DataFrame:
    """A row a source and N, a column an arm: both models as printed and as meant, Table 5's means, and ours.

    Args:
        runs: Results by name.
        paper: See :func:`read_published`.
    """
    two = paper[paper["table"] == "Table 2"].assign(n=lambda rows: rows["column"].str.extract(r"N=(\d+)").astype(int))
    two = two.assign(arm=two["column"].str.partition(", ")[2].map({name: arm for arm, name in ARMS.items()}))
    parts = []
    for model in MODELS:
        own = two[two["row"] == model]
        parts += [(f"{model}, printed", own, "value"), (f"{model}, meant", own, "meant")]
    frames = [rows.pivot(index="n", columns="arm", values=name).assign(source=said) for said, rows, name in parts]
    for said, results in {"RoBERTa-large, Table 5's means": paper_results(paper), **runs}.items():
        frames.append(means_by_n(results).assign(source=said))
    table = pd.concat(frames).reset_index()
    others = [name for name in table.columns if name not in ("source", "n", *ARMS)]
    return table[["source", "n", *(arm for arm in ARMS if arm in table), *others]]


def table5(runs: dict[str, pd.DataFrame], paper: pd.DataFrame) -> pd.DataFrame:
    """Differences from off topic with their tests, of the paper and of each run; see ``gap_summary``."""
    every = {"RoBERTa-large, Table 5": paper_results(paper), **runs}
    summaries = pd.concat({name: gap_summary(results) for name, results in every.items()}, names=["source"])
    return summaries.reset_index("source").reset_index(drop=True)


def settings_of(arm: str) -> dict[str, Any]:
    """The settings of an arm's spec, those not given as they are by default; of one without settings none."""
    made = TOPIC_GAP_ARMS.create(arm)
    return asdict(made) if is_dataclass(made) else {}


def table6(runs: dict[str, pd.DataFrame], paper: pd.DataFrame) -> pd.DataFrame:
    """A row an N, number and kind of synthetic texts a label: the paper's two models beside the runs.

    Args:
        runs: Results by name; arms ``off``, ``augmented:ratio=R`` and ``random_keywords:ratio=R`` stand in it.
        paper: See :func:`read_published`.
    """
    rows: list[dict[str, Any]] = []
    for row in paper[paper["table"] == "Table 6"].itertuples():
        n, synthetic, kind = _amounts(row.row)
        rows.append({"n": n, "synthetic": synthetic, "kind": kind, "source": row.column, "score": row.meant})
    for name, results in runs.items():
        means = means_by_n(results)
        for arm in dict.fromkeys(results["arm"]):
            kind = KINDS.get(arm.partition(":")[0], "")
            settings = settings_of(arm) if kind else {"ratio": 0.0, "keywords": KEYWORDS}
            if (kind or arm == OFF) and settings["keywords"] == KEYWORDS:
                about = {"kind": kind, "source": name}
                of = [(n, round(n * settings["ratio"])) for n in means.index]
                rows += [{"n": n, "synthetic": count, **about, "score": means.loc[n, arm]} for n, count in of]
    found = pd.DataFrame(rows)
    wide = found.pivot_table("score", ["n", "synthetic", "kind"], "source", sort=False).reset_index()
    wide.columns.name = None
    return wide.sort_values(["n", "kind", "synthetic"], ascending=[False, True, True], ignore_index=True)


def _amounts(row: str) -> tuple[int, int, str]:
    """Originals, synthetic texts and their kind of a row such as ``100 original + 300 random synthetic``."""
    original, synthetic = map(int, re.findall(r"\d+", row))
    kind = "random" if "random" in row else "topic" if synthetic else ""
    return (original, synthetic, kind) if original else (synthetic, synthetic, "synthetic alone")


def figure2(runs: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """A row a run, N and number of keywords, a synthetic text an original: the score, and that off topic."""
    rows = []
    for name, results in runs.items():
        means = means_by_n(results)
        for arm in dict.fromkeys(results["arm"]):
            if arm.partition(":")[0] == "augmented" and (settings := settings_of(arm))["ratio"] == 1:
                about = {"run": name, "keywords": settings["keywords"]}
                rows += [{**about, "n": n, "score": own[arm], "off": own[OFF]} for n, own in means.iterrows()]
    return pd.DataFrame(rows, columns=["run", "n", "keywords", "score", "off"]).sort_values(["run", "n", "keywords"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables; with ``--out``, write them and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    missing = [run for run in given.runs if not (run / RESULTS).is_file()]
    if missing:
        parser.error(f"{missing[0]}: no {RESULTS}; make it with dana topic-gap")
    paper = read_published(Path(__file__).parent)
    try:
        runs = {str(run): read_run(run) for run in given.runs}
        tables = {"table2": table2(runs, paper), "table5": table5(runs, paper), "table6": table6(runs, paper)}
        points = figure2(runs)
    except DanaError as error:
        parser.error(str(error))
    for name, table in tables.items():
        print(f"{name}\n{table.round(4).to_string(index=False, na_rep='')}\n")
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        for name, table in {**tables, "figure2": points}.items():
            table.to_csv(given.out / f"{name}.csv", index=False)
        if len(points):
            keyword_curve(points).write(given.out)


if __name__ == "__main__":
    main()
