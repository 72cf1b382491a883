"""Matplotlib drawings as inline SVG with the page's colours; the same numbers give the same bytes."""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.core.artifacts import write_text
from dana.core.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

# Drawn in these colours, shown in the page's variables of these names, so that a dark page can lighten them.
# The palette is Okabe and Ito's, which colour-blind readers can tell apart.
COLOURS = {
    "ink": "#1b1f24",
    "rule": "#d0d4d9",
    "base": "#767676",
    "general": "#0072b2",
    "random": "#e69f00",
    "dana": "#009e73",
    "task": "#cc79a7",
    "planted": "#d55e00",
    "other": "#56b4e9",
}
INK = COLOURS["ink"]
SETTINGS = {
    "svg.fonttype": "none",  # text stays text: it can be selected, searched and read aloud
    "svg.hashsalt": "dana",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.constrained_layout.w_pad": 0.1,  # inches: the page's font may be larger than the one measured with
}


@dataclass(frozen=True)
class Figure:
    """One figure.

    Attributes:
        name: Its own among the page's figures.
        alt: What it shows, for those who do not see it.
        svg: The drawing.
    """

    name: str
    alt: str
    svg: str


def draw_figure(name: str, alt: str, size: tuple[float, float], paint: Callable[["Axes"], None]) -> Figure:
    """A figure.

    Args:
        name: Its own among the page's figures; prefixes all ids.
        alt: What it shows.
        size: Width and height in inches.
        paint: Draws on the axes, in :data:`COLOURS`.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    with _painted(size, paint) as drawing:
        FigureCanvasSVG(drawing)
        for patch in (drawing.patch, drawing.axes[0].patch):
            patch.set_visible(False)
        stream = io.StringIO()
        drawing.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return Figure(name, alt, inline(stream.getvalue(), name, alt, size))


def draw_png(size: tuple[float, float], paint: Callable[["Axes"], None]) -> bytes:
    """The same drawing as pixels, 200 an inch, on white.

    Args:
        size: See :func:`draw_figure`.
        paint: The same.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with _painted(size, paint) as drawing:
        FigureCanvasAgg(drawing)
        stream = io.BytesIO()
        drawing.savefig(stream, format="png", dpi=200, metadata={"Software": None})
    return stream.getvalue()


@contextmanager
def _painted(size: tuple[float, float], paint: Callable[["Axes"], None]) -> Iterator["Drawing"]:
    """A painted drawing, and the settings it must be saved with."""
    import matplotlib
    from matplotlib.figure import Figure as Drawing

    settings: Any = SETTINGS
    with matplotlib.rc_context(settings):
        drawing = Drawing(figsize=size, layout="constrained")
        paint(drawing.subplots())
        yield drawing


def inline(svg: str, name: str, alt: str, size: tuple[float, float]) -> str:
    """A drawing made fit for a page: own ids, the page's colours and font, any width."""
    from markupsafe import escape

    width, height = size
    body = svg[svg.index(">", svg.index("<svg")) + 1 :].strip()
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r" font-family: [^;\"]*;", "", body)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", body)
    for variable, colour in COLOURS.items():
        body = re.sub(rf"(fill|stroke): {colour}", rf"\g<1>: var(--{variable}, {colour})", body)
    head = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img"'
    frame = f'viewBox="0 0 {width * 72:g} {height * 72:g}" style="max-width: {width:g}in"'
    return f'<svg {head} aria-label="{escape(alt)}" {frame}>{body}'


@dataclass(frozen=True)
class Drawn:
    """A figure that is also a file.

    Attributes:
        name: Stem of its files.
        alt: What it shows.
        size: Inches.
        paint: Draws it on axes.
    """

    name: str
    alt: str
    size: tuple[float, float]
    paint: Callable[["Axes"], None]

    @property
    def figure(self) -> Figure:
        """For a page."""
        return draw_figure(self.name, self.alt, self.size, self.paint)

    @property
    def png(self) -> bytes:
        """As pixels."""
        return draw_png(self.size, self.paint)

    def write(self, folder: Path) -> None:
        """Write ``NAME.svg`` and ``NAME.png``."""
        write_text(folder / f"{self.name}.svg", self.figure.svg + "\n")
        with replacing(folder / f"{self.name}.png") as temporary:
            temporary.write_bytes(self.png)
