"""Choose a model at the end of a run, fit it to all labelled texts and publish it; publish the adapted encoder.

:func:`final_stage` makes ``OUT/model``, :func:`encoder_stage` makes ``OUT/encoder``;
:mod:`dana.stages.final_steps` plans them.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dana.core.artifacts import (
    Artifact,
    Draft,
    fingerprint,
    make,
    read_json,
    read_manifest,
    write_json,
    write_text,
)
from dana.core.errors import DanaError, DataError
from dana.core.files import folder_lock, make_parent, replace_folder, restore_folder, temp_dir
from dana.core.launch import on_rank_0
from dana.core.logging import get_logger
from dana.core.raw_files import RawFiles
from dana.core.schemas import FINAL, iterate_documents
from dana.encoders.transformer import TransformerEncoder
from dana.finetuning.choice import VERSION, Candidate, Choice, choose, label_rows
from dana.finetuning.likeness import save_likeness
from dana.finetuning.probe import LabelledVectors, choose_strength, group_numbers, text_keys
from dana.finetuning.result_card import CHOICE, encoder_card, model_card
from dana.finetuning.result_card import result_lines as result_lines
from dana.finetuning.result_model import (
    FINE_TUNED,
    Description,
    is_result,
    pipeline_targets,
    save_tfidf,
    save_vectors,
    vectors_pipeline,
)
from dana.finetuning.results import PREDICTIONS
from dana.finetuning.saved import save_classifier
from dana.finetuning.settings import FinetuneSettings, chosen_weight
from dana.models.classifier import BACKBONE
from dana.models.encoder_folder import save_encoder
from dana.models.folder import model_identity
from dana.report.probes import ALL, LINEAR
from dana.scoring.inputs import PoolText
from dana.stages.baselines import VERSIONS as BASELINE_VERSIONS
from dana.stages.baselines import fit_tfidf
from dana.stages.final_steps import CANDIDATE_OPTIONS, FINETUNED, TFIDF, VECTORS
from dana.stages.finetune_seed import fit_classifier
from dana.stages.probe import task_identity
from dana.tasks.card import TaskCard, load_card
from dana.tasks.examples import Example, joined_texts, read_splits, subset
from dana.tasks.kinds.base import Kind

log = get_logger(__name__)

MODEL = "model"
POOL = "pool"
POOL_DOCUMENTS = 1_000  # by which the unlike texts are told
ENCODER_NOTE = "dana.json"  # in the folder of an encoder: what it was made from
FINETUNING_SEED = 0  # of the final model


@dataclass(frozen=True)
class Tested:
    """The texts that every candidate was tested on.

    Attributes:
        labels: Labels of shape (texts,).
        groups: Number of each text's group.
        predictions: Labels of shape (fits, texts) of each candidate, by its kind.
    """

    labels: np.ndarray
    groups: np.ndarray
    predictions: dict[str, np.ndarray]


@dataclass(frozen=True)
class Ending:
    """What the model at the end of a run is made from, whichever candidate wins.

    Attributes:
        task: The task, with the names of fields that the settings override.
        card: The task card's name or YAML file.
        data: Folder of the card's data.
        folds: Number of folds of the task; 0 with one fixed split, whose test texts are not fitted
            to.
        settings: Settings of fine-tuning.
        max_tokens: Longest text of the encoder of vectors.
        out: Folder of the run.
        base: The base model of the run, which the README names.
    """

    task: TaskCard
    card: str
    data: str | None
    folds: int
    settings: FinetuneSettings
    max_tokens: int
    out: Path
    base: str

    def of_winner(self, winner: Mapping[str, Any]) -> "Ending":
        """Return the same with the settings of the winner, where it is fine-tuned in another way than the arms."""
        if "method" not in winner:
            return self
        return replace(self, settings=self.settings.by_method(winner["method"]))

    @cached_property
    def texts(self) -> dict[str, list[Example]]:
        """The texts that the model may be fitted to, ``train`` and ``dev``.

        With folds these are all labelled texts, else all but the test texts.
        """
        # A fold of this number has no text, so that none is left out.
        splits = read_splits(self.task, self.data, self.folds or None)
        return {"train": subset(splits["train"], self.settings.max_train), "dev": splits["dev"]}

    def every_text(self) -> list[Example]:
        """Return the texts of both splits; with ``max_train`` those of ``train`` alone."""
        texts = self.texts
        if self.settings.max_train is not None:
            return texts["train"]
        return [*texts["train"], *texts["dev"]]


def final_stage(  # noqa: PLR0913, a step of a recipe names its inputs one by one
    card: str,
    candidates: list[dict[str, Any]],
    waiting: int,
    settings: FinetuneSettings,
    max_tokens: int,
    out: Path,
    name: str,
    base: str,
    data: str | None = None,
    folds: int = 0,
) -> Artifact:
    """Choose among the candidates that were tested so far, and put the winner into ``OUT/model``.

    A model that was chosen among more candidates of the same texts stays.

    Args:
        card: A task card's name or YAML file.
        candidates: The candidates, the cheapest first, as
            :func:`dana.stages.final_steps.with_final` describes them.
        waiting: Number of candidates that the run has not tested yet.
        settings: Settings of fine-tuning.
        max_tokens: Longest text of the encoder of vectors.
        out: Folder of the run.
        name: Name of the newest candidate, and of the folder of the choice in ``OUT/final``.
        base: The base model of the run, which the README names.
        data: Folder of the card's data.
        folds: Number of folds of the task; 0 with one fixed split, whose test texts are not fitted
            to.

    Returns:
        The choice, ``OUT/final/choice-NAME``.

    Raises:
        DataError: If no text was tested by all candidates.
    """
    task = settings.fields_of(load_card(card))
    ending = Ending(task, card, data, folds, settings, max_tokens, out, base)
    folder = out / FINAL / f"choice-{name}"
    raw_files = RawFiles(folder)
    identity = task_identity(task, data, raw_files) | {"max_train": settings.max_train}
    depends_on = {
        "task": identity,
        "candidates": {candidate["kind"]: _identity(candidate) for candidate in candidates},
        "waiting": waiting,
        "version": VERSION,
    }

    def write(draft: Draft) -> None:
        content = _choice_content(ending, candidates, waiting)
        write_json(draft.path / CHOICE, content)
        scores = {row["kind"]: row["score"] for row in content["candidates"]}
        draft.notes["metrics"] = {"expected": content["expected"], **scores}
        draft.counts["texts"] = content["texts"]

    artifact = make(folder, "choice", depends_on, write, remake=True)

    def publish() -> None:
        content = read_json(folder / CHOICE)
        [winner] = [one for one in candidates if one["kind"] == content["choice"]]
        _publish_model(ending.of_winner(winner), winner, content, identity)

    on_rank_0(publish)
    return artifact


def _identity(candidate: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fingerprint of each artifact that holds predictions of a candidate."""
    return {
        str(Path(path).name) + f"-{index}-{number}": read_manifest(Path(path))["fingerprint"]
        for number, (index, path) in enumerate(candidate["outputs"])
    }


