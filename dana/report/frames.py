"""What a run's folder holds, as data frames; the input of every table and figure of a report."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from dana.report.cells import Finetuned
from dana.report.page import Shown
from dana.report.text_map import TextMap

EVALUATION = ("step", "tokens", "task_loss", "task_loss_se", "general_loss", "general_loss_se")


@dataclass(frozen=True)
class Ranking:
    """The ranking artifact.

    Attributes:
        rows: A row a detector, best mean F1 first.
        chosen: The detector that ``auto`` takes.
        content: Its manifest.
    """

    rows: pd.DataFrame
    chosen: str
    content: dict[str, Any]


@dataclass(frozen=True)
class SelectorChoice:
    """The comparison of selectors that ``auto`` chose by.

    Attributes:
        rows: A row a candidate and one for their fusion: name, ap, recall_5, recall_20, auroc, weight ...
        chosen: Name of the row that scored.
        reason: Why it was chosen.
    """

    rows: pd.DataFrame
    chosen: str
    reason: str


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
        map: Where they lie; None where vectors are not stored.
    """

    units: pd.DataFrame
    task: pd.DataFrame
    relevant: Shown = ()
    foreign: Shown = ()
    weights: dict[str, Any] = field(default_factory=dict)
    map: TextMap | None = None


@dataclass(frozen=True)
class RunFrames:
    """Everything a report is made from.

    Attributes:
        path: The folder.
        ranking: Of the detectors.
        choice: Of the selector.
        selected: Scores and weights.
        evaluations: A row an arm and evaluation: arm and :data:`EVALUATION`.
        cells: Every fine-tuned arm of every task, in the order of the tables.
        stages: A row a committed artifact, by place in the folder, and its manifest.
        settings: Text of what its commands were told that differs from the defaults; empty where it is not kept.
        is_grid: Whether ``dana run`` made it, and not one command a step.
        recorded: Seconds that a step's own records tell of, by its place.
    """

    path: Path
    ranking: Ranking | None = None
    choice: SelectorChoice | None = None
    selected: Selected | None = None
    evaluations: pd.DataFrame | None = None
    cells: tuple[Finetuned, ...] = ()
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    settings: str = ""
    is_grid: bool = False
    recorded: dict[str, float] = field(default_factory=dict)
