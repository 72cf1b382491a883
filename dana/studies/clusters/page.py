"""Build the page on clusters.

It shows their sizes, sources and examples, the choice of k, and agreement with known domains.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

from dana.core.artifacts import Artifact
from dana.core.registry import package_versions
from dana.core.schemas import part_files, read_batches
from dana.report.figures import shorten
from dana.report.page import (
    Finding,
    Report,
    Section,
    Table,
    decimals,
    each,
    number,
    percent,
    shares,
    text_columns,
)
from dana.report.svg import COLOURS, Figure
from dana.report.unit_texts import beginning, is_readable
from dana.studies.clusters.description import FOLDER, ClusterDescription
from dana.studies.clusters.domains import (
    confusion,
    contingency,
    domain_purity,
    majority,
    outlier_table,
    surface_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_SOURCES = 20  # colours of a map
POINTS = 1000  # points of a map
EXAMPLES = 3  # per cluster
OUTLIERS = 10


def read_clusters(artifact: Artifact) -> tuple[ClusterDescription, pd.DataFrame]:
    """Read a clusters artifact and count its units by cluster and source, one batch at a time.

    Returns:
        The description; and one row per cluster and source: cluster, source, units, responsibility
        (summed).
    """
    key = ["cluster", "source"]
    sums = []
    for part in part_files(artifact.path):
        for batch in read_batches(part, [*key, "responsibility"]):
            frame = batch.to_pandas().astype({"responsibility": float}).assign(units=1)
            sums.append(frame.groupby(key).sum())
    units = pd.concat(sums).groupby(level=key).sum().reset_index()
    return ClusterDescription.load(artifact.path / FOLDER, artifact.manifest), units


def cluster_report(
    name: str, clusters: ClusterDescription, units: pd.DataFrame, domains: Sequence[str] = ()
) -> Report:
    """Build the page.

    Args:
        name: Name of the run.
        clusters: Description of the clusters.
        units: Units by cluster and source, from :func:`read_clusters`.
        domains: Sources that are true domains; may be empty.
    """
    counts = units.pivot_table(
        values="units", index="cluster", columns="source", aggfunc="sum", fill_value=0
    )
    counts = counts.reindex(index=range(clusters.k), fill_value=0)
    table = cluster_table(clusters, units, counts)
    largest = table.frame.iloc[table.frame["units"].argmax()]
    verdict = (
        f"{table.frame['units'].sum():,} units form {clusters.k} clusters; the largest,"
        f" {largest['name']!r}, holds {percent(largest['share'])} of them."
    )
    stability = number(clusters.choice.query("chosen")["stability"].item(), 2)
    highlights = [Finding(stability, "agreement of the seeds' fits (adjusted Rand index)")]
    sections = [
        _made_of(clusters, table, counts),
        _examples(clusters),
        _how_many(clusters, domains),
    ]
    if domains:
        sections.append(_known_domains(clusters, counts[list(domains)].to_numpy(), domains))
    return Report(name, verdict, highlights, sections, package_versions(), "figures")


def cluster_table(clusters: ClusterDescription, units: pd.DataFrame, counts: pd.DataFrame) -> Table:
    """Tabulate each cluster's size, sources, mean responsibility and nearest neighbour.

    Args:
        clusters: Description of the clusters.
        units: Units by cluster and source, from :func:`read_clusters`.
        counts: Number of units by cluster (rows) and source (columns).
    """
    sums = units.groupby("cluster")[["units", "responsibility"]].sum()
    frame = sums.reindex(range(clusters.k), fill_value=0).rename_axis("cluster").reset_index()
    frame.insert(1, "name", clusters.names)
    frame["responsibility"] /= frame["units"].clip(lower=1)
    frame["share"] = frame["units"] / frame["units"].sum()
    frame["sources"] = [_largest_sources(row) for _, row in counts.iterrows()]
    means = clusters.model.mixture.means_
    distances = cdist(means, means) + np.diag(np.full(clusters.k, np.inf))
    frame = frame.assign(nearest=distances.argmin(1), distance=distances.min(1))
    columns = (
        *decimals(0, "cluster"),
        *text_columns("name"),
        *decimals(0, "units"),
        *shares("share"),
        *text_columns("sources"),
        *decimals(2, "responsibility"),
        *decimals(0, "nearest"),
        *decimals(3, "distance"),
    )
    caption = (
        "Name: the words with the largest class-based TF-IDF among those three times as frequent as"
        " elsewhere. Responsibility: mean probability of the cluster, given its units. Nearest: the"
        " cluster with the nearest mean; distance: Euclidean distance between the means, in the"
        " clustered space."
    )
    return Table("clusters", caption, frame, columns)


def _largest_sources(units: pd.Series) -> str:
    """Format the two largest sources of a cluster with their shares."""
    largest = units[units > 0].sort_values(ascending=False, kind="stable").head(2)
    return ", ".join(
        f"{source} {percent(count / units.sum(), 0)}" for source, count in largest.items()
    )


def _made_of(clusters: ClusterDescription, table: Table, counts: pd.DataFrame) -> Section:
    """Draw the map by cluster, and by source if there are 2 to 20."""
    alt = (
        f"The ellipses of {clusters.k} clusters over units by two principal components, coloured by"
    )
    owners = clusters.sample["cluster"].tolist()
    figures = [cluster_map(clusters, owners, clusters.names, "cluster_map", f"{alt} cluster.")]
    sources = list(counts.columns)
    if 1 < len(sources) <= MOST_SOURCES:
        owners = [sources.index(source) for source in clusters.sample["source"]]
        figures.append(
            cluster_map(clusters, owners, sources, "cluster_map_sources", f"{alt} source.")
        )
    answer = (
        "On the map each point is a unit, and each ellipse holds 63 % of the density of its"
        " cluster. Clusters that overlap on the map may be apart in other dimensions."
    )
    by_source = Table("cluster_sources", "Units by cluster and source.", counts.reset_index())
    return Section("What is in the pool?", answer, tuple(figures), (table, by_source))


def _examples(clusters: ClusterDescription) -> Section:
    """Show the units nearest to each cluster's centre, and those of lowest density."""
    sample = clusters.sample.assign(
        name=clusters.sample["cluster"].map(dict(enumerate(clusters.names))),
        text=clusters.sample["text"].str.split().str.join(" ").map(beginning),
    )
    nearest = representatives(sample, -sample["nearness"], EXAMPLES)
    farthest = representatives(sample.assign(cluster=0), sample["log_density"], OUTLIERS)
    frame = sample[["cluster", "name", "log_density", "doc_id", "text"]]
    columns = (*text_columns("name"), *decimals(1, "log_density"), *text_columns("text"))
    caption = "Nearest to the cluster's centre."
    examples = Table("cluster_examples", caption, frame.loc[nearest.index], columns)
    caption = "Lowest density: the outliers."
    outliers = Table("cluster_least_dense", caption, frame.loc[farthest.index], columns)
    answer = (
        "Units of the sample that was fitted on, from distinct documents. A unit of low density is"
        " unlike every part of the pool."
    )
    title = "What does each part look like, and what is an outlier?"
    return Section(title, answer, tables=(examples, outliers))


