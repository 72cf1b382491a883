"""Pilot the objectives of an adaptation (``objective: auto``), and adapt by the one that was chosen.

The rule is that of :mod:`dana.finetuning.pilot`.
"""

import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import Artifact, Draft, make_on_all_ranks, open_artifact, read_manifest
from dana.core.errors import (
    ArtifactError,
    ConfigError,
    Contradiction,
    DanaError,
    DataError,
    DivergenceError,
)
from dana.core.launch import on_rank_0
from dana.core.logging import get_logger
from dana.core.raw_files import RAW_FILES, RawFiles
from dana.core.text_table import tabulate
from dana.encoders.transformer import TransformerEncoder
from dana.finetuning.pilot import NONE, STANDARD_ERRORS, VERSION, Trial, choose_objective, judge
from dana.finetuning.probe import LabelledVectors, cross_validated, group_numbers
from dana.finetuning.results import PREDICTIONS
from dana.finetuning.settings import FinetuneSettings, ProbeSettings
from dana.models.folder import check_checkpoint, lacks_head, load_config, model_identity
from dana.models.language_model import check_length
from dana.report.pilot import pilot_text
from dana.stages.probe import refuse_kind, task_identity, texts_apart
from dana.stages.training import HEAD, TrainingData, adapt_stage, head_stage, warmup_file
from dana.tasks.card import TaskCard, load_card
from dana.tasks.examples import Example, joined_texts, read_splits, subset
from dana.train.objectives.architectures import is_masked_model
from dana.train.objectives.masked import MaskedTokens
from dana.train.settings import AdaptSettings, HeadWarmup

log = get_logger(__name__)

CANDIDATES = ("position", "crops", "masked")
PILOT_STEPS = 25
EVALUATION_TOKENS = 1_000  # nothing rests on the loss of a candidate
HEADLESS = "position"  # an objective that needs no head of the base


def settings_before_pilot(settings: AdaptSettings) -> AdaptSettings:
    """Return the settings to use before a pilot has chosen the objective: in place of ``auto`` one without a head."""
    return replace(settings, objective=HEADLESS) if settings.is_auto else settings


def pilot_stage(  # noqa: PLR0913, a step of a recipe names its inputs one by one
    model: str,
    pool: Path,
    weights: Path | None,
    target_heldout: Path,
    pool_heldout: Path,
    settings: AdaptSettings,
    card: str,
    out: Path,
    texts: FinetuneSettings | None = None,
    data: str | None = None,
    fold: int | None = None,
    language: str = "en",
) -> Artifact:
    """Train a model for a few steps by each candidate, probe the results on training texts, and choose.

    Only labels of training texts are read. A candidate that cannot train this model on this text is
    left out, which its row says. A candidate that needs a head which the model lacks starts from a copy
    of the model with a new one, ``OUT-head``, which is kept if this candidate is chosen. The trained
    candidates lie in ``OUT-candidates`` until the pilot is whole, so that a stopped one goes on.

    Args:
        model: Folder with safetensors, or Hub name.
        pool: Folder of a pool artifact.
        weights: Folder of its weights; None trains on all of it equally.
        target_heldout: Folder of held-out target documents.
        pool_heldout: Folder of held-out pool documents.
        settings: Settings of the adaptation; a candidate has its own objective and steps.
        card: A task card's name or YAML file.
        out: Folder of the artifact. Its manifest has ``choice``, the metric and ``trials``, a row
            for each candidate; ``predictions.parquet`` has those of every training text.
        texts: Settings of fine-tuning, of which ``max_train`` and the names of fields are used.
        data: Folder of the card's data.
        fold: The fold that is tested, whose texts are not read, of a card with several.
        language: ISO 639-1 code, for objectives that cut text without weights into sentences.

    Raises:
        ConfigError: If each word of the task has a label, or the model has too few positions for
            ``max_tokens``.
        DataError: If there are too few training texts.
        ArtifactError: If an input is missing, or `out` holds something else.
    """
    check_checkpoint(model)
    config = load_config(model)
    check_length(config, settings.max_tokens)
    texts = texts or FinetuneSettings()
    task = texts.fields_of(load_card(card))
    refuse_kind(task)
    mix = settings.mix or {"selected" if weights else "pool": 1.0}
    inputs = TrainingData(pool, weights, target_heldout, pool_heldout, mix, language=language)
    on_rank_0(inputs.hold_out)
    width = config.get_text_config().hidden_size
    trainings = {name: candidate_settings(settings, name).for_width(width) for name in CANDIDATES}
    raw_files = RawFiles(out)
    depends_on = {
        "model": model_identity(model, raw_files.digest),
        **inputs.identity(),
        "candidates": {name: training.decisive() for name, training in trainings.items()},
        **_warm_up_of(model, settings),
        "task": task_identity(task, data, raw_files),
        "max_train": texts.max_train,
        "fold": fold,
        "language": language,
        "rule": {"standard_errors": STANDARD_ERRORS, "version": VERSION},
    }
    folder = Path(f"{out}-candidates")

    def write(draft: Draft | None) -> None:
        models = {NONE: model}
        left_out: dict[str, str] = {}
        new_heads: list[str] = []
        for name, training in trainings.items():
            try:
                start = head_stage(model, inputs, training, Path(f"{out}{HEAD}"))
                artifact = adapt_stage(
                    start,
                    pool,
                    weights,
                    target_heldout,
                    pool_heldout,
                    training,
                    folder / name,
                    language=language,
                )
            except DanaError as error:
                reason = _reason_to_leave_out(error)
                if not reason:
                    raise
                left_out[name] = reason
                continue
            models[name] = str(artifact.path)
            if start != model:
                new_heads.append(name)
        if draft is None:
            return
        examples = _training_texts(task, data, fold, texts)
        predictions, table = _predict(models, task, examples)
        labels = task.label_kind.gather([example.label for example in examples])
        trials = judge(predictions, labels, task.label_kind, task.metric)
        draft.notes |= _notes(task, trials, left_out)
        draft.notes["new_heads"] = new_heads
        draft.counts |= {"texts": len(examples)}
        draft.notes[RAW_FILES] = raw_files.records()
        draft.seeds["seed"] = settings.seed
        pq.write_table(table, draft.path / PREDICTIONS, compression="zstd")

    artifact = make_on_all_ranks(out, "pilot", depends_on, write)
    on_rank_0(lambda: _remove_unneeded(artifact))
    return artifact


