"""Clusters against true domains on the page: purity, who is taken for whom, what outliers look like."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dana.core.errors import ConfigError, suggestion
from dana.report.page import Column, Section, SourceExamples, Table, each, number, percent
from dana.report.svg import Figure
from dana.studies.clusters.cluster_examples import quoted
from dana.studies.clusters.cluster_figures import confusion_figure
from dana.studies.clusters.cluster_frames import ClusterFrames
from dana.studies.clusters.outliers import EVERY_OUTLIER, EVERY_UNIT, outlier_examples, outlier_table, surface_of
from dana.studies.clusters.purity import (
    confusion,
    contingency,
    domain_purity,
    majority,
    mean_and_deviation,
    purity_floor,
)

ALL = ["all"]
EXAMPLES = 3  # of a pair


@dataclass(frozen=True)
class TrueDomains:
    """Sources that are domains.

    Attributes:
        names: In alphabetical order.
    """

    names: tuple[str, ...]

    @classmethod
    def among(cls, asked: Sequence[str], sources: Collection[str]) -> "TrueDomains | None":
        """The domains that were asked for; None if none were.

        Args:
            asked: Sources, or ``all``.
            sources: Of the corpus.

        Raises:
            ConfigError: If one is unknown, or there are fewer than two.
        """
        if not asked:
            return None
        names = sorted(sources) if list(asked) == ALL else sorted(set(asked))
        for name in names:
            if name not in sources:
                raise ConfigError(f"true_domains={name!r}: no source of the text{suggestion(name, sources)}")
        if len(names) < 2:
            raise ConfigError(f"true_domains={names[0]!r}: one domain; with a single one every cluster is pure")
        return cls(tuple(names))

    def codes(self, frames: ClusterFrames) -> np.ndarray:
        """Domain of each unit of the sample, int of shape (units,); -1 for other sources."""
        places = {name: at for at, name in enumerate(self.names)}
        return np.array([places.get(source, -1) for source in frames.sample["source"]], dtype=np.int64)

    def counts(self, frames: ClusterFrames) -> np.ndarray:
        """All units by cluster and domain, int64 of shape (k, domains)."""
        return frames.counts[:, [frames.sources.index(name) for name in self.names]]

    def floor(self, frames: ClusterFrames) -> float:
        """The least that the purity of the sample can be."""
        codes = self.codes(frames)
        return float(np.bincount(codes[codes >= 0]).max() / (codes >= 0).sum())

    def purities(self, frames: ClusterFrames) -> pd.DataFrame:
        """A row a number of clusters: k, purity (mean over seeds, of the sample), purity_std (ddof 1)."""
        codes = self.codes(frames)
        known = codes >= 0
        found: dict[int, list[float]] = {}
        for fit in each(frames.fits):
            clusters = frames.assignments[f"k{fit.k}-{fit.seed}"].to_numpy()[known]
            counts = contingency(clusters, codes[known], fit.k, len(self.names))
            found.setdefault(fit.k, []).append(domain_purity(counts))
        rows = [(k, *mean_and_deviation(values)) for k, values in found.items()]
        return pd.DataFrame(rows, columns=["k", "purity", "purity_std"])


def domain_sections(frames: ClusterFrames, domains: TrueDomains) -> list[Section]:
    """What is said of clusters and true domains."""
    drawn = confusion_figure(confusion(domains.counts(frames)), domains.names)
    return [_purity(frames, domains, drawn), _outliers(frames, domains)]


def _purity(frames: ClusterFrames, domains: TrueDomains, drawn: Figure) -> Section:
    counts = domains.counts(frames)
    taken = confusion(counts)
    shares = taken / np.maximum(taken.sum(1, keepdims=True), 1)
    frame = pd.DataFrame(taken, columns=domains.names)
    frame = pd.concat([frame, pd.DataFrame(shares, columns=[f"{name} share" for name in domains.names])], axis=1)
    frame.insert(0, "true_domain", domains.names)
    columns = [Column("true domain", lambda row: row[0], numeric=False)]
    columns += [Column(name, _count_and_share(at, len(domains.names))) for at, name in enumerate(domains.names, 1)]
    mapped = ", ".join(f"{at} {domains.names[domain]}" for at, domain in enumerate(majority(counts)))
    said = (
        f"Purity is {percent(domain_purity(counts))}: so many of {counts.sum():,} units are of the domain that is most "
        f"frequent in their cluster. It cannot be below {percent(purity_floor(counts))}, the largest domain's share. "
        f"Clusters by their domain: {mapped}."
    )
    caption = "Units of each true domain by the domain of their cluster, and their share of the row."
    table = Table("cluster_confusion", caption, frame, tuple(columns))
    return Section("Do clusters find the domains that are known?", said, (drawn,), (table,))


def _count_and_share(at: int, count: int) -> Callable[[Any], str]:
    return lambda row: f"{row[at]:,} ({percent(row[at + count], 0)})"


def _outliers(frames: ClusterFrames, domains: TrueDomains) -> Section:
    codes = domains.codes(frames)
    sample = frames.sample[codes >= 0].reset_index(drop=True)
    texts, true = sample["text"].tolist(), codes[codes >= 0]
    assigned = majority(domains.counts(frames))[sample["cluster"]]
    frame = outlier_table(true, assigned, domains.names, surface_of(texts))
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
    said = "No unit is in a cluster of another domain."
    if outliers.units:
        said = (
            f"In a cluster of another domain: {outliers.units:,} of {len(sample):,} units, most of them in one of "
            f"{frame['domain'][0]}. They have {number(outliers.tokens, 1)} tokens on average, all units "
            f"{number(every.tokens, 1)}."
        )
    found = outlier_examples(true, assigned, sample["own"].to_numpy(), texts, EXAMPLES)
    shown = tuple(
        SourceExamples(
            f"{domains.names[one]} in a cluster of {domains.names[other]}", tuple(quoted(sample, at) for at in places)
        )
        for (one, other), places in found.items()
    )
    examples = (("in a cluster of another domain, nearest to its centre", shown),) if shown else ()
    table = Table("cluster_outliers", caption, frame, columns)
    return Section("Which units are taken for another domain's?", said, (), (table,), examples)