def _choice_content(
    ending: Ending, candidates: Sequence[Mapping[str, Any]], waiting: int
) -> dict[str, Any]:
    """Choose, and return what ``choice.json`` says."""
    task = ending.task
    tested = _read_tested(ending, candidates)
    kind = task.label_kind
    rows = [
        Candidate(candidate["kind"], tested.predictions[candidate["kind"]])
        for candidate in candidates
    ]
    choice = choose(rows, tested.labels, kind, task.metric, tested.groups)
    return {
        "task": task.name,
        "metric": task.metric,
        "direction": task.direction,
        "choice": choice.name,
        "expected": choice.expected,
        "low": choice.low,
        "high": choice.high,
        "texts": int(tested.labels.size),
        "groups": int(tested.groups.max()) + 1,
        "folds": ending.folds,
        "has_labels": kind.has_labels,
        "waiting": waiting,
        "constant": kind.baseline(tested.labels, task.metric),
        "candidates": _candidate_rows(candidates, tested, choice),
        "labels": label_rows(tested.predictions[choice.name], tested.labels, kind),
    }


def _candidate_rows(
    candidates: Sequence[Mapping[str, Any]], tested: Tested, choice: Choice
) -> list[dict[str, Any]]:
    return [
        {
            "kind": candidate["kind"],
            "form": candidate["form"],
            "score": choice.scores[candidate["kind"]],
            "fits": len(tested.predictions[candidate["kind"]]),
            "chosen_in": choice.shares.get(candidate["kind"]),
        }
        for candidate in candidates
    ]