def _remove_unneeded(artifact: Artifact) -> None:
    """Remove what lies beside a whole pilot and is read no more.

    It is the trained candidates, the copy with a new head unless its objective was chosen, and the state
    of the warm-up of a head that was left out.
    """
    manifest = artifact.manifest
    shutil.rmtree(f"{artifact.path}-candidates", ignore_errors=True)
    head = Path(f"{artifact.path}{HEAD}")
    if manifest["choice"] not in manifest.get("new_heads", []):
        shutil.rmtree(head, ignore_errors=True)
    warmup_file(head).unlink(missing_ok=True)


def _warm_up_of(model: str, settings: AdaptSettings) -> dict[str, Any]:
    """Return the settings by which the new head of a model is warmed up, as inputs of a pilot.

    There are none where the model gets no new head, or where they are the defaults.

    Args:
        model: Folder with safetensors, or Hub name.
        settings: Settings of the adaptation.
    """
    config = load_config(model)
    if settings.head_warmup == HeadWarmup() or not is_masked_model(config):
        return {}
    auto_class = MaskedTokens().auto_class(config)
    if not lacks_head(auto_class, model):
        return {}
    return {"head_warmup": asdict(settings.head_warmup)}


def _reason_to_leave_out(error: DanaError) -> str:
    """Return why a candidate cannot be trained, the same on all processes; empty if the pilot must end.

    Every process must call this. An error of work that only the first does is no more than its exit
    code on the others.
    """
    is_stop = error.exit_code != DanaError.exit_code
    if is_stop:
        return ""
    is_of_candidate = isinstance(error, ConfigError | DataError | DivergenceError)
    return on_rank_0(lambda: str(error) if is_of_candidate else "")


def choice_text(pilot: Path) -> str:
    """Describe the choice of a pilot in a sentence, with its table.

    Args:
        pilot: Folder of :func:`pilot_stage`.
    """
    manifest = open_artifact(pilot, "pilot").manifest
    return f"{pilot_text(manifest)}\n{_table(manifest['trials'])}"


def candidate_settings(settings: AdaptSettings, objective: str) -> AdaptSettings:
    """Return the settings of a short training by one objective."""
    return replace(
        settings,
        objective=objective,
        steps=PILOT_STEPS,
        tokens=None,
        epochs=None,
        evaluations=0,
        evaluation_tokens=EVALUATION_TOKENS,
        eval_every=None,
        final="last",
    )


def _training_texts(
    task: TaskCard, data: str | None, fold: int | None, texts: FinetuneSettings
) -> list[Example]:
    """Return the training texts, in an order that no file decides, without those of tested groups."""
    splits = read_splits(task, data, fold)
    examples, _, _ = texts_apart(subset(splits["train"], texts.max_train), splits["test"])
    groups = len(set(group_numbers(examples).tolist()))
    if groups < 2:
        raise DataError(
            f"{task.name}: objective=auto needs training texts of at least two groups to choose by; "
            "name an objective"
        )
    return examples


