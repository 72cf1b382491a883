"""Auto selector: several selectors compared on held-out task text, then the best of them or their fusion is fitted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dana.core.artifacts import read_json, write_json
from dana.core.config import require
from dana.core.logging import get_logger
from dana.core.registry import origin_of
from dana.corpus.unit_stream import Units
from dana.scoring.ranking.candidates import PIECES, choose_selector, texts_to_compare
from dana.selectors.base import FittedSelector, RememberedContext, Selector, SelectorContext
from dana.selectors.build import create_selector, plain_selector
from dana.selectors.fusion import FusionSelector

log = get_logger(__name__)

PIECE_UNITS = 8000  # general units that candidates are compared on, of both halves, in runs
MIN_TASK_UNITS = 5  # one a fold


@dataclass(frozen=True)
class FittedAuto(FittedSelector):
    """The chosen selector, fitted.

    Attributes:
        spec: Of the chosen one.
        fitted: What it learned.
        notes: The comparison, for the manifest.
    """

    spec: str
    fitted: FittedSelector
    notes: dict[str, Any]

    def score_units(self, units: Units) -> np.ndarray:
        """The chosen selector's scores."""
        return self.fitted.score(units)

    def save(self, folder: Path) -> None:
        """Write the fitted selector, and the comparison that it won."""
        self.fitted.save(folder / "chosen")
        write_json(folder / "selector.json", {"spec": self.spec, "notes": self.notes})


@dataclass(frozen=True)
class AutoSelector(Selector):
    """Comparison of selectors on held-out task text; the best one, or the fusion of all, scores.

    Every candidate is cross-validated over groups of the task's documents, against pieces of general documents that it
    has not seen (:mod:`dana.scoring.ranking.candidates`); the choice is by average precision
    (:func:`dana.scoring.ranking.candidates.choose_selector`). Then the chosen one is fitted on the whole task.

    Attributes:
        selectors: Specs of selectors or detectors, joined by ``+``.
        folds: Of the task's documents.
        prevalence: Share of task text in the corpus that the average precision supposes.
        gamma: Units in a piece; the paper's segments have 15.
    """

    selectors: str = "moore_lewis+lexical+lda+svm"
    folds: int = 5
    prevalence: float = 0.1
    gamma: int = 15
    version: ClassVar[int] = 1
    crosses_itself: ClassVar[bool] = True

    def __post_init__(self) -> None:
        FusionSelector(self.selectors)  # checks the list
        require(self.folds >= 2, "folds", self.folds, "at least 2")
        require(0 < self.prevalence < 1, "prevalence", self.prevalence, "in (0, 1)")
        require(self.gamma >= 1, "gamma", self.gamma, "at least 1")

    @property
    def _specs(self) -> list[str]:
        return self.selectors.split("+")

    @cached_property
    def _fusion(self) -> FusionSelector:
        return FusionSelector(self.selectors, context=self.context)

    def _candidates(self, context: SelectorContext) -> Sequence[Selector]:
        return [plain_selector(spec, context) for spec in self._specs]

    @property
    def takes(self) -> tuple[str, ...]:  # type: ignore[override]
        """What any candidate uses of the run's settings."""
        return self._fusion.takes

    def samples(self, task_units: int) -> Mapping[str, int]:
        """What a fusion of all would want, twice, as it is cross-fitted; and ``pieces``, in runs of γ units."""
        return {**self._fusion.samples(task_units), PIECES: PIECE_UNITS}

    def runs(self) -> Mapping[str, int]:
        """See :meth:`dana.selectors.base.Selector.runs`."""
        return {PIECES: self.gamma}

    def learn(self, task: Units, general: Mapping[str, Units], seed: int) -> FittedAuto:
        """Compare, log the table and the reason, and fit what was chosen."""
        require(len(task) >= MIN_TASK_UNITS, "task", f"{len(task)} units", f"at least {MIN_TASK_UNITS} to choose by")
        texts = texts_to_compare(task, general, self.gamma, seed)
        candidates = self._candidates(RememberedContext.of(self.context))
        choice = choose_selector(self._specs, candidates, texts, self.folds, self.prevalence, seed)
        log.info("selectors on held-out task text\n%s", choice.text())
        log.info("selector  %s", choice.reason)
        chosen = create_selector(choice.chosen, self.context)
        wanted = chosen.samples(len(task))
        fitted = chosen.fit(task, {name: general[name].first(size) for name, size in wanted.items()}, seed)
        return FittedAuto(choice.chosen, fitted, {"choice": choice.notes})

    def load(self, folder: Path) -> FittedAuto:
        """See :meth:`dana.selectors.base.Selector.load`."""
        about = read_json(folder / "selector.json")
        chosen = create_selector(about["spec"], self.context)
        return FittedAuto(about["spec"], chosen.load(folder / "chosen"), about["notes"])

    def identity(self) -> dict[str, Any]:
        """Its parameters, and the candidates' own."""
        candidates = [{**one.identity(), "code": origin_of(one)} for one in self._candidates(self.context)]
        numbers = {name: getattr(self, name) for name in ("folds", "prevalence", "gamma")}
        return {"selector": "AutoSelector", **numbers, "candidates": candidates}