def _read_tested(ending: Ending, candidates: Sequence[Mapping[str, Any]]) -> Tested:
    """Read the predictions of all candidates on the texts that each of them was tested on.

    Raises:
        DataError: If there is no such text.
    """
    kind = ending.task.label_kind
    tables = {one["kind"]: _read_fits(one, kind, ending.folds) for one in candidates}
    shared = set.intersection(*(set(fits[0]) for fits in tables.values()))
    if not shared:
        name = ending.task.name
        raise DataError(f"{name}: no text was tested by every candidate; run the recipe again")
    ids = sorted(shared)
    labels = next(iter(tables.values()))[0]
    groups = _groups_of(ending)
    names = [groups.get(identifier, "") or f"\x1f{identifier}" for _, identifier in ids]
    predictions = {
        name: np.stack([kind.gather([fit[key][1] for key in ids]) for fit in fits])
        for name, fits in tables.items()
    }
    return Tested(
        kind.gather([labels[key][0] for key in ids]),
        np.unique(names, return_inverse=True)[1],
        predictions,
    )


Fit = dict[tuple[int, str], tuple[Any, Any]]  # label and prediction by fold and id


def _read_fits(candidate: Mapping[str, Any], kind: Kind, folds: int) -> list[Fit]:
    """Read the predictions of a candidate: a table for each repetition, which covers all folds.

    With folds, the n-th fits of all folds are one repetition; without, each fit is one.
    """
    by_index: dict[int, list[pa.Table]] = {}
    for index, path in candidate["outputs"]:
        table = pq.read_table(Path(path) / _file_of(candidate))
        if candidate["form"] == VECTORS:
            is_whole = pc.and_(pc.equal(table["method"], LINEAR), pc.equal(table["size"], ALL))
            table = table.filter(is_whole)
        if candidate["form"] == TFIDF:
            for number in sorted(set(table["adaptation"].to_pylist())):
                part = table.filter(pc.equal(table["adaptation"], number))
                by_index.setdefault(number, []).append(part)
            continue
        by_index.setdefault(index, []).append(table)
    if not folds:
        fits = [table for _, tables in sorted(by_index.items()) for table in tables]
        return [_rows_of(table, kind, 0) for table in fits]
    repetitions = min(len(tables) for tables in by_index.values())
    joined: list[Fit] = []
    for number in range(repetitions):
        fit: Fit = {}
        for fold, tables in by_index.items():
            fit |= _rows_of(tables[number], kind, fold)
        joined.append(fit)
    return joined


def _file_of(candidate: Mapping[str, Any]) -> str:
    return f"{TFIDF}/{PREDICTIONS}" if candidate["form"] == TFIDF else PREDICTIONS


def _rows_of(table: pa.Table, kind: Kind, fold: int) -> Fit:
    labels = kind.labels_from(table["label"])
    predictions = kind.labels_from(table["prediction"])
    rows = zip(table["id"].to_pylist(), labels, predictions, strict=True)
    return {(fold, identifier): (label, prediction) for identifier, label, prediction in rows}


def _groups_of(ending: Ending) -> dict[str, str]:
    """Return the group of each tested text that has one, by id."""
    if ending.task.group is None:
        return {}
    folds: list[int | None] = [*range(ending.folds)] or [None]
    tested = []
    for fold in folds:
        tested += read_splits(ending.task, ending.data, fold)["test"]
    return {example.id: example.group for example in tested}