def _predict(
    models: Mapping[str, str], task: TaskCard, examples: list[Example]
) -> tuple[dict[str, np.ndarray], pa.Table]:
    """Predict each text by probes of each candidate that were fitted to other texts."""
    kind = task.label_kind
    labels = kind.gather([example.label for example in examples])
    predictions = {}
    tables = []
    for name, model in models.items():
        encoder = TransformerEncoder.of_checkpoint(model, ProbeSettings().max_tokens)
        vectors = encoder.encode(joined_texts(examples)).cpu().numpy()
        predictions[name] = cross_validated(LabelledVectors.of_examples(task, examples, vectors))
        for repeat, row in enumerate(predictions[name]):
            columns = {
                "objective": [name] * len(examples),
                "repeat": [repeat] * len(examples),
                "id": [example.id for example in examples],
                "label": kind.label_column(labels.tolist()),
                "prediction": kind.label_column(row.tolist()),
            }
            tables.append(pa.table(columns))
    return predictions, pa.concat_tables(tables)


def _notes(task: TaskCard, trials: list[Trial], left_out: Mapping[str, str]) -> dict[str, Any]:
    """Return the entries of the manifest."""
    rows = [{**asdict(trial), "left_out": None} for trial in trials]
    nothing = {"score": None, "gain": None, "error": None, "bar": None}
    rows += [
        {"objective": name, **nothing, "left_out": reason} for name, reason in left_out.items()
    ]
    return {
        "choice": choose_objective(trials),
        "task": task.name,
        "metric": task.metric,
        "steps": PILOT_STEPS,
        "trials": rows,
    }


def _table(trials: list[dict[str, Any]]) -> str:
    """Format the table of a pilot."""
    rows = []
    for trial in trials:
        numbers = {
            name: "" if trial[name] is None else f"{trial[name]:.4f}"
            for name in ("score", "gain", "error", "bar")
        }
        note = f"left out: {trial['left_out']}" if trial["left_out"] else ""
        rows.append({"objective": trial["objective"], **numbers, "": note})
    return tabulate(rows)


def adapt_chosen(  # noqa: PLR0913, a step of a recipe names its inputs one by one
    pilot: Path,
    model: str,
    pool: Path,
    weights: Path | None,
    target_heldout: Path,
    pool_heldout: Path,
    settings: AdaptSettings,
    out: Path,
    language: str = "en",
) -> Artifact | str:
    """Adapt a model by the objective that a pilot chose, as :func:`dana.stages.training.adapt_stage` does.

    Args:
        pilot: Folder of the pilot.
        model: Folder with safetensors, or Hub name.
        pool: Folder of a pool artifact.
        weights: Folder of its weights; None trains on all of it equally.
        target_heldout: Folder of held-out target documents.
        pool_heldout: Folder of held-out pool documents.
        settings: Settings of the training, with the objective ``auto``.
        out: Folder for the model.
        language: ISO 639-1 code, for objectives that cut text without weights into sentences.

    Returns:
        The adapted model; if the pilot chose none, `model` as it is.

    Raises:
        ArtifactError: If the pilot chose none, and `out` holds a model that another choice made; or if the
            base with a new head is missing, from which the pilot started.
    """
    manifest = open_artifact(pilot, "pilot").manifest
    choice = manifest["choice"]
    if choice == NONE:
        on_rank_0(lambda: _refuse_former(out, manifest))
        log.info("adapt     no objective was chosen by %s: the model stays as it is", pilot)
        return model
    chosen = replace(settings, objective=choice)
    is_of_pilot = manifest["depends_on"]["model"] == model_identity(model)
    if is_of_pilot and choice in manifest.get("new_heads", []):
        model = _with_new_head(pilot)
    return adapt_stage(
        model, pool, weights, target_heldout, pool_heldout, chosen, out, language=language
    )


def _with_new_head(pilot: Path) -> str:
    """Return the folder of the copy of the base with a new head, which a pilot made.

    Raises:
        ArtifactError: If it is missing.
    """
    folder = f"{pilot}{HEAD}"
    if not on_rank_0(lambda: Path(folder).is_dir()):
        raise ArtifactError(
            f"{folder}: is missing: the base with the new head that {pilot} tried; remove {pilot}, too, and "
            "dana run makes both again"
        )
    return folder


def _refuse_former(out: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse, or with --remake replace by nothing, a model that was adapted by another choice."""
    former = read_manifest(out)
    if not former:
        return
    there = former["depends_on"].get("settings", {}).get("objective")
    raise Contradiction(out, [f"objective: {there} there, {manifest['choice']} now"])
