"""Figures 1 to 3, 6 and 7, and Table 2: five clusters of an encoder's vectors on a map, confusions, and outliers.

    python recipes/papers/domain_clusters/figures.py FILE... --out FOLDER [--encoders E ...] [--k 5] [--pca 50]

For each encoder (Figures 6 and 7 are Figures 1 and 3 of others) a folder of its name:

    figure1.svg, .png   sentences by two principal components, coloured by domain
    figure2.svg, .png   true domain against the domain of the sentence's cluster
    figure3.svg, .png   Figure 1 under the ellipses of the clusters, coloured by the domain they are mapped to
    points.csv, ellipses.csv, figure2.csv   the numbers of the figures, of all sentences
    table2.csv          for each pair of domains the outliers nearest to the centre of the wrong cluster
    outliers.csv        section 2.6: outliers by the domain that attracts them; tokens, digits, pronouns or questions
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from domains import Domains, domain_command, run_command, vectors_of
from torch import Tensor

from dana.core.artifacts import write_text
from dana.core.files import slug
from dana.core.rng import generator
from dana.corpus.unit_stream import Units, split_documents
from dana.corpus.units import WholeDocuments
from dana.studies.clusters.description import ClusterDescription, describe_clusters
from dana.studies.clusters.domains import (
    confusion,
    contingency,
    domain_purity,
    majority,
    outlier_examples,
    outlier_table,
    surface_of,
)
from dana.studies.clusters.page import cluster_map, confusion_figure
from dana.studies.clusters.settings import ClusterSettings

EXAMPLES = 5  # of a pair of domains


def describe(
    domains: Domains, vectors: Tensor, geometry: str, settings: ClusterSettings, seed: int
) -> ClusterDescription:
    """Clusters of all sentences, which stand in a random order: a figure draws the first thousand."""
    order = generator(seed, "figures", "order").permutation(len(domains.documents))
    documents = [domains.documents[row] for row in order]
    units = Units.join(list(split_documents(documents, WholeDocuments().splitter())))
    return describe_clusters(units, vectors[order], geometry, settings, seed)


def draw(clusters: ClusterDescription, domains: Domains) -> tuple[list, dict[str, pd.DataFrame], float]:
    """Figures, tables by file name, and the purity of the clusters."""
    sample, names = clusters.sample, domains.names
    true = np.array([names.index(source) for source in sample["source"]])
    counts = contingency(sample["cluster"].to_numpy(), true, clusters.k, len(names))
    owners = majority(counts)
    assigned = owners[sample["cluster"]]
    taken = confusion(counts)
    bare = replace(clusters, ellipses=clusters.ellipses[:0])
    alt = "Sentences by two principal components of their vectors, coloured by domain"
    figures = [
        cluster_map(bare, true.tolist(), names, "figure1", f"{alt}."),
        confusion_figure(taken, names, "figure2"),
        cluster_map(
            clusters, true.tolist(), names, "figure3", f"{alt}, under the clusters' ellipses.", owners.tolist()
        ),
    ]
    points = sample[["doc_id", "source", "cluster", "x", "y"]].assign(assigned=[names[at] for at in assigned])
    ellipses = clusters.ellipses.assign(domain=[names[at] for at in owners], units=counts.sum(1))
    shares = taken / np.maximum(taken.sum(1, keepdims=True), 1)
    rows = [
        {"true": names[one], "assigned": names[other], "sentences": taken[one, other], "share": shares[one, other]}
        for one, other in np.ndindex(*taken.shape)
    ]
    texts = sample["text"].tolist()
    tables = {
        "points": points,
        "ellipses": ellipses,
        "figure2": pd.DataFrame(rows),
        "table2": examples(sample, true, assigned, names),
        "outliers": outlier_table(true, assigned, names, surface_of(texts)),
    }
    return figures, tables, domain_purity(counts)


def examples(sample: pd.DataFrame, true: np.ndarray, assigned: np.ndarray, names: Sequence[str]) -> pd.DataFrame:
    """Table 2: true, assigned, sentence and the log density of its cluster, the nearest to the wrong centre first.

    Args:
        sample: See :class:`dana.studies.clusters.description.ClusterDescription`.
        true: int of shape (sentences,), each one's domain.
        assigned: The domain that its cluster is mapped to.
        names: Of the domains.
    """
    outliers = outlier_examples(sample, true, assigned, EXAMPLES)
    table = outliers.rename(columns={"text": "sentence"}).assign(log_density=outliers["nearness"])
    table[["true", "assigned"]] = table[["true", "assigned"]].map(lambda code: names[code])
    return table[["true", "assigned", "sentence", "log_density"]]


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = domain_command(__doc__)
    parser.add_argument("--encoders", nargs="+", default=["minilm"])
    parser.add_argument("--geometry", default="none", help="none is the paper's, center+l2 that of dana clusters")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--pca", type=int, default=50, help="components; 0 for none")
    run_command(parser, arguments, figures)


def figures(domains: Domains, given: argparse.Namespace) -> None:
    """Draw and write the figures and tables of each encoder."""
    settings = ClusterSettings(k=[given.k], pca=given.pca)
    for spec in given.encoders:
        vectors = vectors_of(domains.texts, spec, given.out / "embeddings")
        drawn, tables, purity = draw(describe(domains, vectors, given.geometry, settings, given.seed), domains)
        for figure in drawn:
            figure.write(given.out / slug(spec))
        for name, table in tables.items():
            write_text(given.out / slug(spec) / f"{name}.csv", table.to_csv(index=False))
        outliers = tables["outliers"].round(3).to_string(index=False)
        print(f"{spec}, k={given.k}: purity {100 * purity:.2f}\n{outliers}")


if __name__ == "__main__":
    main()
