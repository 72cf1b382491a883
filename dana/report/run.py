"""Read a run's folder into data frames, the input of every table and figure.

A part that the run lacks is None or empty.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dana.core.artifacts import MANIFEST, read_manifest, run_manifests
from dana.core.config import RECIPE
from dana.core.errors import ArtifactError, DanaError, NothingToReport, nearest_path
from dana.core.files import paths_below
from dana.core.schemas import HELD_OUT_TARGET, NESTED, SCORES, WEIGHTS, part_files, read_table
from dana.report.arm_results import (
    ArmResult,
    lineages_by_weights,
    output_weights,
    read_arm_result,
    read_baseline,
    weight_digests,
)
from dana.report.files import (
    TRAINING,
    read_columns,
    read_object,
    reading,
    recorded_seconds,
    training_lines,
)
from dana.report.page import ExamplesBySource
from dana.report.probes import ProbeResult, read_neighbours, read_probes, read_retrieval
from dana.report.unit_texts import most_extreme
from dana.tasks.card import load_card
from dana.tasks.examples import read_folds, read_split

EVALUATION = ("step", "tokens", "target_loss", "target_loss_se", "pool_loss", "pool_loss_se")
# Of objectives that predict a class: the share that is right, and the share that guessing gets.
ACCURACIES = ("target_accuracy", "target_guess", "pool_accuracy", "pool_guess")
DETECTOR_COLUMNS = ("name", "f1_mean", "auroc_mean", "ap_mean", "stability", "fit_s", "score_s")
SELECTOR_COLUMNS = ("name", "ap", "ap_low", "ap_high", "recall_5", "recall_20", "auroc", "weight")
FUSION = "fusion"  # name of the row for the fusion of all candidates
# The last look of a run that may stop early: planned adaptations, those done, and why it stopped.
LOOKS = "looks.json"
POOL_TEXT = "pool text"  # name of the task that measures what is forgotten
ADAPTED = "adapted"  # name of the only arm of a run without arms
CARD = "card.yaml"  # of dana init
CONTROLS = ("base", "pool", "random")
ARMS = (*CONTROLS, "dana", ADAPTED)  # order in tables and figures


def is_control(arm: str) -> bool:
    """Return whether an arm is a control, with which other arms are compared.

    Controls are those of :data:`CONTROLS`, and arms named ``NAME+random``.
    """
    return arm in CONTROLS or arm.endswith("+random")


@dataclass(frozen=True)
class Candidates:
    """A comparison of detectors or selectors.

    Attributes:
        rows: One row per candidate, with a column ``chosen``.
        notes: What else is known of the comparison. Of a ranking of detectors it is the manifest,
            which has the ``budget``; of a choice of selectors it is the ``reason``.
    """

    rows: pd.DataFrame
    notes: dict[str, Any]


@dataclass(frozen=True)
class ScoreFrames:
    """Scores and weights of a run.

    Attributes:
        units: One row per unit of pool text: source (category), characters, score, and weight if
            the run has weights. The amount of selected text is the sum of
            weights, whatever the policy.
        target: One row per unit of held-out target text: characters, score.
        relevant: Example units with the lowest scores, by source.
        foreign: Example units with the highest scores, by source.
        weights: Manifest of the weights; empty without weights.
    """

    units: pd.DataFrame
    target: pd.DataFrame
    relevant: ExamplesBySource = ()
    foreign: ExamplesBySource = ()
    weights: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunFrames:
    """All data of a report.

    Attributes:
        path: Folder of the run.
        ranking: Ranking of the detectors.
        choice: Choice of the selector by ``auto``.
        scores: Scores and weights.
        evaluations: One row per arm and evaluation during training: arm, :data:`EVALUATION`,
            :data:`ACCURACIES`, and ``unit``, ``character`` where losses are those per character.
        results: Results of every fine-tuned arm of every task, in the order of the tables.
        baselines: Results of simple models on every task.
        probes: What probes of each size find in the frozen vectors of every arm.
        neighbours: The nearest labelled texts of a few test texts in the vectors of each arm, by
            arm.
        texts: Test texts by id, of a task whose card lies in the folder.
        final: Content of the ``choice.json`` of the model that the run ends in; empty without one.
        retrieval: One row per arm and text: how well a sentence finds its document.
        stages: Manifest of each committed artifact by its path in the folder.
        recipe: The recipe without its lines of comments; empty if the folder has no ``recipe.yaml``.
        is_run: True if ``dana run`` made it rather than one command per step.
        step_seconds: Seconds that each step recorded itself, by its path.
        wall_seconds: Seconds in which at least one step of ``dana run`` was at work; 0 without steps.
        missing: What a run that was stopped has not made yet, in words.
        stale: A sentence for each model or result whose input the run does not have (any more).
        stop: Why the run was stopped early; empty if it was not, or was continued.
    """

    path: Path
    ranking: Candidates | None = None
    choice: Candidates | None = None
    scores: ScoreFrames | None = None
    evaluations: pd.DataFrame | None = None
    results: tuple[ArmResult, ...] = ()
    baselines: tuple[ArmResult, ...] = ()
    probes: tuple[ProbeResult, ...] = ()
    neighbours: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    final: dict[str, Any] = field(default_factory=dict)
    retrieval: pd.DataFrame | None = None
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    recipe: str = ""
    is_run: bool = False
    step_seconds: dict[str, float] = field(default_factory=dict)
    wall_seconds: float = 0.0
    missing: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    stop: str = ""


def read_run(path: Path) -> RunFrames:
    """Read a run's folder.

    Raises:
        ArtifactError: If there is nothing to report, or a file is damaged; names file and key.
    """
    if not path.is_dir():
        raise ArtifactError(
            f"{path}: no such folder{nearest_path(path)}; a report needs the folder of a run"
        )
    outcomes = read_outcomes(path)
    run = replace(
        outcomes,
        ranking=read_ranking(path),
        choice=read_choice(path),
        scores=read_scores(path),
        evaluations=read_evaluations(path),
        recipe=_read_recipe(path),
        probes=_sorted_probes(path),
        neighbours=read_neighbours(path),
        final=read_final(path),
        texts=read_texts(path) if outcomes.results else {},
        retrieval=retrieval_frame(path),
        is_run=(path / "steps").is_dir(),
        step_seconds={step: recorded_seconds(path / step) for step in outcomes.stages},
        wall_seconds=_wall_seconds(path),
        missing=tuple(find_missing(outcomes.stages, outcomes.results, bool(outcomes.stop))),
        stale=tuple(find_stale(outcomes.stages)),
    )
    has_frame = run.ranking is not None or run.scores is not None or run.evaluations is not None
    if not (has_frame or run.results or run.probes):
        raise NothingToReport(
            f"{path}: nothing to report: no ranking/, scores/, adapted/, probe/ or finetune/ in "
            "this folder; start with: dana score --task ... --pool ... --out DIR"
        )
    return run


def _sorted_probes(path: Path) -> tuple[ProbeResult, ...]:
    """Read the probes of a run, in the order of the tables."""
    return tuple(sorted(read_probes(path), key=lambda result: (result.task, arm_order(result.arm))))


def retrieval_frame(path: Path) -> pd.DataFrame | None:
    """Read the retrieval of a run, in the order of the arms; None without one.

    Args:
        path: Folder of the run.

    Raises:
        ArtifactError: If a file is damaged.
    """
    rows = sorted(read_retrieval(path), key=lambda row: arm_order(row["arm"]))
    return pd.DataFrame(rows) if rows else None


def read_outcomes(path: Path) -> RunFrames:
    """Read what verdicts need of a run: manifests, results of arms and baselines, looks.

    Raises:
        ArtifactError: If a file is damaged; names file and key.
    """
    stages = {}
    # MANIFEST is a file in a folder of the artifact.
    artifacts = [file.parent.parent for file in run_manifests(path)]
    for folder in sorted(artifacts):
        stages[folder.relative_to(path).as_posix()] = read_object(folder / MANIFEST)
    horizon = 0  # planned adaptations
    adaptations_at_stop = 0
    stop = ""
    if (path / LOOKS).is_file():
        look = read_object(path / LOOKS)
        with reading(path / LOOKS):
            horizon = int(look["horizon"])
            adaptations_at_stop = int(look["adaptations"])
            stop = str(look["stop"])
    results = tuple(replace(result, horizon=horizon) for result in read_arm_results(path, stages))
    if any(result.adaptations > adaptations_at_stop for result in results):
        stop = ""  # the run was continued
    # Baselines are compared on the folds of the last arm: it may lack folds that earlier arms of a
    # stopped run have.
    last_result = {result.task: result for result in results}
    baselines = []
    for file in paths_below(path, "baselines/*/*/metrics.json"):
        baseline = read_baseline(file)
        if baseline.task in last_result:
            baseline = baseline.on_folds_of(last_result[baseline.task])
        baselines.append(baseline)
    return RunFrames(path, results=results, baselines=tuple(baselines), stages=stages, stop=stop)


def read_final(path: Path) -> dict[str, Any]:
    """Read the choice of the model that the run ends in; empty if it made none.

    Of several choices, that among the most candidates is taken, because it replaces the others; of
    equally many the first by name.

    Raises:
        ArtifactError: If a file is damaged.
    """
    final: dict[str, Any] = {}
    most = 0
    for file in paths_below(path, "final/*/choice.json"):
        with reading(file):
            choice = read_object(file)
            count = len(choice["candidates"])
        if count > most:
            final = choice
            most = count
    return final


def read_texts(path: Path) -> dict[str, str]:
    """Read the test texts of the task whose card lies in the run's folder, by id.

    Without a card, there are none. The texts only illustrate the report, so a card or data that cannot
    be read is no error.
    """
    if not (path / CARD).is_file():
        return {}
    try:
        card = load_card(str(path / CARD))
        examples = read_split(card, "test") if card.folds is None else read_folds(card)
        return {example.id: " / ".join(example.texts) for example in examples}
    except DanaError:
        return {}


def _wall_seconds(path: Path) -> float:
    """Add up the time in which at least one step was at work.

    A record that cannot be read is not counted; the next ``dana run`` writes it again.
    """
    spans = []
    for file in paths_below(path, "steps/**/*.json"):
        with suppress(ArtifactError), reading(file):
            record = read_object(file)
            if "ended" in record:
                spans.append((float(record["ended"]), float(record["seconds"])))
    total = 0.0
    # Steps are taken from the last end backwards. All time from `earliest` on is counted.
    earliest = math.inf
    for end, seconds in sorted(spans, reverse=True):
        start = end - seconds
        total += max(0.0, min(end, earliest) - start)
        earliest = min(earliest, start)
    return total


def find_missing(
    stages: Iterable[str], results: Sequence[ArmResult], is_stopped: bool = False
) -> Iterator[str]:
    """Yield what is missing of a run whose fine-tuning has begun.

    These are results of adapted arms, and of adaptations that have begun.

    Args:
        stages: Path of each artifact in the run.
        results: Results of the arms.
        is_stopped: Whether the run was stopped early, so that no adaptation is missing.
    """
    adapted_arms = []  # from arms/ARM/adapted
    begun_adaptations = set()  # from nested/INDEX, which has fine-tunings also of the first one
    for stage in stages:
        folders = Path(stage).parts
        if not folders:  # the folder of the run itself
            continue
        if folders[0] == "arms" and folders[-1] == "adapted":
            adapted_arms.append(folders[1])
        if folders[0] == NESTED:
            begun_adaptations.add(folders[1])
    begun_count = len(begun_adaptations)
    for task in dict.fromkeys(result.task for result in results):
        of_task = [result for result in results if result.task == task]
        finetuned_arms = {result.arm for result in of_task}
        for arm in dict.fromkeys(adapted_arms):
            if arm not in finetuned_arms:
                yield f"{arm} is not fine-tuned on {task}"
        finetuned_count = min(result.adaptations for result in of_task)
        if finetuned_count < begun_count and not is_stopped:
            yield f"{finetuned_count} of {begun_count} adaptations are fine-tuned on {task}"


def find_stale(stages: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each model and result whose input the run does not have (any more).

    Args:
        stages: Manifest of each artifact by its path in the run.
    """
    fingerprints = {manifest.get("fingerprint") for manifest in stages.values()}
    digests_by_path = {path: output_weights(manifest) for path, manifest in stages.items()}
    for path, manifest in stages.items():
        folder = Path(path)
        depends_on = manifest.get("depends_on", {})
        if manifest.get("kind") == "model":
            # A model that was not trained on selected text depends on no weights.
            weights = depends_on.get("weights")
            has_weights = (folder.parent / "weights").as_posix() in stages
            if has_weights and weights is not None and weights not in fingerprints:
                yield (
                    f"Beware: {path} was trained on weights that this folder does not have: if they "
                    "were replaced since, adapt it again."
                )
        if manifest.get("kind") == "finetune":
            # The result of a single seed lies in a folder that names no arm; it is not checked.
            model = _model_of(folder.name, stages)
            can_check = bool(model) and bool(digests_by_path[model])
            digests_of_finetuned = weight_digests(depends_on.get("model"))
            if can_check and digests_of_finetuned not in digests_by_path.values():
                yield (
                    f"Beware: {path} is of a model that {model} replaced since: fine-tune it again."
                )


