"""Figure 2: models of random domain mixtures, their losses on task and general text against their scores on the task.

    python recipes/papers/dana/figure2.py --general pool/ --tasks sst2 chemprot --model MODEL --out runs/figure2

A mixture draws the shares of the general text's sources from a Dirichlet distribution; a model is trained on it from
the same checkpoint with the same tokens as the others, its loss is measured on held-out general text (L) and task text
(L_in) at masks that never change, and it is fine-tuned on the task. ``points.csv`` has a row a task and mixture,
``figure2.png`` the scatter, and the printed table the correlation of the score with L_in and with L: over all mixtures,
and over those whose L lies within 2 % of the median, as the paper chose its models. Killed, the same command goes on.
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

NEAR = 0.02  # of the median general loss
CHARACTERS = 6  # a token, at most: a mixture never runs out of text


def mixture(corpus: Path, number: int, seed: int, characters: int, folder: Path) -> Artifact:
    """A corpus of documents whose sources have shares drawn from a flat Dirichlet distribution.

    Args:
        corpus: Folder of a corpus artifact.
        number: Which mixture.
        seed: Decides all of them.
        characters: About how many; a source that has too few gives all it has.
        folder: Where it goes.
    """
    opened = open_artifact(corpus, "corpus")
    sources = sorted(opened.manifest["counts"]["by_source"])
    shares = generator(seed, "figure2", number).dirichlet(np.ones(len(sources)))
    depends_on = {"corpus": opened.fingerprint, "number": number, "seed": seed, "characters": characters}

    def write(draft: Draft) -> None:
        chosen = []
        for source, share in zip(sources, shares, strict=True):
            own = [document for document in iterate_documents(corpus) if document.source == source]
            order = generator(seed, "figure2", number, source).permutation(len(own))
            left = share * characters
            for row in order:
                if left <= 0:
                    break
                chosen.append(own[row])
                left -= len(own[row].text)
        draft.counts["documents"] = write_parts(document_tables(chosen), draft.path, DOCUMENTS)
        draft.notes["shares"] = dict(zip(sources, shares.round(4).tolist(), strict=True))

    return make(folder, "corpus", depends_on, write)


def losses(model: Path) -> tuple[float, float]:
    """General and task loss of the last evaluation."""
    rows = pd.read_json(model / "training.jsonl", lines=True)
    last = rows[rows["kind"] == "evaluation"].iloc[-1]
    return float(last["general_loss"]), float(last["task_loss"])


def points(task: str, given: argparse.Namespace) -> pd.DataFrame:
    """A row a mixture: losses and the mean score over seeds."""
    out = given.out / task
    training = {"tokens": given.tokens, "batch_tokens": 4096, "max_tokens": 128, "learning_rate": 5e-4, "warmup": 0.05}
    tuning = {"epochs": 10, "learning_rate": 3e-4, "max_tokens": 128, "max_train": 500, "seeds": given.seeds}
    settings = load(
        RunSettings,
        {
            "out": str(out),
            "task": task,
            "general": given.general,
            "hygiene": {"decontaminate": [task], "sample": given.sample},
            "adapt": {**training, "denominator": "token_count", "evaluations": 1},
            "finetune": {"preset": "default", **tuning},
        },
    )
    read_texts(settings)
    held_out = held_out_folders(out)
    held_out_stage(out / "corpus", held_out[1])
    rows = []
    for number in range(given.mixtures):
        place = out / f"mixture-{number}"
        text = mixture(out / "corpus", number, 0, CHARACTERS * given.tokens, place / "corpus").path
        model = adapt_stage(given.model, text, None, *held_out, settings.adapt, place / "adapted").path
        tuned = finetune_stage(str(model), task, settings.finetune, place / "finetune").path
        general, own = losses(model)
        score = read_json(tuned / "metrics.json")["mean"]
        rows.append({"task": task, "mixture": number, "general_loss": general, "task_loss": own, "score": score})
    return pd.DataFrame(rows)


def correlations(frame: pd.DataFrame) -> pd.DataFrame:
    """Pearson and Spearman of score with each loss, a row a task and choice of mixtures."""
    rows = []
    for task, all_of_it in frame.groupby("task", sort=False):
        median = all_of_it["general_loss"].median()
        near = all_of_it[(all_of_it["general_loss"] - median).abs() <= NEAR * median]
        for kind, own in (("all", all_of_it), (f"L within {NEAR:.0%}", near)):
            found = {
                f"{method} {loss}": own["score"].corr(own[f"{loss}_loss"], method)
                for loss in ("task", "general")
                for method in ("pearson", "spearman")
            }
            rows.append({"task": task, "mixtures": kind, "n": len(own), **found})
    return pd.DataFrame(rows)


def draw(frame: pd.DataFrame, path: Path) -> None:
    """Score against each loss, a row of panels a task."""
    from matplotlib.figure import Figure

    tasks = list(frame["task"].unique())
    figure = Figure(figsize=(8, 3.2 * len(tasks)), layout="constrained")
    panels = figure.subplots(len(tasks), 2, squeeze=False)
    for row, task in zip(panels, tasks, strict=True):
        own = frame[frame["task"] == task]
        for axes, loss, name in zip(row, ("task_loss", "general_loss"), ("task", "general"), strict=True):
            axes.scatter(own[loss], own["score"])
            axes.set_xlabel(f"loss on {name} text, nats a masked token (r = {own['score'].corr(own[loss]):.2f})")
            axes.set_ylabel(f"{task}, mean score")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Train and tune every mixture, then draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--general", nargs="+", required=True, help="files or folders of several sources")
    parser.add_argument("--tasks", nargs="+", default=["sst2", "chemprot"], help="task cards")
    parser.add_argument("--model", required=True, help="the checkpoint that every mixture starts from")
    parser.add_argument("--mixtures", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=500_000, help="of each mixture")
    parser.add_argument("--seeds", type=int, default=3, help="of fine-tuning")
    parser.add_argument("--sample", type=float, default=None, help="share of the general documents that is read")
    parser.add_argument("--out", type=Path, default=Path("runs/figure2"))
    given = parser.parse_args()
    frame = pd.concat([points(task, given) for task in given.tasks], ignore_index=True)
    frame.to_csv(given.out / "points.csv", index=False)
    draw(frame, given.out / "figure2.png")
    print(correlations(frame).round(2).to_string(index=False))


if __name__ == "__main__":
    main()
