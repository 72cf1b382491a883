"""``dana files average``: average the weights of two models, and commit the result as a model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dana.core.artifacts import Artifact, Draft, list_differences, make, open_artifact, write_text
from dana.core.config import require
from dana.core.errors import ConfigError
from dana.core.logging import get_logger
from dana.core.schemas import DOCUMENTS, table_identity
from dana.models.folder import (
    check_checkpoint,
    licence_line,
    model_identity,
    model_name,
    note_weights,
)
from dana.models.heads import positions_of
from dana.models.known_text import FILE, read_known_text
from dana.models.pooling import read_pooling
from dana.stages.texts import held_out_folders
from dana.stages.training import folder_text
from dana.train.evaluation import HeldOut
from dana.train.execution import make_accelerator
from dana.train.hf_trainer import load_model
from dana.train.loop import prepare
from dana.train.run import heldout_examples
from dana.train.settings import TrainSettings
from dana.train.state import save_model
from dana.train.training_state import TrainingState

log = get_logger(__name__)

AUTO = "auto"
OBJECTIVE = {
    "ForMaskedLM": "masked",
    "ForCausalLM": "causal",
}  # whose loss is measured, by the model's class
GRID = [number / 10 for number in range(11)]
OF_PLACE = (
    "_name_or_path",
    "transformers_version",
    "dtype",
    "torch_dtype",
    "architectures",  # not that of a head in a file of its own: classes are compared
)  # keys of a configuration
CARD = "---\n{licence}library_name: transformers\n---\n\n# {names}, averaged by dana\n\nThe first counts {alpha:g}.\n"


def average_stage(
    first: str, second: str, alpha: float | str, runs: Sequence[Path], out: Path
) -> Artifact:
    """Average the weights of two models: alpha times the first plus 1 - alpha times the second.

    Args:
        first: Folder with safetensors, or Hub name.
        second: Another model of the same shape, best adapted from the same base: averages of
            unrelated ones are noise.
        alpha: From 0 to 1; or ``auto``: that of 0, 0.1, ..., 1 with the lowest mean held-out loss,
            in nats per predicted token, over the held-out target text and the held-out pool text
            of every run, all equally. The loss at the chosen alpha is the lowest of eleven on this
            text, and so too good: report it of other text.
        runs: Folders of runs with held-out text; for ``auto`` only.
        out: Folder for the model. Its manifest has ``alpha`` and, by alpha, the held-out losses.

    Raises:
        ConfigError: If alpha is out of range, or the models differ in configuration, and so in
            shape, or in tokenizer.
        ArtifactError: If a model or a run's text is missing.

    References:
        Wortsman et al. 2022, Robust fine-tuning of zero-shot models, section 3.
    """
    is_number = isinstance(alpha, int | float) and 0 <= alpha <= 1
    require(is_number or alpha == AUTO, "alpha", alpha, f"{AUTO}, or a number from 0 to 1")
    require(
        bool(runs) == (alpha == AUTO),
        "on",
        [str(run) for run in runs],
        "runs' folders with alpha=auto, else none",
    )
    texts: dict[str, Path] = {}
    for run in runs:
        open_artifact(run / "target", "target", "dana score --task ... --pool ... --out DIR")
        task, pool = held_out_folders(run)
        texts |= {f"{run}: task": task, f"{run}: pool": pool}
    for model in (first, second):
        check_checkpoint(model)
        read_pooling(model)
    depends_on: dict[str, Any] = {
        "models": [model_identity(first), model_identity(second)],
        "alpha": alpha,
    }
    depends_on["texts"] = [table_identity(folder, DOCUMENTS) for folder in texts.values()]

    def write(draft: Draft) -> None:
        (model, tokenizer), (other, other_tokenizer) = load_model(first), load_model(second)
        _check_alike(first, second, (model, tokenizer), (other, other_tokenizer))
        weights = [
            {name: value.clone() for name, value in candidate.state_dict().items()}
            for candidate in (model, other)
        ]
        objective = next(
            (name for kind, name in OBJECTIVE.items() if kind in type(model).__name__), ""
        )
        longest = min(TrainSettings().max_tokens, positions_of(model.config))
        settings = TrainSettings(max_tokens=longest, objective=objective or "masked")
        state, best = prepare(model, settings, make_accelerator()), alpha
        if alpha == AUTO:
            require(bool(objective), "alpha", AUTO, f"a number: {first} is no language model")
            heldout_texts = {name: folder_text(folder, tokenizer) for name, folder in texts.items()}
            heldout = heldout_examples(
                heldout_texts, settings.make_objective(), tokenizer, settings
            )
            losses = {
                candidate: _losses(_average(state, weights, candidate), heldout)
                for candidate in GRID
            }
            best = min(GRID, key=lambda candidate: sum(losses[candidate].values()))
            draft.notes["losses_by_alpha"] = losses
        draft.notes["alpha"] = best
        save_model(_average(state, weights, float(best)), tokenizer, draft.path)
        documents = [
            keys for model in (first, second) if (keys := read_known_text(model)) is not None
        ]
        if len(documents) == 2:
            np.save(draft.path / FILE, np.union1d(*documents))
        names = f"{model_name(first)} and {model_name(second)}"
        write_text(
            draft.path / "README.md",
            CARD.format(licence=licence_line(first), names=names, alpha=float(best)),
        )
        note_weights(draft)

    return make(out, "model", depends_on, write)


def _check_alike(first: str, second: str, ours: tuple[Any, Any], theirs: tuple[Any, Any]) -> None:
    """Refuse two models, each with its tokenizer, that differ in more than their weights.

    Raises:
        ConfigError: Names the first difference.
    """
    configurations: list[Any] = [
        {**model.config.to_dict(), **dict.fromkeys(OF_PLACE)} for model, _ in (ours, theirs)
    ]
    classes: list[Any] = [{"class": type(model).__name__} for model, _ in (ours, theirs)]
    tokenizers: list[Any] = [tokenizer.get_vocab() for _, tokenizer in (ours, theirs)]
    compared = (
        ("architecture", classes),
        ("configuration", configurations),
        ("tokenizer", tokenizers),
    )
    for what, values in compared:
        if difference := next(list_differences(*values), None):
            raise ConfigError(
                f"{second}: must be like {first}, but its {what} differs: {difference}"
            )


def _average(
    state: TrainingState, weights: Sequence[Mapping[str, torch.Tensor]], alpha: float
) -> TrainingState:
    """Set the state's weights to the average of two models' weights, in place; integers stay."""
    with torch.no_grad():
        for name, value in state.model.state_dict().items():
            if value.is_floating_point():
                value.copy_(alpha * weights[0][name] + (1 - alpha) * weights[1][name])
    return state


def _losses(state: TrainingState, heldout: HeldOut) -> dict[str, float]:
    """Measure the held-out loss on each text, in nats per predicted token; text without such tokens is left out."""
    means = heldout.mean_losses(state.module, state.shape, state.accelerator)
    log.info("held-out losses: %s", means)
    return {name: mean for name, mean in means.items() if mean is not None}
