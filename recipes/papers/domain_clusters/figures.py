"""Figures 1 to 3, 6 and 7, and Table 2: cluster the sentences of known domains; draw maps, confusions and outliers.

    python recipes/papers/domain_clusters/figures.py FILE... --out FOLDER [--encoders E ...] [--k 5]
    [--pca 50]

Writes one folder per encoder (Figures 6 and 7 are Figures 1 and 3 of other encoders):

    figure1.svg, .png   first two principal components of the sentences, coloured by domain
    figure2.svg, .png   true domain against the domain that the sentence's cluster is mapped to
    figure3.svg, .png   Figure 1 with the ellipses of the clusters, coloured by the domain they are mapped to
    points.csv, ellipses.csv, figure2.csv   the numbers of the figures, for all sentences
    table2.csv          outliers of each pair of domains, nearest to the centre of the wrong cluster first
    outliers.csv        section 2.6: outliers by assigned domain; tokens, digits, pronouns or questions
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from domains import Domains, domain_command, embed, embedding_plan, run_command
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
    outlier_table,
    surface_of,
)
from dana.studies.clusters.page import cluster_map, confusion_figure
from dana.studies.clusters.settings import ClusterSettings

EXAMPLES = 5  # per pair of domains


def describe(
    domains: Domains, vectors: Tensor, geometry: str, settings: ClusterSettings, seed: int
) -> ClusterDescription:
    """Cluster all sentences in random order, as a figure draws the first thousand only."""
    order = generator(seed, "figures", "order").permutation(len(domains.documents))
    documents = [domains.documents[row] for row in order]
    units = Units.join(list(split_documents(documents, WholeDocuments().splitter())))
    return describe_clusters(units, vectors[order], geometry, settings, seed)


def draw(
    clusters: ClusterDescription, domains: Domains
) -> tuple[list, dict[str, pd.DataFrame], float]:
    """Draw the figures and build the tables, by file name; also returns the purity of the clusters."""
    sample, names = clusters.sample, domains.names
    true = np.array([names.index(source) for source in sample["source"]])
    counts = contingency(sample["cluster"].to_numpy(), true, clusters.k, len(names))
    owners = majority(counts)
    labels = owners[sample["cluster"]]
    matrix = confusion(counts)
    bare = replace(clusters, ellipses=clusters.ellipses[:0])
    alt = "Sentences by two principal components of their vectors, coloured by domain"
    figures = [
        cluster_map(bare, true.tolist(), names, "figure1", f"{alt}."),
        confusion_figure(matrix, names, "figure2"),
        cluster_map(
            clusters,
            true.tolist(),
            names,
            "figure3",
            f"{alt}, under the clusters' ellipses.",
            owners.tolist(),
        ),
    ]
    points = sample[["doc_id", "source", "cluster", "x", "y"]].assign(
        assigned=[names[label] for label in labels]
    )
    ellipses = clusters.ellipses.assign(
        domain=[names[owner] for owner in owners], units=counts.sum(1)
    )
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    rows = [
        {
            "true": names[row],
            "assigned": names[column],
            "sentences": matrix[row, column],
            "share": shares[row, column],
        }
        for row, column in np.ndindex(*matrix.shape)
    ]
    texts = sample["text"].tolist()
    tables = {
        "points": points,
        "ellipses": ellipses,
        "figure2": pd.DataFrame(rows),
        "table2": examples(sample, true, labels, names),
        "outliers": outlier_table(true, labels, names, surface_of(texts)),
    }
    return figures, tables, domain_purity(counts)


def outlier_examples(
    sample: pd.DataFrame, true: np.ndarray, cluster_domains: np.ndarray, per_pair: int
) -> pd.DataFrame:
    """Select the clearest outliers of each pair of domains.

    They are those nearest to the centre of the wrong cluster.

    Args:
        sample: One row per unit: text, nearness (see
            :class:`dana.studies.clusters.description.ClusterDescription`).
        true: Domain of each unit, int of shape (units,).
        cluster_domains: Domain of each unit's cluster, int of shape (units,).
        per_pair: Number of outliers per pair; equal texts count once.

    Returns:
        Rows of the sample, with columns true and assigned, ordered by pair.
    """
    pair = ["true", "assigned"]
    units = sample.assign(true=true, assigned=cluster_domains)
    units = units.sort_values("nearness", ascending=False, kind="stable")
    outliers = units[units["true"] != units["assigned"]].drop_duplicates([*pair, "text"])
    return outliers.groupby(pair).head(per_pair).sort_values(pair, kind="stable")


def examples(
    sample: pd.DataFrame, true: np.ndarray, labels: np.ndarray, names: Sequence[str]
) -> pd.DataFrame:
    """Build Table 2: true and assigned domain, sentence and log density, the nearest to the wrong centre first.

    Args:
        sample: See :class:`dana.studies.clusters.description.ClusterDescription`.
        true: Domain of each sentence, int of shape (sentences,).
        labels: Domain that each sentence's cluster is mapped to, int of shape (sentences,).
        names: Names of the domains.
    """
    outliers = outlier_examples(sample, true, labels, EXAMPLES)
    table = outliers.rename(columns={"text": "sentence"}).assign(log_density=outliers["nearness"])
    table[["true", "assigned"]] = table[["true", "assigned"]].map(lambda code: names[code])
    return table[["true", "assigned", "sentence", "log_density"]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = domain_command(__doc__)
    parser.add_argument("--encoders", nargs="+", default=["minilm"])
    parser.add_argument(
        "--geometry",
        default="none",
        help="none: the paper's; center+l2: that of dana studies clusters",
    )
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--pca", type=int, default=50, help="principal components, 0: no PCA")
    return run_command(
        parser,
        arguments,
        figures,
        lambda domains, args: embedding_plan(domains, args.encoders),
    )


def figures(domains: Domains, args: argparse.Namespace) -> None:
    """Draw and write the figures and tables of each encoder."""
    settings = ClusterSettings(k=[args.k], pca=args.pca)
    for spec in args.encoders:
        vectors = embed(domains.texts, spec, args.out / "embeddings")
        images, tables, purity = draw(
            describe(domains, vectors, args.geometry, settings, args.seed), domains
        )
        for figure in images:
            figure.write(args.out / slug(spec))
        for name, table in tables.items():
            write_text(args.out / slug(spec) / f"{name}.csv", table.to_csv(index=False))
        outliers = tables["outliers"].round(3).to_string(index=False)
        print(f"{spec}, k={args.k}: purity {100 * purity:.2f}\n{outliers}")


if __name__ == "__main__":
    sys.exit(main())
