"""A run's folder to data frames; what the run does not have is None or empty."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import yaml

from dana.core.artifacts import MANIFEST
from dana.core.config import SETTINGS
from dana.core.errors import ArtifactError, nearest_path
from dana.core.schemas import HELD_OUT_TASK, SCORES, WEIGHTS, parts
from dana.report.cells import Finetuned, read_cell
from dana.report.examples import most_extreme
from dana.report.files import read_columns, read_object, require_keys
from dana.report.frames import EVALUATION, Ranking, RunFrames, Selected, SelectorChoice
from dana.report.lineage import adaptations
from dana.report.recorded import TRAINING, recorded_seconds, training_lines
from dana.report.text_map import text_map
from dana.report.verdicts import ADAPTED, CONTROLS

FUSION = "fusion"  # name of the row of all candidates together
PLANTED = "(planted)"  # the end of a source's name whose documents should be found
ARMS = ("base", "general", "random", "dana", ADAPTED)  # the order of every table and figure


def collect(path: Path) -> RunFrames:
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
    ranking, choice, selected = read_ranking(path), read_choice(path), read_selected(path)
    evaluations, cells = read_evaluations(path), read_cells(path, stages)
    recorded = {place: recorded_seconds(path / place) for place in stages}
    told, is_grid = _settings(path / SETTINGS), (path / "cells").is_dir()
    run = RunFrames(path, ranking, choice, selected, evaluations, cells, stages, told, is_grid, recorded)
    if run.ranking is None and run.selected is None and run.evaluations is None and not run.cells:
        raise ArtifactError(
            f"{path}: nothing to report: no ranking/, scores/, adapted/ or finetune/ here;"
            " start with: dana score --task ... --general ... --out DIR"
        )
    return run


def _settings(file: Path) -> str:
    """A run's settings without the comments on top."""
    if not file.is_file():
        return ""
    return "\n".join(line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))


def read_ranking(path: Path) -> Ranking | None:
    """The ranking of the detectors."""
    file = path / "ranking" / MANIFEST
    if not file.is_file():
        return None
    content = read_object(file)
    require_keys(content, ("detectors", "chosen"), file)
    if not content["detectors"]:
        raise ArtifactError(f"{file}: detectors is empty; make it again")
    for row in content["detectors"]:
        require_keys(row, ("name", "f1_mean", "f1_std", "auroc_mean", "stability"), file)
    rows = pd.DataFrame(content["detectors"])
    if content["chosen"] not in set(rows["name"]):
        raise ArtifactError(f"{file}: chosen={content['chosen']!r} is not among its detectors")
    return Ranking(rows, content["chosen"], content)


def read_choice(path: Path) -> SelectorChoice | None:
    """The choice of the selector that made the scores of :func:`read_selected`."""
    scores = scores_folder(path)
    if scores is None or not (content := _manifest(scores).get("choice")):
        return None
    file = scores / MANIFEST
    require_keys(content, ("chosen", "reason", "candidates"), file)
    for row in content["candidates"]:
        require_keys(row, ("name", "ap", "ap_low", "ap_high", "recall_5", "recall_20", "auroc", "weight"), file)
    rows = pd.DataFrame(content["candidates"])
    is_fusion = content["chosen"].startswith(f"{FUSION}:")  # with its parts and their weights
    chosen = FUSION if is_fusion else content["chosen"]
    if rows.empty or chosen not in set(rows["name"]):
        raise ArtifactError(f"{file}: choice.chosen={content['chosen']!r} is not among its candidates")
    return SelectorChoice(rows, chosen, content["reason"])


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
    manifest = {}
    for weights in [place / "weights" for place in _places(path) if parts(place / "weights")]:
        manifest, made = (_manifest(folder) for folder in (weights, scores))
        if manifest.get("depends_on", {}).get("scores") in (None, made.get("fingerprint")):
            units["weight"] = _weights(weights, table)
            break
        manifest = {}
    given = units["weight"].to_numpy() if "weight" in units else None
    relevant, foreign = most_extreme(table, path / "corpus", given)
    drawn = None
    if given is not None:
        drawn = text_map(scores, path / "corpus", path / "task", embedding_store(path), table, given)
    return Selected(units, task, relevant, foreign, manifest, drawn)


def embedding_store(path: Path) -> Path:
    """The run's embedding store, or the one that its settings name."""
    told = yaml.safe_load(_settings(path / SETTINGS)) or {}
    told = told if isinstance(told, dict) else {}
    named = told.get("selection", {}).get("store")
    return Path(named) if named else Path(told.get("share") or path) / "embeddings"


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
    """Held-out losses of every arm that was trained."""
    folders = {ADAPTED: path / "adapted"}
    folders |= {folder.parent.name: folder for folder in sorted(path.glob("arms/*/adapted"))}
    rows: list[dict[str, Any]] = []
    for arm, folder in folders.items():
        file = folder / TRAINING
        if file.is_file():
            rows += [{"arm": arm, **row} for row in _evaluation_lines(file)]
    if not rows:
        return None
    frame = pd.DataFrame(rows)[["arm", *EVALUATION]]
    frame[list(EVALUATION)] = frame[list(EVALUATION)].apply(pd.to_numeric)  # null where nothing could be measured
    return frame.iloc[np.argsort(arm_order(frame["arm"]), kind="stable")].reset_index(drop=True)


def _evaluation_lines(file: Path) -> list[dict[str, Any]]:
    rows = []
    for number, row in enumerate(training_lines(file), start=1):
        if row["kind"] == "evaluation":
            require_keys(row, EVALUATION, f"{file}:{number}")
            rows.append({name: _number(row[name], name, f"{file}:{number}") for name in EVALUATION})
    return rows


def _number(value: Any, name: str, where: str) -> float:
    """A recorded number; NaN for the null of one that could not be computed."""
    if value is not None and type(value) not in (int, float):
        raise ArtifactError(f"{where}: {name}={value!r}: must be a number")
    return float("nan") if value is None else value


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
    cells = [cell for _, cell in found.values()]
    if not cells:
        return ()
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    arms = [cell.arm for cell in cells]
    places = dict(zip(arms, arm_order(pd.Series(arms)), strict=True))
    return tuple(sorted(cells, key=lambda cell: (tasks.index(cell.task), places[cell.arm])))


def arm_order(arms: pd.Series) -> np.ndarray:
    """Places of arms: the known ones as in :data:`ARMS`, then any others by name; shape of the input."""
    others = sorted(set(arms) - set(ARMS))
    places = {arm: place for place, arm in enumerate([*ARMS, *others])}
    return arms.map(places).to_numpy()
