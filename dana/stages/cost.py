"""Estimate what training, fine-tuning and whole runs take on this machine, from a few steps of the model itself."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch

from dana.core.announce import UNMEASURED, Cost, announce, is_dry
from dana.core.artifacts import read_manifest
from dana.core.device import find_device
from dana.core.launch import cores, processes
from dana.core.logging import format_duration
from dana.core.schemas import iterate_documents
from dana.finetuning.settings import FinetuneSettings
from dana.models.folder import (
    load_backbone,
    load_config,
    load_own_tokenizer,
    resolve_model,
    running,
)
from dana.models.heads import positions_of
from dana.models.language_model import new_encoder
from dana.stages.grid.cell import Cell
from dana.stages.grid.grid import Grid
from dana.stages.harvest import QUICK, SPLITS
from dana.stages.settings import RunSettings
from dana.stages.texts import estimate_score
from dana.tasks.card import TaskCard, load_card
from dana.tasks.examples import Example, read_splits, subset
from dana.tasks.settings import PRESETS
from dana.train.evaluation import BASE_TOKENS
from dana.train.execution import Precision
from dana.train.settings import PretrainSettings, TrainSettings
from dana.train.supervised import make_optimizer

STEPS, SECONDS = (
    (2, 30),
    1.0,
)  # of a probe, after one step that warms up: fewest and most steps; enough time
PROBE_TOKENS = {"cpu": 2048}  # most of a step of a probe; a GPU is faster on more
MOST_TOKENS = 8192
SHORT = 10_000  # tokens; to train on fewer takes less than a minute, unless a machine trains on 160 a second
PREDICTED = 0.15  # share of the tokens that a language model predicts
CHARACTERS = 4.5  # of a token
FORWARD = 1 / 3  # of the work of a training step
MANY = 1_000_000  # examples of a step, where the batch is not known or larger than a probe's
REST = 2.0  # seconds of a cell without an estimate
SHIPPED = "dana-mini"  # its speed stands for a model that is not there yet
Sizes = tuple[
    int, int, int, float
]  # texts to train on, of development, to test on; mean characters


def training_rate(model: str | None, size: str, rows: int, tokens: int, predicts: bool) -> float:
    """Measure how many tokens a second a model trains on: forward, backward, update; its files stay as they are.

    Args:
        model: Folder or Hub name; None for a new one.
        size: Size of a new model.
        rows: Examples of a step.
        tokens: Tokens of an example.
        predicts: Whether it predicts masked tokens, which adds the work of its vocabulary.
    """
    return _measured_rate(model, size, rows, tokens, predicts, torch.get_num_threads())


@cache
def _measured_rate(
    model: str | None, size: str, rows: int, tokens: int, predicts: bool, threads: int
) -> float:
    device, precision, began = find_device(), Precision.of(), 0.0
    with torch.random.fork_rng():
        if model is None:
            new = new_encoder(
                PretrainSettings().architecture, size, load_own_tokenizer(SHIPPED), 0.0, 0
            )
        network = (load_backbone(model) if model else new.model.base_model).to(device).train()
        words, optimizer = network.get_input_embeddings().weight, make_optimizer(network, 0.0, 0.0)
        tokens = min(tokens, positions_of(network.config))
        rows = max(1, min(rows, PROBE_TOKENS.get(device.type, MOST_TOKENS) // tokens))
        ids = torch.randint(len(words) // 2, len(words), (rows, tokens), device=device)
        for step in range(STEPS[1] + 1):
            began = time.monotonic() if step == 1 else began
            if step > STEPS[0] and time.monotonic() - began > SECONDS:
                break
            with running(network), precision.autocast():
                states = network(input_ids=ids)[0]
            states.float().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if device.type == "cuda":
                torch.cuda.synchronize()
            steps = step
    seconds = (time.monotonic() - began) / steps
    layers = sum(part.numel() for part in network.parameters()) - words.numel()
    return rows * tokens / seconds / (1 + PREDICTED * words.numel() / layers if predicts else 1)


def training_estimate(
    model: str | None,
    size: str,
    settings: TrainSettings,
    corpus: Path,
    weights: Path | None,
    out: Path,
) -> Cost:
    """Estimate the training of a language model.

    Args:
        model: Folder or Hub name; None for a new model.
        size: Size of a new model.
        settings: Settings of the training.
        corpus: Folder of its text.
        weights: Folder of the weights of its text; None for all of it.
        out: Folder of the result.
    """
    tokens: float = settings.tokens or 0
    if settings.steps is not None:
        tokens = settings.steps * (
            settings.batch_tokens or settings.batch_size * settings.max_tokens
        )
    elif settings.tokens is None:
        key, counts = ("kept_characters", weights) if weights else ("characters", corpus)
        sources = read_manifest(counts).get("counts", {}).get("by_source", {}).values()
        tokens = (settings.epochs or 1) * sum(source[key] for source in sources) / CHARACTERS
    work, folder = tokens, corpus.parent / "task" / "held_out"
    task = (
        sum(len(document.text) for document in iterate_documents(folder)) / CHARACTERS
        if folder.is_dir()
        else 0.0
    )
    steps = tokens / (settings.batch_tokens or settings.batch_size * settings.max_tokens)
    count = len(settings.by_phase())
    times = min(
        steps,
        1 + count + (steps // settings.eval_every if settings.eval_every else settings.evaluations),
    )
    sizes = (min(settings.evaluation_tokens, size) for size in (MANY, task))
    work += (
        FORWARD * (times * sum(sizes) + 2 * min(BASE_TOKENS, settings.evaluation_tokens))
        if tokens
        else 0.0
    )
    phases = f" in {count} phases" if count > 1 else ""
    what = f"train {model or f'a new model of size {size}'} on {tokens:,.0f} tokens{phases}, into {out}"
    shape = settings.batch_size, settings.max_tokens
    return Cost(what, _seconds(work, model, size, shape, True), _model_bytes(model))


def finetuning_estimate(
    model: str, task: TaskCard, sizes: Sizes, settings: FinetuneSettings, out: Path, folds: int = 1
) -> Cost:
    """Estimate a fine-tuning over all its seeds.

    Args:
        model: Folder or Hub name.
        task: The task.
        sizes: From :func:`labelled_sizes`.
        settings: Settings of the fine-tuning.
        out: Folder of the result.
        folds: Number of folds that are tested.
    """
    preset, (train, dev, test, characters) = settings.resolve(task, load_config(model)), sizes
    tokens, seeds = (
        round(min(2 + characters / CHARACTERS, preset.max_tokens)),
        folds * len(preset.seed_list),
    )
    epochs = preset.epochs_of(train)
    examples = seeds * (
        epochs * train + FORWARD * (dev * (epochs if preset.evaluate == "best" else 1) + test)
    )
    what = f"fine-tune {model} on {train:,} texts of {task.name}, {seeds} time(s), into {out}"
    size = _model_bytes(model) if settings.save else 0.0
    return Cost(
        what, _seconds(examples * tokens, model, "", (preset.batch_size, tokens), False), size
    )


def labelling_estimate(model: str, examples: Sequence[Example]) -> Cost:
    """Estimate the labelling of texts by a fine-tuned model."""
    tokens = sum(len(text) for example in examples for text in example.texts) / CHARACTERS
    rate = training_rate(model, "", MANY, round(2 + tokens / len(examples)), False)
    return Cost(f"label {len(examples):,} texts by {model}", FORWARD * tokens / rate)


def labelled_sizes(task: TaskCard, settings: FinetuneSettings, data: str | None) -> Sizes:
    """Read a task, of a card with folds the first; count the texts of each split, and the mean characters."""
    splits = read_splits(task, data)
    train = subset(splits["train"], settings.max_train)
    characters = sum(len(text) for example in train for text in example.texts) / len(train)
    return len(train), len(splits["dev"]), len(splits["test"]), characters


def _seconds(
    work: float, model: str | None, size: str, shape: tuple[int, int], predicts: bool
) -> float:
    """Estimate the seconds of training on some tokens; 0 for so few that a probe would take as long."""
    return work / training_rate(model, size, *shape, predicts) if work > SHORT or is_dry() else 0.0


def _model_bytes(model: str | None) -> float:
    """Sum the sizes of a model's weights on this machine; 0 if they are elsewhere."""
    return (
        sum(file.stat().st_size for file in Path(resolve_model(model)).glob("*.safetensors"))
        if model
        else 0.0
    )