def representatives(sample: pd.DataFrame, order: pd.Series, per_cluster: int) -> pd.DataFrame:
    """Select the first units of each cluster, readable ones before others.

    They are from distinct documents and have distinct texts.

    Args:
        sample: One row per unit: text, doc_id, cluster.
        order: Sort key of each unit, ascending.
        per_cluster: Number of units per cluster.

    Returns:
        Rows of the sample, cluster by cluster.
    """
    units = sample.assign(order=order, unreadable=~sample["text"].map(is_readable))
    units = units.sort_values(["cluster", "unreadable", "order"], kind="stable")
    for key in ("text", "doc_id"):
        units = units.drop_duplicates(["cluster", key])
    return units.groupby("cluster").head(per_cluster)


def _how_many(clusters: ClusterDescription, domains: Sequence[str]) -> Section:
    """Tabulate the candidates for the number of clusters, with purity if domains are known."""
    frame = clusters.choice
    columns = (*decimals(0, "k", "bic"), *decimals(2, "stability"))
    units = np.count_nonzero(domain_codes(clusters, domains) >= 0)
    caption = (
        "BIC of the likeliest fit; lower is better. Stability: mean adjusted Rand index between"
        " seeds, 1 for identical clusters, 0 by chance."
    )
    if units:
        frame = frame.merge(_purity_by_k(clusters, domains), on="k")
        columns += shares("purity", "purity_std")
        caption += (
            f" Purity: of the {units:,} units fitted on, mean and standard deviation (ddof 1) over"
            " seeds."
        )
    table = Table("cluster_choice", caption, frame, columns, tuple(frame["chosen"]))
    return Section("Why so many clusters?", f"{clusters.reason}.", (), (table,))


