"""Conformance checks of detectors: a name or an object in, a result per promise of the contract out.

``dana detectors check NAME``, or :func:`check_detector`. A detector that cannot pass a check says so itself, in
a class attribute ``exemptions = {"check": "reason"}``.
"""

import inspect
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dana.core.conformance import CheckResult, expect, expect_close, run_checks, share_above
from dana.core.errors import DataError
from dana.core.registry import DETECTORS
from dana.detectors.base import background_units, fit_detector
from dana.detectors.build import as_detector, load_fitted, restore, save_fitted

DIMS = 12
SHIFT = 4.0  # the task's mean along the first half of the dimensions; the outliers' along the others is twice that


@dataclass(frozen=True)
class DetectorCase:
    """A detector, its spec if registered, and two clouds of which the second is farther out and in another direction.

    Attributes:
        detector: Unfitted, of dana's protocol.
        spec: How it is registered, or None.
        inside: Shape (300, dims), to fit on.
        outside: Shape (40, dims), outliers.
        background: Shape (200, dims), for a contrastive detector: rows like the outliers.
    """

    detector: Any
    spec: str | None
    inside: Tensor
    outside: Tensor
    background: Tensor

    @cached_property
    def fitted(self) -> Any:
        """The detector fitted on the inner cloud."""
        return self.fit(self.inside)

    def fit(self, rows: Tensor, seed: int = 0, background: Tensor | None = None) -> Any:
        """A fresh fit, on the case's background unless another is given."""
        return fit_detector(self.detector, rows, seed, self.background if background is None else background)


def clouds(inside: int, outside: int, dims: int, seed: int) -> tuple[Tensor, Tensor]:
    """Normal rows around two means: the second mean is orthogonal to the first and twice as long.

    A detector by distance and one by direction (cosine) both can tell them apart.
    """
    noise = torch.randn(inside + outside, dims, generator=torch.Generator().manual_seed(seed))
    first = torch.arange(dims) < dims // 2
    return noise[:inside] + SHIFT * first, noise[inside:] + 2 * SHIFT * ~first


def check_detector(candidate: Any) -> list[CheckResult]:
    """Run every check.

    Args:
        candidate: A registered name or spec, or an unfitted detector (of dana's protocol or PyOD's convention).

    Raises:
        PluginError: If the name is unknown or does not load.
    """
    spec = candidate if isinstance(candidate, str) else None
    built = DETECTORS.create(candidate) if spec else candidate
    detector = as_detector(built)
    checks = [*CHECKS, *(CONTRASTIVE if background_units(detector) else [])]

    def case() -> DetectorCase:
        inside, far = clouds(300, 240, DIMS, 7)
        return DetectorCase(detector, spec, inside, outside=far[:40], background=far[40:])

    return run_checks(checks, case, getattr(built, "exemptions", {}))


def scores_are_float64_and_finite(case: DetectorCase) -> None:
    """One finite float64 score a row."""
    scores = case.fitted.score(case.outside)
    expect(scores.shape == (len(case.outside),), f"shape {tuple(scores.shape)} for {len(case.outside)} rows")
    expect(scores.dtype == torch.float64, f"dtype {scores.dtype}")
    expect(bool(torch.isfinite(scores).all()), "non-finite scores")


def planted_outliers_score_higher(case: DetectorCase) -> None:
    """Rows of a far cloud score above fitted rows (the sign)."""
    fitted = case.fitted
    share = share_above(fitted.score(case.outside), fitted.score(case.inside))
    expect(share > 0.95, f"AUROC {share:.3f} for a far cloud; higher must mean more anomalous")


def order_and_batch_do_not_matter(case: DetectorCase) -> None:
    """A row's score does not depend on the other rows of the call."""
    fitted = case.fitted
    rows = torch.cat([case.inside[:20], case.outside[:20]])
    together = fitted.score(rows)
    expect_close(fitted.score(rows.flip(0)).flip(0), together, "in another order")
    expect_close(torch.cat([fitted.score(row[None]) for row in rows]), together, "one by one")
    expect(len(fitted.score(rows[:0])) == 0, "no rows must give no scores")


def same_seed_same_scores(case: DetectorCase) -> None:
    """Two fits with one seed give bit-equal scores."""
    once, again = (case.fit(case.inside, seed=3).score(case.outside) for _ in range(2))
    expect(bool(torch.equal(once, again)), "scores differ")


def fitting_and_scoring_change_nothing(case: DetectorCase) -> None:
    """Fit and score leave their input, the fitted state and earlier fits as they were."""
    rows, queries, background = case.inside.clone(), case.outside.clone(), case.background.clone()
    fitted = case.fit(rows, background=background)
    first = fitted.score(queries)
    case.fit(rows + 5, background=background - 5)
    expect(bool(torch.equal(rows, case.inside)), "fit wrote into its input")
    expect(bool(torch.equal(background, case.background)), "fit wrote into the background")
    second = fitted.score(queries)
    expect(bool(torch.equal(second, first)), "a second call or another fit changed the scores")
    expect(bool(torch.equal(queries, case.outside)), "score wrote into its input")