def announce_cells(grid: Grid, settings: RunSettings) -> dict[str, float]:
    """Announce the cells of a grid; in a dry run list them. Returns seconds by cell, if it has the whole machine.

    Args:
        grid: Cells of a run, or of several fine-tunings.
        settings: Settings of the run.

    Raises:
        DryRun: In a dry run.
    """
    if processes() > 1 and not is_dry():
        return {}
    cost, seconds = cells_cost(grid, settings)
    announce(lambda: cost)
    return seconds


def cells_cost(
    grid: Grid, settings: RunSettings, scores: dict[str, Cost] | None = None
) -> tuple[Cost, dict[str, float]]:
    """Estimate the cells of a grid that are not done; in all, and the seconds by cell, if it has the whole machine.

    Args:
        grid: The cells.
        settings: Settings of the run.
        scores: Estimates of scoring by selector that are known, to which others are added.
    """
    states = grid.states()
    ahead = [cell for cell in grid.cells if states[cell.name] != "done"]
    with _side_by_side(settings.jobs):
        estimates = cell_estimates(ahead, settings, {} if scores is None else scores)
    seconds = {name: estimate.seconds for name, estimate in estimates.items()}
    total = sum(seconds.values()) + REST * (len(ahead) - len(seconds))
    times = {name: format_duration(estimate) for name, estimate in seconds.items()}
    table = "\n".join(
        f"{states[cell.name]:<8} {cell.name:<38} {times.get(cell.name, '')}".rstrip()
        for cell in grid.cells
    )
    what = f"{len(ahead)} of {len(grid.cells)} cells, into {grid.folder}"
    return Cost(what, total, sum(estimate.bytes for estimate in estimates.values()), table), seconds


