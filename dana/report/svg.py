"""Render Matplotlib figures as inline SVG in the page's colours and as PNG; equal numbers give equal bytes."""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.core.artifacts import write_text
from dana.core.files import temp_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The SVG refers to CSS variables of these names, so that a dark page can lighten the colours.
# The palette is Okabe and Ito's, which colour-blind readers can tell apart.
COLOURS = {
    "ink": "#1b1f24",
    "rule": "#d0d4d9",
    "base": "#767676",
    "pool": "#0072b2",
    "random": "#e69f00",
}
COLOURS |= {
    "dana": "#009e73",
    "task": "#cc79a7",
    "target": "#cc79a7",
    "planted": "#d55e00",
    "other": "#56b4e9",
}
INKED = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
SETTINGS: Any = {**dict.fromkeys(INKED, COLOURS["ink"]), "font.size": 10}
SETTINGS |= dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False)
# Text stays text: it can be selected, searched and read aloud.
SETTINGS |= {"svg.fonttype": "none", "svg.hashsalt": "dana"}
SETTINGS |= {
    "figure.constrained_layout.w_pad": 0.1
}  # inches: the font of the page may be wider than Matplotlib's
SVG_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


@dataclass(frozen=True)
class Figure:
    """One figure, drawn on demand.

    Attributes:
        name: Unique on its page; prefix of the ids in the SVG and stem of the files.
        alt: Text alternative.
        size: Width and height in inches.
        paint: Function that draws on the axes, in :data:`COLOURS`.
    """

    name: str
    alt: str
    size: tuple[float, float]
    paint: Callable[["Axes"], None]

    @property
    def svg(self) -> str:
        """SVG for a page: unique ids, colours and font of the page, any width, transparent background."""
        from markupsafe import escape

        image = self._save("svg", transparent=True, metadata=SVG_METADATA).decode()
        body = image[image.index(">", image.index("<svg")) + 1 :].strip()
        body = re.sub(r" font-family: [^;\"]*;", "", body)
        body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{self.name}-", body)
        for variable, colour in COLOURS.items():
            body = re.sub(rf"(fill|stroke): {colour}", rf"\g<1>: var(--{variable}, {colour})", body)
        width, height = self.size
        head = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img"'
        frame = f'viewBox="0 0 {width * 72:g} {height * 72:g}" style="max-width: {width:g}in"'
        return f'<svg {head} aria-label="{escape(self.alt)}" {frame}>{body}'

    @property
    def png(self) -> bytes:
        """PNG with 200 pixels per inch on a white background."""
        return self._save("png", dpi=200, metadata={"Software": None})

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write ``NAME.svg`` and ``NAME.png``, and return their paths."""
        svg, png = (folder / f"{self.name}.{kind}" for kind in ("svg", "png"))
        write_text(svg, self.svg + "\n")
        with temp_file(png) as temporary:
            temporary.write_bytes(self.png)
        return svg, png

    def _save(self, form: str, **options: Any) -> bytes:
        import matplotlib
        from matplotlib.figure import Figure as Drawing

        stream = io.BytesIO()
        with matplotlib.rc_context(SETTINGS):
            drawing = Drawing(figsize=self.size, layout="constrained")
            self.paint(drawing.subplots())
            drawing.savefig(stream, format=form, **options)
        return stream.getvalue()
