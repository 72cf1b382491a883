"""Read a run's folder into data frames, the input of every table and figure; missing parts are None."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dana.core.artifacts import MANIFEST, read_manifest, run_manifests
from dana.core.config import RECIPE
from dana.core.errors import ArtifactError, DanaError, nearest_path
from dana.core.schemas import HELD_OUT_TARGET, NESTED, SCORES, WEIGHTS, part_files, read_table
from dana.report.arm_results import (
    ArmResult,
    adaptations,
    output_weights,
    read_arm_result,
    read_baseline,
)
from dana.report.arm_results import weights as weight_digests
from dana.report.files import (
    TRAINING,
    read_columns,
    read_object,
    reading,
    recorded_seconds,
    training_lines,
)
from dana.report.page import Examples_
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
LOOKS = "looks.json"  # of a run that may stop early
POOL_TEXT = "pool text"  # what is forgotten comes after what is learnt
PLANTED = "(planted)"  # suffix of sources with planted in-domain documents
ADAPTED = "adapted"  # name of the only arm of a run without arms
CARDS = ("card.yaml", "data/card.yaml")  # of dana init, and of a harvested task
CONTROLS = ("base", "pool", "random")
ARMS = (*CONTROLS, "dana", ADAPTED)  # order in tables and figures


def is_control(arm: str) -> bool:
    """Return whether an arm is one that others are compared with: those above, and NAME+random."""
    return arm in CONTROLS or arm.endswith("+random")


@dataclass(frozen=True)
class Candidates:
    """A comparison of detectors or selectors.

    Attributes:
        rows: One row per candidate, with a column ``chosen``.
        content: Further notes: ``budget`` of a ranking of detectors, ``reason`` of a choice of
            selectors.
    """

    rows: pd.DataFrame
    content: dict[str, Any]


@dataclass(frozen=True)
class ScoreFrames:
    """Scores and weights of a run.

    Attributes:
        units: One row per unit of pool text: source (category), planted (bool), characters,
            score, and weight if the run has weights. The amount of selected text is the sum of
            weights, whatever the policy.
        target: One row per unit of held-out target text: characters, score.
        relevant: Example units with the lowest scores, by source.
        foreign: Example units with the highest scores, by source.
        weights: Manifest of the weights; empty without weights.
    """

    units: pd.DataFrame
    target: pd.DataFrame
    relevant: Examples_ = ()
    foreign: Examples_ = ()
    weights: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunFrames:
    """All data of a report.

    Attributes:
        path: Folder of the run.
        ranking: Ranking of the detectors.
        choice: Choice of the selector by ``auto``.
        scores: Scores and weights.
        evaluations: One row per arm and evaluation during training: arm, :data:`EVALUATION` and
            :data:`ACCURACIES`.
        results: Results of every fine-tuned arm of every task, in the order of the tables.
        baselines: Results of simple models on every task.
        probes: What probes of each size find in the frozen vectors of every arm.
        neighbours: The nearest labelled texts of a few test texts in the vectors of each arm, by
            arm.
        texts: Test texts by id, of a task whose card lies in the folder.
        final: The choice of the model that the run ends in; empty without one.
        retrieval: One row per arm and text: how well a sentence finds its document.
        stages: Manifest of each committed artifact by its path in the folder.
        recipe: The recipe, as YAML without comments; empty if the folder has no ``recipe.yaml``.
        is_run: True if ``dana run`` made it rather than one command per step.
        step_seconds: Seconds that each step recorded itself, by its path.
        wall_seconds: Seconds in which a step of ``dana run`` was at work, side by side ones once; 0
            without steps.
        missing: What a run that was stopped has not made yet, in words.
        stale: A sentence for each model and result that was made before what it should be made
            from.
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
    run = read_outcomes(path)
    run = replace(
        run, ranking=read_ranking(path), choice=read_choice(path), scores=read_scores(path)
    )
    run = replace(run, evaluations=read_evaluations(path), recipe=_recipe(path))
    probes = sorted(read_probes(path), key=lambda result: (result.task, arm_order(result.arm)))
    run = replace(run, probes=tuple(probes), neighbours=read_neighbours(path))
    run = replace(run, final=read_final(path))
    if run.results:
        run = replace(run, texts=read_texts(path))
    if rows := sorted(read_retrieval(path), key=lambda row: arm_order(row["arm"])):
        run = replace(run, retrieval=pd.DataFrame(rows))
    seconds = {step: recorded_seconds(path / step) for step in run.stages}
    missing, stale = (
        tuple(find_missing(run.stages, run.results, bool(run.stop))),
        tuple(find_stale(run.stages)),
    )
    run = replace(
        run,
        is_run=(path / "steps").is_dir(),
        step_seconds=seconds,
        wall_seconds=_wall_seconds(path),
    )
    run = replace(run, missing=missing, stale=stale)
    has_part = run.ranking is not None or run.scores is not None or run.evaluations is not None
    if not (has_part or run.results or run.probes):
        problem = (
            "nothing to report: no ranking/, scores/, adapted/, probe/ or finetune/ in this folder"
        )
        raise ArtifactError(
            f"{path}: {problem}; start with: dana score --task ... --pool ... --out DIR"
        )
    return run