def _purity_by_k(clusters: ClusterDescription, domains: Sequence[str]) -> pd.DataFrame:
    """Compute mean and deviation of the purity over seeds: k, purity, purity_std."""
    codes = domain_codes(clusters, domains)
    has_domain = codes >= 0
    assignments = clusters.assignments[has_domain]
    purities = []
    for k, seed in clusters.fits[["k", "seed"]].itertuples(index=False):
        fit = assignments[f"k{k}-{seed}"].to_numpy()
        purities.append(domain_purity(contingency(fit, codes[has_domain], k, len(domains))))
    by_k = clusters.fits.assign(purity=purities).groupby("k", as_index=False)
    return by_k.agg(purity=("purity", "mean"), purity_std=("purity", "std"))


def domain_codes(clusters: ClusterDescription, domains: Sequence[str]) -> np.ndarray:
    """Return the domain of each unit of the sample, int of shape (units,); -1 for other sources."""
    return pd.Index(domains).get_indexer(pd.Index(clusters.sample["source"]))


def _known_domains(
    clusters: ClusterDescription, counts: np.ndarray, domains: Sequence[str]
) -> Section:
    """Report purity and confusions of all units, and the outliers of the sample."""
    matrix = confusion(counts)
    tables = [_confusion_table(matrix, domains)]
    largest = counts.sum(0).max() / counts.sum()
    answer = (
        f"Purity is {percent(domain_purity(counts))}: the share of {counts.sum():,} units whose"
        " domain is the most frequent one of their cluster. Its minimum is"
        f" {percent(largest)}, the share of the largest domain."
    )
    if (domain_codes(clusters, domains) >= 0).any():
        tables.append(_outliers(clusters, counts, domains))
    else:
        answer += " None of them was fitted on, so there is no table of outliers."
    figure = confusion_figure(matrix, domains, "cluster_confusion")
    title = "Do clusters find the domains that are known?"
    return Section(title, answer, (figure,), tuple(tables))


def _confusion_table(matrix: np.ndarray, domains: Sequence[str]) -> Table:
    """Tabulate a confusion matrix, one row per pair of domains."""
    frame = pd.DataFrame(
        {
            "true_domain": np.repeat(domains, len(domains)),
            "domain_of_its_cluster": np.tile(domains, len(domains)),
            "units": matrix.ravel(),
        }
    )
    totals = frame.groupby("true_domain")["units"].transform("sum")
    frame["share"] = frame["units"] / totals.clip(lower=1)
    columns = (
        *text_columns("true_domain", "domain_of_its_cluster"),
        *decimals(0, "units"),
        *shares("share"),
    )
    caption = (
        "Units by true domain and domain of their cluster, and their share of the true domain."
    )
    return Table("cluster_confusion", caption, frame, columns)


