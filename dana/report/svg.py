"""Render Matplotlib figures as inline SVG in the page's colours and as PNG.

Equal numbers give equal bytes.
"""

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
    "dana": "#009e73",
    "task": "#cc79a7",
    "target": "#cc79a7",
    "extra": "#d55e00",
    "other": "#56b4e9",
}
SETTINGS: Any = {
    "text.color": COLOURS["ink"],
    "axes.labelcolor": COLOURS["ink"],
    "axes.edgecolor": COLOURS["ink"],
    "xtick.color": COLOURS["ink"],
    "ytick.color": COLOURS["ink"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    # Text stays text: it can be selected, searched and read aloud.
    "svg.fonttype": "none",
    "svg.hashsalt": "dana",
    # Inches: the font of the page may be wider than Matplotlib's.
    "figure.constrained_layout.w_pad": 0.1,
}
# None leaves an entry out, so that equal numbers give equal bytes.
SVG_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


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
        """SVG for a page, of any width.

        It has unique ids, the colours and the font of the page, and a transparent background.
        """
        from markupsafe import escape

        image = self._save("svg", transparent=True, metadata=SVG_METADATA).decode()
        # Without its own <svg ...> tag, fonts, ids and colours.
        body = image[image.index(">", image.index("<svg")) + 1 :].strip()
        body = re.sub(r" font-family: [^;\"]*;", "", body)
        body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{self.name}-", body)
        for variable, colour in COLOURS.items():
            body = re.sub(rf"(fill|stroke): {colour}", rf"\g<1>: var(--{variable}, {colour})", body)
        width, height = self.size
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
            f'role="img" aria-label="{escape(self.alt)}" '
            f'viewBox="0 0 {width * 72:g} {height * 72:g}" '
            f'style="max-width: {width:g}in">{body}'
        )

    @property
    def png(self) -> bytes:
        """PNG with 200 pixels per inch on a white background."""
        return self._save("png", dpi=200, metadata={"Software": None})

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write ``NAME.svg`` and ``NAME.png``, and return their paths."""
        svg = folder / f"{self.name}.svg"
        png = folder / f"{self.name}.png"
        write_text(svg, self.svg + "\n")
        with temp_file(png) as temporary:
            temporary.write_bytes(self.png)
        return svg, png

    def _save(self, form: str, **options: Any) -> bytes:
        """Draw the figure, and return the bytes of its file."""
        import matplotlib
        from matplotlib.figure import Figure as Drawing

        stream = io.BytesIO()
        with matplotlib.rc_context(SETTINGS):
            drawing = Drawing(figsize=self.size, layout="constrained")
            self.paint(drawing.subplots())
            drawing.savefig(stream, format=form, **options)
        return stream.getvalue()
