"""Draw the figures of the docs anew: adaptation, learning-curves, scores and throughput, SVG in docs/images.

    python benchmarks figures

Three of them are drawn from the committed results. The histogram of scores is of the text that ships with
dana, which is scored for it.
"""

import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent / "evidence"))

from figure import draw, write_on_white
from plan import BASE, CHOSEN, CURVE, SIZES, TASKS
from rows import Results
from steps import dana
from texts import write_rows
from verdicts import scores_of

from dana.report.figures import name_rows, score_histogram
from dana.report.run import read_scores
from dana.report.svg import COLOURS, Figure
from dana.report.tables import histogram

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
RATES = ROOT / "docs" / "results" / "gpu.jsonl"
SHIPPED = ROOT / "dana" / "quickstart"
WIDTH = 6.4  # inches
ASIDE = 1.06  # factor between the places of two tasks with the same number of labels
LINES = ("dana", "pool", "random", "target")  # colours of the tasks
MODELS = {"bert": "BERT-base", "modernbert": "ModernBERT", "minilm": "MiniLM", "mini": "dana-mini"}
# How long texts are on average, by where they are cut.
LENGTHS = {128: "texts of 50 tokens", 512: "texts of 312 tokens"}


def learning_curves(results: Results) -> Figure:
    """Draw the base's accuracy by the number of labels, and beside it that of the adapted models."""
    names = [
        task.name for task in TASKS if scores_of(results, task.name, CHOSEN, SIZES[0]) is not None
    ]

    def paint(axes: "Axes") -> None:
        for number, (name, key) in enumerate(zip(names, LINES, strict=True)):
            base = {size: scores_of(results, name, BASE, size) for size in CURVE}
            curve = {size: one.accuracy for size, one in base.items() if one is not None}
            axes.plot(list(curve), list(curve.values()), color=COLOURS[key], marker=".")
            most = max(curve)
            axes.annotate(
                name,
                (most, curve[most]),
                (14, 0),
                textcoords="offset points",
                color=COLOURS[key],
                verticalalignment="center",
                annotation_clip=False,
            )
            adapted = {size: scores_of(results, name, CHOSEN, size) for size in SIZES}
            aside = ASIDE ** (
                number - (len(names) - 1) / 2
            )  # so that no two tasks lie on each other
            for size, one in adapted.items():
                if one is None:
                    continue
                place = [size * aside] * 2
                axes.plot(place, [curve[size], one.accuracy], color=COLOURS[key], linewidth=1)
                axes.plot(place[1:], [one.accuracy], "*", color=COLOURS[key], markersize=11)
        axes.plot([], [], color=COLOURS["ink"], marker=".", label="MiniLM as it ships")
        axes.plot([], [], "*", color=COLOURS["ink"], markersize=11, label="adapted on chosen text")
        axes.set_xscale("log")
        axes.set_xticks(CURVE, [f"{size:,}" for size in CURVE])
        axes.minorticks_off()
        axes.set(xlabel="labels", ylabel="accuracy")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)

    alt = (
        "Accuracy of a linear model on the vectors of MiniLM by the number of labels, and that of the "
        "adapted models with 100 and 500 labels."
    )
    return Figure("learning-curves", alt, (WIDTH, 3.6), paint)


def throughput() -> Figure:
    """Draw the tokens a second of training on one GPU, of dana and of a tuned stock loop."""
    lines = RATES.read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    rates: dict[tuple[str, int, str], float] = {}
    for row in records:
        if row["what"] == "train":
            key = (row["arch"], row["width"], row["arm"].removesuffix(" again"))
            rates[key] = max(rates.get(key, 0.0), row["tokens_per_second"] / 1e6)
    rows = [(model, width) for width in LENGTHS for model in MODELS]

    def paint(axes: "Axes") -> None:
        places = list(range(len(rows)))[::-1]
        for arm, colour, offset in (("dana", "dana", 0.19), ("stock", "base", -0.19)):
            values = [rates[model, width, arm] for model, width in rows]
            heights = [place + offset for place in places]
            label = "dana" if arm == "dana" else "a plain loop of transformers, tuned"
            bars = axes.barh(heights, values, 0.36, color=COLOURS[colour], label=label)
            axes.bar_label(bars, fmt="%.2f", padding=3)
        name_rows(axes, places, [f"{MODELS[model]}, {LENGTHS[width]}" for model, width in rows])
        axes.set_xlabel("million tokens a second on one H200, masked tokens")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)

    alt = "Million tokens a second that dana and a tuned plain loop train on one H200, by model and length."
    return Figure("throughput", alt, (WIDTH, 4.2), paint)


def score_figure(folder: Path) -> Figure:
    """Score the pool that ships with dana by its labelled texts, and draw the histogram of the scores."""
    texts = SHIPPED / "texts.jsonl.gz"
    with gzip.open(texts, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    labelled = folder / "labelled.jsonl"
    write_rows(labelled, [{"text": row["text"]} for row in rows if row["fold"] == -1])
    pool = SHIPPED / "pool.jsonl.gz"
    dana(folder / "log", "score", "--task", labelled, "--pool", pool, "--out", folder / "run")
    scores = read_scores(folder / "run")
    assert scores is not None, "they were just made"
    return score_histogram(histogram(scores).frame)


def main() -> None:
    """Draw all figures."""
    results = Results()
    draw(results)
    write_on_white(learning_curves(results), IMAGES / "learning-curves.svg")
    write_on_white(throughput(), IMAGES / "throughput.svg")
    with tempfile.TemporaryDirectory() as folder:
        write_on_white(score_figure(Path(folder)), IMAGES / "scores.svg")
    print(f"written: {IMAGES}")


if __name__ == "__main__":
    main()
