"""Figure 2: train models on random domain mixtures and plot task score against loss on task and on general text.

    python recipes/papers/dana/figure2.py --general pool/ --tasks sst2 chemprot --model MODEL --out runs/figure2

The shares of the sources in a mixture are drawn from a Dirichlet distribution. All models start from the same
checkpoint and see the same number of tokens. The loss is measured on held-out general text (L) and task text (L_in)
with fixed masks; then the model is fine-tuned on the task. ``points.csv`` has one row per task and mixture,
``figure2.png`` is the scatter plot, and the printed table has the correlation of the score with L_in and with L: over
all mixtures, and over those with L within 2 % of the median, as in the paper. A killed command resumes.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from dana.core.artifacts import Artifact, Draft, make, open_artifact, read_json
from dana.core.config import load
from dana.core.rng import generator
from dana.core.schemas import DOCUMENTS, iterate_documents, write_parts
from dana.corpus.documents import document_tables
from dana.stages.finetune import finetune_stage
from dana.stages.run import read_texts
from dana.stages.settings import RunSettings
from dana.stages.texts import held_out_folders, held_out_stage
from dana.stages.training import adapt_stage

TOLERANCE = 0.02  # largest distance to the median general loss, relative
CHARACTERS = 6  # upper bound per token, so that a mixture never runs out of text


def sample_mixture(corpus: Path, number: int, seed: int, characters: int, folder: Path) -> Artifact:
    """Sample a corpus whose shares of sources are drawn from a flat Dirichlet distribution.

    Args:
        corpus: Folder of a corpus artifact.
        number: Index of the mixture.
        seed: Seed of all mixtures.
        characters: Approximate size of the mixture; a source with less than its share is used in full.
        folder: Folder of the new corpus artifact.
    """
    artifact = open_artifact(corpus, "corpus")
    sources = sorted(artifact.manifest["counts"]["by_source"])
    shares = generator(seed, "figure2", number).dirichlet(np.ones(len(sources)))
    depends_on = {"corpus": artifact.fingerprint, "number": number, "seed": seed, "characters": characters}

    def write(draft: Draft) -> None:
        sample = []
        for source, share in zip(sources, shares, strict=True):
            documents = [document for document in iterate_documents(corpus) if document.source == source]
            budget = share * characters
            for row in generator(seed, "figure2", number, source).permutation(len(documents)):
                if budget <= 0:
                    break
                sample.append(documents[row])
                budget -= len(documents[row].text)
        draft.counts["documents"] = write_parts(document_tables(sample), draft.path, DOCUMENTS)
        draft.notes["shares"] = dict(zip(sources, shares.round(4).tolist(), strict=True))

    return make(folder, "corpus", depends_on, write)


def read_losses(model: Path) -> dict[str, float]:
    """Read the general and the task loss of a model's last evaluation."""
    rows = pd.read_json(model / "training.jsonl", lines=True)
    last = rows[rows["kind"] == "evaluation"].iloc[-1]
    return {name: float(last[name]) for name in ("general_loss", "task_loss")}


def train_mixtures(task: str, args: argparse.Namespace) -> pd.DataFrame:
    """Train and fine-tune all mixtures of a task: one row per mixture with its losses and mean score over seeds."""
    out = args.out / task
    training = {"tokens": args.tokens, "batch_tokens": 4096, "max_tokens": 128, "learning_rate": 5e-4, "warmup": 0.05}
    tuning = {"epochs": 10, "learning_rate": 3e-4, "max_tokens": 128, "max_train": 500, "seeds": args.seeds}
    settings = load(
        RunSettings,
        {
            "out": str(out),
            "task": task,
            "general": args.general,
            "hygiene": {"decontaminate": [task], "sample": args.sample},
            "adapt": {**training, "denominator": "token_count", "evaluations": 1},
            "finetune": {"preset": "default", **tuning},
        },
    )
    read_texts(settings)
    held_out = held_out_folders(out)
    held_out_stage(out / "corpus", held_out[1])
    rows = []
    for number in range(args.mixtures):
        folder = out / f"mixture-{number}"
        text = sample_mixture(out / "corpus", number, 0, CHARACTERS * args.tokens, folder / "corpus").path
        model = adapt_stage(args.model, text, None, *held_out, settings.adapt, folder / "adapted").path
        finetuning = finetune_stage(str(model), task, settings.finetune, folder / "finetune").path
        score = read_json(finetuning / "metrics.json")["mean"]
        rows.append({"task": task, "mixture": number, **read_losses(model), "score": score})
    return pd.DataFrame(rows)


def correlations(frame: pd.DataFrame) -> pd.DataFrame:
    """Correlate score and losses (Pearson, Spearman), over all mixtures of a task and over those near its median L."""
    rows = []
    for task, mixtures in frame.groupby("task", sort=False):
        median = mixtures["general_loss"].median()
        near = mixtures[(mixtures["general_loss"] - median).abs() <= TOLERANCE * median]
        for kind, group in (("all", mixtures), (f"L within {TOLERANCE:.0%}", near)):
            coefficients = {
                f"{method} {loss}": group["score"].corr(group[f"{loss}_loss"], method)
                for loss in ("task", "general")
                for method in ("pearson", "spearman")
            }
            rows.append({"task": task, "mixtures": kind, "n": len(group), **coefficients})
    return pd.DataFrame(rows)


def draw(frame: pd.DataFrame, path: Path) -> None:
    """Plot score against each loss, one row of panels per task."""
    from matplotlib.figure import Figure

    tasks = list(frame["task"].unique())
    figure = Figure(figsize=(8, 3.2 * len(tasks)), layout="constrained")
    panels = figure.subplots(len(tasks), 2, squeeze=False)
    for row, task in zip(panels, tasks, strict=True):
        mixtures = frame[frame["task"] == task]
        for axes, loss, name in zip(row, ("task_loss", "general_loss"), ("task", "general"), strict=True):
            axes.scatter(mixtures[loss], mixtures["score"])
            correlation = mixtures["score"].corr(mixtures[loss])
            axes.set_xlabel(f"loss on {name} text, nats a masked token (r = {correlation:.2f})")
            axes.set_ylabel(f"{task}, mean score")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Train and fine-tune every mixture; write the table and the figure and print the correlations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--general", nargs="+", required=True, help="general text of several sources: files or folders")
    parser.add_argument("--tasks", nargs="+", default=["sst2", "chemprot"], help="task cards")
    parser.add_argument("--model", required=True, help="checkpoint that every model starts from")
    parser.add_argument("--mixtures", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=500_000, help="training tokens of each model")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of fine-tuning")
    parser.add_argument("--sample", type=float, default=None, help="share of the general documents to sample")
    parser.add_argument("--out", type=Path, default=Path("runs/figure2"))
    args = parser.parse_args()
    frame = pd.concat([train_mixtures(task, args) for task in args.tasks], ignore_index=True)
    frame.to_csv(args.out / "points.csv", index=False)
    draw(frame, args.out / "figure2.png")
    print(correlations(frame).round(2).to_string(index=False))


if __name__ == "__main__":
    main()