def _model_of(arm: str, stages: Iterable[str]) -> str:
    """Return the path of an arm's adapted model in the run; empty if it has none."""
    folders = [f"arms/{arm}/adapted"]
    if arm in ("dana", ADAPTED):
        folders.append("adapted")
    return next((folder for folder in folders if folder in stages), "")


def _read_recipe(path: Path) -> str:
    """Read the recipe without its lines of comments; empty without one."""
    file = path / RECIPE
    if not file.is_file():
        return ""
    lines = file.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


def read_ranking(path: Path) -> Candidates | None:
    """Read the ranking of the detectors; None without one."""
    folder = path / "ranking"
    content = _manifest_of_any_version(folder)
    if not content:
        return None
    with reading(folder / MANIFEST):
        return _candidates(content["detectors"], content["chosen"], DETECTOR_COLUMNS, content)


def read_choice(path: Path) -> Candidates | None:
    """Read which selector ``auto`` chose for the scores of :func:`read_scores`.

    None without scores, or if ``auto`` did not choose.
    """
    scores = scores_folder(path)
    if scores is None:
        return None
    content = _manifest_of_any_version(scores).get("choice")
    if not content:
        return None
    with reading(scores / MANIFEST):
        name = content["chosen"]
        if name.startswith(f"{FUSION}:"):  # followed by its parts and their weights
            name = FUSION
        rows = content["candidates"]
        return _candidates(rows, name, SELECTOR_COLUMNS, {"reason": content["reason"]})


