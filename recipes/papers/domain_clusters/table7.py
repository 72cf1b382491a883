"""Table 7: measure precision and recall of selectors that search one domain in a pool of all domains.

    python recipes/papers/domain_clusters/table7.py FILE... --out FOLDER [--selectors S ...]
    [--scale 500]

A FILE is a domain of 2,000 lines (see table1.py). The selector is fitted on the first 1,000 lines
of a domain. The next lines of all domains are the candidates, as many of each as the paper's
training text has (Table 3) divided by --scale (500): 500,000 subtitles become 1,000. The best 1,000
candidates are selected, 500,000 in the paper, so that the ceilings of precision and recall are
those of the paper. ``--scale 0`` uses all 1,000 lines of each domain. Each line is one unit.
``table7.csv`` has one row per domain, selector and cut. The classifier has a second cut, scores
below 0: the paper's Domain-Finetune-Positive. A killed command resumes.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from domains import Domains, domain_command, embedding_plan, read_published, run_command

from dana.core.artifacts import Artifact, Draft, make, write_text
from dana.core.errors import DataError
from dana.core.files import slug
from dana.core.schemas import DOCUMENTS, Document, iterate_documents, write_parts
from dana.corpus.documents import document_tables
from dana.stages.settings import RunSettings
from dana.studies.comparison.measures import (
    budget_measures,
    document_scores,
    ranking_measures,
    score_pool,
)

FIT, KEPT = 1000, 1000
CAP = 500_000  # subtitles in the training text (section 3.1), and sentences that the paper selects
COSINE = "detector:detector=cosine,geometry=none"
SELECTORS = [
    "random",
    "dsir",
    "lexical",
    "moore_lewis",
    "knn",
    "lda",
    "contrastive_knn",
    "clusters",
    "auto",
    COSINE,
]
# Our selectors to the paper's methods.
METHODS = {"moore_lewis": "Moore-Lewis", COSINE: "Domain-Cosine", "classifier": "Domain-Finetune"}


def paper_name(domain: str) -> str:
    """Spell a domain as the paper does."""
    return domain.upper() if domain == "it" else domain.title()


def candidate_counts(names: Sequence[str], scale: int, limit: int) -> dict[str, int]:
    """Compute the number of candidates per domain: the paper's count divided by the scale; scale 0 uses all.

    Args:
        names: Names of the domains.
        scale: Divisor of the paper's counts.
        limit: Available candidates per domain.

    Raises:
        DataError: If a domain is not in the paper or has too few candidates.
    """
    if not scale:
        return dict.fromkeys(names, limit)
    table = read_published("Table 3")
    train = table[table["column"] == "new split"].set_index("row")["value"].clip(upper=CAP)
    if unknown := [name for name in names if paper_name(name) not in train.index]:
        raise DataError(
            f"{unknown[0]}: must be one of {', '.join(train.index)}; for other domains use --scale 0"
        )
    counts = {name: round(train[paper_name(name)] / scale) for name in names}
    if max(counts.values()) > limit:
        raise DataError(
            f"--scale={scale}: needs {max(counts.values()):,} candidates of a domain, got {limit:,}"
        )
    return counts


def split(
    domains: Domains, counts: dict[str, int], fit: int
) -> tuple[dict[str, list[Document]], list[Document]]:
    """Split each domain into sentences to fit on, the first `fit`, and candidates, the next ones, of all domains."""
    by_domain = {
        name: [document for document in domains.documents if document.source == name]
        for name in domains.names
    }
    candidates = [
        document
        for name, count in counts.items()
        for document in by_domain[name][fit : fit + count]
    ]
    return {name: documents[:fit] for name, documents in by_domain.items()}, candidates


def write_corpus(
    documents: Sequence[Document], folder: Path, depends_on: dict[str, object]
) -> Artifact:
    """Write documents as a corpus artifact."""

    def write(draft: Draft) -> None:
        draft.counts["documents"] = write_parts(document_tables(documents), draft.path, DOCUMENTS)

    return make(folder, "pool", depends_on, write)


def write_target(
    name: str, documents: Sequence[Document], folder: Path, depends_on: dict[str, object]
) -> Artifact:
    """Write documents as a task artifact without held-out documents."""

    def write(draft: Draft) -> None:
        for part, rows in (("fit", documents), ("held_out", [])):
            draft.counts[part] = write_parts(document_tables(rows), draft.path / part, DOCUMENTS)

    return make(folder, "target", {"name": name, **depends_on}, write)


def selection_measures(scores: np.ndarray, truth: np.ndarray, count: int) -> pd.DataFrame:
    """Measure two cuts, one row each: the best `count` candidates, and those that score below 0 if there are any.

    Args:
        scores: float64 of shape (candidates,); lower is closer to the domain.
        truth: bool of shape (candidates,); True for candidates of the domain.
        count: Number of candidates to select.
    """
    cuts = {f"best {count}": count, "below 0": int((scores < 0).sum())}
    ranking = ranking_measures(scores, truth)
    rows = [
        {"cut": cut, "kept": size, **budget_measures(scores, truth, size), **ranking}
        for cut, size in cuts.items()
        if size
    ]
    return pd.DataFrame(rows)


def add_published(rows: pd.DataFrame) -> pd.DataFrame:
    """Add averages over domains, and the published precision (corrected) and recall of each row.

    Args:
        rows: One row per domain, selector and cut, with its measures.
    """
    means = rows.groupby(["selector", "cut"], sort=False).mean(numeric_only=True).reset_index()
    table = pd.concat([rows, means.assign(domain="average")], ignore_index=True)
    paper = read_published("Table 7").set_index(["row", "column"])["meant"].to_dict()
    for kind in ("precision", "recall"):
        table[f"published_{kind}"] = [
            paper.get((paper_name(row.domain), f"{METHODS.get(row.selector)}, {kind}"))
            if "best" in row.cut
            else None
            for row in table.itertuples()
        ]
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = domain_command(__doc__)
    parser.add_argument(
        "--selectors", nargs="+", default=SELECTORS, help="classifier takes an hour on one core"
    )
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--fit", type=int, default=FIT, help="sentences per domain to fit on")
    parser.add_argument("--kept", type=int, default=KEPT, help="candidates to select")
    parser.add_argument("--scale", type=int, default=CAP // KEPT)
    return run_command(
        parser,
        arguments,
        table7,
        lambda domains, args: embedding_plan(domains, [args.encoder]),
    )


def table7(domains: Domains, args: argparse.Namespace) -> None:
    """Search each domain with every selector; write and print the table."""
    store = str(args.out / "embeddings")
    selection = replace(
        RunSettings().selection,
        units="window:256",
        min_words=0,  # the paper scores every text
        encoder=args.encoder,
        seed=args.seed,
        store=store,
    )
    counts = candidate_counts(domains.names, args.scale, args.most - args.fit)
    fit, candidates = split(domains, counts, args.fit)
    depends_on = {"domains": domains.fingerprint, "fit": args.fit}
    pool = write_corpus(
        candidates, args.out / "candidates", {**depends_on, "candidates": counts}
    ).path
    documents = list(iterate_documents(pool))
    frames = []
    for name in domains.names:
        task = write_target(name, fit[name], args.out / name / "target", depends_on).path
        truth = np.array([document.source == name for document in documents])
        for spec in args.selectors:
            folder = score_pool(
                task, pool, spec, "knn", selection, args.out / name / slug(spec) / "scores"
            ).path
            scores = document_scores(folder, [document.doc_id for document in documents])
            frames.append(
                selection_measures(scores, truth, args.kept).assign(domain=name, selector=spec)
            )
    rows = pd.concat(frames, ignore_index=True)
    rows = rows[(rows["cut"] != "below 0") | rows["selector"].str.startswith("classifier")]
    table = add_published(rows[["domain", "selector", *rows.columns.drop(["domain", "selector"])]])
    write_text(args.out / "table7.csv", table.to_csv(index=False))
    columns = [
        "domain",
        "selector",
        "cut",
        "kept",
        "precision",
        "precision_ceiling",
        "recall",
        "precision_at_r",
    ]
    print(
        table[[*columns, "published_precision", "published_recall"]]
        .round(3)
        .to_string(index=False, na_rep="")
    )


if __name__ == "__main__":
    sys.exit(main())
