"""A run's folder to data frames, the input of every table and figure of a report; what it does not have is None."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dana.core.artifacts import MANIFEST
from dana.core.config import SETTINGS
from dana.core.errors import ArtifactError, nearest_path
from dana.core.schemas import HELD_OUT_TASK, SCORES, WEIGHTS, parts
from dana.report.cells import Finetuned, adaptations, read_cell
from dana.report.files import TRAINING, read_columns, read_object, reading, recorded_seconds, training_lines
from dana.report.page import Shown
from dana.report.unit_texts import most_extreme

EVALUATION = ("step", "tokens", "task_loss", "task_loss_se", "general_loss", "general_loss_se")
RANKED = ("name", "f1_mean", "auroc_mean", "ap_mean", "stability", "fit_s", "score_s")
COMPARED = ("name", "ap", "ap_low", "ap_high", "recall_5", "recall_20", "auroc", "weight")
FUSION = "fusion"  # name of the row of all candidates together
PLANTED = "(planted)"  # the end of a source's name whose documents should be found
ADAPTED = "adapted"  # the arm's name where a run has only one
CONTROLS = ("base", "general", "random")
ARMS = (*CONTROLS, "dana", ADAPTED)  # the order of every table and figure


@dataclass(frozen=True)
class Candidates:
    """Detectors or selectors that were compared.

    Attributes:
        rows: A row a candidate, with a column ``chosen``.
        content: What else is noted: the budget of the detectors' recall, why a selector was chosen.
    """

    rows: pd.DataFrame
    content: dict[str, Any]


@dataclass(frozen=True)
class Selected:
    """What was scored and weighed.

    Attributes:
        units: A row a general unit: source (category), planted (bool), characters, score, and weight where
            weights were made. What is kept is the sum of weights, so that all policies read alike.
        task: A row a held-out task unit: characters, score.
        relevant: The units nearest to the task, by source.
        foreign: The units farthest from it.
        weights: The manifest of the weights; empty without.
    """

    units: pd.DataFrame
    task: pd.DataFrame
    relevant: Shown = ()
    foreign: Shown = ()
    weights: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunFrames:
    """Everything a report is made from.

    Attributes:
        path: The folder.
        ranking: Of the detectors, with their budget.
        choice: Of the selectors that ``auto`` chose from, with why.
        selected: Scores and weights.
        evaluations: A row an arm and evaluation: arm and :data:`EVALUATION`.
        cells: Every fine-tuned arm of every task, in the order of the tables.
        stages: A row a committed artifact, by place in the folder, and its manifest.
        settings: Text of what its commands were told that differs from the defaults; empty where it is not kept.
        is_grid: Whether ``dana run`` made it, and not one command a step.
        recorded: Seconds that a step's own records tell of, by its place.
    """

    path: Path
    ranking: Candidates | None = None
    choice: Candidates | None = None
    selected: Selected | None = None
    evaluations: pd.DataFrame | None = None
    cells: tuple[Finetuned, ...] = ()
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    settings: str = ""
    is_grid: bool = False
    recorded: dict[str, float] = field(default_factory=dict)


def read_run(path: Path) -> RunFrames:
    """Read a run's folder.

    Raises:
        ArtifactError: If there is nothing to report, or a file is not what dana writes; names file and key.
    """
    if not path.is_dir():
        raise ArtifactError(f"{path}: no such folder{nearest_path(path)}; a report is made from the folder of a run")
    stages = {
        folder.relative_to(path).as_posix(): read_object(folder / MANIFEST)
        for folder in sorted(manifest.parent.parent for manifest in path.rglob(MANIFEST))
        if not any(part.startswith(".") for part in folder.relative_to(path).parts)
    }
    run = RunFrames(
        path,
        ranking=read_ranking(path),
        choice=read_choice(path),
        selected=read_selected(path),
        evaluations=read_evaluations(path),
        cells=read_cells(path, stages),
        stages=stages,
        settings=_settings(path),
        is_grid=(path / "cells").is_dir(),
        recorded={place: recorded_seconds(path / place) for place in stages},
    )
    if run.ranking is None and run.selected is None and run.evaluations is None and not run.cells:
        raise ArtifactError(
            f"{path}: nothing to report: no ranking/, scores/, adapted/ or finetune/ here;"
            " start with: dana score --task ... --general ... --out DIR"
        )
    return run


def _settings(path: Path) -> str:
    """A run's settings without the comments on top."""
    file = path / SETTINGS
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return "\n".join(line for line in lines if not line.startswith("#"))


def read_ranking(path: Path) -> Candidates | None:
    """The ranking of the detectors."""
    content, file = _manifest(path / "ranking"), path / "ranking" / MANIFEST
    with reading(file):
        return _candidates(content["detectors"], content["chosen"], RANKED, content) if content else None


def read_choice(path: Path) -> Candidates | None:
    """The choice of the selector that made the scores of :func:`read_selected`."""
    scores = scores_folder(path)
    content = {} if scores is None else _manifest(scores).get("choice")
    if scores is None or not content:
        return None
    with reading(scores / MANIFEST):
        is_fusion = content["chosen"].startswith(f"{FUSION}:")  # with its parts and their weights
        chosen = FUSION if is_fusion else content["chosen"]
        return _candidates(content["candidates"], chosen, COMPARED, {"reason": content["reason"]})


