"""Conformance checks: small functions that assert one promise of a component each, run to a list of results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dana.core.errors import DanaError


@dataclass(frozen=True)
class CheckResult:
    """One check's outcome.

    Attributes:
        name: The check.
        passed: Whether it holds, or the component is exempt.
        detail: What was found wrong, or the reason of the exemption.
    """

    name: str
    passed: bool
    detail: str = ""

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"{'ok' if self.passed else 'FAILED':<7} {self.name.replace('_', ' ')}{detail}"


def run_checks(
    checks: Sequence[Callable[[Any], None]], case: Callable[[], Any], exempt: Mapping[str, str]
) -> list[CheckResult]:
    """Run every check on a case of its own.

    Args:
        checks: Each takes a case and raises where a promise is broken.
        case: Makes what a check works on.
        exempt: Checks that are not run, and why.
    """
    unknown = sorted(exempt.keys() - {check.__name__ for check in checks})
    results = [CheckResult(name, False, "exempt from a check that does not exist") for name in unknown]
    for check in checks:
        passed, detail = True, ""
        if check.__name__ in exempt:
            detail = f"exempt: {exempt[check.__name__]}"
        else:
            try:
                check(case())
            except (AssertionError, DanaError) as error:
                passed, detail = False, str(error) or type(error).__name__
            except Exception as error:  # whatever a plug-in raises
                passed, detail = False, f"{type(error).__name__}: {error}"
        results.append(CheckResult(check.__name__, passed, detail))
    return results


def expect(holds: bool, message: str) -> None:
    """Raise an AssertionError with the message unless the claim holds."""
    if not holds:
        raise AssertionError(message)


def expect_close(found: Any, expected: Any, message: str, tolerance: float = 1e-5) -> None:
    """Expect two arrays to differ by at most `tolerance` of the largest expected number.

    Args:
        found: A tensor or array.
        expected: One of the same shape.
        message: What was done to `found`.
        tolerance: Relative to the largest of `expected`.
    """
    one, other = (np.asarray(part, dtype=np.float64) for part in (found, expected))
    expect(one.shape == other.shape, f"{message}: shape {one.shape}, expected {other.shape}")
    worst = float(np.abs(one - other).max(initial=0)) / max(float(np.abs(other).max(initial=0)), 1e-12)
    expect(worst <= tolerance, f"{message}: relative difference {worst:.1e}, allowed {tolerance:.0e}")


def share_above(higher: Any, lower: Any) -> float:
    """AUROC: share of pairs in which a number of the first array is above one of the second."""
    one, other = (np.asarray(part, dtype=np.float64) for part in (higher, lower))
    return float((one[:, None] > other[None]).mean())
