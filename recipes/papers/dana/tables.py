"""Tables 4, 5 and 6 of the paper beside runs of one's own: published scores and gains, ours, and how they correlate.

    python recipes/papers/dana/tables.py RUN... [--out tables.csv]

A RUN is the folder of a ``dana run`` whose arms are called as in table4.yaml or table5.yaml. Scores are in percent,
mean and standard deviation (ddof 1) over seeds; a gain is over the base of the same table, paired over seeds in ours.
Table 6 holds the gains of dana beside those of a corpus of the domain (Gururangan et al. 2020) as the paper prints
them and as they must have been meant, and the correlation of each with the published and with our gains over the
tasks that have both.
"""

import argparse
from pathlib import Path

import pandas as pd

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
    "general": "General",
    "random": "Random",
    "task": "Task",
    "tapt": "Task",
    "lm": "LM",
    "distance": "Distance",
    "dana": "DANA",
    "continuous": "Continuous-1",
}


def read_runs(runs: list[Path]) -> pd.DataFrame:
    """A row a run, task, arm and seed: score in percent."""
    tables = pd.concat({str(run): pd.read_csv(run / "results.csv") for run in runs}, names=["run"]).reset_index("run")
    rows = tables[(tables["metric"] == "score") & tables["task"].notna() & tables["arm"].notna()]
    return rows[["task", "arm", "seed", "value", "run"]].assign(score=100 * rows["value"]).reset_index(drop=True)


def published(folder: Path) -> pd.DataFrame:
    """The paper's numbers, a row each; ``meant`` is the correction where one is known."""
    table = pd.read_csv(folder / "published.csv")
    return table.assign(meant=table["corrected"].fillna(table["value"]))


def beside(ours: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Tables 4 and 5: a row a run, task and arm, with the published score and gain where the paper has one."""
    scores = paper[paper["table"].isin(["Table 4", "Table 5"])].drop_duplicates(["row", "column"])
    printed = scores.set_index(["row", "column"])["value"].to_dict()
    rows = []
    for (run, task, arm), own in ours.groupby(["run", "task", "arm"], sort=False):
        base = ours[(ours["run"] == run) & (ours["task"] == task) & (ours["arm"] == "base")].set_index("seed")["score"]
        gain = (own.set_index("seed")["score"] - base).dropna()
        place = ROWS.get(task), COLUMNS.get(arm)
        before = printed.get((place[0], "Base"))
        rows.append(
            {
                "run": run,
                "task": task,
                "arm": arm,
                "seeds": len(own),
                "score": own["score"].mean(),
                "std": own["score"].std(ddof=1),
                "gain": gain.mean() if arm != "base" else None,
                "published": printed.get(place),
                "published gain": printed[place] - before if place in printed and arm != "base" else None,
            }
        )
    return pd.DataFrame(rows)


def gains(table: pd.DataFrame, paper: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Table 6, a row a task; and correlations over tasks, a row each pair of columns that share three tasks or more."""
    six = paper[paper["table"] == "Table 6"]
    columns = {
        "DANA": six[six["column"] == "DANA"].set_index("row")["value"],
        "domain corpus, printed": six[six["column"] == "Domain Corpus"].set_index("row")["value"],
        "domain corpus, meant": six[six["column"] == "Domain Corpus"].set_index("row")["meant"],
    }
    own = table[table["arm"] == "dana"]
    columns["ours"] = own.assign(row=own["task"].map(ROWS)).dropna(subset="row").groupby("row")["gain"].mean()
    together = pd.DataFrame(columns)
    rows = []
    for gain in ("DANA", "ours"):
        for corpus in ("domain corpus, printed", "domain corpus, meant"):
            both = together[[gain, corpus]].dropna()
            if len(both) >= 3:
                found = {kind: both[gain].corr(both[corpus], kind) for kind in ("pearson", "spearman")}
                rows.append({"gain": gain, "of": corpus, "tasks": len(both), **found})
    return together, pd.DataFrame(rows)


def main() -> None:
    """Print the tables; with ``--out``, write Tables 4 and 5 as CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    missing = [run for run in given.runs if not (run / "results.csv").is_file()]
    if missing:
        parser.error(f"{missing[0]}: no results.csv; make it with dana run")
    paper = published(Path(__file__).parent)
    table = beside(read_runs(given.runs), paper)
    six, correlations = gains(table, paper)
    print("Tables 4 and 5, %\n" + table.round(2).to_string(index=False, na_rep=""))
    print("\nTable 6, points over base\n" + six.round(2).to_string(na_rep=""))
    print("\ncorrelation over tasks\n" + correlations.round(2).to_string(index=False))
    if given.out:
        table.to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