def _candidates(
    rows: list[Any], choice: str, columns: Sequence[str], notes: dict[str, Any]
) -> Candidates:
    """Make a comparison of rows, with the named columns first.

    Raises:
        ValueError: If the choice is none of the rows; the caller's ``reading`` names the file.
    """
    if choice not in [row["name"] for row in rows]:
        raise ValueError(f"chosen={choice!r} is not among its candidates")
    frame = pd.DataFrame(rows)
    others = [name for name in frame if name not in columns]
    frame = frame[[*columns, *others]]
    return Candidates(frame.assign(chosen=frame["name"] == choice), notes)


def _arm_folders(path: Path) -> list[Path]:
    """List the run's folder, then those of its arms: dana, other selections, controls."""

    def by_selection(arm: Path) -> tuple[bool, bool, str]:
        return arm.name != "dana", is_control(arm.name), arm.name

    return [path, *sorted(paths_below(path, "arms/*"), key=by_selection)]


def weight_folders(path: Path) -> dict[str, Path]:
    """Return the folder of each arm's weights, in the order of :func:`_arm_folders`."""
    folders = {}
    for arm_folder in _arm_folders(path):
        folder = arm_folder / "weights"
        if not part_files(folder):
            continue
        arm = ADAPTED if arm_folder == path else arm_folder.name
        folders[arm] = folder
    return folders


