"""Run the conformance checks of a component, one result per rule."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dana.core.errors import DanaError


@dataclass(frozen=True)
class CheckResult:
    """Result of one check.

    Attributes:
        name: Name of the check.
        passed: Whether it holds, or the component is exempt.
        detail: What is wrong, or the reason of the exemption.
    """

    name: str
    passed: bool
    detail: str = ""

    def __str__(self) -> str:
        outcome = "ok" if self.passed else "FAILED"
        detail = f": {self.detail}" if self.detail else ""
        return f"{outcome:<7} {self.name.replace('_', ' ')}{detail}"


def checks_of(kind: type) -> list[str]:
    """List the names of the checks of a kind: those of its methods ``check_...``."""
    return [name.removeprefix("check_") for name in dir(kind) if name.startswith("check_")]


def run_checks(
    kind: type, new_case: Callable[[], Any], exempt: Mapping[str, str]
) -> list[CheckResult]:
    """Run each check of a kind on a new case, without those that the component is exempt from."""
    names = checks_of(kind)
    unknown = sorted(exempt.keys() - set(names))
    results = [
        CheckResult(name, False, "exempt from a check that does not exist") for name in unknown
    ]
    for name in names:
        if name in exempt:
            results.append(CheckResult(name, True, f"exempt: {exempt[name]}"))
            continue
        try:
            getattr(new_case(), f"check_{name}")()
            results.append(CheckResult(name, True))
        except Exception as error:  # a plug-in may raise anything
            detail = f"{type(error).__name__}: {error}"
            if isinstance(error, AssertionError | DanaError):
                detail = str(error)
            results.append(CheckResult(name, False, detail))
    return results


def expect(holds: bool, message: str) -> None:
    """Raise an AssertionError with the message unless the condition holds."""
    if not holds:
        raise AssertionError(message)
