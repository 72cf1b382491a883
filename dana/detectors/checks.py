"""The contract of a detector as a list of small checks that anyone can run on their own.

``dana detectors check NAME``, or :func:`check_detector`. A detector that cannot pass one says so itself, in
a class attribute ``exemptions = {"check": "reason"}``.
"""

import inspect
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dana.detectors.base import as_detector, load_fitted, restore, save_fitted
from dana.errors import DanaError, DataError
from dana.registry import DETECTORS


@dataclass(frozen=True)
class CheckResult:
    """One check's outcome.

    Attributes:
        name: The check.
        passed: Whether it holds, or the detector is exempt.
        detail: What was found wrong, or the reason of the exemption.
    """

    name: str
    passed: bool
    detail: str = ""

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"{'ok' if self.passed else 'FAILED':<7} {self.name.replace('_', ' ')}{detail}"


@dataclass(frozen=True)
class Case:
    """What the checks share: a detector, its spec if registered, and two clouds."""

    detector: Any
    spec: str | None
    inside: Tensor
    outside: Tensor

    @cached_property
    def fitted(self) -> Any:
        """The detector fitted on the inner cloud."""
        return self.fit(self.inside)

    def fit(self, rows: Tensor, seed: int = 0) -> Any:
        """A fresh one."""
        return self.detector.fit(rows, seed)


def check_detector(candidate: Any) -> list[CheckResult]:
    """Run every check.

    Args:
        candidate: A registered name or spec, or an unfitted detector (of our protocol or PyOD's convention).

    Raises:
        PluginError: If the name is unknown or does not load.
    """
    spec = candidate if isinstance(candidate, str) else None
    built = DETECTORS.create(candidate) if spec else candidate
    exempt: dict[str, str] = getattr(built, "exemptions", {})
    cloud = torch.randn(340, 12, generator=torch.Generator().manual_seed(7))
    case = Case(as_detector(built), spec, cloud[:300], cloud[300:] + 6)
    unknown = exempt.keys() - {check.__name__ for check in CHECKS}
    results = [CheckResult(name, False, "exempt from a check that does not exist") for name in sorted(unknown)]
    for check in CHECKS:
        if check.__name__ in exempt:
            results.append(CheckResult(check.__name__, True, f"exempt: {exempt[check.__name__]}"))
            continue
        try:
            check(replace(case, inside=case.inside.clone(), outside=case.outside.clone()))
        except (AssertionError, DanaError) as error:
            results.append(CheckResult(check.__name__, False, str(error) or type(error).__name__))
        except Exception as error:
            results.append(CheckResult(check.__name__, False, f"{type(error).__name__}: {error}"))
        else:
            results.append(CheckResult(check.__name__, True))
    return results


def _expect(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)


def _close(a: Tensor, b: Tensor, message: str, tolerance: float = 1e-5) -> None:
    scale = float(b.abs().max().clamp_min(1e-12))
    worst = float((a - b).abs().max()) / scale
    _expect(worst <= tolerance, f"{message}: relative difference {worst:.1e}, allowed {tolerance:.0e}")


def scores_are_float64_and_finite(case: Case) -> None:
    """One number a row, none of them NaN."""
    scores = case.fitted.score(case.outside)
    _expect(scores.shape == (len(case.outside),), f"shape {tuple(scores.shape)} for {len(case.outside)} rows")
    _expect(scores.dtype == torch.float64, f"dtype {scores.dtype}")
    _expect(bool(torch.isfinite(scores).all()), "non-finite scores")


def planted_outliers_score_higher(case: Case) -> None:
    """The sign."""
    fitted = case.fitted
    share = float((fitted.score(case.outside)[:, None] > fitted.score(case.inside)[None]).double().mean())
    _expect(share > 0.95, f"AUROC {share:.3f} for a far cloud; higher must mean more anomalous")


def order_and_batch_do_not_matter(case: Case) -> None:
    """A row's score is its own."""
    fitted = case.fitted
    rows = torch.cat([case.inside[:20], case.outside[:20]])
    together = fitted.score(rows)
    _close(fitted.score(rows.flip(0)).flip(0), together, "in another order")
    _close(torch.cat([fitted.score(row[None]) for row in rows]), together, "one by one")
    _expect(len(fitted.score(rows[:0])) == 0, "no rows must give no scores")


