"""Table 5: evaluate the fine-tuned domain classifier with random and with pre-ranked negatives on held-out sentences.

    python recipes/papers/domain_clusters/table5.py FILE... --out FOLDER [--domains medical it]
    [--fit 1000] [--dry-run]

A FILE is a domain of 2,000 lines (see table1.py). The first 1,000 lines of a domain are the
positives and the next 400 are held out. Negatives are sampled from the remaining lines of all
domains, in the proportions of the paper's training text divided by --scale (1,000; 0: all remaining
lines), so a third of random negatives are subtitles, as in the paper. The evaluation set has as
many sentences of the domain as of all others together. A sentence is classified as in-domain if its
score is below 0. ``table5.csv`` has one row per domain and kind of negatives: means over seeds, the
standard deviation of F1 (ddof 1) and the published numbers. A stopped command resumes with the
unfinished cells.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from domains import Domains, domain_command, read_published, run_command
from table7 import CAP, candidate_counts, paper_name, split

from dana.core.artifacts import Draft, make, read_json, write_json, write_text
from dana.core.errors import ConfigError
from dana.core.registry import SELECTORS
from dana.stages.settings import RunSettings

MEASURES = "measures.json"
COLUMNS = {"random": "without pre-ranking", "pre_ranked": "with pre-ranking"}


def classification_measures(scores: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Compute precision, recall and F1 of classifying a score below 0 as in-domain.

    Args:
        scores: float64 of shape (sentences,); lower is closer to the domain.
        truth: bool of shape (sentences,); True for sentences of the domain.
    """
    positive = scores < 0
    hits = float((positive & truth).sum())
    precision, recall = hits / max(1, int(positive.sum())), hits / truth.sum()
    f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
    return {"precision": precision, "recall": float(recall), "F1": float(f1)}


def held_out_sentences(
    domains: Domains, name: str, fit: int, count: int
) -> tuple[list[str], np.ndarray]:
    """Return held-out sentences, as many of one domain as of all others together, and a mask of the domain's."""
    counts = {
        other: count if other == name else count // (len(domains.names) - 1)
        for other in domains.names
    }
    _, documents = split(domains, counts, fit)
    return [document.text for document in documents], np.array(
        [document.source == name for document in documents]
    )


def evaluate_cell(
    domains: Domains, name: str, selector: Any, seed: int, args: argparse.Namespace
) -> dict[str, float]:
    """Train and evaluate the classifier of one domain, kind of negatives and seed; a second call loads the measures."""
    counts = candidate_counts(domains.names, args.scale, args.most - args.fit - args.held_out)
    fit, _ = split(domains, counts, args.fit)
    _, pool = split(domains, counts, args.fit + args.held_out)
    depends_on = {
        "domains": domains.fingerprint,
        "selector": selector.identity(),
        "domain": name,
        "pool": counts,
    }
    depends_on |= {"fit": args.fit, "held_out": args.held_out, "seed": seed}

    def write(draft: Draft) -> None:
        texts, truth = held_out_sentences(domains, name, args.fit, args.held_out)
        classifier = selector.fit(
            [document.text for document in fit[name]], [document.text for document in pool], seed
        )
        write_json(draft.path / MEASURES, classification_measures(classifier.score(texts), truth))

    artifact = make(
        args.out / "cells" / f"{name}-{selector.negatives}-{seed}", "classified", depends_on, write
    )
    return read_json(artifact.path / MEASURES)


def add_published(table: pd.DataFrame) -> pd.DataFrame:
    """Add the published precision, recall and F1 to the rows of a domain and kind of negatives."""
    paper = read_published("Table 5").set_index(["row", "column"])["value"].to_dict()
    for measure in ("precision", "recall", "F1"):
        cells = [
            (paper_name(row.domain), f"{COLUMNS[row.negatives]}, {measure}")
            for row in table.itertuples()
        ]
        table = table.assign(**{f"published_{measure}": [paper.get(cell) for cell in cells]})
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = domain_command(__doc__)
    parser.add_argument("--domains", nargs="+", help="domains to evaluate (default: all)")
    parser.add_argument(
        "--fit", type=int, default=1000, help="positives per domain (default: %(default)s)"
    )
    parser.add_argument(
        "--held-out", type=int, default=400, help="of the domain, and as many of all others"
    )
    parser.add_argument("--scale", type=int, default=CAP // 500)
    parser.add_argument("--learning-rate", type=float, default=2e-5, help="(default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument(
        "--batch-size", type=int, default=256, help="(default: %(default)s, as in the paper)"
    )
    parser.add_argument("--seeds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument(
        "--model", help="model of the classifier and of the pre-ranking (default: MiniLM)"
    )
    return run_command(parser, arguments, table5, training_plan)


def encoder_of(args: argparse.Namespace) -> str:
    """Return the spec of the encoder that pre-ranks."""
    return f"transformer:{args.model}" if args.model else "minilm"


def training_plan(domains: Domains, args: argparse.Namespace) -> str:
    """Say how many classifiers are trained, on as many negatives as positives."""
    cells = len(args.domains or domains.names) * len(COLUMNS) * args.seeds
    return f"train {cells} classifiers on {2 * args.fit:,} sentences, {args.epochs} times each"


def table5(domains: Domains, args: argparse.Namespace) -> None:
    """Evaluate the classifier of every domain with both kinds of negatives; write and print the table."""
    selection = replace(
        RunSettings().selection, encoder=encoder_of(args), store=str(args.out / "embeddings")
    )
    training = {
        name: getattr(args, name) for name in ("learning_rate", "epochs", "batch_size", "model")
    }
    rows = []
    for name, negatives, seed in product(
        args.domains or domains.names, COLUMNS, range(args.seed, args.seed + args.seeds)
    ):
        if name not in domains.names:
            raise ConfigError(f"--domains={name!r}: must be one of {', '.join(domains.names)}")
        selector = SELECTORS.load("classifier")(
            negatives=negatives, context=selection.context(""), **training
        )
        measures = evaluate_cell(domains, name, selector, seed, args)
        rows.append({"domain": name, "negatives": negatives, **measures, "F1_std": measures["F1"]})
    aggregates = {"precision": "mean", "recall": "mean", "F1": "mean", "F1_std": "std"}
    table = add_published(
        pd.DataFrame(rows)
        .groupby(["domain", "negatives"], sort=False)
        .agg(aggregates)
        .reset_index()
    )
    write_text(args.out / "table5.csv", table.to_csv(index=False))
    print(table.round(3).to_string(index=False, na_rep=""))


if __name__ == "__main__":
    sys.exit(main())
