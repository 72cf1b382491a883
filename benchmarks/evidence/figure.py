"""Draw what adapting gains over the base, and how many labels that is worth: docs/images/adaptation.svg."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plan import BASE, CHOSEN, RANDOM, SIZES, TASKS
from rows import Results
from verdicts import Scores, choice_of, difference, scores_of, worth_text

from dana.core.artifacts import write_text
from dana.core.statistics import TwoLevel
from dana.finetuning.pilot import NONE
from dana.report.figures import STYLES, name_rows
from dana.report.svg import COLOURS, Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILE = Path(__file__).parents[2] / "docs" / "images" / "adaptation.svg"
WIDTH = 7.2  # inches
ROW = 0.34
FRAME = 1.1
OFFSETS = {RANDOM: 0.16, CHOSEN: -0.16}  # of an arm from the middle of its row
LABELS = {RANDOM: "adapted on random text", CHOSEN: "adapted on chosen text"}
STYLE_OF = {RANDOM: "random", CHOSEN: "dana"}


@dataclass(frozen=True)
class Row:
    """A task with a number of labels.

    Attributes:
        name: What the row is called.
        gains: Difference of each arm from the base.
        note: Accuracy of the base and of chosen text, and what the gain is worth.
    """

    name: str
    gains: dict[str, TwoLevel]
    note: str


def rows_of(results: Results) -> list[Row]:
    """Return a row for each task and number of labels whose base was probed."""
    rows = []
    for task in TASKS:
        for size in SIZES:
            base = scores_of(results, task.name, BASE, size)
            if base is None:
                continue
            gains = {}
            for arm in OFFSETS:
                scores = scores_of(results, task.name, arm, size)
                if scores is not None:
                    gains[arm] = difference(scores, base)
            rows.append(Row(f"{task.name}, {size}", gains, _note(results, task.name, size, base)))
    return rows


def _note(results: Results, task: str, size: int, base: Scores) -> str:
    """Write the accuracies of base and chosen text, and what the gain is worth in labels."""
    if choice_of(results, task) == NONE:
        return f"{base.accuracy:.3f}, the pilot chose to keep the base"
    chosen = scores_of(results, task, CHOSEN, size)
    if chosen is None:
        return f"{base.accuracy:.3f}, not adapted yet"
    note = f"{base.accuracy:.3f} → {chosen.accuracy:.3f}"
    worth = worth_text(results, task, chosen.accuracy, size)
    if worth:
        note += f", worth {worth} labels"
    return note


def gain_figure(rows: list[Row]) -> Figure:
    """Draw the gains over the base, a row for each task and number of labels."""

    def paint(axes: "Axes") -> None:
        places = list(range(len(rows)))[::-1]
        axes.axvline(0, color=COLOURS["base"], linewidth=1, label="base")
        for arm, offset in OFFSETS.items():
            colour, marker = STYLES[STYLE_OF[arm]]
            shown = [
                (place, row.gains[arm])
                for place, row in zip(places, rows, strict=True)
                if arm in row.gains
            ]
            axes.errorbar(
                [gain.mean for _, gain in shown],
                [place + offset for place, _ in shown],
                xerr=[
                    [gain.mean - gain.interval[0] for _, gain in shown],
                    [gain.interval[1] - gain.mean for _, gain in shown],
                ],
                fmt=marker,
                color=COLOURS[colour],
                label=LABELS[arm],
                linewidth=1.8,
            )
        name_rows(axes, places, [row.name for row in rows])
        for place, row in zip(places, rows, strict=True):
            axes.annotate(
                row.note,
                (1.02, place),
                xycoords=("axes fraction", "data"),
                verticalalignment="center",
            )
        axes.set_xlabel("accuracy above the base's (95 % interval)")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)

    said = "; ".join(f"{row.name}: {row.note}" for row in rows)
    alt = f"Gain of accuracy over the base, by task and number of labels. {said}."
    return Figure("adaptation", alt, (WIDTH, FRAME + ROW * len(rows)), paint)


def draw(results: Results, path: Path = FILE) -> None:
    """Write the figure of the gains."""
    write_on_white(gain_figure(rows_of(results)), path)


def write_on_white(figure: Figure, path: Path) -> None:
    """Write a figure on white, so that it can be read on a dark page too."""
    image = figure.svg
    image = image.replace('style="max-width:', 'style="background: white; max-width:', 1)
    write_text(path, image + "\n")