def _candidates(rows: list[Any], chosen: str, columns: Sequence[str], content: dict[str, Any]) -> Candidates:
    if chosen not in [row["name"] for row in rows]:
        raise ValueError(f"chosen={chosen!r} is not among its candidates")
    frame = pd.DataFrame(rows)
    frame = frame[[*columns, *(name for name in frame if name not in columns)]]
    return Candidates(frame.assign(chosen=frame["name"] == chosen), content)


def _places(path: Path) -> list[Path]:
    """The run's folder, then those of its arms, controls last."""
    arms = sorted(path.glob("arms/*"), key=lambda arm: (arm.name != "dana", arm.name in CONTROLS, arm.name))
    return [path, *arms]


def weight_folders(path: Path) -> dict[str, Path]:
    """The folder of each arm's weights, the run's own first, controls last."""
    folders = {ADAPTED if place == path else place.name: place / "weights" for place in _places(path)}
    return {arm: folder for arm, folder in folders.items() if parts(folder)}


def scores_folder(path: Path) -> Path | None:
    """Scores of the run, or of the first arm that has some."""
    return next((place / "scores" for place in _places(path) if parts(place / "scores")), None)


def read_selected(path: Path) -> Selected | None:
    """Scores and the weights made from them: of the run, or of the first arm that has some, controls last."""
    scores = scores_folder(path)
    if scores is None:
        return None
    table = _read(scores, SCORES)
    units = _columns(table)
    units.insert(0, "source", table["source"].dictionary_encode().to_pandas().astype("category"))
    planted = [name for name in units["source"].cat.categories if name.endswith(PLANTED)]
    units.insert(1, "planted", units["source"].isin(planted))
    held_out = scores / HELD_OUT_TASK
    task = _columns(read_columns(held_out, SCORES.names) if held_out.is_file() else SCORES.empty_table())
    manifest: dict[str, Any] = {}
    made_of = (None, _manifest(scores).get("fingerprint"))
    for weights in (place / "weights" for place in _places(path)):
        if parts(weights) and _manifest(weights).get("depends_on", {}).get("scores") in made_of:
            manifest, units["weight"] = _manifest(weights), _weights(weights, table)
            break
    given = units["weight"].to_numpy() if "weight" in units else None
    relevant, foreign = most_extreme(table, path / "corpus", given)
    return Selected(units, task, relevant, foreign, manifest)


def _manifest(folder: Path) -> dict[str, Any]:
    return read_object(folder / MANIFEST) if (folder / MANIFEST).is_file() else {}


def _read(folder: Path, schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([read_columns(part, schema.names) for part in parts(folder)])


def _columns(table: pa.Table) -> pd.DataFrame:
    characters = table["end"].to_numpy() - table["start"].to_numpy()
    return pd.DataFrame({"characters": characters, "score": table["score"].to_numpy()})


def _weights(folder: Path, scores: pa.Table) -> np.ndarray:
    """Weights of shape (units,), in the scores' order; the keys must be the scores' own."""
    table = _read(folder, WEIGHTS)
    if any(not table[name].equals(scores[name]) for name in ("doc_id", "unit")):
        raise ArtifactError(f"{folder}: its rows are not those of the scores; weigh these scores again")
    return table["weight"].to_numpy().astype(np.float64)


def read_evaluations(path: Path) -> pd.DataFrame | None:
    """Held-out losses of every arm that was trained; null, where nothing could be measured, is not a number."""
    folders = {ADAPTED: path / "adapted"}
    folders |= {folder.parent.name: folder for folder in sorted(path.glob("arms/*/adapted"))}
    rows: list[dict[str, Any]] = []
    for arm, folder in folders.items():
        lines = training_lines(folder / TRAINING) if (folder / TRAINING).is_file() else []
        for number, line in enumerate(lines, start=1):
            if line["kind"] == "evaluation":
                with reading(f"{folder / TRAINING}:{number}"):
                    values = {name: float("nan" if line[name] is None else line[name]) for name in EVALUATION}
                rows.append({"arm": arm, **values})
    if not rows:
        return None
    rows.sort(key=lambda row: arm_place(row["arm"]))
    return pd.DataFrame(rows).astype({"step": int, "tokens": int})


def read_cells(path: Path, stages: dict[str, dict[str, Any]]) -> tuple[Finetuned, ...]:
    """Every fine-tuned arm, from ``finetune/TASK/ARM``, ``finetune/ARM`` or ``finetune`` itself, in order."""
    found: dict[tuple[str, str], tuple[Path, Finetuned]] = {}
    adapted = adaptations(stages.values())
    for file in sorted(path.glob("finetune/**/metrics.json")):
        folders = file.parent.relative_to(path / "finetune").parts
        if any(folder.startswith(".") for folder in folders):  # still being written
            continue
        cell = read_cell(file, folders[-1] if folders else ADAPTED, adapted)
        key = cell.task, cell.arm
        if key in found:
            raise ArtifactError(f"{file}: task {cell.task}, arm {cell.arm} is there twice, also in {found[key][0]}")
        found[key] = file, cell
    tasks = list(dict.fromkeys(task for task, _ in found))
    cells = (cell for _, cell in found.values())
    return tuple(sorted(cells, key=lambda cell: (tasks.index(cell.task), arm_place(cell.arm))))


def arm_place(arm: str) -> tuple[int, str]:
    """Sorts arms: the known ones as in :data:`ARMS`, then any others by name."""
    return ARMS.index(arm) if arm in ARMS else len(ARMS), arm