@contextmanager
def _side_by_side(jobs: int) -> Iterator[None]:
    """Within the block, compute with the threads of one of several jobs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, cores() // jobs) if jobs > 1 else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def cell_estimates(
    cells: Sequence[Cell], settings: RunSettings, scores: dict[str, Cost]
) -> dict[str, Cost]:
    """Estimate the cells that read, score, train and fine-tune; the others take little.

    A model that is the output of another cell is as fast as the run's. What cannot be read is left
    out, and reported by its cell.

    Args:
        cells: Cells of a run, or of several fine-tunings.
        settings: Settings of the run.
        scores: Estimates of scoring by selector; those that are missing are added.

    Returns:
        Estimates by cell; of those that train side by side their share of the time.
    """
    estimates: dict[str, Cost] = {}
    tasks: dict[str, tuple[TaskCard, Sizes]] = {}
    corpus, side, names = (
        Path(settings.out) / "corpus",
        min(settings.jobs, cores()),
        [cell.name for cell in cells],
    )
    for cell in cells:
        values, stage = cell.settings, cell.stage.rpartition(":")[2]
        model = values["model"] if isinstance(values.get("model"), str) else settings.model
        with suppress(*() if is_dry() else UNMEASURED):
            if stage == "adapt_stage" or (stage == "base_model" and model is None):
                plan = values.get("settings", settings.pretrain)
                estimates[cell.name] = training_estimate(
                    model, settings.size, plan, corpus, None, values["out"]
                )
            elif stage == "finetune_stage":
                card, plan = str(values["card"]), values["settings"]
                tasks[card] = tasks.get(card) or _task_of(card, settings, plan)
                estimates[cell.name] = finetuning_estimate(
                    model or SHIPPED, *tasks[card], plan, values["out"]
                )
            elif stage == "score_read" and settings.harvest is None:
                spec = values["selector"]
                cost = scores[spec] = scores.get(spec) or estimate_score(
                    replace(settings, selector=spec)
                )
                estimates |= (
                    {"texts": Cost(cost.what, cost.reading, cost.bytes)} if "texts" in names else {}
                )
                estimates[cell.name] = Cost(cost.what, cost.seconds - cost.reading)
                continue
        if cell.name in estimates and cell.name != "texts":
            estimates[cell.name] = replace(
                estimates[cell.name], seconds=estimates[cell.name].seconds / side
            )
    return estimates


def _task_of(card: str, settings: RunSettings, plan: FinetuneSettings) -> tuple[TaskCard, Sizes]:
    """Read a card and the sizes of its task; a harvest will write them by its settings."""
    if settings.harvest is not None and not Path(card).exists():
        names, count = ("train", "dev", "test"), settings.harvest.task_documents
        train, dev, test = (round(count * SPLITS[name]) for name in names)
        presets = {"quick": replace(PRESETS["quick"], **QUICK)}
        task = TaskCard(
            "the harvest", "", 1, ["", " "], "accuracy", {}, {"local": "task"}, presets=presets
        )
        return task, (train, dev, test, settings.harvest.max_characters)
    task = plan.fields_of(load_card(card))
    return task, labelled_sizes(task, plan, settings.data)