def _outliers(clusters: ClusterDescription, counts: np.ndarray, domains: Sequence[str]) -> Table:
    """Tabulate the units of the sample whose cluster is of another domain."""
    codes = domain_codes(clusters, domains)
    has_domain = codes >= 0
    sample = clusters.sample[has_domain]
    cluster_domains = majority(counts)[sample["cluster"]]
    surface = surface_of(sample["text"].tolist())
    rows = outlier_table(codes[has_domain], cluster_domains, domains, surface)
    caption = (
        f"Outliers of the {len(sample):,} units fitted on: units whose cluster is of another"
        " domain, by that domain. Tokens: words and punctuation marks. Conversational: with an"
        " English personal pronoun or a question mark."
    )
    columns = (
        *text_columns("domain"),
        *decimals(0, "units"),
        *shares("share"),
        *decimals(1, "tokens"),
        *shares("digits", "conversational"),
    )
    return Table("cluster_outliers", caption, rows, columns)


def cluster_map(
    clusters: ClusterDescription,
    owners: Sequence[int],
    names: Sequence[str],
    name: str,
    alt: str,
    ellipse_owners: Sequence[int] = (),
) -> Figure:
    """Draw units by their two leading principal components, with the ellipses of the clusters.

    Args:
        clusters: Units and ellipses; the first thousand units are drawn.
        owners: Owner of each unit of the sample, from 0: its cluster, source or domain.
        names: Names of the owners; colours repeat after twenty, and above ten there is no legend.
        name: Name of the figure.
        alt: Alternative text.
        ellipse_owners: Owner of each cluster, which decides the colour of its ellipse; by default
            all are grey.
    """
    units = clusters.sample.head(POINTS)
    owner_of = np.asarray(owners)[: len(units)]

    def paint(axes: "Axes") -> None:
        from matplotlib import colormaps
        from matplotlib.patches import Ellipse

        colormap: Any = colormaps["tab10" if len(names) <= 10 else "tab20"]
        palette = colormap.colors
        for owner, label in enumerate(names):
            rows = units[owner_of == owner]
            colour = palette[owner % len(palette)]
            axes.scatter(
                rows["x"],
                rows["y"],
                s=7,
                color=colour,
                linewidths=0,
                alpha=0.7,
                label=shorten(label),
            )
        fills = [COLOURS["base"]] * clusters.k
        if len(ellipse_owners):
            fills = [palette[owner % len(palette)] for owner in ellipse_owners]
        for row, fill in zip(each(clusters.ellipses), fills, strict=False):
            ellipse = Ellipse(
                (row.x, row.y),
                width=row.width,
                height=row.height,
                angle=row.angle,
                facecolor=(fill, 0.2),
                edgecolor=COLOURS["ink"],
            )
            axes.add_patch(ellipse)
            axes.annotate(
                str(row.cluster),
                (row.x, row.y),
                ha="center",
                va="center",
                fontsize=9,
                fontweight="bold",
            )
        axes.set_aspect("equal", "datalim")
        x, y = map(percent, clusters.variance)
        axes.set(xlabel=f"first component ({x} of the variance)", ylabel=f"second ({y})")
        if len(names) <= 10:
            axes.legend(
                loc="lower center",
                bbox_to_anchor=(0.5, 1.0),
                ncols=3,
                handletextpad=0.1,
                markerscale=2,
            )

    return Figure(name, alt, (4.6, 4.4), paint)


def confusion_figure(counts: np.ndarray, domains: Sequence[str], name: str) -> Figure:
    """Draw a confusion matrix: the share of a true domain's units in the clusters of each domain.

    Args:
        counts: From :func:`dana.studies.clusters.domains.confusion`.
        domains: Names of the domains.
        name: Name of the figure.
    """
    labels = [shorten(domain, 14) for domain in domains]

    def paint(axes: "Axes") -> None:
        from sklearn.metrics import ConfusionMatrixDisplay

        display = ConfusionMatrixDisplay(
            counts / np.maximum(counts.sum(1, keepdims=True), 1), display_labels=labels
        )
        display.plot(cmap="Blues", ax=axes, xticks_rotation=45, values_format=".0%", colorbar=False)
        axes.set(xlabel="domain of the cluster", ylabel="true domain")

    side = max(3.0, 1.2 + 0.34 * len(labels))
    alt = f"Units of {len(labels)} true domains by the domain of their cluster."
    return Figure(name, alt, (side + 0.6, side), paint)