def scores_folder(path: Path) -> Path | None:
    """Return the folder of the run's scores, or of the first arm that has scores."""
    for arm_folder in _arm_folders(path):
        if part_files(arm_folder / "scores"):
            return arm_folder / "scores"
    return None


def read_scores(path: Path) -> ScoreFrames | None:
    """Read the scores of the run and the weights made from them; None without scores.

    If the run has no scores of its own, they are those of the first arm that has some.
    """
    scores = scores_folder(path)
    if scores is None:
        return None
    table = read_table(scores, SCORES.names)
    units = _lengths_and_scores(table)
    units.insert(0, "source", table["source"].dictionary_encode().to_pandas())
    held_out = scores / HELD_OUT_TARGET
    target = SCORES.empty_table()
    if held_out.is_file():
        target = read_columns(held_out, SCORES.names)
    manifest_of_weights: dict[str, Any] = {}
    weight_of_unit = None
    folder = _folder_of_weights_from(scores, path)
    if folder is not None:
        manifest_of_weights = _manifest_of_any_version(folder)
        weight_of_unit = _read_weights(folder, table)
        units["weight"] = weight_of_unit
    relevant, foreign = most_extreme(table, path / "pool", weight_of_unit)
    return ScoreFrames(units, _lengths_and_scores(target), relevant, foreign, manifest_of_weights)


