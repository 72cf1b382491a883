"""Curve of a choice of beta to a figure: perplexity and in-domain share by how much of the pool is kept."""

from typing import TYPE_CHECKING

import pandas as pd

from dana.report.figures import WIDTH
from dana.report.svg import COLOURS, Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def amount_curve(curve: pd.DataFrame, beta: float) -> Figure:
    """Perplexity of held-out task text by cut, of ranked and of random text; the share that is like the task beside it.

    Args:
        curve: A row a cut: :class:`dana.weighting.amount.Cut`.
        beta: What was chosen.
    """

    def paint(axes: "Axes") -> None:
        share = 100 * curve["share"]
        axes.plot(share, curve["perplexity_random"], color=COLOURS["random"], marker="D", label="random text")
        axes.plot(share, curve["perplexity"], color=COLOURS["dana"], marker="o", label="best text")
        axes.axvline(100 * beta, color=COLOURS["base"], linestyle=":", label=f"chosen: {100 * beta:.3g} %")
        axes.set(
            xscale="log", yscale="log", xlabel="% of the pool's units kept", ylabel="perplexity of held-out task text"
        )
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        lines, labels = axes.get_legend_handles_labels()
        if curve["in_domain"].notna().any():
            beside = axes.twinx()
            lines += beside.plot(share, 100 * curve["in_domain"], color=COLOURS["planted"], linestyle="--")
            beside.set(ylim=(0, 103), ylabel="% of what is kept that is like the task")
            beside.spines["right"].set_visible(True)
            beside.patch.set_visible(False)
            labels.append("like the task, %")
        axes.legend(lines, labels, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2)

    best = float(curve["share"].iloc[curve["perplexity"].argmin()])
    alt = f"Perplexity is lowest at {100 * best:.3g} % of the pool; {100 * beta:.3g} % is chosen"
    return Figure("beta", alt, (WIDTH, 3.4), paint)