def read_outcomes(path: Path) -> RunFrames:
    """Read what verdicts need of a run: manifests, results of arms and baselines, looks.

    Raises:
        ArtifactError: If a file is damaged; names file and key.
    """
    folders = sorted(file.parent.parent for file in run_manifests(path))
    stages = {
        folder.relative_to(path).as_posix(): read_object(folder / MANIFEST) for folder in folders
    }
    look: dict[str, Any] = {"horizon": 0, "adaptations": 0, "stop": ""}
    look = read_object(path / LOOKS) if (path / LOOKS).is_file() else look
    with reading(path / LOOKS):
        horizon, adaptations, stop = (
            int(look["horizon"]),
            int(look["adaptations"]),
            str(look["stop"]),
        )
    results = tuple(replace(result, horizon=horizon) for result in read_arm_results(path, stages))
    stop = "" if any(result.adaptations > adaptations for result in results) else stop
    baselines, tasks = (
        map(read_baseline, sorted(path.glob("baselines/*/*/metrics.json"))),
        {result.task: result for result in results},
    )
    of_folds = tuple(
        baseline.on_folds_of(tasks.get(baseline.task, baseline)) for baseline in baselines
    )
    return RunFrames(path, results=results, baselines=of_folds, stages=stages, stop=stop)


def read_final(path: Path) -> dict[str, Any]:
    """Read the choice among most candidates of the model that the run ends in; empty if it made none.

    Raises:
        ArtifactError: If a file is damaged.
    """
    choices = []
    for file in sorted(path.glob("final/*/choice.json")):
        with reading(file):
            content = read_object(file)
            choices.append((int(content["waiting"]), content))
    return min(choices, key=lambda choice: choice[0])[1] if choices else {}


def read_texts(path: Path) -> dict[str, str]:
    """Read the test texts of the task whose card lies in the run's folder, by id; empty without one.

    Texts are only examples, so a card or data that cannot be read leave them out.
    """
    texts: dict[str, str] = {}
    for card_file in CARDS:
        if not (path / card_file).is_file():
            continue
        try:
            card = load_card(str(path / card_file))
            examples = read_split(card, "test") if card.folds is None else read_folds(card)
        except DanaError:
            continue
        texts |= {example.id: " / ".join(example.texts) for example in examples}
    return texts


def _wall_seconds(path: Path) -> float:
    """Add up the time in which at least one step was at work."""
    seconds, first = 0.0, math.inf
    records = [
        record for file in path.glob("steps/**/*.json") if "ended" in (record := read_object(file))
    ]
    for end, spent in sorted(
        ((float(row["ended"]), float(row["seconds"])) for row in records), reverse=True
    ):
        seconds += max(0.0, min(end, first) - (end - spent))
        first = min(first, end - spent)
    return seconds


def find_missing(
    stages: Iterable[str], results: Sequence[ArmResult], is_stopped: bool = False
) -> Iterator[str]:
    """Yield what is missing of a run whose fine-tuning has begun: adapted arms without a result, or adaptations.

    Args:
        stages: Path of each artifact in the run.
        results: Results of the arms.
        is_stopped: Whether the run was stopped early, so that no adaptation is missing.
    """
    paths = [Path(stage).parts for stage in stages]
    models = dict.fromkeys(path[1] for path in paths if path[0] == "arms" and path[-1] == "adapted")
    indices = {path[1] for path in paths if path[0] == NESTED}
    for task in dict.fromkeys(result.task for result in results):
        arms = {result.arm: result for result in results if result.task == task}
        yield from (f"{arm} is not fine-tuned on {task}" for arm in models if arm not in arms)
        count = min(result.adaptations for result in arms.values())
        if count < len(indices) and not is_stopped:
            yield f"{count} of {len(indices)} adaptations are fine-tuned on {task}"


