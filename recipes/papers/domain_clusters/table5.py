"""Table 5: the fine-tuned classifier with random and with pre-ranked negatives, on held-out sentences of known domains.

    python recipes/papers/domain_clusters/table5.py FILE... --out FOLDER [--domains medical it] [--fit 1000]

A FILE is a domain of 2,000 lines (see table1.py). Of each domain the first lines are the positives (1,000), the next
are held out (400), and of the rest as many are what negatives are drawn from that all domains have the proportions of
the paper's training text, a thousandth of it (--scale; 0 takes all): a third of random negatives are subtitles, as
there. Held out are as many sentences of the domain as of the others together. A sentence is classified as the domain's
if its score is below 0. ``table5.csv`` has a row a domain and way of drawing negatives, beside the published numbers. A
cell takes minutes to an hour of one core; killed, the same command goes on with the next.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from domains import Domains, domain_command, published, run_command
from table7 import CAP, paper_name, sizes, split

from dana.core.artifacts import Draft, make, read_json, write_json, write_text
from dana.core.errors import ConfigError
from dana.core.registry import SELECTORS
from dana.stages.settings import RunSettings

MEASURES = "measures.json"
COLUMNS = {"random": "without pre-ranking", "pre_ranked": "with pre-ranking"}


def classified(scores: np.ndarray, own: np.ndarray) -> dict[str, float]:
    """Precision, recall and F1 of what scores below 0.

    Args:
        scores: float64 of shape (sentences,), higher = more foreign.
        own: bool of shape (sentences,), of the domain.
    """
    found = scores < 0
    right = float((found & own).sum())
    precision, recall = right / max(1, int(found.sum())), right / own.sum()
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return {"precision": precision, "recall": float(recall), "F1": float(f1)}


def held_out(domains: Domains, name: str, fit: int, count: int) -> tuple[list[str], np.ndarray]:
    """Sentences that nothing is fitted on, of one domain and as many of the others, and which are of the one."""
    shares = {other: count if other == name else count // (len(domains.names) - 1) for other in domains.names}
    _, chosen = split(domains, shares, fit)
    return [document.text for document in chosen], np.array([document.source == name for document in chosen])


def cell(domains: Domains, name: str, selector: Any, given: argparse.Namespace) -> dict[str, float]:
    """Measures of one domain and way of drawing negatives; made once."""
    wanted = sizes(domains.names, given.scale, given.most - given.fit - given.held_out)
    fit, _ = split(domains, wanted, given.fit)
    _, general = split(domains, wanted, given.fit + given.held_out)
    about = {"domains": domains.fingerprint, "selector": selector.identity(), "domain": name, "general": wanted}
    about |= {"fit": given.fit, "held_out": given.held_out, "seed": given.seed}

    def write(draft: Draft) -> None:
        texts, own = held_out(domains, name, given.fit, given.held_out)
        fitted = selector.fit([one.text for one in fit[name]], [one.text for one in general], given.seed)
        write_json(draft.path / MEASURES, classified(fitted.score(texts), own))

    made = make(given.out / "cells" / f"{name}-{selector.negatives}", "classified", about, write)
    return read_json(made.path / MEASURES)


def beside(found: pd.DataFrame) -> pd.DataFrame:
    """Rows of a domain and way of drawing negatives with the published precision, recall and F1."""
    printed = published("Table 5").set_index(["row", "column"])["value"].to_dict()
    for measure in ("precision", "recall", "F1"):
        places = [(paper_name(row.domain), f"{COLUMNS[row.negatives]}, {measure}") for row in found.itertuples()]
        found = found.assign(**{f"published_{measure}": [printed.get(place) for place in places]})
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = domain_command(__doc__)
    parser.add_argument("--domains", nargs="+", help="(default: all)")
    parser.add_argument("--fit", type=int, default=1000, help="sentences of the domain (default: %(default)s)")
    parser.add_argument("--held-out", type=int, default=400, help="of the domain, and of the others together")
    parser.add_argument("--scale", type=int, default=CAP // 500)
    parser.add_argument("--learning-rate", type=float, default=2e-5, help="(default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--model", help="of the classifier and of the pre-ranking (default: MiniLM)")
    run_command(parser, arguments, table5)


def table5(domains: Domains, given: argparse.Namespace) -> None:
    """Classify every domain's held-out sentences with both kinds of negatives; write and print the table."""
    encoder = f"transformer:{given.model}" if given.model else "minilm"
    selection = replace(RunSettings().selection, encoder=encoder, store=str(given.out / "embeddings"))
    training = {"learning_rate": given.learning_rate, "epochs": given.epochs, "model": given.model}
    rows = []
    for name in given.domains or domains.names:
        if name not in domains.names:
            raise ConfigError(f"domains={name!r}: must be among {', '.join(domains.names)}")
        for negatives in ("random", "pre_ranked"):
            selector = SELECTORS.load("classifier")(negatives=negatives, context=selection.context(""), **training)
            rows.append({"domain": name, "negatives": negatives, **cell(domains, name, selector, given)})
    table = beside(pd.DataFrame(rows))
    write_text(given.out / "table5.csv", table.to_csv(index=False))
    print(table.round(3).to_string(index=False, na_rep=""))


if __name__ == "__main__":
    main()
