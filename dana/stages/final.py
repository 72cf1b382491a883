"""Choose a model at the end of a run, fit it to all labelled texts and publish it; publish the adapted encoder.

:func:`final_stage` makes ``OUT/model``, :func:`encoder_stage` makes ``OUT/encoder``;
:mod:`dana.stages.final_steps` plans them.
"""

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

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
from dana.core.errors import ArtifactError, DanaError, DataError
from dana.core.files import (
    folder_lock,
    make_parent,
    remove_leftovers,
    replace_folder,
    restore_folder,
    temp_dir,
)
from dana.core.launch import on_rank_0
from dana.core.logging import get_logger
from dana.core.raw_files import RawFiles
from dana.core.schemas import FINAL, iterate_documents
from dana.encoders.transformer import TransformerEncoder
from dana.finetuning.choice import VERSION, Candidate, Choice, choose, label_rows
from dana.finetuning.likeness import save_likeness
from dana.finetuning.probe import LabelledVectors, choose_strength, fitted, in_key_order
from dana.finetuning.result_card import CHOICE, encoder_card, model_card, text_words
from dana.finetuning.result_card import result_lines as result_lines
from dana.finetuning.result_model import (
    FINE_TUNED,
    Description,
    is_result,
    pipeline_targets,
    save_tfidf,
    save_vectors,
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
from dana.stages.final_steps import FINETUNED, TFIDF, VECTORS
from dana.stages.finetune_seed import fit_classifier
from dana.stages.probe import task_identity
from dana.stages.texts import unlabelled_folder
from dana.tasks.card import TaskCard, load_card
from dana.tasks.examples import Example, joined_texts, read_splits, subset
from dana.tasks.kinds.base import Kind

log = get_logger(__name__)

MODEL = "model"
POOL = "pool"
POOL_DOCUMENTS = 1_000  # about so many documents show the detector of a model what unlike text is
ENCODER_NOTE = "dana.json"  # in the folder of an encoder: what it was made from
FINETUNING_SEED = 0  # of the final model


class TextResult(NamedTuple):
    """What is known of one tested text: its label, and what a fit of a candidate predicted.

    Attributes:
        label: The label, as the task's kind of label represents it.
        prediction: The predicted label.
    """

    label: Any
    prediction: Any


# The results of a fit, by fold (0 without folds) and id of a text.
Fit = dict[tuple[int, str], TextResult]


@dataclass(frozen=True)
class Tested:
    """The texts that every candidate was tested on.

    A candidate is named by its kind, such as ``vectors-base`` (:mod:`dana.stages.final_steps`).

    Attributes:
        labels: Labels of shape (texts,).
        groups: Number of each text's group, of shape (texts,), from 0.
        predictions: For each candidate, labels of shape (fits, texts).
    """

    labels: np.ndarray
    groups: np.ndarray
    predictions: dict[str, np.ndarray]


@dataclass(frozen=True)
class Ending:
    """What the model at the end of a run is made from, besides the candidate that wins.

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
        """Return what the model is made from if this candidate wins.

        Only the settings of fine-tuning may differ: a candidate with a ``method`` was fine-tuned by
        another method than the models of the arms.

        Args:
            winner: The candidate (:func:`dana.stages.final_steps.with_final`).
        """
        if "method" not in winner:
            return self
        return replace(self, settings=self.settings.by_method(winner["method"]))

    @cached_property
    def texts(self) -> dict[str, list[Example]]:
        """The texts that the model may be fitted to, ``train`` and ``dev``.

        With folds these are all labelled texts, else all but the test texts. With ``max_train``,
        ``train`` has at most so many.
        """
        tested_fold = None
        if self.folds:
            # Folds are numbered from 0, so no text is in this one, and none is left out for a test.
            tested_fold = self.folds
        splits = read_splits(self.task, self.data, tested_fold)
        return {"train": subset(splits["train"], self.settings.max_train), "dev": splits["dev"]}

    def every_text(self) -> list[Example]:
        """Return the texts of ``train`` and ``dev``.

        With ``max_train`` they are those of ``train`` alone, since more would be more than that.
        """
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

    The winner is fitted to the labelled texts (:attr:`Ending.texts`) and saved there. A model that is
    there already stays if it was chosen among more candidates for the same task, or if it is this
    one.

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
        DataError: If no text was tested by all candidates, or the task's data is missing or bad.
        ConfigError: If there is no such card.
        ArtifactError: If a folder cannot be read or written.
    """
    task = settings.fields_of(load_card(card))
    ending = Ending(task, card, data, folds, settings, max_tokens, out, base)
    folder = out / FINAL / f"choice-{name}"
    raw_files = RawFiles(folder)
    identity = task_identity(task, data, raw_files) | {"max_train": settings.max_train}
    fingerprints = {candidate["kind"]: _output_fingerprints(candidate) for candidate in candidates}
    depends_on = {
        "task": identity,
        "candidates": fingerprints,
        "waiting": waiting,
        "version": VERSION,
    }

    def write(draft: Draft) -> None:
        content = _choice_content(ending, candidates, waiting)
        write_json(draft.path / CHOICE, content)
        scores = {row["kind"]: row["score"] for row in content["candidates"]}
        draft.notes["metrics"] = {"expected": content["expected"], **scores}
        draft.counts["texts"] = content["texts"]

    # A choice from other results, or with other candidates waiting, is made again.
    artifact = make(folder, "choice", depends_on, write, remake=True)

    def publish_winner() -> None:
        # The choice is read back: it may be one that was made before.
        content = read_json(folder / CHOICE)
        winner = next(one for one in candidates if one["kind"] == content["choice"])
        _publish_model(ending.of_winner(winner), winner, content, identity)

    on_rank_0(publish_winner)
    return artifact


def _output_fingerprints(candidate: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fingerprints of the artifacts that hold predictions of a candidate.

    They have the names ``FOLDER-INDEX-NUMBER``: the index of the adaptation or fold, and the number
    of the artifact, since folders of several indices have the same name.
    """
    fingerprints = {}
    for number, (index, path) in enumerate(candidate["outputs"]):
        name = f"{Path(path).name}-{index}-{number}"
        fingerprints[name] = read_manifest(Path(path))["fingerprint"]
    return fingerprints


def _choice_content(
    ending: Ending, candidates: Sequence[Mapping[str, Any]], waiting: int
) -> dict[str, Any]:
    """Choose a candidate, and return the content of ``choice.json``.

    Args:
        ending: The task, its data and its number of folds.
        candidates: The candidates, the cheapest first.
        waiting: Number of candidates that are not tested yet.

    Raises:
        DataError: If no text was tested by all candidates.
    """
    task = ending.task
    tested = _read_tested(ending, candidates)
    kind = task.label_kind
    named_predictions = []
    for candidate in candidates:
        name = candidate["kind"]
        named_predictions.append(Candidate(name, tested.predictions[name]))
    choice = choose(named_predictions, tested.labels, kind, task.metric, tested.groups)
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
    """Return what ``choice.json`` says of each candidate.

    Returns:
        ``kind`` and ``form``; its ``score`` on all texts; its number of ``fits``; and ``chosen_in``,
        the share of the draws in which it was chosen, None if nothing was drawn.
    """
    rows = []
    for candidate in candidates:
        name = candidate["kind"]
        rows.append(
            {
                "kind": name,
                "form": candidate["form"],
                "score": choice.scores[name],
                "fits": len(tested.predictions[name]),
                "chosen_in": choice.shares.get(name),
            }
        )
    return rows


def _read_tested(ending: Ending, candidates: Sequence[Mapping[str, Any]]) -> Tested:
    """Read the predictions of all candidates on the texts that each of them was tested on.

    The texts are in the order of fold and id.

    Raises:
        DataError: If there is no such text.
    """
    kind = ending.task.label_kind
    fits_by_candidate = {one["kind"]: _read_fits(one, kind, ending.folds) for one in candidates}
    # All fits of a candidate have the same texts, so the first of each tells them.
    first_fits = [fits[0] for fits in fits_by_candidate.values()]
    shared = set.intersection(*map(set, first_fits))
    if not shared:
        name = ending.task.name
        raise DataError(f"{name}: no text was tested by every candidate; run the recipe again")
    keys = sorted(shared)
    labels = [first_fits[0][key].label for key in keys]
    predictions = {}
    for name, fits in fits_by_candidate.items():
        rows = [kind.gather([fit[key].prediction for key in keys]) for fit in fits]
        predictions[name] = np.stack(rows)
    return Tested(kind.gather(labels), _tested_groups(ending, keys), predictions)


def _read_fits(candidate: Mapping[str, Any], kind: Kind, folds: int) -> list[Fit]:
    """Read the predictions of a candidate, for each repetition of its fit.

    With folds, the n-th fits of all folds are one repetition, which covers all texts; without, each
    fit is one.

    Args:
        candidate: The candidate.
        kind: The task's kind of label.
        folds: Number of folds of the task; 0 with one fixed split.
    """
    tables_by_index = _prediction_tables(candidate)
    if not folds:
        single_fits: list[Fit] = []
        for _, tables in sorted(tables_by_index.items()):
            single_fits += [_fit_of(table, kind, 0) for table in tables]
        return single_fits
    repetitions = min(len(tables) for tables in tables_by_index.values())
    joined_fits: list[Fit] = []
    for number in range(repetitions):
        joined: Fit = {}
        for fold, tables in tables_by_index.items():
            joined |= _fit_of(tables[number], kind, fold)
        joined_fits.append(joined)
    return joined_fits


def _prediction_tables(candidate: Mapping[str, Any]) -> dict[int, list[pa.Table]]:
    """Read the tables of a candidate's predictions, one for each fit.

    Returns:
        The tables by index of the adaptation or fold.
    """
    tables: dict[int, list[pa.Table]] = {}
    for index, path in candidate["outputs"]:
        if candidate["form"] == TFIDF:
            # One table has the predictions of all adaptations or folds.
            table = pq.read_table(Path(path) / TFIDF / PREDICTIONS)
            for number in sorted(set(table["adaptation"].to_pylist())):
                part = table.filter(pc.equal(table["adaptation"], number))
                tables.setdefault(number, []).append(part)
            continue
        table = pq.read_table(Path(path) / PREDICTIONS)
        if candidate["form"] == VECTORS:
            # The probe also has other methods, and fits to a part of the texts.
            is_linear = pc.equal(table["method"], LINEAR)
            is_of_all_texts = pc.equal(table["size"], ALL)
            table = table.filter(pc.and_(is_linear, is_of_all_texts))
        tables.setdefault(index, []).append(table)
    return tables


def _fit_of(table: pa.Table, kind: Kind, fold: int) -> Fit:
    """Return the rows of a table of predictions as results by fold and id."""
    labels = kind.labels_from(table["label"])
    predictions = kind.labels_from(table["prediction"])
    rows = zip(table["id"].to_pylist(), labels, predictions, strict=True)
    return {
        (fold, identifier): TextResult(label, prediction) for identifier, label, prediction in rows
    }


def _tested_groups(ending: Ending, keys: Sequence[tuple[int, str]]) -> np.ndarray:
    """Number the groups of tested texts from 0, int64 of shape (texts,); a text without one is alone.

    Args:
        ending: The task, its data and its number of folds.
        keys: Fold and id of each text.
    """
    groups = _groups_by_id(ending)
    names = []
    for _, identifier in keys:
        group = groups.get(identifier, "")
        # The separator is in no group's name, so a text alone has a name of its own.
        names.append(group or f"\x1f{identifier}")
    _, numbers = np.unique(names, return_inverse=True)
    return numbers


def _groups_by_id(ending: Ending) -> dict[str, str]:
    """Return the name of each tested text's group by the id of the text.

    The name is empty for a text that is alone. Nothing is read if the task has no groups.
    """
    if ending.task.group is None:
        return {}
    tested_folds: list[int | None] = [None]  # the test texts of the fixed split
    if ending.folds:
        tested_folds = [*range(ending.folds)]
    tested = []
    for fold in tested_folds:
        tested += read_splits(ending.task, ending.data, fold)["test"]
    return {example.id: example.group for example in tested}


def _publish_model(
    ending: Ending,
    winner: Mapping[str, Any],
    content: Mapping[str, Any],
    identity: Mapping[str, Any],
) -> None:
    """Fit the winner to the labelled texts and put it into ``OUT/model``.

    Nothing is done if the model there is this one, or if it was chosen among more candidates for the
    same task. A model that was made from the same inputs is not fitted again.

    Args:
        ending: What the model is made from.
        winner: The candidate.
        content: Content of ``choice.json``.
        identity: What of the task decides a result.
    """
    task = ending.task
    target = ending.out / MODEL
    description = _describe_model(ending, winner, content, identity)
    notes = description.notes
    restore_folder(target)
    former = _notes_of(target)
    if former.get("task") == notes["task"]:
        is_later = former.get("candidates", 0) > notes["candidates"]
        has_same_choice = former.get("choice") == notes["choice"]
        is_same = has_same_choice and former["made_from"] == notes["made_from"]
        if is_later or is_same:
            remove_leftovers(target, is_replaced=True)
            return

    texts = ending.every_text()

    def write(folder: Path) -> None:
        if former.get("made_from") == notes["made_from"]:
            shutil.copytree(target, folder, dirs_exist_ok=True)
            description.write(folder)
        else:
            fit(folder, ending, winner, description)
            save_likeness(folder, texts, _other_texts(ending.out / POOL))
        write_json(folder / CHOICE, content)
        is_in_parts = (folder / BACKBONE).is_dir()
        card = model_card(task, winner, content, ending.base, len(texts), is_in_parts)
        write_text(folder / "README.md", card)

    publish(target, write)
    log.info("final     %s is the model in %s", winner["kind"], target)


def _describe_model(
    ending: Ending,
    winner: Mapping[str, Any],
    content: Mapping[str, Any],
    identity: Mapping[str, Any],
) -> Description:
    """Return the description of the model that a winner becomes.

    Its notes tell models apart: ``made_from`` is the fingerprint of all that decides the fit,
    ``choice`` that of the choice, and ``task`` that of the task.

    Args:
        ending: See :func:`_publish_model`.
        winner: See :func:`_publish_model`.
        content: See :func:`_publish_model`.
        identity: See :func:`_publish_model`.
    """
    notes = {
        "made_from": fingerprint(_model_inputs(ending, winner, identity)),
        "choice": fingerprint(content),
        "task": fingerprint(identity),
        "candidates": len(content["candidates"]),
        "name": winner["kind"],
        "expected": content["expected"],
        "low": content["low"],
        "high": content["high"],
    }
    windows = winner.get("windows")
    if windows is not None:
        notes["windows"] = windows
    form = winner["form"]
    if form == FINETUNED:
        form = FINE_TUNED  # the same form, as saved models spell it
    description = Description.of_card(form, ending.task, **notes)
    if winner["form"] == VECTORS:
        description = replace(description, max_tokens=ending.max_tokens)
    return description


def _model_inputs(
    ending: Ending, winner: Mapping[str, Any], identity: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all that decides the model that a winner becomes, for a fingerprint.

    Args:
        ending: See :func:`_publish_model`.
        winner: See :func:`_publish_model`.
        identity: See :func:`_publish_model`.
    """
    form = winner["form"]
    inputs = {
        "task": dict(identity),
        "folds": ending.folds,
        "form": form,
        "model": None,
        "settings": None,
        "max_tokens": None,
        "windows": winner.get("windows"),
        "class_weight": winner.get("class_weight"),
        "version": VERSION,
        "baselines": BASELINE_VERSIONS[TFIDF],
        "pool": read_manifest(ending.out / POOL).get("fingerprint"),
    }
    if winner["model"]:
        inputs["model"] = model_identity(winner["model"])
    if form == FINETUNED:
        inputs["settings"] = asdict(ending.settings)
    if form == VECTORS:
        inputs["max_tokens"] = ending.max_tokens
    return inputs


def _other_texts(folder: Path) -> list[str]:
    """Return the texts of about :data:`POOL_DOCUMENTS` documents of a pool, at equal distances.

    A smaller pool is returned whole. There are none if the pool is not read yet, or consists of the
    task's own texts without labels.
    """
    manifest = read_manifest(folder)
    unlabelled = read_manifest(unlabelled_folder(folder))
    if not manifest or _files_of(manifest) == _files_of(unlabelled):
        return []
    step = max(1, PoolText.open(folder).documents // POOL_DOCUMENTS)
    sample = islice(iterate_documents(folder), 0, None, step)
    return [document.text for document in sample]


def _files_of(manifest: Mapping[str, Any]) -> Any:
    """Return the files that an artifact of documents was read from; None of an empty manifest."""
    return manifest.get("depends_on", {}).get("files")


def _notes_of(folder: Path) -> dict[str, Any]:
    """Return the notes of the model in a folder; empty where there is none that can be read."""
    if not is_result(folder):
        return {}
    try:
        return dict(Description.read(folder).notes)
    except DanaError:
        return {}


def publish(path: Path, write: Callable[[Path], None]) -> None:
    """Write a folder and put it in the place of an older one, which stays until the new one is whole.

    Args:
        path: The final place of the folder, where the older one may be.
        write: Fills an empty folder.

    Raises:
        ArtifactError: If another process is replacing the folder, or it cannot be written.
    """
    with make_parent(path), folder_lock(path), temp_dir(path) as workspace:
        folder = workspace / "new"
        folder.mkdir()
        write(folder)
        replace_folder(folder, path)


def fit(folder: Path, ending: Ending, winner: Mapping[str, Any], description: Description) -> None:
    """Fit a candidate to the labelled texts, and save it with its description.

    TF-IDF and vectors are fitted to :meth:`Ending.every_text`; a fine-tuning that takes its best
    epoch keeps ``dev`` for that (:func:`dana.stages.finetune_seed.fit_classifier`).

    Args:
        folder: Target folder; must exist.
        ending: What the model is made from.
        winner: The candidate.
        description: What the model is.

    Raises:
        ArtifactError: If the candidate's model cannot be read.
        Preemption: If a signal asked to stop a fine-tuning.
    """
    if winner["form"] == TFIDF:
        _fit_tfidf(folder, ending, description)
    elif winner["form"] == VECTORS:
        _fit_vectors(folder, ending, winner, description)
    else:
        _fit_finetuned(folder, ending, winner, description)


def _fit_tfidf(folder: Path, ending: Ending, description: Description) -> None:
    """Do as :func:`fit` for TF-IDF."""
    examples = ending.every_text()
    labels = [example.label for example in examples]
    targets = pipeline_targets(labels, ending.task.label_kind)
    pipeline = fit_tfidf(ending.task, joined_texts(examples), targets)
    save_tfidf(folder, pipeline, description)


def _fit_finetuned(
    folder: Path, ending: Ending, winner: Mapping[str, Any], description: Description
) -> None:
    """Do as :func:`fit` for a fine-tuning."""
    rate = None  # the output of the step that found a learning rate, if one did
    if winner.get("rate") is not None:
        rate = Path(winner["rate"])
    classifier, tokenizer = fit_classifier(
        winner["model"],
        ending.card,
        ending.settings,
        dict(ending.texts),
        FINETUNING_SEED,
        ending.data,
        rate,
    )
    save_classifier(classifier, tokenizer, ending.task.label_kind, folder)
    description.write(folder)


def _fit_vectors(
    folder: Path, ending: Ending, winner: Mapping[str, Any], description: Description
) -> None:
    """Do as :func:`fit` for vectors."""
    assert description.max_tokens is not None  # _describe_model sets it for vectors
    encoder = TransformerEncoder.of_checkpoint(
        winner["model"], description.max_tokens, description.windows
    )
    weight = chosen_weight(winner.get("class_weight"), ending.task.class_weight)
    task = replace(ending.task, class_weight=weight)
    pipeline = _vectors_model(task, ending.every_text(), encoder)
    save_vectors(folder, winner["model"], pipeline, description)


def _vectors_model(task: TaskCard, examples: list[Example], encoder: TransformerEncoder) -> Any:
    """Fit the linear model of the probe to the vectors of texts, and return it as a scikit-learn pipeline.

    Args:
        task: The task, with the class weight to use.
        examples: The texts to fit to, with their labels.
        encoder: Makes the vectors.
    """
    ordered = in_key_order(examples)
    vectors = encoder.encode(joined_texts(ordered)).cpu().numpy()
    labels = [example.label for example in ordered]
    strength = choose_strength(LabelledVectors.of_examples(task, ordered, vectors))
    targets = pipeline_targets(labels, task.label_kind)
    return fitted(vectors, targets, task.label_kind, strength, task.class_weight)


def _identity_of(encoder: Path) -> str | None:
    """Return what an encoder was made from; None where there is none, or its note is damaged."""
    note = encoder / ENCODER_NOTE
    if not note.is_file():
        return None
    try:
        content = read_json(note)
    except ArtifactError:
        return None
    return content.get("made_from") if isinstance(content, dict) else None


def encoder_stage(
    models: list[dict[str, Any]],
    choice: Path | None,
    base: str,
    out: Path,
    max_tokens: int,
    task_name: str,
    base_name: str,
    folds: int,
) -> str:
    """Put an adapted model of all labelled texts into ``OUT/encoder``, where sentence-transformers opens it.

    Of several it is the one whose vectors label best. If adapting was not worth it, that model is its
    base. Then nothing is published, and an encoder that is there from an earlier run is removed.

    Args:
        models: The adapted models, each with the name of its ``arm``, the ``model`` (the base itself
            where a pilot chose to leave it as it is), and whether its text was nothing but the task's
            texts without labels, as ``is_unlabelled``.
        choice: Folder of a choice with the scores of their vectors; None takes the first model.
        base: The model that they were adapted from.
        out: Target folder.
        max_tokens: Longest text that sentence-transformers reads.
        task_name: Name of the task.
        base_name: What the README calls the base.
        folds: Number of folds of the task; 0 with one fixed split.

    Returns:
        The folder; empty where the model is the base.

    Raises:
        ArtifactError: If the model cannot be read, or the folder cannot be written.
    """
    best = _best_encoder(models, choice)
    arm = best["arm"]
    model = best["model"]
    identity = fingerprint({"model": model_identity(model), "max_tokens": max_tokens})
    restored = restore_folder(out)
    if model == base:
        on_rank_0(lambda: shutil.rmtree(restored, ignore_errors=True))
        log.info("encoder   %s", _reason_for_base(models, arm, base))
        return ""
    if _identity_of(restored) == identity:
        if restored == out:
            on_rank_0(lambda: remove_leftovers(out, is_replaced=True))
        return str(out)
    texts = text_words(best["is_unlabelled"], task_name, bool(folds))

    def write(folder: Path) -> None:
        save_encoder(model, folder, max_tokens)
        write_json(folder / ENCODER_NOTE, {"made_from": identity})
        write_text(folder / "README.md", encoder_card(model, base_name, texts, out))

    on_rank_0(lambda: publish(out, write))
    log.info("encoder   %s is the base, adapted by the arm %s", out, arm)
    return str(out)


def _best_encoder(models: list[dict[str, Any]], choice: Path | None) -> dict[str, Any]:
    """Return the model whose vectors label best; of equals, and without scores, the first.

    Args:
        models: See :func:`encoder_stage`.
        choice: See :func:`encoder_stage`.
    """
    scores: dict[str, float] = {}
    if choice is not None:
        content = read_json(choice / CHOICE)
        sign = 1 if content["direction"] == "higher" else -1
        scores = {row["kind"]: sign * row["score"] for row in content["candidates"]}

    def goodness(model: dict[str, Any]) -> float:
        return scores.get(f"{VECTORS}-{model['arm']}", -math.inf)

    return max(models, key=goodness)


def _reason_for_base(models: list[dict[str, Any]], arm: str, base: str) -> str:
    """Say why no encoder is published: of no arm, or not of the best, an objective was worth it.

    Args:
        models: See :func:`encoder_stage`.
        arm: The arm whose vectors label best; its model is the base.
        base: See :func:`encoder_stage`.
    """
    adapted = [model["arm"] for model in models if model["model"] != base]
    if not adapted:
        return "no objective was worth it: the base stays as it is"
    return (
        f"none, as the vectors of {arm}, which is the base as it was, label better than those of "
        f"{', '.join(adapted)}"
    )