def find_stale(stages: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each model, and result of a model, that what is beside it now did not make.

    Args:
        stages: Manifest of each artifact by its path in the run.
    """
    fingerprints = {None, *(manifest.get("fingerprint") for manifest in stages.values())}
    models = {step: output_weights(manifest) for step, manifest in stages.items()}
    for step, manifest in stages.items():
        folder, depends_on = Path(step), manifest.get("depends_on", {})
        beside = (folder.parent / "weights").as_posix()
        if (
            manifest.get("kind") == "model"
            and beside in stages
            and depends_on.get("weights") not in fingerprints
        ):
            yield f"Beware: {step} was trained on weights that were replaced since: adapt it again."
        if manifest.get("kind") == "finetune":
            arm = ["adapted"] if folder.name in ("dana", ADAPTED) else []
            model = next(
                (name for name in (f"arms/{folder.name}/adapted", *arm) if name in stages), None
            )
            if (
                model
                and models[model]
                and weight_digests(depends_on.get("model")) not in models.values()
            ):
                yield f"Beware: {step} is of a model that {model} replaced since: fine-tune it again."


def _recipe(path: Path) -> str:
    file = path / RECIPE
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return "\n".join(line for line in lines if not line.startswith("#"))


def read_ranking(path: Path) -> Candidates | None:
    """Read the ranking of the detectors."""
    content, file = _manifest(path / "ranking"), path / "ranking" / MANIFEST
    with reading(file):
        return (
            _candidates(content["detectors"], content["chosen"], DETECTOR_COLUMNS, content)
            if content
            else None
        )


def read_choice(path: Path) -> Candidates | None:
    """Read which selector ``auto`` chose for the scores of :func:`read_scores`."""
    scores = scores_folder(path)
    content = {} if scores is None else _manifest(scores).get("choice")
    if scores is None or not content:
        return None
    with reading(scores / MANIFEST):
        is_fusion = content["chosen"].startswith(
            f"{FUSION}:"
        )  # followed by its parts and their weights
        name = FUSION if is_fusion else content["chosen"]
        return _candidates(
            content["candidates"], name, SELECTOR_COLUMNS, {"reason": content["reason"]}
        )


def _candidates(
    rows: list[Any], choice: str, columns: Sequence[str], content: dict[str, Any]
) -> Candidates:
    if choice not in [row["name"] for row in rows]:
        raise ValueError(f"chosen={choice!r} is not among its candidates")
    frame = pd.DataFrame(rows)
    frame = frame[[*columns, *(name for name in frame if name not in columns)]]
    return Candidates(frame.assign(chosen=frame["name"] == choice), content)


def _arm_folders(path: Path) -> list[Path]:
    """List the run's folder, then those of its arms, controls last."""
    return [
        path,
        *sorted(
            path.glob("arms/*"),
            key=lambda arm: (arm.name != "dana", is_control(arm.name), arm.name),
        ),
    ]


def weight_folders(path: Path) -> dict[str, Path]:
    """Return the folder of each arm's weights, the run's own first, controls last."""
    folders = {ADAPTED if arm == path else arm.name: arm / "weights" for arm in _arm_folders(path)}
    return {name: folder for name, folder in folders.items() if part_files(folder)}


def scores_folder(path: Path) -> Path | None:
    """Return the folder of the run's scores, or of the first arm that has scores."""
    return next(
        (
            arm_folder / "scores"
            for arm_folder in _arm_folders(path)
            if part_files(arm_folder / "scores")
        ),
        None,
    )


def read_scores(path: Path) -> ScoreFrames | None:
    """Read the scores of the run, or of the first arm that has some, and the weights made from them."""
    scores = scores_folder(path)
    if scores is None:
        return None
    table = read_table(scores, SCORES.names)
    units = _columns(table)
    units.insert(0, "source", table["source"].dictionary_encode().to_pandas().astype("category"))
    planted_sources = [name for name in units["source"].cat.categories if name.endswith(PLANTED)]
    units.insert(1, "planted", units["source"].isin(planted_sources))
    held_out = scores / HELD_OUT_TARGET
    target = _columns(
        read_columns(held_out, SCORES.names) if held_out.is_file() else SCORES.empty_table()
    )
    manifest: dict[str, Any] = {}
    fingerprints = (None, _manifest(scores).get("fingerprint"))
    for weights in (arm_folder / "weights" for arm_folder in _arm_folders(path)):
        if (
            part_files(weights)
            and _manifest(weights).get("depends_on", {}).get("scores") in fingerprints
        ):
            manifest, units["weight"] = _manifest(weights), _weights(weights, table)
            break
    weight = units["weight"].to_numpy() if "weight" in units else None
    relevant, foreign = most_extreme(table, path / "pool", weight)
    return ScoreFrames(units, target, relevant, foreign, manifest)


def _manifest(folder: Path) -> dict[str, Any]:
    return read_object(folder / MANIFEST) if (folder / MANIFEST).is_file() else {}


def _columns(table: pa.Table) -> pd.DataFrame:
    characters = table["end"].to_numpy() - table["start"].to_numpy()
    return pd.DataFrame({"characters": characters, "score": table["score"].to_numpy()})


def _weights(folder: Path, scores: pa.Table) -> np.ndarray:
    """Read weights of shape (units,) and check that their rows are those of the scores."""
    table = read_table(folder, WEIGHTS.names)
    if any(not table[name].equals(scores[name]) for name in ("doc_id", "unit")):
        raise ArtifactError(f"{folder}: its rows are not those of the scores; run dana weigh again")
    return table["weight"].to_numpy().astype(np.float64)


def read_evaluations(path: Path) -> pd.DataFrame | None:
    """Read the held-out losses and accuracies of every trained arm; null (not measured) becomes NaN.

    Where words were added to the vocabulary of an arm, all losses of tokens are those a character,
    and the column ``unit`` says so: a token of one arm is then not that of another.
    """
    folders = {ADAPTED: path / "adapted"}
    folders |= {folder.parent.name: folder for folder in sorted(path.glob("arms/*/adapted"))}
    rows: list[dict[str, Any]] = []
    for arm, folder in folders.items():
        lines = training_lines(folder / TRAINING) if (folder / TRAINING).is_file() else []
        for number, line in enumerate(lines, start=1):
            if line["kind"] == "evaluation":
                with reading(f"{folder / TRAINING}:{number}"):
                    measured = {name: line[name] for name in EVALUATION}
                    measured |= {name: line.get(name) for name in ACCURACIES}
                    values = {
                        name: float("nan" if value is None else value)
                        for name, value in measured.items()
                    }
                rows.append({"arm": arm, **values})
    if not rows:
        return None
    notes = {arm: read_manifest(folder) for arm, folder in folders.items()}
    has_new_words = any("new_tokens" in arm_notes for arm_notes in notes.values())
    is_of_tokens = all(math.isnan(row[name]) for row in rows for name in ACCURACIES)
    if has_new_words and is_of_tokens:
        lengths = {arm: arm_notes.get("characters_per_token") for arm, arm_notes in notes.items()}
        rows = [_a_character(row, lengths[row["arm"]] or {}) for row in rows]
    rows.sort(key=lambda row: arm_order(row["arm"]))
    return pd.DataFrame(rows).astype({"step": int, "tokens": int})


def _a_character(row: Mapping[str, Any], lengths: Mapping[str, float]) -> dict[str, Any]:
    """Turn the losses of an evaluation into those a character; NaN where the length of a token is unknown."""
    values = {**row, "unit": "character"}
    for text in ("target", "pool"):
        for name in (f"{text}_loss", f"{text}_loss_se"):
            values[name] = row[name] / lengths.get(text, float("nan"))
    return values


def read_arm_results(path: Path, stages: dict[str, dict[str, Any]]) -> tuple[ArmResult, ...]:
    """Read the results of every fine-tuned arm from ``finetune/TASK/ARM``, ``finetune/ARM`` or ``finetune`` itself."""
    results: dict[tuple[str, str], tuple[Path, ArmResult]] = {}
    lineages = adaptations(stages.values())
    for file in sorted(path.glob("finetune/**/metrics.json")):
        folders = file.parent.relative_to(path / "finetune").parts
        if any(folder.startswith(".") for folder in folders):  # still being written
            continue
        result = read_arm_result(file, folders[-1] if folders else ADAPTED, lineages)
        key = result.task, result.arm
        if key in results:
            twice = (
                f"a second result of task {result.task}, arm {result.arm}, beside {results[key][0]}"
            )
            raise ArtifactError(f"{file}: {twice}; remove one")
        results[key] = file, result
    tasks = sorted(dict.fromkeys(task for task, _ in results), key=lambda task: task == POOL_TEXT)
    found = (result for _, result in results.values())
    return tuple(
        sorted(found, key=lambda result: (tasks.index(result.task), arm_order(result.arm)))
    )


def arm_order(arm: str) -> tuple[int, str]:
    """Return the sort key of an arm: first those of :data:`ARMS` in that order, then others by name."""
    return ARMS.index(arm) if arm in ARMS else len(ARMS), arm
