"""Table 7: precision and recall of selectors that look for one domain among all, beside their ceilings and the paper's.

    python recipes/papers/domain_clusters/table7.py FILE... --out FOLDER [--selectors S ...] [--scale 500]

A FILE is a domain of 2,000 lines (see table1.py). The first 1,000 of a domain are what a selector is fitted on; of the
other 1,000 as many are candidates that the candidates of all domains have the proportions of the paper's training text
(Table 3), a five-hundredth of it: 500,000 subtitles become 1,000. The best 1,000 candidates are kept, there 500,000, so
that the ceilings are the paper's. ``--scale 0`` takes all 1,000 of each domain. A line is a unit, whatever stops are
in it. ``table7.csv`` has a row a domain, selector and cut; of the classifier also what scores below 0, the paper's
Domain-Finetune-Positive. Killed, the same command goes on.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from domains import Domains, domain_command, published, run_command

from dana.core.artifacts import Artifact, Draft, make, write_text
from dana.core.errors import DataError
from dana.core.files import slug
from dana.core.schemas import DOCUMENTS, Document, iterate_documents, write_parts
from dana.corpus.documents import document_tables
from dana.stages.settings import RunSettings
from dana.studies.comparison.measures import budget_measures, document_scores, ranking_measures, score_pool

FIT, KEPT = 1000, 1000
CAP = 500_000  # of subtitles, section 3.1; and what the paper keeps
COSINE = "detector:detector=cosine,geometry=none"
SELECTORS = ["random", "dsir", "lexical", "moore_lewis", "knn", "lda", "contrastive_knn", "clusters", "auto", COSINE]
# Rows of the paper by our selectors.
PAPER = {"moore_lewis": "Moore-Lewis", COSINE: "Domain-Cosine", "classifier": "Domain-Finetune"}


def paper_name(domain: str) -> str:
    """A file's domain as the paper writes it."""
    return domain.upper() if domain == "it" else domain.title()


def sizes(names: Sequence[str], scale: int, most: int) -> dict[str, int]:
    """Candidates of each domain: those of the paper over the scale; with a scale of 0 all that there are.

    Args:
        names: Of the domains.
        scale: What the paper's numbers are divided by.
        most: Candidates that each domain has.

    Raises:
        DataError: If a domain is none of the paper's, or has too few.
    """
    if not scale:
        return dict.fromkeys(names, most)
    table = published("Table 3")
    train = table[table["column"] == "new split"].set_index("row")["value"].clip(upper=CAP)
    if foreign := [name for name in names if paper_name(name) not in train.index]:
        raise DataError(f"{foreign[0]}: none of the paper's domains ({', '.join(train.index)}); --scale 0 takes any")
    found = {name: round(train[paper_name(name)] / scale) for name in names}
    if max(found.values()) > most:
        raise DataError(f"scale={scale}: {max(found.values()):,} candidates of a domain; there are {most:,}")
    return found


def split(domains: Domains, wanted: dict[str, int], fit: int) -> tuple[dict[str, list[Document]], list[Document]]:
    """The first sentences of each domain, to fit on, and the candidates of all domains."""
    own = {name: [one for one in domains.documents if one.source == name] for name in domains.names}
    candidates = [one for name, count in wanted.items() for one in own[name][fit : fit + count]]
    return {name: documents[:fit] for name, documents in own.items()}, candidates


def corpus(documents: Sequence[Document], folder: Path, about: dict[str, object]) -> Artifact:
    """Documents as a corpus artifact."""

    def write(draft: Draft) -> None:
        draft.counts["documents"] = write_parts(document_tables(documents), draft.path, DOCUMENTS)

    return make(folder, "corpus", about, write)


def task(name: str, documents: Sequence[Document], folder: Path, about: dict[str, object]) -> Artifact:
    """Documents as a task artifact of which nothing is held out."""

    def write(draft: Draft) -> None:
        for part, own in (("fit", documents), ("held_out", [])):
            draft.counts[part] = write_parts(document_tables(own), draft.path / part, DOCUMENTS)

    return make(folder, "task", {"name": name, **about}, write)


def measures(scores: np.ndarray, sought: np.ndarray, kept: int) -> pd.DataFrame:
    """A row a cut: the best `kept` candidates, and those below 0 if there are any.

    Args:
        scores: float64 of shape (candidates,), higher = more foreign.
        sought: bool of shape (candidates,), of the domain.
        kept: How many are kept.
    """
    cuts = {f"best {kept}": kept, "below 0": int((scores < 0).sum())}
    ranked = ranking_measures(scores, sought)
    rows = [
        {"cut": cut, "kept": count, **budget_measures(scores, sought, count), **ranked}
        for cut, count in cuts.items()
        if count
    ]
    return pd.DataFrame(rows)


def beside(found: pd.DataFrame) -> pd.DataFrame:
    """Rows of one cut each with its published precision, as it must have been meant, and recall; averages at the end.

    Args:
        found: domain, selector, cut, and measures.
    """
    means = found.groupby(["selector", "cut"], sort=False).mean(numeric_only=True).reset_index()
    table = pd.concat([found, means.assign(domain="average")], ignore_index=True)
    printed = published("Table 7").set_index(["row", "column"])["meant"].to_dict()
    for kind in ("precision", "recall"):
        table[f"published_{kind}"] = [
            printed.get((paper_name(row.domain), f"{PAPER.get(row.selector)}, {kind}")) if "best" in row.cut else None
            for row in table.itertuples()
        ]
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = domain_command(__doc__)
    parser.add_argument("--selectors", nargs="+", default=SELECTORS, help="classifier takes an hour of one core")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--fit", type=int, default=FIT, help="sentences of a domain to fit on")
    parser.add_argument("--kept", type=int, default=KEPT)
    parser.add_argument("--scale", type=int, default=CAP // KEPT)
    run_command(parser, arguments, table7)


def table7(domains: Domains, given: argparse.Namespace) -> None:
    """Look for each domain with every selector; write and print the table."""
    selection = replace(
        RunSettings().selection,
        units="window:256",
        encoder=given.encoder,
        seed=given.seed,
        store=str(given.out / "embeddings"),
    )
    wanted = sizes(domains.names, given.scale, given.most - given.fit)
    fit, candidates = split(domains, wanted, given.fit)
    about = {"domains": domains.fingerprint, "fit": given.fit}
    pool = corpus(candidates, given.out / "candidates", {**about, "candidates": wanted}).path
    read = list(iterate_documents(pool))
    frames = []
    for name in domains.names:
        own = task(name, fit[name], given.out / name / "task", about).path
        sought = np.array([document.source == name for document in read])
        for spec in given.selectors:
            scored = score_pool(own, pool, spec, "knn", selection, given.out / name / slug(spec) / "scores").path
            scores = document_scores(scored, [document.doc_id for document in read])
            frames.append(measures(scores, sought, given.kept).assign(domain=name, selector=spec))
    rows = pd.concat(frames, ignore_index=True)
    rows = rows[(rows["cut"] != "below 0") | rows["selector"].str.startswith("classifier")]
    table = beside(rows[["domain", "selector", *rows.columns.drop(["domain", "selector"])]])
    write_text(given.out / "table7.csv", table.to_csv(index=False))
    shown = ["domain", "selector", "cut", "kept", "precision", "precision_ceiling", "recall", "precision_at_r"]
    print(table[[*shown, "published_precision", "published_recall"]].round(3).to_string(index=False, na_rep=""))


if __name__ == "__main__":
    main()
