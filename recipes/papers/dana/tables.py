"""Tables 4, 5 and 6: compare the published scores and gains with those of your runs; without a run, print them alone.

    python recipes/papers/dana/tables.py [RUN...] [--probe TEXTS] [--out tables.csv]

A RUN is the folder of a ``dana run`` whose arms are named as in table4.yaml or table5.yaml. Scores
are in percent: mean and standard deviation (ddof 1) over seeds. A gain is the difference from the
base of the same table; in our runs it is paired by seed. Table 6 compares the gains of dana with
those of a corpus of the domain (Gururangan et al. 2020), both as printed in the paper and as
corrected, with the correlation of each with the published and with our gains.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from dana.cli.main import run_script
from dana.core.artifacts import open_artifact, read_json
from dana.core.config import require
from dana.stages.baselines import baselines_stage
from dana.stages.settings import RunSettings

ROWS = {
    "acl_arc": "ACL-ARC",
    "agnews": "AGNews",
    "chemprot": "ChemProt",
    "helpfulness": "Helpfulness",
    "hyperpartisan": "Hyperpartisan",
    "imdb": "IMDB",
    "rct20k": "RCT20k",
    "rct_sample": "RCT20k",  # a sample of its abstracts
    "sciie": "SciERC",
    "sst2": "SST",
}
COLUMNS = {
    "base": "Base",
    "pool": "General",
    "random": "Random",
    "task": "Task",
    "lm": "LM",
    "distance": "Distance",
    "dana": "DANA",
    "continuous": "Continuous-1",
}


def read_runs(runs: list[Path]) -> pd.DataFrame:
    """Read the results of all runs: one row per run, task, arm and seed, score in percent."""
    tables = pd.concat(
        {str(run): pd.read_csv(run / "results.csv") for run in runs}, names=["run"]
    ).reset_index("run")
    rows = tables[(tables["metric"] == "score") & tables["task"].notna() & tables["arm"].notna()]
    return (
        rows[["task", "arm", "seed", "value", "run"]]
        .assign(score=100 * rows["value"])
        .reset_index(drop=True)
    )


def read_published(folder: Path) -> pd.DataFrame:
    """Read the paper's numbers, one per row; ``meant`` is the corrected value, else the printed one."""
    table = pd.read_csv(folder / "published.csv")
    return table.assign(meant=table["corrected"].fillna(table["value"]))


