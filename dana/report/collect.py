"""A run's folder, read into frames. What a run does not have is None or empty, and its section says so."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dana.artifacts import MANIFEST
from dana.errors import ArtifactError
from dana.report.examples import Example, most_extreme
from dana.schemas import SCORES, WEIGHTS, parts

PLANTED = "(planted)"  # the end of a source's name whose documents should be found
ADAPTED = "adapted"  # the arm's name where a run has only one
ARMS = ("base", "general", "random", "dana", ADAPTED)  # the order of every table and figure
EVALUATION = ("step", "tokens", "task_loss", "task_loss_se", "general_loss", "general_loss_se")


@dataclass(frozen=True)
class Ranking:
    """``ranking.json``.

    Attributes:
        rows: A row a detector, best mean F1 first.
        chosen: The detector that ``auto`` takes.
        content: The whole file.
    """

    rows: pd.DataFrame
    chosen: str
    content: dict[str, Any]


@dataclass(frozen=True)
class Selected:
    """What was scored and weighed.

    Attributes:
        units: A row a general unit: source (category), planted (bool), characters, score, and weight where
            weights were made. What is kept is the sum of weights, so that all policies read alike.
        task: A row a held-out task unit: characters, score.
        relevant: The units nearest to the task.
        foreign: The units farthest from it.
        weights: The manifest of the weights; empty without.
    """

    units: pd.DataFrame
    task: pd.DataFrame
    relevant: tuple[Example, ...] = ()
    foreign: tuple[Example, ...] = ()
    weights: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """Everything a report is made from.

    Attributes:
        path: The folder.
        ranking: Of the detectors.
        selected: Scores and weights.
        evaluations: A row an arm and evaluation: arm and :data:`EVALUATION`.
        results: A row a task, arm and seed: task, metric, direction, arm, seed, score, degenerate.
        stages: A row a committed artifact, by place in the folder, and its manifest.
    """

    path: Path
    ranking: Ranking | None = None
    selected: Selected | None = None
    evaluations: pd.DataFrame | None = None
    results: pd.DataFrame | None = None
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)


def collect(path: Path) -> Run:
    """Read a run's folder.

    Raises:
        ArtifactError: If there is nothing to report, or a file is not what dana writes; names file and key.
    """
    if not path.is_dir():
        raise ArtifactError(f"{path}: no such folder; a report is made from the folder of a run")
    stages = {
        folder.relative_to(path).as_posix(): read_json(folder / MANIFEST)
        for folder in sorted(manifest.parent for manifest in path.rglob(MANIFEST))
        if not any(part.startswith(".") for part in folder.relative_to(path).parts)
    }
    ranking, selected = read_ranking(path), read_selected(path)
    run = Run(path, ranking, selected, read_evaluations(path), read_results(path), stages)
    if run.ranking is None and run.selected is None and run.evaluations is None and run.results is None:
        raise ArtifactError(
            f"{path}: nothing to report: no ranking.json, scores/, adapted/ or finetune/ here;"
            " start with: dana rank --task ... --general ... --out DIR"
        )
    return run


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ArtifactError: If the file holds none; names the line.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ArtifactError(f"{path}{line}: not JSON: {error}; make it again") from error
    if not isinstance(content, dict):
        raise ArtifactError(f"{path}: holds a {type(content).__name__}, not an object; make it again")
    return content


def read_ranking(path: Path) -> Ranking | None:
    """The ranking of the detectors."""
    file = path / "ranking.json"
    if not file.is_file():
        return None
    content = read_json(file)
    _need(content, ("detectors", "chosen"), file)
    if not content["detectors"]:
        raise ArtifactError(f"{file}: detectors is empty; make it again")
    for row in content["detectors"]:
        _need(row, ("name", "f1_mean", "f1_std", "auroc_mean", "stability"), file)
    rows = pd.DataFrame(content["detectors"])
    if content["chosen"] not in set(rows["name"]):
        raise ArtifactError(f"{file}: chosen={content['chosen']!r} is not among its detectors")
    return Ranking(rows, content["chosen"], content)


def read_selected(path: Path) -> Selected | None:
    """Scores, with the weights that go with them: of the run, or of its arm dana."""
    scores = path / "scores"
    if not parts(scores):
        return None
    table = _read(scores, SCORES)
    units = _columns(table)
    units.insert(0, "source", table["source"].dictionary_encode().to_pandas().astype("category"))
    planted = [name for name in units["source"].cat.categories if name.endswith(PLANTED)]
    units.insert(1, "planted", units["source"].isin(planted))
    held_out = scores / "task.parquet"
    task = _columns(_read_file(held_out, SCORES) if held_out.is_file() else SCORES.empty_table())
    folders = [path / "weights", path / "arms" / "dana" / "weights"]
    weights = next((folder for folder in folders if parts(folder)), None)
    manifest = {}
    if weights is not None:
        units["weight"] = _weights(weights, table)
        manifest = read_json(weights / MANIFEST) if (weights / MANIFEST).is_file() else {}
    relevant, foreign = most_extreme(table, path / "corpus")
    return Selected(units, task, relevant, foreign, manifest)


def _read(folder: Path, schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([_read_file(part, schema) for part in parts(folder)])


def _read_file(file: Path, schema: pa.Schema) -> pa.Table:
    try:
        table = pq.read_table(file)
    except pa.ArrowInvalid as error:
        raise ArtifactError(f"{file}: not Parquet: {error}; make {file.parent} again") from error
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise ArtifactError(f"{file}: no column {', '.join(missing)}; make {file.parent} again")
    return table.select(schema.names)


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
        file = folder / "training.jsonl"
        if file.is_file():
            rows += [{"arm": arm, **row} for row in _evaluation_lines(file)]
    if not rows:
        return None
    frame = pd.DataFrame(rows)[["arm", *EVALUATION]]
    return frame.iloc[np.argsort(arm_order(frame["arm"]), kind="stable")].reset_index(drop=True)


def _evaluation_lines(file: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ArtifactError(f"{file}:{number}: not JSON: {error}") from error
        _need(row, ("kind",), f"{file}:{number}")
        if row["kind"] == "evaluation":
            _need(row, EVALUATION, f"{file}:{number}")
            rows.append({name: row[name] for name in EVALUATION})
    return rows


def read_results(path: Path) -> pd.DataFrame | None:
    """Every seed's score, from ``finetune/TASK/ARM``, ``finetune/ARM`` or ``finetune`` itself."""
    rows: list[dict[str, Any]] = []
    for file in sorted(path.glob("finetune/**/metrics.json")):
        folders = file.parent.relative_to(path / "finetune").parts
        if any(folder.startswith(".") for folder in folders):  # still being written
            continue
        metrics = read_json(file)
        _need(metrics, ("task", "metric", "direction", "seeds"), file)
        shared = {name: metrics[name] for name in ("task", "metric", "direction")}
        if shared["direction"] not in ("higher", "lower"):
            raise ArtifactError(f"{file}: direction={shared['direction']!r}: must be higher or lower")
        for row in metrics["seeds"]:
            _need(row, ("seed", "score"), file)
            own = {"seed": row["seed"], "score": row["score"], "degenerate": row.get("degenerate", False)}
            rows.append({**shared, "arm": folders[-1] if folders else ADAPTED, **own})
    if not rows:
        return None
    frame = pd.DataFrame(rows)
    repeated = frame.duplicated(["task", "arm", "seed"])
    if repeated.any():
        row = frame[repeated].iloc[0]
        what = f"task {row.task}, arm {row.arm}, seed {row.seed}"
        raise ArtifactError(f"{path}/finetune: {what} is there twice")
    order = np.lexsort((frame["seed"], arm_order(frame["arm"]), pd.factorize(frame["task"])[0]))
    return frame.iloc[order].reset_index(drop=True)


def arm_order(arms: pd.Series) -> np.ndarray:
    """Places of arms: the known ones as in :data:`ARMS`, then any others by name; shape of the input."""
    others = sorted(set(arms) - set(ARMS))
    places = {arm: place for place, arm in enumerate([*ARMS, *others])}
    return arms.map(places).to_numpy()


def _need(content: Any, keys: tuple[str, ...], where: Any) -> None:
    if not isinstance(content, dict):
        raise ArtifactError(f"{where}: holds a {type(content).__name__}, not an object; make it again")
    missing = [key for key in keys if key not in content]
    if missing:
        raise ArtifactError(f"{where}: no key {', '.join(missing)}; make it again")
