"""The page on clusters: what a pool is made of, which parts are alike, what is an outlier, and why so many clusters."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dana.core.origin import package_versions
from dana.report.page import Column, Finding, Report, Section, Shown, SourceExamples, Table, number, percent
from dana.report.svg import Figure
from dana.studies.clusters.cluster_domains import TrueDomains, domain_sections
from dana.studies.clusters.cluster_examples import quoted
from dana.studies.clusters.cluster_figures import MOST_COLOURS, cluster_map
from dana.studies.clusters.cluster_frames import BETWEEN, ClusterFrames
from dana.studies.clusters.neighbours import nearest_clusters
from dana.studies.clusters.representatives import representatives

EXAMPLES = 3  # of each cluster
OUTLIERS = 10
FIGURES = "figures"  # folder of their files


def cluster_report(name: str, frames: ClusterFrames, domains: TrueDomains | None = None) -> Report:
    """Everything that the page says.

    Args:
        name: Of the run.
        frames: Of the clusters.
        domains: Where they are known.
    """
    table = cluster_table(frames)
    sections = [
        _made_of(frames, table),
        _examples(frames),
        _alike(frames),
        _outliers(frames),
        _how_many(frames, domains),
    ]
    sections += [] if domains is None else domain_sections(frames, domains)
    verdict, numbers = _verdict(frames, table.frame), _highlights(frames)
    return Report(name, verdict, numbers, sections, package_versions(), figure_folder=FIGURES)


def _verdict(frames: ClusterFrames, table: pd.DataFrame) -> str:
    largest = int(np.argmax(table["units"]))
    return (
        f"{table['units'].sum():,} units fall into {frames.k} clusters; the largest, {frames.names[largest]!r}, holds "
        f"{percent(table['share'].iloc[largest])} of them."
    )


def _highlights(frames: ClusterFrames) -> list[Finding]:
    between = frames.units["between"].sum() / frames.units["units"].sum()
    found = [Finding(percent(between), f"of the units lie between clusters (responsibility below {BETWEEN})")]
    kept = frames.choice[frames.choice["chosen"]].iloc[0]
    if np.isfinite(kept["stability"]):
        found.append(Finding(number(kept["stability"], 2), "agreement of the seeds' fits (adjusted Rand index)"))
    return found


def cluster_table(frames: ClusterFrames) -> Table:
    """A row a cluster: its size, its sources, how sure its units are, its neighbour."""
    counts, nearest = frames.counts, nearest_clusters(frames.distances)
    sizes = counts.sum(1)
    sums = frames.units.groupby("cluster")[["responsibility", "log_density", "between"]].sum()
    means = sums.reindex(range(frames.k), fill_value=0).div(np.maximum(sizes, 1), axis=0)
    order = np.argsort(-counts, axis=1, kind="stable")[:, :2]
    frame = pd.DataFrame(
        {
            "cluster": range(frames.k),
            "name": frames.names,
            "units": sizes,
            "share": sizes / sizes.sum(),
            "sources": [_sources(frames.sources, own, places) for own, places in zip(counts, order, strict=True)],
            "responsibility": means["responsibility"],
            "between": means["between"],
            "log_density": means["log_density"],
            "nearest": nearest,
            "nearest_name": [frames.names[at] for at in nearest],
        }
    )
    columns = (
        Column("", lambda row: str(row.cluster)),
        Column("words that set it apart", lambda row: row.name, numeric=False),
        Column("units", lambda row: number(row.units, 0)),
        Column("share", lambda row: percent(row.share)),
        Column("mostly from", lambda row: row.sources, numeric=False),
        Column("between", lambda row: percent(row.between)),
        Column("nearest", lambda row: f"{row.nearest}: {row.nearest_name}", numeric=False),
    )
    caption = (
        "Name: the words with the largest class-based TF-IDF of those that come three times as often as elsewhere. "
        f"Between: units whose likeliest cluster has a responsibility below {BETWEEN}. Nearest: the cluster with the "
        "nearest mean."
    )
    return Table("clusters", caption, frame, columns)


def _sources(sources: Sequence[str], own: np.ndarray, places: np.ndarray) -> str:
    return ", ".join(f"{sources[at]} {percent(own[at] / own.sum(), 0)}" for at in places if own[at])


def _maps(frames: ClusterFrames) -> tuple[Figure, ...]:
    """By cluster, and by source where several, but not too many, are known."""
    shown = f"The ellipses of {frames.k} clusters over units by two principal components, coloured by"
    by_cluster = cluster_map(
        frames, frames.sample["cluster"].tolist(), frames.names, "cluster_map", f"{shown} cluster."
    )
    if not 1 < len(frames.sources) <= MOST_COLOURS:
        return (by_cluster,)
    owners = [frames.sources.index(source) for source in frames.sample["source"]]
    by_source = cluster_map(frames, owners, frames.sources, "cluster_map_sources", f"{shown} source.")
    return by_cluster, by_source


def _made_of(frames: ClusterFrames, table: Table) -> Section:
    said = (
        "On the map each point is a unit, each ellipse the cluster of its number, which holds 63 % of what the cluster "
        "expects; clusters that overlap there may lie apart in other directions."
    )
    return Section("What is in the pool?", said, _maps(frames), (table, *_files(frames)))


def _files(frames: ClusterFrames) -> list[Table]:
    """Numbers that are not shown, for their files."""
    counts = pd.DataFrame(frames.counts, columns=frames.sources).rename_axis("cluster").reset_index()
    return [
        Table("cluster_sources", "Units by cluster and source.", counts),
        Table("cluster_map", "Units.", frames.sample[["doc_id", "source", "unit", "cluster", "x", "y"]]),
        Table("cluster_ellipses", "Ellipses on the map.", frames.ellipses),
        Table("cluster_words", "Words of the clusters.", frames.words),
        Table("cluster_fits", "Fits.", frames.fits),
    ]


def _examples(frames: ClusterFrames) -> Section:
    sample = frames.sample
    nearest = _shown(frames, -sample["own"].to_numpy(), EXAMPLES)
    farthest = _shown(frames, sample["log_density"].to_numpy(), EXAMPLES)
    said = (
        "Units of the sample that was fitted on, of distinct documents, of at least eight words if a cluster has such."
    )
    examples = (("nearest to the cluster's centre", nearest), ("assigned to it, but far from everything", farthest))
    return Section("What does each part look like?", said, examples=tuple(pair for pair in examples if pair[1]))


def _shown(frames: ClusterFrames, order: np.ndarray, most: int) -> Shown:
    sample = frames.sample
    clusters = sample["cluster"].to_numpy()
    found = representatives(sample["text"].tolist(), sample["doc_id"].tolist(), clusters, order, most)
    titled = [(f"{cluster}: {frames.names[cluster]}", places) for cluster, places in found.items() if places]
    return tuple(SourceExamples(title, tuple(quoted(sample, at) for at in places)) for title, places in titled)


def _alike(frames: ClusterFrames) -> Section:
    pairs = [(frames.distances[one, other], one, other) for one in range(frames.k) for other in range(one)]
    rows = [
        {"cluster": other, "name": frames.names[other], "other": one, "other_name": frames.names[one], "distance": far}
        for far, one, other in sorted(pairs)
    ]
    columns = (
        Column("cluster", lambda row: f"{row.cluster}: {row.name}", numeric=False),
        Column("and", lambda row: f"{row.other}: {row.other_name}", numeric=False),
        Column("distance", lambda row: number(row.distance)),
    )
    caption = "Euclidean distance between the means of two clusters, in the space in which they were fitted."
    table = Table("cluster_distances", caption, pd.DataFrame(rows), columns, most=10)
    nearest, farthest = rows[0], rows[-1]
    said = f"Nearest to each other are {nearest['name']!r} and {nearest['other_name']!r}"
    if len(rows) > 1:
        said += f", farthest apart {farthest['name']!r} and {farthest['other_name']!r}"
    return Section("Which parts are alike?", f"{said}.", (), (table,))


def _outliers(frames: ClusterFrames) -> Section:
    sample = frames.sample
    everything = np.zeros(len(sample), dtype=int)
    found = representatives(
        sample["text"].tolist(), sample["doc_id"].tolist(), everything, sample["log_density"].to_numpy(), OUTLIERS
    )
    means = sample.groupby("cluster")["log_density"].describe(percentiles=[0.01, 0.5]).reset_index()
    frame = means[["cluster", "1%", "50%"]].set_axis(["cluster", "lowest_percent", "median"], axis=1)
    frame.insert(1, "name", [frames.names[cluster] for cluster in frame["cluster"]])
    columns = (
        Column("cluster", lambda row: f"{row.cluster}: {row.name}", numeric=False),
        Column("median log density", lambda row: number(row.median, 1)),
        Column("1 % lie below", lambda row: number(row.lowest_percent, 1)),
    )
    caption = "Natural logarithm of the mixture's density at a unit, of the sample; clusters/ has it for every unit."
    shown = (SourceExamples("in no cluster's middle", tuple(quoted(sample, at) for at in found[0])),)
    said = "The less dense the mixture is at a unit, the less the unit is like any part of the pool."
    table = Table("cluster_densities", caption, frame, columns)
    examples = (("farthest from everything", shown),) if found[0] else ()
    return Section("What is an outlier?", said, (), (table,), examples)


def _how_many(frames: ClusterFrames, domains: TrueDomains | None) -> Section:
    frame = frames.choice.copy()
    columns = [
        Column("clusters", lambda row: str(row.k)),
        Column("BIC", lambda row: number(row.bic, 0)),
        Column("stability", lambda row: number(row.stability, 2)),
    ]
    caption = (
        "BIC: the lower, the better, of the likeliest fit. Stability: mean adjusted Rand index between seeds, 1 "
        "where all agree, 0 by chance."
    )
    if domains is not None:
        frame = frame.merge(domains.purities(frames), on="k")
        columns.append(Column("purity", lambda row: f"{percent(row.purity)} ± {number(100 * row.purity_std, 1)}"))
        caption += (
            f" Purity: of the {len(frames.sample):,} units fitted on, mean and standard deviation (ddof 1) over the "
            f"seeds, in percent; it cannot be below {percent(domains.floor(frames))}."
        )
    table = Table("cluster_choice", caption, frame, tuple(columns), tuple(frame["chosen"]))
    return Section("Why so many clusters?", f"{frames.reason}.", (), (table,))
