"""Figure 3: tell sentences of a target from pool text by an isolation forest over a pretrained and a tuned encoder.

    python recipes/papers/dana/figure3.py --pool wikipedia.jsonl --out runs/figure3 [--task sst2]
    [--dry-run]

The encoder is the mean of the last layer of a model: as it is, and after it was fine-tuned as a
classifier of the task. As in Table 1 the forest is fitted on nine tenths of the sentences; the last
tenth is scored beside as many sentences of the pool, over ``--seeds`` splits. The paper has
no geometry between encoder and detector (``none``). The table ``figure3-GEOMETRY.csv`` has mean and
standard deviation over the splits of AUROC, Kolmogorov and Smirnov's distance, and overlap, the
area under both histograms; the picture beside it shows the first split. A stopped command resumes.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from dana.cli.main import run_script
from dana.core.artifacts import write_text
from dana.core.registry import SELECTORS
from dana.core.rng import generator
from dana.core.settings import load
from dana.models.classifier import BACKBONE
from dana.scoring.inputs import TargetText
from dana.scoring.ranking.comparison import HELD_OUT, texts_to_rank
from dana.scoring.ranking.measures import separation
from dana.stages.finetune import finetune_stage
from dana.stages.settings import RunSettings
from dana.stages.texts import open_pool, read_target

BINS = 25  # of the histograms, and so of the overlap
FOREST = "iforest:trees=100,samples=256"
MEASURES = ["AUROC", "KS", "overlap"]


def compare_scores(target: np.ndarray, pool: np.ndarray) -> dict[str, float]:
    """Measure how far target scores lie below those of the pool: AUROC, KS and overlap, all in [0, 1]."""
    from scipy.stats import ks_2samp

    edges = np.histogram_bin_edges(np.concatenate([target, pool]), BINS)
    shares = [np.histogram(scores, edges)[0] / scores.size for scores in (target, pool)]
    values = (
        separation(target, target, pool)[1],
        ks_2samp(target, pool).statistic,
        np.minimum(*shares).sum(),
    )
    return dict(zip(MEASURES, map(float, values), strict=True))


def score_splits(settings: RunSettings, encoder: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Score held-out sentences of the target and of the pool, float64, once per split; higher is more anomalous."""
    out = Path(settings.out)
    selection = replace(settings.selection, encoder=encoder)
    texts = texts_to_rank(
        TargetText.open(out / "target"), open_pool(settings, False), selection, settings.ranking
    )
    selector = SELECTORS.load("detector")(context=replace(texts.context, detector=FOREST))
    scores = []
    for seed in range(settings.ranking.seeds):
        order = generator(seed, "figure3", "split").permutation(len(texts.target))
        outside, inside = np.split(order, [round(order.size * HELD_OUT)])
        samples = {
            name: texts.samples[name].first(size)
            for name, size in selector.samples(inside.size).items()
        }
        model = selector.fit(texts.target.rows(inside), samples, seed)
        scores.append(
            (model.score(texts.target.rows(outside)), model.score(texts.samples["negatives"]))
        )
    return scores


def draw(scores: dict[str, tuple[np.ndarray, np.ndarray]], path: Path) -> None:
    """Draw the histograms of target and pool scores, a panel per encoder."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(scores), 2.8), layout="constrained")
    for axes, (encoder, pair) in zip(
        figure.subplots(1, len(scores), sharey=True), scores.items(), strict=True
    ):
        edges = np.histogram_bin_edges(np.concatenate(pair), BINS)
        for values, label in zip(pair, ("in-task", "out-of-task"), strict=True):
            axes.hist(
                values, edges, weights=np.full(values.size, 1 / values.size), alpha=0.5, label=label
            )
        measures = ", ".join(f"{name} {value:.2f}" for name, value in compare_scores(*pair).items())
        axes.set(title=f"{encoder}\n{measures}", xlabel="anomaly score")
        axes.legend()
    figure.savefig(path, dpi=120)


def figure3(args: argparse.Namespace) -> None:
    """Fine-tune the model, score with both encoders, write the table and the figure and print the means."""
    finetuning = args.out / "finetune"
    values = {"out": str(args.out), "task": args.task, "pool": args.pool}
    values |= {
        "hygiene": {"decontaminate": [args.task]},
        "finetune": {"seeds": 1, "max_train": 5000, "save": True},
    }
    values |= {"ranking": {"detectors": [FOREST], "protocol": "paper", "seeds": args.seeds}}
    settings = load(RunSettings, values | {"selection": {"geometry": args.geometry}})
    if args.dry_run:
        print(f"would fine-tune {args.model} on {args.target} and score by it, into {args.out}")
        return
    finetune_stage(args.model, args.task, settings.finetune, finetuning)
    read_target(settings, args.out / "target")
    open_pool(settings, True)
    folder = Path(f"{finetuning}-model")
    encoders = {
        "pretrained": args.model,
        "fine-tuned": folder / BACKBONE if (folder / BACKBONE).is_dir() else folder,
    }
    scores = {
        name: score_splits(settings, f"transformer:{folder},dtype=float32")
        for name, folder in encoders.items()
    }
    rows = [
        {"encoder": name, **compare_scores(*pair)}
        for name, pairs in scores.items()
        for pair in pairs
    ]
    table = pd.DataFrame(rows).groupby("encoder", sort=False).agg(["mean", "std"]).round(3)
    write_text(args.out / f"figure3-{args.geometry}.csv", table.to_csv())
    draw(
        {name: pairs[0] for name, pairs in scores.items()},
        args.out / f"figure3-{args.geometry}.png",
    )
    print(table.to_string())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pool", nargs="+", required=True, help="pool text: files or folders")
    parser.add_argument("--task", default="sst2", help="task card (default: %(default)s)")
    parser.add_argument(
        "--model", default="dana-mini", help="pretrained model (default: %(default)s)"
    )
    parser.add_argument("--geometry", default="none", help="none: the paper's; center+l2: dana's")
    parser.add_argument("--seeds", type=int, default=5, help="splits (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/figure3"))
    return run_script(parser, figure3, arguments)


if __name__ == "__main__":
    sys.exit(main())