def saved_and_loaded_scores_equal(case: DetectorCase) -> None:
    """Saved as safetensors and JSON, a fitted detector scores alike after loading."""
    fitted = case.fitted
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_fitted(fitted, case.spec or "unregistered", folder)
        found = {path.suffix for path in folder.iterdir()}
        expect(found == {".safetensors", ".json"}, f"files {found}")
        loaded = load_fitted(folder) if case.spec else restore(case.detector, folder)
    expect_close(loaded.score(case.outside), fitted.score(case.outside), "after loading", 1e-7)


def half_precision_input_is_close(case: DetectorCase) -> None:
    """Embeddings rounded to float16 score within 2 % of the largest score."""
    fitted = case.fitted
    rows = torch.cat([case.inside[:50], case.outside])
    expect_close(fitted.score(rows.half().float()), fitted.score(rows), "float16 input", 0.02)


def bad_rows_are_refused_by_name(case: DetectorCase) -> None:
    """NaN, another width and too few rows raise a DataError that names the row."""
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
            expect(named, f"{what}: the message does not name row 3: {error}")
        else:
            raise AssertionError(f"{what} must raise DataError")


def constant_and_repeated_columns_survive(case: DetectorCase) -> None:
    """Constant and duplicated dimensions, which embeddings have, break neither scores nor sign."""
    rows, queries, background = (
        torch.cat([part, part[:, :2], torch.ones(len(part), 1)], dim=1)
        for part in (case.inside, case.outside, case.background)
    )
    fitted = case.fit(rows, background=background)
    expect(bool(torch.isfinite(fitted.score(queries)).all()), "non-finite scores")
    share = share_above(fitted.score(queries), fitted.score(rows))
    expect(share > 0.9, f"AUROC falls to {share:.3f}")


def fewer_rows_than_dimensions_work(case: DetectorCase) -> None:
    """30 rows of 64 dimensions, as a small task has."""
    near, far = clouds(30, 40, 64, 1)
    fitted = case.fit(near, background=far[10:])
    far = far[:10]
    expect(bool(fitted.score(far).min() > fitted.score(near).median()), "far rows score below the median of the fitted")


def docstring_states_sign_cost_and_source(case: DetectorCase) -> None:
    """Docstrings of dana's own detectors name sign, cost and source; those of plug-ins are not checked."""
    if not type(case.detector).__module__.startswith("dana."):
        return
    text = inspect.getdoc(case.detector) or ""
    for part in ("higher = more anomalous", "Cost:", "References:"):
        expect(part in text or type(case.detector).__name__ == "Convention", f"docstring lacks {part!r}")


def background_scores_above_the_task(case: DetectorCase) -> None:
    """General units that were not fitted on score above task units that were not (the sign)."""
    task, general = clouds(100, 100, DIMS, 8)
    share = share_above(case.fitted.score(general), case.fitted.score(task))
    expect(share > 0.95, f"AUROC {share:.3f} of general against task units; higher must mean more anomalous")


def the_background_moves_the_scores(case: DetectorCase) -> None:
    """Rows like the background score higher beside it than beside one that lies elsewhere."""
    like = clouds(1, 60, DIMS, 9)[1]
    other = case.background.clone()
    other -= 2 * other.mean(0)  # the same rows on the other side of the origin
    beside, elsewhere = (
        fitted.score(like).mean() - fitted.score(-like).mean()
        for fitted in (case.fit(case.inside, background=rows) for rows in (case.background, other))
    )
    expect(bool(beside > elsewhere), "the scores do not follow the background")


def a_bad_background_is_refused(case: DetectorCase) -> None:
    """An empty background, one with NaN and one of another width raise a DataError that names it."""
    broken = case.background.clone()
    broken[3, 0] = float("nan")
    for what, background in {
        "an empty background": case.background[:0],
        "NaN in row 3 of the background": broken,
        "a background of another width": case.background[:, :5],
    }.items():
        try:
            case.fit(case.inside, background=background)
        except DataError as error:
            named = "background" in str(error) and ("row 3" in str(error) or "NaN" not in what)
            expect(named, f"{what}: the message does not name it: {error}")
        else:
            raise AssertionError(f"{what} must raise DataError")


CONTRASTIVE: list[Callable[[DetectorCase], None]] = [
    background_scores_above_the_task,
    the_background_moves_the_scores,
    a_bad_background_is_refused,
]

CHECKS: list[Callable[[DetectorCase], None]] = [
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
