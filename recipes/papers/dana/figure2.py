"""Figure 2: train models on random domain mixtures and plot task score against loss on target and on pool text.

    python recipes/papers/dana/figure2.py --pool reviews.jsonl pubmed.jsonl news.jsonl --out
    runs/figure2 [--dry-run]

The shares of the sources in a mixture are drawn from a flat Dirichlet distribution. All models
start from the same checkpoint and see the same number of tokens. For each of them the loss is
measured on held-out pool text (L) and on every task's (L_in), with fixed masks. The paper then
fine-tunes the model; here the score is a frozen probe's, that of the baseline ``vectors``: logistic
regression on means of the last layer. ``points.csv`` has one row per task and mixture,
``figure2.png`` is the scatter plot, and the printed table has the correlation of the score with
L_in and with L: over all mixtures, and over those with L within 2 % of the median, as in the paper.
A stopped command resumes.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from dana.cli.main import run_script
from dana.core.artifacts import Artifact, Draft, make, open_artifact, read_json
from dana.core.rng import generator
from dana.core.schemas import DOCUMENTS, Document, iterate_documents, write_parts
from dana.core.settings import load
from dana.corpus.documents import document_tables
from dana.stages.baselines import baselines_stage
from dana.stages.settings import RunSettings
from dana.stages.texts import held_out_folders, held_out_stage, open_pool, read_target
from dana.stages.training import adapt_stage, folder_text, require_saved_head
from dana.train.execution import make_accelerator
from dana.train.loop import prepare
from dana.train.run import heldout_examples
from dana.train.settings import AdaptSettings

TOLERANCE = 0.02  # largest distance to the median pool loss, relative
CHARACTERS = 6  # upper bound per token, so that a mixture never runs out of text


def held_out_losses(
    model: str, folders: dict[str, Path], settings: AdaptSettings
) -> dict[str, float | None]:
    """Measure the loss of a saved model on folders of documents, with the same masks for every model.

    Args:
        model: Folder with safetensors, or Hub name.
        folders: Folders of :data:`dana.core.schemas.DOCUMENTS`, by name.
        settings: Settings of the training; about ``evaluation_tokens`` of each folder are measured.

    Returns:
        By name the mean loss in nats a predicted token; None where there is no token to predict.

    Raises:
        ConfigError: If the objective's head is not part of the model.
        ArtifactError: If the model or a folder cannot be read.
    """
    objective = settings.make_objective()
    require_saved_head(settings)
    language_model = objective.prepare_model(model, settings.seed)
    tokenizer = language_model.tokenizer
    texts = {name: folder_text(folder, tokenizer) for name, folder in folders.items()}
    heldout = heldout_examples(texts, objective, tokenizer, settings)
    state = prepare(language_model.model, settings, make_accelerator())
    return heldout.mean_losses(state.module, state.shape, state.accelerator)


def sample_mixture(pool: Path, number: int, seed: int, characters: int, folder: Path) -> Artifact:
    """Sample a corpus whose shares of sources are drawn from a flat Dirichlet distribution.

    Args:
        pool: Folder of a corpus artifact.
        number: Index of the mixture.
        seed: Seed of all mixtures.
        characters: Approximate size of the mixture; a source with less than its share is used in
            full.
        folder: Folder of the new corpus artifact.
    """
    artifact = open_artifact(pool, "pool")
    sources = sorted(artifact.manifest["counts"]["by_source"])
    shares = generator(seed, "figure2", number).dirichlet(np.ones(len(sources)))
    depends_on = {
        "pool": artifact.fingerprint,
        "number": number,
        "seed": seed,
        "characters": characters,
    }

    def write(draft: Draft) -> None:
        by_source: dict[str, list[Document]] = {source: [] for source in sources}
        for document in iterate_documents(pool):
            by_source[document.source].append(document)
        sample = []
        for (source, documents), share in zip(by_source.items(), shares, strict=True):
            budget = share * characters
            for row in generator(seed, "figure2", number, source).permutation(len(documents)):
                if budget <= 0:
                    break
                sample.append(documents[row])
                budget -= len(documents[row].text)
        draft.counts["documents"] = write_parts(document_tables(sample), draft.path, DOCUMENTS)
        draft.notes["shares"] = dict(zip(sources, shares.round(4).tolist(), strict=True))

    return make(folder, "pool", depends_on, write)


def train_mixtures(settings: RunSettings, args: argparse.Namespace) -> pd.DataFrame:
    """Train a model on every mixture and probe it: one row per task and mixture with its losses and score."""
    pool = open_pool(settings, True).artifact.path
    held_out = held_out_stage(pool, held_out_folders(args.out)[1]).path
    cards = {Path(task).stem: task for task in args.tasks}
    folders = {name: held_out_folders(args.out / name)[0] for name in cards}
    for name, folder in folders.items():
        read_target(replace(settings, task=cards[name]), folder.parent)
    rows = []
    for number in range(args.mixtures):
        folder_of_mixture = args.out / f"mixture-{number}"
        text = sample_mixture(
            pool, number, 0, CHARACTERS * args.tokens, folder_of_mixture / "pool"
        ).path
        held_out_pair = next(iter(folders.values())), held_out
        model = adapt_stage(
            args.model, text, None, *held_out_pair, settings.adapt, folder_of_mixture / "adapted"
        ).path
        losses = held_out_losses(str(model), {**folders, "pool": held_out}, settings.adapt)
        for task, card in cards.items():
            encoder = f"transformer:{model},dtype=float32"
            probe = baselines_stage(
                card,
                folder_of_mixture / task,
                settings.finetune,
                ["vectors"],
                encoder,
                settings.data,
            ).path
            point = {
                "score": read_json(probe / "vectors" / "metrics.json")["mean"],
                "target_loss": losses[task],
            }
            rows.append({"task": task, "mixture": number, "pool_loss": losses["pool"], **point})
    return pd.DataFrame(rows)


def correlations(frame: pd.DataFrame) -> pd.DataFrame:
    """Correlate score and losses (Pearson, Spearman), over all mixtures of a task and over those near its median L."""
    rows = []
    for task, mixtures in frame.groupby("task", sort=False):
        median = mixtures["pool_loss"].median()
        near = mixtures[(mixtures["pool_loss"] - median).abs() <= TOLERANCE * median]
        for kind, group in (("all", mixtures), (f"L within {TOLERANCE:.0%}", near)):
            coefficients = {
                f"{method} {loss}": group["score"].corr(group[f"{loss}_loss"], method)
                for loss in ("target", "pool")
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
        for axes, loss, name in zip(
            row, ("target_loss", "pool_loss"), ("target", "pool"), strict=True
        ):
            axes.scatter(mixtures[loss], mixtures["score"])
            correlation = mixtures["score"].corr(mixtures[loss])
            axes.set_xlabel(f"loss on {name} text, nats (r = {correlation:.2f})")
            axes.set_ylabel(f"{task}, score of the probe")
    figure.savefig(path, dpi=120)


def figure2(args: argparse.Namespace) -> None:
    """Train and probe every mixture; write the table and the figure and print the correlations."""
    plan = {
        "tokens": args.tokens,
        "batch_tokens": 4096,
        "max_tokens": 128,
        "learning_rate": 5e-4,
        "warmup": 0.05,
    }
    values = {
        "out": str(args.out),
        "model": args.model,
        "pool": args.pool,
        "finetune": {"max_train": args.probe},
    }
    values |= {"hygiene": {"decontaminate": args.tasks}}
    settings = load(
        RunSettings, values | {"adapt": {**plan, "denominator": "token_count", "evaluations": 1}}
    )

    if args.dry_run:
        length = f"{args.mixtures} models on {args.tokens:,} tokens each"
        print(f"would train {length}, into {args.out}; plus the probes")
        return
    frame = train_mixtures(settings, args)
    frame.to_csv(args.out / "points.csv", index=False)
    draw(frame, args.out / "figure2.png")
    print(correlations(frame).round(2).to_string(index=False))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pool",
        nargs="+",
        required=True,
        help="pool text of several sources: files or folders",
    )
    parser.add_argument("--tasks", nargs="+", default=["sst2", "chemprot"], help="task cards")
    parser.add_argument(
        "--model", default="dana-mini", help="checkpoint that every model starts from"
    )
    parser.add_argument("--mixtures", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=500_000, help="training tokens of each model")
    parser.add_argument("--probe", type=int, default=4000, help="training texts of the probe")
    parser.add_argument("--out", type=Path, default=Path("runs/figure2"))
    return run_script(parser, figure2, arguments)


if __name__ == "__main__":
    sys.exit(main())