def compare_with_paper(ours: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Build Tables 4 and 5: one row per run, task and arm, with the published score and gain where there is one."""
    scores = paper[paper["table"].isin(["Table 4", "Table 5"])].drop_duplicates(["row", "column"])
    paper_scores = scores.set_index(["row", "column"])["value"].to_dict()
    rows = []
    for (run, task, arm), group in ours.groupby(["run", "task", "arm"], sort=False):
        base = ours[
            (ours["run"] == run) & (ours["task"] == task) & (ours["arm"] == "base")
        ].set_index("seed")["score"]
        gain = (group.set_index("seed")["score"] - base).dropna()
        row, column = ROWS.get(task), COLUMNS.get(arm)
        paper_base, paper_score = paper_scores.get((row, "Base")), paper_scores.get((row, column))
        rows.append(
            {
                "run": run,
                "task": task,
                "arm": arm,
                "seeds": len(group),
                "score": group["score"].mean(),
                "std": group["score"].std(ddof=1),
                "gain": gain.mean() if arm != "base" else None,
                "published": paper_score,
                "published gain": None
                if paper_score is None or arm == "base"
                else paper_score - paper_base,
            }
        )
    return pd.DataFrame(rows)


def correlate_gains(table: pd.DataFrame, paper: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Build Table 6, one row per task, and correlate its columns over tasks where a pair shares at least three."""
    six = paper[paper["table"] == "Table 6"]
    columns = {
        "DANA": six[six["column"] == "DANA"].set_index("row")["value"],
        "domain corpus, printed": six[six["column"] == "Domain Corpus"].set_index("row")["value"],
        "domain corpus, meant": six[six["column"] == "Domain Corpus"].set_index("row")["meant"],
    }
    dana = table[table["arm"] == "dana"]
    columns["ours"] = (
        dana.assign(row=dana["task"].map(ROWS)).dropna(subset="row").groupby("row")["gain"].mean()
    )
    table6 = pd.DataFrame(columns)
    rows = []
    for gain in ("DANA", "ours"):
        for similarity in ("domain corpus, printed", "domain corpus, meant"):
            both = table6[[gain, similarity]].dropna()
            if len(both) >= 3:
                coefficients = {
                    kind: both[gain].corr(both[similarity], kind)
                    for kind in ("pearson", "spearman")
                }
                rows.append({"gain": gain, "of": similarity, "tasks": len(both), **coefficients})
    return table6, pd.DataFrame(rows)


def probe_arms(runs: list[Path], texts: int, base: str) -> pd.DataFrame:
    """Score every arm by a frozen probe instead, the baseline ``vectors``: one row per run and arm, score in percent.

    Args:
        runs: Folders of runs.
        texts: Number of training texts of the probe.
        base: Model that the arms of the runs start from.
    """
    rows = []
    for run in runs:
        task = open_artifact(run / "target", "target").manifest["depends_on"]["name"]
        arms = {path.parent.name: str(path) for path in sorted(run.glob("arms/*/adapted"))}
        for arm, model in {"base": base, **arms}.items():
            settings, encoder = (
                replace(RunSettings().finetune, max_train=texts),
                f"transformer:{model},dtype=float32",
            )
            probe = baselines_stage(task, run / "probe" / arm, settings, ["vectors"], encoder).path
            score = 100 * read_json(probe / "vectors" / "metrics.json")["mean"]
            rows.append({"task": task, "arm": arm, "seed": 0, "score": score, "run": str(run)})
    return pd.DataFrame(rows)


def show_published(paper: pd.DataFrame) -> str:
    """Format the paper's tables of scores as text, as printed."""
    tables = {
        name: rows
        for name, rows in paper.groupby("table")
        if name.startswith("Table") and name != "Table 3"
    }
    wide = {
        name: rows.pivot(index="row", columns="column", values="value")
        for name, rows in tables.items()
    }
    return "\n\n".join(
        f"{name}, as printed\n{table.to_string(na_rep='')}" for name, table in wide.items()
    )


def tables(args: argparse.Namespace) -> None:
    """Print the published tables, or those of runs beside them; with ``--out``, write Tables 4 and 5 as CSV."""
    for run in () if args.probe else args.runs:
        require(
            (run / "results.csv").is_file(),
            "RUN",
            str(run),
            "the folder of a finished dana run (no results.csv)",
        )
    paper = read_published(Path(__file__).parent)
    if args.dry_run:
        print(f"would compare {len(args.runs)} run(s) with the paper")
        return
    if not args.runs:
        print(show_published(paper))
        return
    ours = probe_arms(args.runs, args.probe, args.base) if args.probe else read_runs(args.runs)
    table = compare_with_paper(ours, paper)
    table6, correlations = correlate_gains(table, paper)
    print("Tables 4 and 5, %\n" + table.round(2).to_string(index=False, na_rep=""))
    print("\nTable 6, points over base\n" + table6.round(2).to_string(na_rep=""))
    print("\ncorrelation over tasks\n" + correlations.round(2).to_string(index=False))
    if args.out:
        table.to_csv(args.out, index=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "runs", nargs="*", type=Path, metavar="RUN", help="none: the published tables alone"
    )
    parser.add_argument(
        "--probe", type=int, metavar="TEXTS", help="score a frozen probe on so many training texts"
    )
    parser.add_argument(
        "--base", default="dana-mini", help="model that a probed run adapted (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path)
    return run_script(parser, tables, arguments)


if __name__ == "__main__":
    sys.exit(main())