def _folder_of_weights_from(scores: Path, path: Path) -> Path | None:
    """Return the folder of the first weights of a run that were made from the scores; None without one.

    Weights whose manifest does not name their scores are accepted.
    """
    fingerprint = _manifest_of_any_version(scores).get("fingerprint")
    for arm_folder in _arm_folders(path):
        folder = arm_folder / "weights"
        if not part_files(folder):
            continue
        depends_on = _manifest_of_any_version(folder).get("depends_on", {})
        if depends_on.get("scores") in (None, fingerprint):
            return folder
    return None


def _manifest_of_any_version(folder: Path) -> dict[str, Any]:
    """Read the manifest of a folder, of any version of its schema; empty without one."""
    file = folder / MANIFEST
    return read_object(file) if file.is_file() else {}


def _lengths_and_scores(table: pa.Table) -> pd.DataFrame:
    """Return the characters and the score of each scored unit."""
    characters = table["end"].to_numpy() - table["start"].to_numpy()
    return pd.DataFrame({"characters": characters, "score": table["score"].to_numpy()})


def _read_weights(folder: Path, scores: pa.Table) -> np.ndarray:
    """Read weights of shape (units,) and check that their rows are those of the scores."""
    table = read_table(folder, WEIGHTS.names)
    if any(not table[name].equals(scores[name]) for name in ("doc_id", "unit")):
        raise ArtifactError(f"{folder}: its rows are not those of the scores; run dana weigh again")
    weights: np.ndarray = table["weight"].to_numpy().astype(np.float64)
    return weights


