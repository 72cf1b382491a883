"""Figures of clusters: units on a map with the mixture's ellipses, and true domains against clusters."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pandas as pd

from dana.report.figures import shorten
from dana.report.page import each, percent
from dana.report.svg import COLOURS, Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 1000  # drawn
MOST_COLOURS = 20
SIZE = (4.6, 4.4)


class Mapped(Protocol):
    """Units and clusters on a plane: learned clusters, or what a page read of them."""

    @property
    def sample(self) -> pd.DataFrame:
        """A row a unit, with x and y."""

    @property
    def ellipses(self) -> pd.DataFrame:
        """See :class:`dana.studies.clusters.plane.Plane`."""

    @property
    def variance(self) -> tuple[float, float]:
        """Shares of the units' variance along x and y."""


def colours_of(count: int) -> list[str]:
    """So many colours; they repeat after twenty."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    palette = colormaps["tab10" if count <= 10 else "tab20"].colors  # type: ignore[attr-defined]
    return [to_hex(palette[at % len(palette)]) for at in range(count)]


def cluster_map(
    mapped: Mapped,
    owners: Sequence[int],
    names: Sequence[str],
    name: str,
    alt: str,
    ellipse_owners: Sequence[int] = (),
) -> Figure:
    """Units by two principal components, coloured by an owner each, under the ellipses of the clusters.

    Args:
        mapped: Units and ellipses; of more than a thousand units the first are drawn.
        owners: Of each unit of the sample: its cluster, source or domain, from 0.
        names: Of the owners; with more than ten there is no legend.
        name: Of the figure.
        alt: What it shows.
        ellipse_owners: Of each cluster, whose colour its ellipse gets; by default all are grey.
    """
    colours = np.array(colours_of(len(names)))
    shown = mapped.sample.head(POINTS)
    own = np.asarray(owners)[: len(shown)]

    def paint(axes: "Axes") -> None:
        for at, label in enumerate(names):
            rows = shown[own == at]
            axes.scatter(rows["x"], rows["y"], s=7, color=colours[at], linewidths=0, alpha=0.7, label=shorten(label))
        _ellipses(axes, mapped.ellipses, [colours[owner] for owner in ellipse_owners])
        axes.set_aspect("equal", "datalim")
        x, y = mapped.variance
        axes.set(xlabel=f"first component ({percent(x)} of the variance)", ylabel=f"second ({percent(y)})")
        if len(names) <= 10:
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, handletextpad=0.1, markerscale=2)

    return Figure(name, alt, SIZE, paint)


def _ellipses(axes: "Axes", ellipses: pd.DataFrame, fills: Sequence[str]) -> None:
    """Each component's ellipse with its number."""
    from matplotlib.patches import Ellipse

    for row, fill in zip(each(ellipses), fills or [COLOURS["base"]] * len(ellipses), strict=True):
        place = (row.x, row.y)
        size = {"width": row.width, "height": row.height, "angle": row.angle}
        axes.add_patch(Ellipse(place, **size, facecolor=fill, alpha=0.2, linewidth=0))
        axes.add_patch(Ellipse(place, **size, fill=False, edgecolor=COLOURS["ink"], linewidth=0.8))
        axes.annotate(str(row.cluster), place, ha="center", va="center", fontsize=9, fontweight="bold")


def confusion_figure(counts: np.ndarray, domains: Sequence[str]) -> Figure:
    """Units of each true domain by the domain of their cluster: shares of the row as shades, counts as numbers.

    Args:
        counts: Of :func:`dana.studies.clusters.purity.confusion`.
        domains: Names.
    """
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    labels = [shorten(name, 14) for name in domains]

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
    return Figure("cluster_confusion", alt, (side + 0.6, side), paint)