def _publish_model(
    ending: Ending,
    winner: Mapping[str, Any],
    content: Mapping[str, Any],
    identity: Mapping[str, Any],
) -> None:
    """Make the winner and put it into ``OUT/model``, unless that holds it, or what more candidates were chosen from.

    Args:
        ending: What it is made from.
        winner: The candidate.
        content: What ``choice.json`` says.
        identity: Of the task.
    """
    task = ending.task
    settings = ending.settings
    out = ending.out
    target = out / MODEL
    windows = winner.get("windows")
    depends_on = {
        "task": dict(identity),
        "folds": ending.folds,
        "form": winner["form"],
        "model": model_identity(winner["model"]) if winner["model"] else None,
        "settings": _set_values(settings) if winner["form"] == FINETUNED else None,
        "max_tokens": ending.max_tokens if winner["form"] == VECTORS else None,
        "version": VERSION,
        "baselines": BASELINE_VERSIONS[TFIDF],
        "pool": read_manifest(out / POOL).get("fingerprint"),
    }
    depends_on |= {name: winner[name] for name in CANDIDATE_OPTIONS if name in winner}
    made_from = fingerprint(depends_on)
    notes = {
        "made_from": made_from,
        "choice": fingerprint(content),
        "task": fingerprint(identity),
        "candidates": len(content["candidates"]),
        "name": winner["kind"],
        "expected": content["expected"],
        "low": content["low"],
        "high": content["high"],
    }
    if windows is not None:
        notes["windows"] = windows
    form = FINE_TUNED if winner["form"] == FINETUNED else winner["form"]
    description = Description.of_card(form, task, **notes)
    if winner["form"] == VECTORS:
        description = replace(description, max_tokens=ending.max_tokens)
    restore_folder(target)
    former = _notes_of(target)
    if former.get("task") == notes["task"]:
        is_later = former.get("candidates", 0) > notes["candidates"]
        is_same = former.get("choice") == notes["choice"] and former["made_from"] == made_from
        if is_later or is_same:
            return

    every = ending.every_text()

    def write(folder: Path) -> None:
        if former.get("made_from") == made_from:
            shutil.copytree(target, folder, dirs_exist_ok=True)
            description.write(folder)
        else:
            fit(folder, ending, winner, description)
            save_likeness(folder, every, _pool_sample(out / POOL))
        write_json(folder / CHOICE, content)
        is_in_parts = (folder / BACKBONE).is_dir()
        card = model_card(task, winner, content, ending.base, len(every), is_in_parts)
        write_text(folder / "README.md", card)

    publish(target, write)
    log.info("final     %s is the model in %s", winner["kind"], target)


def _set_values(settings: FinetuneSettings) -> dict[str, Any]:
    """Return the settings; windows and a class weight only if they are set."""
    values = asdict(settings)
    return {
        name: value
        for name, value in values.items()
        if name not in CANDIDATE_OPTIONS or value is not None
    }