def read_evaluations(path: Path) -> pd.DataFrame | None:
    """Read the held-out losses and accuracies of every trained arm; None without a trained arm.

    What was not measured is NaN. If words were added to the vocabulary of any arm, losses per token of
    two arms cannot be compared. All losses are then per character, and the column ``unit`` says so.
    """
    folders = {ADAPTED: path / "adapted"}
    for folder in paths_below(path, "arms/*/adapted"):
        folders[folder.parent.name] = folder
    rows: list[dict[str, Any]] = []
    for arm, folder in folders.items():
        if (folder / TRAINING).is_file():
            rows += [{"arm": arm, **values} for values in _evaluations(folder / TRAINING)]
    if not rows:
        return None
    manifests = {arm: read_manifest(folder) for arm, folder in folders.items()}
    has_new_words = any("new_tokens" in manifest for manifest in manifests.values())
    # Objectives that predict a class record accuracies; their losses are not of tokens.
    predicts_tokens = all(math.isnan(row[name]) for row in rows for name in ACCURACIES)
    if has_new_words and predicts_tokens:
        per_character = []
        for row in rows:
            characters_per_token = manifests[row["arm"]].get("characters_per_token")
            per_character.append(_per_character(row, characters_per_token or {}))
        rows = per_character
    rows.sort(key=lambda row: arm_order(row["arm"]))
    return pd.DataFrame(rows).astype({"step": int, "tokens": int})


def _evaluations(file: Path) -> Iterator[dict[str, float]]:
    """Yield the numbers of each evaluation during a training; null (not measured) becomes NaN."""
    for number, line in enumerate(training_lines(file), start=1):
        if line["kind"] != "evaluation":
            continue
        with reading(f"{file}:{number}"):
            measured = {name: line[name] for name in EVALUATION}
            measured |= {name: line.get(name) for name in ACCURACIES}
            values = {}
            for name, value in measured.items():
                values[name] = math.nan if value is None else float(value)
        yield values


def _per_character(
    row: Mapping[str, Any], characters_per_token: Mapping[str, float]
) -> dict[str, Any]:
    """Return an evaluation with its losses per character.

    Args:
        row: The evaluation, with losses per token.
        characters_per_token: Mean of each text, ``target`` and ``pool``; the losses of a text without
            one become NaN.
    """
    values = {**row, "unit": "character"}
    for text in ("target", "pool"):
        for name in (f"{text}_loss", f"{text}_loss_se"):
            values[name] = row[name] / characters_per_token.get(text, math.nan)
    return values


def read_arm_results(path: Path, stages: dict[str, dict[str, Any]]) -> tuple[ArmResult, ...]:
    """Read the results of every fine-tuned arm.

    They lie in ``finetune/TASK/ARM``, ``finetune/ARM`` or ``finetune`` itself. The result for pool
    text, which tells what is forgotten, comes after those for what is learnt.
    """
    results: dict[tuple[str, str], tuple[Path, ArmResult]] = {}
    lineages = lineages_by_weights(stages.values())
    for file in paths_below(path, "finetune/**/metrics.json"):
        folders = file.parent.relative_to(path / "finetune").parts
        arm = folders[-1] if folders else ADAPTED
        result = read_arm_result(file, arm, lineages)
        key = (result.task, result.arm)
        if key in results:
            first_file, _ = results[key]
            raise ArtifactError(
                f"{file}: a second result of task {result.task}, arm {result.arm}, beside "
                f"{first_file}; remove one"
            )
        results[key] = (file, result)
    names = dict.fromkeys(task for task, _ in results)
    # False sorts first: the task of pool text comes last.
    tasks = sorted(names, key=lambda task: task == POOL_TEXT)

    def by_task_and_arm(result: ArmResult) -> tuple[int, tuple[int, str]]:
        return tasks.index(result.task), arm_order(result.arm)

    return tuple(sorted((result for _, result in results.values()), key=by_task_and_arm))


def arm_order(arm: str) -> tuple[int, str]:
    """Return the sort key of an arm: those of :data:`ARMS` in that order, then others by name."""
    index = ARMS.index(arm) if arm in ARMS else len(ARMS)
    return index, arm
