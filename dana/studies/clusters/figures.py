"""Figures of clusters: units on a map under the mixture's ellipses, and true domains against clusters."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dana.report.figures import shorten
from dana.report.page import each, percent
from dana.report.svg import COLOURS, Figure
from dana.studies.clusters.description import ClusterDescription

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 1000  # drawn


def cluster_map(
    clusters: ClusterDescription,
    owners: Sequence[int],
    names: Sequence[str],
    name: str,
    alt: str,
    ellipse_owners: Sequence[int] = (),
) -> Figure:
    """Units by two principal components, coloured by an owner each, under the ellipses of the clusters.

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
            axes.add_patch(Ellipse((row.x, row.y), **size, facecolor=fill, alpha=0.2, linewidth=0))
            axes.add_patch(Ellipse((row.x, row.y), **size, fill=False, edgecolor=COLOURS["ink"], linewidth=0.8))
            axes.annotate(str(row.cluster), (row.x, row.y), ha="center", va="center", fontsize=9, fontweight="bold")
        axes.set_aspect("equal", "datalim")
        x, y = map(percent, clusters.variance)
        axes.set(xlabel=f"first component ({x} of the variance)", ylabel=f"second ({y})")
        if len(names) <= 10:
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, handletextpad=0.1, markerscale=2)

    return Figure(name, alt, (4.6, 4.4), paint)


def confusion_figure(counts: np.ndarray, domains: Sequence[str], name: str) -> Figure:
    """Units of each true domain by the domain of their cluster: shares of the row as shades, counts as numbers.

    Args:
        counts: Of :func:`dana.studies.clusters.domains.confusion`.
        domains: Their names.
        name: Of the figure.
    """
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    labels = [shorten(domain, 14) for domain in domains]

    def paint(axes: "Axes") -> None:
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        for row, column in np.ndindex(*counts.shape):
            colour = "white" if shares[row, column] > 0.6 else COLOURS["ink"]
            size = 9 if len(labels) <= 8 else 5
            axes.text(column, row, f"{counts[row, column]:,}", ha="center", va="center", fontsize=size, color=colour)
        axes.set_xticks(range(len(labels)), labels, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(labels)), labels)
        axes.set(xlabel="domain of the cluster", ylabel="true domain")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)

    side = max(3.0, 1.2 + 0.34 * len(labels))
    alt = f"Units of {len(labels)} true domains by the domain that their cluster is mapped to."
    return Figure(name, alt, (side + 0.6, side), paint)