def _pool_sample(folder: Path) -> list[str]:
    """Return documents of a pool, in equal distances; none of a pool that is not read yet."""
    if not read_manifest(folder):
        return []
    every = max(1, PoolText.open(folder).documents // POOL_DOCUMENTS)
    return [document.text for document in islice(iterate_documents(folder), 0, None, every)]


def _notes_of(folder: Path) -> dict[str, Any]:
    """Return the notes of a model; empty where there is none that can be read."""
    if not is_result(folder):
        return {}
    try:
        return dict(Description.read(folder).notes)
    except DanaError:
        return {}


def publish(path: Path, write: Callable[[Path], None]) -> None:
    """Write a folder and put it in the place of the one at a path, which stays until the new one is whole.

    Args:
        path: Its final place.
        write: Fills an empty folder.
    """
    with make_parent(path), folder_lock(path), temp_dir(path) as workspace:
        folder = workspace / "new"
        folder.mkdir()
        write(folder)
        replace_folder(folder, path)


def fit(folder: Path, ending: Ending, winner: Mapping[str, Any], description: Description) -> None:
    """Fit a candidate to the labelled texts and save it.

    TF-IDF and vectors are fitted to both splits; a fine-tuning that takes its best epoch keeps
    ``dev`` for that.

    Args:
        folder: Target folder; must exist.
        ending: What it is made from.
        winner: The candidate.
        description: What the model is.
    """
    if winner["form"] == TFIDF:
        _fit_tfidf(folder, ending, description)
    elif winner["form"] == VECTORS:
        _fit_vectors(folder, ending, winner, description)
    else:
        _fit_finetuned(folder, ending, winner, description)


def _fit_tfidf(folder: Path, ending: Ending, description: Description) -> None:
    every = ending.every_text()
    targets = pipeline_targets([example.label for example in every], ending.task.label_kind)
    save_tfidf(folder, fit_tfidf(ending.task, joined_texts(every), targets), description)


def _fit_finetuned(
    folder: Path, ending: Ending, winner: Mapping[str, Any], description: Description
) -> None:
    rate = winner.get("rate")
    classifier, tokenizer = fit_classifier(
        winner["model"],
        ending.card,
        ending.settings,
        dict(ending.texts),
        FINETUNING_SEED,
        ending.data,
        None if rate is None else Path(rate),
    )
    save_classifier(classifier, tokenizer, ending.task.label_kind, folder)
    description.write(folder)


def _fit_vectors(
    folder: Path, ending: Ending, winner: Mapping[str, Any], description: Description
) -> None:
    assert description.max_tokens is not None
    encoder = TransformerEncoder.of_checkpoint(
        winner["model"], description.max_tokens, description.windows
    )
    weight = chosen_weight(winner.get("class_weight"), ending.task.class_weight)
    task = replace(ending.task, class_weight=weight)
    save_vectors(
        folder, winner["model"], _pipeline(task, ending.every_text(), encoder), description
    )


def _pipeline(task: TaskCard, examples: list[Example], encoder: TransformerEncoder) -> Any:
    """Fit the linear model of the probe to the vectors of texts, in an order that no file decides."""
    ordered = [examples[row] for row in np.argsort(text_keys(examples), kind="stable")]
    vectors = encoder.encode(joined_texts(ordered)).cpu().numpy()
    kind = task.label_kind
    labels = [example.label for example in ordered]
    known = LabelledVectors(
        vectors,
        kind.gather(labels),
        kind,
        task.metric,
        text_keys(ordered),
        group_numbers(ordered),
        task.class_weight,
    )
    strength = choose_strength(known)
    return vectors_pipeline(vectors, labels, kind, strength, task.class_weight)


def encoder_stage(
    model: str, base: str, out: Path, max_tokens: int, task: str, base_name: str, folds: int
) -> str:
    """Put the adapted model of all labelled texts into ``OUT/encoder``, where sentence-transformers opens it.

    Args:
        model: The adapted model.
        base: The model that it was adapted from, which it is where no objective was worth it.
        out: Target folder.
        max_tokens: Longest text that sentence-transformers reads.
        task: Name of the task.
        base_name: What the README calls the base.
        folds: Number of folds of the task; 0 with one fixed split.

    Returns:
        The folder; empty where the model is the base.
    """
    identity = fingerprint({"model": model_identity(model), "max_tokens": max_tokens})
    restored = restore_folder(out)
    if model == base:
        on_rank_0(lambda: shutil.rmtree(restored, ignore_errors=True))
        log.info("encoder   no objective was worth it: the base stays as it is")
        return ""
    note = restored / ENCODER_NOTE
    if note.is_file() and read_json(note).get("made_from") == identity:
        return str(out)
    texts = "All labelled texts had a part in choosing that text."
    if not folds:
        texts = "All labelled texts but those of the test split had a part in choosing that text."

    def write(folder: Path) -> None:
        save_encoder(model, folder, max_tokens)
        write_json(folder / ENCODER_NOTE, {"made_from": identity})
        write_text(folder / "README.md", encoder_card(model, base_name, task, texts, out))

    on_rank_0(lambda: publish(out, write))
    log.info("encoder   %s is the base, adapted to text like the labelled texts", out)
    return str(out)
