"""The page on clusters: what a pool is made of, what its parts look like, why so many; and clusters against domains."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

from dana.core.artifacts import Artifact
from dana.core.registry import package_versions
from dana.core.schemas import parts, read_batches
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

MOST_SOURCES = 20  # that a map shows
POINTS = 1000  # of a map
EXAMPLES = 3  # of a cluster
OUTLIERS = 10


def read_clusters(artifact: Artifact) -> tuple[ClusterDescription, pd.DataFrame]:
    """Read what was learned, and count all units; of the table a batch at a time is in memory.

    Returns:
        The description; and a row a cluster and source: cluster, source, units, and the sum of their responsibility.
    """
    key = ["cluster", "source"]
    batches = (batch for part in parts(artifact.path) for batch in read_batches(part, [*key, "responsibility"]))
    frames = (batch.to_pandas().astype({"responsibility": float}).assign(units=1) for batch in batches)
    units = pd.concat([frame.groupby(key).sum() for frame in frames]).groupby(level=key).sum().reset_index()
    return ClusterDescription.load(artifact.path / FOLDER, artifact.manifest), units


def cluster_report(name: str, clusters: ClusterDescription, units: pd.DataFrame, domains: Sequence[str] = ()) -> Report:
    """Everything that the page says.

    Args:
        name: Of the run.
        clusters: What was learned of the sample.
        units: All units by cluster and source; see :func:`read_clusters`.
        domains: Sources that are true domains, where they are known.
    """
    counts = units.pivot_table(values="units", index="cluster", columns="source", aggfunc="sum", fill_value=0)
    counts = counts.reindex(index=range(clusters.k), fill_value=0)
    table = cluster_table(clusters, units, counts)
    largest = table.frame.iloc[table.frame["units"].argmax()]
    verdict = (
        f"{table.frame['units'].sum():,} units fall into {clusters.k} clusters; the largest, {largest['name']!r}, "
        f"holds {percent(largest['share'])} of them."
    )
    stability = number(clusters.choice.query("chosen")["stability"].item(), 2)
    highlights = [Finding(stability, "agreement of the seeds' fits (adjusted Rand index)")]
    sections = [_made_of(clusters, table, counts), _examples(clusters), _how_many(clusters, domains)]
    if domains:
        sections.append(_known_domains(clusters, counts[list(domains)].to_numpy(), domains))
    return Report(name, verdict, highlights, sections, package_versions(), "figures")


def cluster_table(clusters: ClusterDescription, units: pd.DataFrame, counts: pd.DataFrame) -> Table:
    """A row a cluster: its size, its sources, how sure its units are, its neighbour.

    Args:
        clusters: See :func:`cluster_report`.
        units: See there.
        counts: Units, a row a cluster, a column a source.
    """
    sums = units.groupby("cluster")[["units", "responsibility"]].sum()
    frame = sums.reindex(range(clusters.k), fill_value=0).rename_axis("cluster").reset_index()
    frame.insert(1, "name", clusters.names)
    frame["responsibility"] /= frame["units"].clip(lower=1)
    frame["share"] = frame["units"] / frame["units"].sum()
    frame["sources"] = [_largest_sources(row) for _, row in counts.iterrows()]
    means = clusters.fitted.mixture.means_
    distances = cdist(means, means) + np.diag(np.full(clusters.k, np.inf))
    frame = frame.assign(nearest=distances.argmin(1), distance=distances.min(1))
    columns = (*decimals(0, "cluster"), *text_columns("name"), *decimals(0, "units"), *shares("share"))
    columns += (*text_columns("sources"), *decimals(2, "responsibility"), *decimals(0, "nearest"))
    caption = (
        "Name: the words with the largest class-based TF-IDF of those that come three times as often as elsewhere. "
        "Responsibility: mean probability of its units to be of it. Nearest: the cluster with the nearest mean; "
        "distance: how far that is in the space that was clustered (Euclidean)."
    )
    return Table("clusters", caption, frame, (*columns, *decimals(3, "distance")))


def _largest_sources(units: pd.Series) -> str:
    """The two sources that most units of a cluster are of."""
    largest = units[units > 0].sort_values(ascending=False, kind="stable").head(2)
    return ", ".join(f"{source} {percent(count / units.sum(), 0)}" for source, count in largest.items())


def _made_of(clusters: ClusterDescription, table: Table, counts: pd.DataFrame) -> Section:
    """The map by cluster, and by source where several, but not too many, are known."""
    sample, sources = clusters.sample, list(counts.columns)
    alt = f"The ellipses of {clusters.k} clusters over units by two principal components, coloured by"
    figures = [cluster_map(clusters, sample["cluster"].tolist(), clusters.names, "cluster_map", f"{alt} cluster.")]
    if 1 < len(sources) <= MOST_SOURCES:
        owners = [sources.index(source) for source in sample["source"]]
        figures.append(cluster_map(clusters, owners, sources, "cluster_map_sources", f"{alt} source."))
    answer = (
        "On the map each point is a unit, each ellipse the cluster of its number, which holds 63 % of what the cluster "
        "expects; clusters that overlap there may lie apart in other directions."
    )
    by_source = Table("cluster_sources", "Units by cluster and source.", counts.reset_index())
    return Section("What is in the pool?", answer, tuple(figures), (table, by_source))


def _examples(clusters: ClusterDescription) -> Section:
    """Units of the sample: of each cluster those nearest to its centre, and of all those farthest from everything."""
    sample = clusters.sample.assign(
        name=clusters.sample["cluster"].map(dict(enumerate(clusters.names))),
        text=clusters.sample["text"].str.split().str.join(" ").map(beginning),
    )
    nearest = representatives(sample, -sample["nearness"], EXAMPLES)
    farthest = representatives(sample.assign(cluster=0), sample["log_density"], OUTLIERS)
    told = ["cluster", "name", "log_density", "doc_id", "text"]
    columns = (*text_columns("name"), *decimals(1, "log_density"), *text_columns("text"))
    tables = (
        Table("cluster_examples", "Nearest to the cluster's centre.", sample.loc[nearest.index, told], columns),
        Table("cluster_least_dense", "Farthest from everything.", sample.loc[farthest.index, told], columns),
    )
    answer = (
        "Units of the sample that was fitted on, of distinct documents. The less dense the mixture is at a unit, the "
        "less the unit is like any part of the pool."
    )
    return Section("What does each part look like, and what is an outlier?", answer, tables=tables)


def representatives(sample: pd.DataFrame, order: pd.Series, most: int) -> pd.DataFrame:
    """The first units of each cluster in some order, of distinct documents and texts; readable ones before others.

    Args:
        sample: A row a unit: text, doc_id, cluster.
        order: Number of each: of a cluster the lowest come first.
        most: So many of each.

    Returns:
        Rows of the sample, cluster by cluster.
    """
    ranked = sample.assign(order=order, unreadable=~sample["text"].map(is_readable))
    ranked = ranked.sort_values(["cluster", "unreadable", "order"], kind="stable")
    for key in ("text", "doc_id"):
        ranked = ranked.drop_duplicates(["cluster", key])
    return ranked.groupby("cluster").head(most)


def _how_many(clusters: ClusterDescription, domains: Sequence[str]) -> Section:
    frame = clusters.choice
    columns = (*decimals(0, "k", "bic"), *decimals(2, "stability"))
    caption = (
        "BIC: the lower, the better, of the likeliest fit. Stability: mean adjusted Rand index between seeds, 1 "
        "where all agree, 0 by chance."
    )
    if domains:
        codes = domain_codes(clusters, domains)
        known, fits = codes >= 0, clusters.fits
        purities = [
            domain_purity(
                contingency(clusters.assignments[f"k{k}-{seed}"].to_numpy()[known], codes[known], k, len(domains))
            )
            for k, seed in fits[["k", "seed"]].itertuples(index=False)
        ]
        by_k = fits.assign(purity=purities).groupby("k", as_index=False)
        frame = frame.merge(by_k.agg(purity=("purity", "mean"), purity_std=("purity", "std")), on="k")
        columns += shares("purity", "purity_std")
        caption += f" Purity: of the {known.sum():,} units fitted on, mean and standard deviation (ddof 1) over seeds."
    table = Table("cluster_choice", caption, frame, columns, tuple(frame["chosen"]))
    return Section("Why so many clusters?", f"{clusters.reason}.", (), (table,))


def domain_codes(clusters: ClusterDescription, domains: Sequence[str]) -> np.ndarray:
    """Domain of each unit of the sample, int of shape (units,); -1 for other sources."""
    return pd.Index(domains).get_indexer(pd.Index(clusters.sample["source"]))


def _known_domains(clusters: ClusterDescription, counts: np.ndarray, domains: Sequence[str]) -> Section:
    """Purity and confusions of all units; outliers of the sample, by the domain that attracts them."""
    taken = confusion(counts)
    true_domain, domain = np.repeat(domains, len(domains)), np.tile(domains, len(domains))
    frame = pd.DataFrame({"true_domain": true_domain, "domain_of_its_cluster": domain, "units": taken.ravel()})
    frame["share"] = frame["units"] / frame.groupby("true_domain")["units"].transform("sum").clip(lower=1)
    columns = (*text_columns("true_domain", "domain_of_its_cluster"), *decimals(0, "units"), *shares("share"))
    caption = "Units of each true domain by the domain of their cluster, and their share of the true domain's."
    confusions = Table("cluster_confusion", caption, frame, columns)
    codes = domain_codes(clusters, domains)
    sample, true = clusters.sample[codes >= 0], codes[codes >= 0]
    assigned = majority(counts)[sample["cluster"]]
    rows = outlier_table(true, assigned, domains, surface_of(sample["text"].tolist()))
    caption = (
        f"Of the {len(sample):,} units fitted on: outliers by the domain that attracts them, though theirs is another. "
        "Tokens: words and single marks of punctuation. Conversational: with a personal pronoun of English, in any of "
        "its forms, or a question mark."
    )
    columns = (*text_columns("domain"), *decimals(0, "units"), *shares("share"), *decimals(1, "tokens"))
    outliers = Table("cluster_outliers", caption, rows, (*columns, *shares("digits", "conversational")))
    answer = (
        f"Purity is {percent(domain_purity(counts))}: so many of {counts.sum():,} units are of the domain that is most "
        f"frequent in their cluster. It cannot be below {percent(counts.sum(0).max() / counts.sum())}, the largest "
        "domain's share."
    )
    figure = confusion_figure(taken, domains, "cluster_confusion")
    return Section("Do clusters find the domains that are known?", answer, (figure,), (confusions, outliers))


def cluster_map(
    clusters: ClusterDescription,
    owners: Sequence[int],
    names: Sequence[str],
    name: str,
    alt: str,
    ellipse_owners: Sequence[int] = (),
) -> Figure:
    """Draw units by two principal components, coloured by an owner each, under the ellipses of the clusters.

    Args:
        clusters: With units and ellipses; of more than a thousand units the first are drawn.
        owners: Of each unit of the sample: its cluster, source or domain, from 0.
        names: Of the owners; their colours repeat after twenty, and with more than ten there is no legend.
        name: Of the figure.
        alt: What it shows.
        ellipse_owners: Of each cluster, whose colour its ellipse gets; by default all are grey.
    """
    units = clusters.sample.head(POINTS)
    owner_of = np.asarray(owners)[: len(units)]

    def paint(axes: "Axes") -> None:
        from matplotlib import colormaps
        from matplotlib.patches import Ellipse

        palette = colormaps["tab10" if len(names) <= 10 else "tab20"].colors  # type: ignore[attr-defined]
        for owner, label in enumerate(names):
            rows = units[owner_of == owner]
            colour = palette[owner % len(palette)]
            axes.scatter(rows["x"], rows["y"], s=7, color=colour, linewidths=0, alpha=0.7, label=shorten(label))
        fills = [palette[owner % len(palette)] for owner in ellipse_owners] or [COLOURS["base"]] * clusters.k
        for row, fill in zip(each(clusters.ellipses), fills, strict=False):
            size = {"width": row.width, "height": row.height, "angle": row.angle}
            axes.add_patch(Ellipse((row.x, row.y), **size, facecolor=(fill, 0.2), edgecolor=COLOURS["ink"]))
            axes.annotate(str(row.cluster), (row.x, row.y), ha="center", va="center", fontsize=9, fontweight="bold")
        axes.set_aspect("equal", "datalim")
        x, y = map(percent, clusters.variance)
        axes.set(xlabel=f"first component ({x} of the variance)", ylabel=f"second ({y})")
        if len(names) <= 10:
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, handletextpad=0.1, markerscale=2)

    return Figure(name, alt, (4.6, 4.4), paint)


def confusion_figure(counts: np.ndarray, domains: Sequence[str], name: str) -> Figure:
    """Draw the share of each true domain's units by the domain of their cluster.

    Args:
        counts: Of :func:`dana.studies.clusters.domains.confusion`.
        domains: Their names.
        name: Of the figure.
    """
    labels = [shorten(domain, 14) for domain in domains]

    def paint(axes: "Axes") -> None:
        from sklearn.metrics import ConfusionMatrixDisplay

        display = ConfusionMatrixDisplay(counts / np.maximum(counts.sum(1, keepdims=True), 1), display_labels=labels)
        display.plot(cmap="Blues", ax=axes, xticks_rotation=45, values_format=".0%", colorbar=False)
        axes.set(xlabel="domain of the cluster", ylabel="true domain")

    side = max(3.0, 1.2 + 0.34 * len(labels))
    alt = f"Units of {len(labels)} true domains by the domain that their cluster is mapped to."
    return Figure(name, alt, (side + 0.6, side), paint)
