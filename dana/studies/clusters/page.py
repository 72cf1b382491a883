"""The page on clusters: what a pool is made of, which parts are alike, what is an outlier, and why so many clusters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dana.core.artifacts import open_artifact
from dana.core.registry import package_versions
from dana.core.schemas import parts, read_batches
from dana.report.page import (
    Column,
    Finding,
    Report,
    Section,
    Shown,
    SourceExamples,
    Table,
    UnitExample,
    each,
    number,
    percent,
)
from dana.report.unit_texts import beginning, is_readable
from dana.studies.clusters.description import FOLDER, ClusterDescription
from dana.studies.clusters.domains import (
    EVERY_OUTLIER,
    EVERY_UNIT,
    confusion,
    contingency,
    domain_purity,
    majority,
    outlier_examples,
    outlier_table,
    surface_of,
)
from dana.studies.clusters.figures import cluster_map, confusion_figure

BETWEEN = 0.9  # a unit whose likeliest cluster has less responsibility lies between two
MOST_SOURCES = 20  # that a map shows
EXAMPLES = 3  # of a cluster, or of a pair of domains
OUTLIERS = 10


@dataclass(frozen=True)
class ClusteredPool:
    """What a page on clusters is made from.

    Attributes:
        clusters: What was learned of the sample.
        units: All units by cluster and source, a row each pair: units, between (units whose responsibility is below
            0.9), and the sums of responsibility and log_density.
    """

    clusters: ClusterDescription
    units: pd.DataFrame

    @property
    def sources(self) -> list[str]:
        """Sources of the units, in alphabetical order."""
        return sorted(self.units["source"].unique())

    @property
    def counts(self) -> pd.DataFrame:
        """Units, a row a cluster, a column a source."""
        counts = self.units.pivot_table(values="units", index="cluster", columns="source", aggfunc="sum", fill_value=0)
        return counts.reindex(index=range(self.clusters.k), fill_value=0)


def read_pool(folder: Path) -> ClusteredPool:
    """Read what :class:`dana.studies.clusters.stage.Clustering` wrote; of the table a batch at a time is in memory.

    Raises:
        ArtifactError: If there is none, or it is damaged.
    """
    manifest = open_artifact(folder, "clusters", "dana clusters --general ... --out DIR").manifest
    sums = ["units", "between", "responsibility", "log_density"]
    batches = []
    for part in parts(folder):
        for batch in read_batches(part, ["cluster", "source", "responsibility", "log_density"]):
            between = pc.cast(pc.less(batch["responsibility"], BETWEEN), pa.int64())
            table = pa.table(batch).append_column("between", between)
            table = table.append_column("units", pa.array(np.ones(len(table), int)))
            sorts = table.group_by(["cluster", "source"], use_threads=False)
            batches.append(sorts.aggregate([(name, "sum") for name in sums]).to_pandas())
    units = pd.concat(batches).rename(columns=lambda name: name.removesuffix("_sum"))
    units = units.groupby(["cluster", "source"], as_index=False).sum()
    return ClusteredPool(ClusterDescription.load(folder / FOLDER, manifest), units)


def cluster_report(name: str, pool: ClusteredPool, domains: Sequence[str] = ()) -> Report:
    """Everything that the page says.

    Args:
        name: Of the run.
        pool: Clusters and their units.
        domains: Sources that are true domains, where they are known.
    """
    table = cluster_table(pool)
    largest = table.frame.iloc[table.frame["units"].argmax()]
    verdict = (
        f"{table.frame['units'].sum():,} units fall into {pool.clusters.k} clusters; the largest, {largest['name']!r}, "
        f"holds {percent(largest['share'])} of them."
    )
    between = percent(pool.units["between"].sum() / pool.units["units"].sum())
    highlights = [Finding(between, f"of the units lie between clusters (responsibility below {BETWEEN})")]
    stability = pool.clusters.choice.query("chosen")["stability"].item()
    if np.isfinite(stability):
        highlights.append(Finding(number(stability, 2), "agreement of the seeds' fits (adjusted Rand index)"))
    sections = [_made_of(pool, table), _examples(pool), _alike(pool), _outliers(pool), _how_many(pool, domains)]
    if domains:
        sections += [_purity(pool, domains), _taken_for_another(pool, domains)]
    return Report(name, verdict, highlights, sections, package_versions(), "figures")


def cluster_table(pool: ClusteredPool) -> Table:
    """A row a cluster: its size, its sources, how sure its units are, its neighbour."""
    counts, names, distances = pool.counts, pool.clusters.names, pool.clusters.distances
    sizes = counts.sum(axis=1)
    nearest = (distances + np.diag(np.full(len(distances), np.inf))).argmin(1)
    sums = pool.units.groupby("cluster")[["responsibility", "between", "log_density"]].sum()
    frame = pd.DataFrame({"cluster": counts.index, "name": names, "units": sizes, "share": sizes / sizes.sum()})
    frame["sources"] = [_largest_sources(row) for _, row in counts.iterrows()]
    frame = frame.join(sums.reindex(counts.index, fill_value=0).div(sizes.clip(lower=1), axis=0))
    frame = frame.assign(nearest=nearest, nearest_name=[names[cluster] for cluster in nearest])
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


def _largest_sources(units: pd.Series) -> str:
    """The two sources that most units of a cluster are of."""
    largest = units[units > 0].sort_values(ascending=False, kind="stable").head(2)
    return ", ".join(f"{source} {percent(count / units.sum(), 0)}" for source, count in largest.items())


def _made_of(pool: ClusteredPool, table: Table) -> Section:
    """The map by cluster, and by source where several, but not too many, are known; every number in files."""
    clusters, sample, sources = pool.clusters, pool.clusters.sample, pool.sources
    alt = f"The ellipses of {clusters.k} clusters over units by two principal components, coloured by"
    figures = [cluster_map(clusters, sample["cluster"].tolist(), clusters.names, "cluster_map", f"{alt} cluster.")]
    if 1 < len(sources) <= MOST_SOURCES:
        owners = [sources.index(source) for source in sample["source"]]
        figures.append(cluster_map(clusters, owners, sources, "cluster_map_sources", f"{alt} source."))
    files = (
        Table("cluster_sources", "Units by cluster and source.", pool.counts.reset_index()),
        Table("cluster_map", "Units.", sample[["doc_id", "source", "unit", "cluster", "x", "y"]]),
        Table("cluster_ellipses", "Ellipses on the map.", clusters.ellipses),
        Table("cluster_words", "Words of the clusters.", clusters.words),
        Table("cluster_fits", "Fits.", clusters.fits),
    )
    answer = (
        "On the map each point is a unit, each ellipse the cluster of its number, which holds 63 % of what the cluster "
        "expects; clusters that overlap there may lie apart in other directions."
    )
    return Section("What is in the pool?", answer, tuple(figures), (table, *files))


def _examples(pool: ClusteredPool) -> Section:
    clusters, sample = pool.clusters, pool.clusters.sample
    titles = [f"{cluster}: {name}" for cluster, name in enumerate(clusters.names)]
    groups = sample["cluster"].to_numpy()
    answer = (
        "Units of the sample that was fitted on, of distinct documents, of at least eight words if a cluster has such."
    )
    examples = (
        ("nearest to the cluster's centre", _shown(sample, groups, titles, -sample["nearness"], EXAMPLES)),
        ("assigned to it, but far from everything", _shown(sample, groups, titles, sample["log_density"], EXAMPLES)),
    )
    return Section("What does each part look like?", answer, examples=tuple(pair for pair in examples if pair[1]))


def _shown(sample: pd.DataFrame, groups: np.ndarray, titles: Sequence[str], order: pd.Series, most: int) -> Shown:
    """The first units of each group, by its title."""
    places = representatives(sample["text"].tolist(), sample["doc_id"].tolist(), groups, order.to_numpy(), most)
    return tuple(_quoted(titles[group], sample.iloc[rows]) for group, rows in places.items() if rows)


def _quoted(title: str, units: pd.DataFrame) -> SourceExamples:
    """Units of the sample on one line each, with their log density."""
    examples = (
        UnitExample(beginning(" ".join(row.text.split())), f"log density {number(row.log_density, 1)}")
        for row in each(units)
    )
    return SourceExamples(title, tuple(examples))


def representatives(
    texts: Sequence[str], documents: Sequence[str], clusters: np.ndarray, order: np.ndarray, most: int
) -> dict[int, list[int]]:
    """The first units of each cluster in some order: of distinct documents and texts, readable ones.

    A cluster without a single readable unit, of headings or numbers say, is represented by what it has.

    Args:
        texts: Units.
        documents: Which document each is of; empty for plain texts, each of its own.
        clusters: int of shape (units,).
        order: Number of shape (units,): of a cluster the lowest come first.
        most: So many of each.

    Returns:
        Cluster to places of units, for every cluster that has some.
    """
    readable = np.array([is_readable(text) for text in texts], dtype=bool)
    able = readable | ~np.isin(clusters, np.unique(clusters[readable]))
    chosen: dict[int, list[int]] = {int(cluster): [] for cluster in np.unique(clusters)}
    seen: set[tuple[int, str]] = set()
    for place in np.argsort(order, kind="stable").tolist():
        cluster, text = int(clusters[place]), " ".join(texts[place].split())
        marks = {(cluster, text), *([(cluster, f"\0{documents[place]}")] if documents[place] else [])}
        if len(chosen[cluster]) < most and able[place] and not marks & seen:
            chosen[cluster].append(place)
            seen |= marks
    return chosen


def _alike(pool: ClusteredPool) -> Section:
    names, distances = pool.clusters.names, pool.clusters.distances
    one, other = np.tril_indices(len(names), -1)
    frame = pd.DataFrame({"cluster": other, "other": one, "distance": distances[one, other]})
    frame.insert(1, "name", [names[cluster] for cluster in other])
    frame.insert(3, "other_name", [names[cluster] for cluster in one])
    frame = frame.sort_values(["distance", "other", "cluster"], ignore_index=True)
    columns = (
        Column("cluster", lambda row: f"{row.cluster}: {row.name}", numeric=False),
        Column("and", lambda row: f"{row.other}: {row.other_name}", numeric=False),
        Column("distance", lambda row: number(row.distance)),
    )
    caption = "Euclidean distance between the means of two clusters, in the space in which they were fitted."
    nearest, farthest = frame.iloc[0], frame.iloc[-1]
    answer = f"Nearest to each other are {nearest['name']!r} and {nearest['other_name']!r}"
    if len(frame) > 1:
        answer += f", farthest apart {farthest['name']!r} and {farthest['other_name']!r}"
    table = Table("cluster_distances", caption, frame, columns, most=10)
    return Section("Which parts are alike?", f"{answer}.", (), (table,))


def _outliers(pool: ClusteredPool) -> Section:
    sample, names = pool.clusters.sample, pool.clusters.names
    densities = sample.groupby("cluster")["log_density"]
    frame = pd.DataFrame({"lowest_percent": densities.quantile(0.01), "median": densities.median()}).reset_index()
    frame.insert(1, "name", [names[cluster] for cluster in frame["cluster"]])
    columns = (
        Column("cluster", lambda row: f"{row.cluster}: {row.name}", numeric=False),
        Column("median log density", lambda row: number(row.median, 1)),
        Column("1 % lie below", lambda row: number(row.lowest_percent, 1)),
    )
    caption = "Natural logarithm of the mixture's density at a unit, of the sample; clusters/ has it for every unit."
    everything = np.zeros(len(sample), dtype=int)
    shown = _shown(sample, everything, ["in no cluster's middle"], sample["log_density"], OUTLIERS)
    answer = "The less dense the mixture is at a unit, the less the unit is like any part of the pool."
    table = Table("cluster_densities", caption, frame, columns)
    examples = (("farthest from everything", shown),) if shown else ()
    return Section("What is an outlier?", answer, (), (table,), examples)


def _how_many(pool: ClusteredPool, domains: Sequence[str]) -> Section:
    frame = pool.clusters.choice
    columns = [
        Column("clusters", lambda row: str(row.k)),
        Column("BIC", lambda row: number(row.bic, 0)),
        Column("stability", lambda row: number(row.stability, 2)),
    ]
    caption = (
        "BIC: the lower, the better, of the likeliest fit. Stability: mean adjusted Rand index between seeds, 1 "
        "where all agree, 0 by chance."
    )
    if domains:
        codes = domain_codes(pool, domains)
        known = codes[codes >= 0]
        purities = [
            domain_purity(
                contingency(pool.clusters.assignments[f"k{k}-{seed}"].to_numpy()[codes >= 0], known, k, len(domains))
            )
            for k, seed in pool.clusters.fits[["k", "seed"]].itertuples(index=False)
        ]
        by_k = pool.clusters.fits.assign(purity=purities).groupby("k", as_index=False)
        frame = frame.merge(by_k.agg(purity=("purity", "mean"), purity_std=("purity", "std")), on="k")
        columns.append(Column("purity", lambda row: f"{percent(row.purity)} ± {number(100 * row.purity_std, 1)}"))
        caption += (
            f" Purity: of the {len(codes):,} units fitted on, mean and standard deviation (ddof 1) over the "
            f"seeds, in percent; it cannot be below {percent(np.bincount(known).max() / len(known))}."
        )
    table = Table("cluster_choice", caption, frame, tuple(columns), tuple(frame["chosen"]))
    return Section("Why so many clusters?", f"{pool.clusters.reason}.", (), (table,))


def domain_codes(pool: ClusteredPool, domains: Sequence[str]) -> np.ndarray:
    """Domain of each unit of the sample, int of shape (units,); -1 for other sources."""
    return pd.Index(domains).get_indexer(pd.Index(pool.clusters.sample["source"]))


def _purity(pool: ClusteredPool, domains: Sequence[str]) -> Section:
    counts = pool.counts[list(domains)].to_numpy()
    taken = confusion(counts)
    shares = taken / np.maximum(taken.sum(1, keepdims=True), 1)
    frame = pd.DataFrame(taken, columns=list(domains))
    frame = frame.join(pd.DataFrame(shares, columns=[f"{name} share" for name in domains]))
    frame.insert(0, "true_domain", list(domains))
    columns = [Column("true domain", lambda row: row[0], numeric=False)]
    columns += [Column(name, _count_and_share(place, len(domains))) for place, name in enumerate(domains, 1)]
    mapped = ", ".join(f"{cluster} {domains[domain]}" for cluster, domain in enumerate(majority(counts)))
    answer = (
        f"Purity is {percent(domain_purity(counts))}: so many of {counts.sum():,} units are of the domain that is most "
        f"frequent in their cluster. It cannot be below {percent(counts.sum(0).max() / counts.sum())}, the largest "
        f"domain's share. Clusters by their domain: {mapped}."
    )
    caption = "Units of each true domain by the domain of their cluster, and their share of the row."
    figure = confusion_figure(taken, domains, "cluster_confusion")
    table = Table("cluster_confusion", caption, frame, tuple(columns))
    return Section("Do clusters find the domains that are known?", answer, (figure,), (table,))


def _count_and_share(place: int, count: int) -> Callable[[Any], str]:
    return lambda row: f"{row[place]:,} ({percent(row[place + count], 0)})"


def _taken_for_another(pool: ClusteredPool, domains: Sequence[str]) -> Section:
    codes = domain_codes(pool, domains)
    sample, true = pool.clusters.sample[codes >= 0].reset_index(drop=True), codes[codes >= 0]
    assigned = majority(pool.counts[list(domains)].to_numpy())[sample["cluster"]]
    texts = sample["text"].tolist()
    frame = outlier_table(true, assigned, domains, surface_of(texts))
    columns = (
        Column("in a cluster of", lambda row: row.domain, numeric=False),
        Column("units", lambda row: number(row.units, 0)),
        Column("share", lambda row: percent(row.share)),
        Column("mean tokens", lambda row: number(row.tokens, 1)),
        Column("with digits", lambda row: percent(row.digits)),
        Column("with pronoun or ?", lambda row: percent(row.conversational)),
    )
    caption = (
        f"Of the {len(sample):,} units fitted on: outliers by the domain that attracts them, though theirs is another. "
        "Tokens: words and single marks of punctuation. Pronoun: a personal one of English, in any of its forms."
    )
    rows = {row.domain: row for row in each(frame)}
    every, outliers = rows[EVERY_UNIT], rows[EVERY_OUTLIER]
    answer = "No unit is in a cluster of another domain."
    if outliers.units:
        answer = (
            f"In a cluster of another domain: {outliers.units:,} of {len(sample):,} units, most of them in one of "
            f"{frame['domain'][0]}. They have {number(outliers.tokens, 1)} tokens on average, all units "
            f"{number(every.tokens, 1)}."
        )
    pairs = outlier_examples(true, assigned, sample["nearness"].to_numpy(), texts, EXAMPLES)
    shown = tuple(
        _quoted(f"{domains[one]} in a cluster of {domains[other]}", sample.iloc[places])
        for (one, other), places in pairs.items()
    )
    examples = (("in a cluster of another domain, nearest to its centre", shown),) if shown else ()
    table = Table("cluster_outliers", caption, frame, columns)
    return Section("Which units are taken for another domain's?", answer, (), (table,), examples)
