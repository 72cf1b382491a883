"""Settings of a ranking: which detectors, over which splits, and what decides."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from dana.core.config import require
from dana.core.errors import ConfigError, DanaError, PluginError
from dana.core.registry import DETECTORS

PROTOCOLS = ("grouped", "paper")
ALL = ["all"]
LEFT_OUT = ("pyod",)  # of all: needs an argument, and has half a hundred


@dataclass(frozen=True)
class RankSettings:
    """How the detectors are compared.

    Attributes:
        detectors: Detector specs; ``all`` is every built-in and plug-in that needs no argument. One of these that
            fails is left out with a warning; one that is asked for by name is an error.
        protocol: ``grouped`` holds out documents, with all that is nearly the same, in folds, and chooses by recall at
            the budget. ``paper`` holds out a tenth of the units, by unit, and chooses by F1 (DANA, section 3.1).
        folds: Folds of ``grouped``.
        seeds: Repetitions, each with its own split and detector seed.
        prevalence: Share of task text at which the average precision is taken; the paper's is a half.
    """

    detectors: list[str] = field(default_factory=lambda: list(ALL))
    protocol: str = "grouped"
    folds: int = 5
    seeds: int = 1
    prevalence: float = 0.1

    def __post_init__(self) -> None:
        require(self.protocol in PROTOCOLS, "protocol", self.protocol, f"one of {', '.join(PROTOCOLS)}")
        require(self.folds >= 2, "folds", self.folds, "at least 2")
        require(self.seeds >= 1, "seeds", self.seeds, "at least 1")
        require(0 < self.prevalence < 1, "prevalence", self.prevalence, "in (0, 1)")
        require(bool(self.detectors), "detectors", self.detectors, "all, or at least one name")

    @property
    def is_all(self) -> bool:
        """Whether nothing was asked for by name."""
        return self.detectors == ALL

    @property
    def fits(self) -> int:
        """Of each detector, at most."""
        return self.seeds * (self.folds if self.protocol == "grouped" else 1)

    def identity(self) -> dict[str, Any]:
        """Plain values for a fingerprint; the detectors are added by whoever resolves them."""
        left_out = ("detectors",) if self.protocol == "grouped" else ("detectors", "folds")
        return {key: value for key, value in asdict(self).items() if key not in left_out}

    def specs(self) -> list[str]:
        """The detectors by spec; unknown names fail here, before any work. Of ``all``, those that load."""
        if self.is_all:
            return [spec for spec, error in _zoo() if error is None]
        for spec in self.detectors:
            DETECTORS.create(spec)
        if len(set(self.detectors)) < len(self.detectors):
            raise ConfigError(f"detectors={','.join(self.detectors)}: a name is given twice")
        return list(self.detectors)

    def broken(self) -> dict[str, str]:
        """Of ``all``, those that do not load, and why."""
        return {spec: str(error) for spec, error in _zoo() if error is not None} if self.is_all else {}


def _zoo() -> Iterator[tuple[str, DanaError | None]]:
    """Every detector that needs no argument, and what keeps it from loading; a name that two claim stands twice."""
    for name, claims in DETECTORS.entries().items():
        if name in LEFT_OUT:
            continue
        owners = [claim.dist.name for claim in claims if claim.dist]
        for spec in [name] if len(claims) == 1 else [f"{owner}:{name}" for owner in owners]:
            try:
                DETECTORS.create(spec)
            except (PluginError, ConfigError) as error:
                yield spec, error
            else:
                yield spec, None