def same_seed_same_scores(case: Case) -> None:
    """Repeatable to the bit."""
    once, again = (case.fit(case.inside, seed=3).score(case.outside) for _ in range(2))
    _expect(bool(torch.equal(once, again)), "scores differ")


def fitting_and_scoring_change_nothing(case: Case) -> None:
    """Neither the rows, nor the fitted state, nor an earlier fit."""
    rows, queries = case.inside.clone(), case.outside.clone()
    fitted = case.fit(rows)
    first = fitted.score(queries)
    case.fit(rows + 5)
    _expect(bool(torch.equal(rows, case.inside)), "fit wrote into its input")
    second = fitted.score(queries)
    _expect(bool(torch.equal(second, first)), "a second call or another fit changed the scores")
    _expect(bool(torch.equal(queries, case.outside)), "score wrote into its input")


def saved_and_loaded_scores_equal(case: Case) -> None:
    """State is tensors and JSON."""
    fitted = case.fitted
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_fitted(fitted, case.spec or "unregistered", folder)
        found = {path.suffix for path in folder.iterdir()}
        _expect(found == {".safetensors", ".json"}, f"files {found}")
        loaded = load_fitted(folder) if case.spec else restore(case.detector, folder)
    _close(loaded.score(case.outside), fitted.score(case.outside), "after loading", 1e-7)


def half_precision_input_is_close(case: Case) -> None:
    """Stored float16 embeddings rank alike."""
    fitted = case.fitted
    rows = torch.cat([case.inside[:50], case.outside])
    _close(fitted.score(rows.half().float()), fitted.score(rows), "float16 input", 0.02)


def bad_rows_are_refused_by_name(case: Case) -> None:
    """NaN, another width, too few rows."""
    broken = case.inside.clone()
    broken[3, 0] = float("nan")
    fitted = case.fitted
    for what, call in {
        "fit on NaN": lambda: case.fit(broken),
        "score of NaN": lambda: fitted.score(broken),
        "score of another width": lambda: fitted.score(case.inside[:, :5]),
        "fit on one row": lambda: case.fit(case.inside[:1]),
    }.items():
        try:
            call()
        except DataError as error:
            named = "row 3" in str(error) or "NaN" not in what
            _expect(named, f"{what}: the message does not name row 3: {error}")
        else:
            raise AssertionError(f"{what} must raise DataError")


def constant_and_repeated_columns_survive(case: Case) -> None:
    """Degenerate dimensions are common in embeddings."""
    rows = torch.cat([case.inside, case.inside[:, :2], torch.ones(len(case.inside), 1)], dim=1)
    queries = torch.cat([case.outside, case.outside[:, :2], torch.ones(len(case.outside), 1)], dim=1)
    fitted = case.fit(rows)
    _expect(bool(torch.isfinite(fitted.score(queries)).all()), "non-finite scores")
    share = float((fitted.score(queries)[:, None] > fitted.score(rows)[None]).double().mean())
    _expect(share > 0.9, f"AUROC falls to {share:.3f}")


def fewer_rows_than_dimensions_work(case: Case) -> None:
    """A small task."""
    wide = torch.randn(40, 64, generator=torch.Generator().manual_seed(1))
    fitted = case.fit(wide[:30])
    far, near = fitted.score(wide[30:] + 8), fitted.score(wide[:30])
    _expect(bool(far.min() > near.median()), "far rows score low")


def docstring_states_sign_cost_and_source(case: Case) -> None:
    """For dana's own; others are asked, not told."""
    if not type(case.detector).__module__.startswith("dana."):
        return
    text = inspect.getdoc(case.detector) or ""
    for part in ("higher = more anomalous", "Cost:", "References:"):
        _expect(part in text or type(case.detector).__name__ == "Convention", f"docstring lacks {part!r}")


CHECKS: list[Callable[[Case], None]] = [
    scores_are_float64_and_finite,
    planted_outliers_score_higher,
    order_and_batch_do_not_matter,
    same_seed_same_scores,
    fitting_and_scoring_change_nothing,
    saved_and_loaded_scores_equal,
    half_precision_input_is_close,
    bad_rows_are_refused_by_name,
    constant_and_repeated_columns_survive,
    fewer_rows_than_dimensions_work,
    docstring_states_sign_cost_and_source,
]
