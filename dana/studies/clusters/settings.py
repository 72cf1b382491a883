"""Settings of domain clusters."""

from dataclasses import asdict, dataclass, field
from typing import Any

from dana.core.config import check_fields, require

AUTO = ["auto"]
CANDIDATES = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20)  # of auto
COVARIANCES = ("full", "tied", "diag", "spherical")


@dataclass(frozen=True)
class ClusterSettings:
    """How units are clustered.

    Attributes:
        k: Numbers of clusters to choose from, for example ``5 10 15``; ``auto`` tries ten from 2 to
            20.
        pca: Number of principal components; 0 for none.
        skip_first: Leading components to leave out before them.
        covariance: Shape of a cluster: ``full``, ``tied`` (one for all), ``diag`` or ``spherical``.
        iterations: Maximum steps of expectation maximisation.
        seeds: Initialisations of each k; the likeliest fit is used, and the agreement of all is the
            stability.
        encoder: Encoder spec; null takes the run's, or ``minilm`` where that is ``static``, the
            default.
        fit: Units to fit on, drawn at random; all units are assigned.
        true_domains: Sources that are true domains, or ``all``; reports purity, confusions and
            outliers.
    """

    k: list[int | str] = field(default_factory=lambda: list(AUTO))
    pca: int = 50
    skip_first: int = 0
    covariance: str = "full"
    iterations: int = 150
    seeds: int = 5
    fit: int = 10_000
    encoder: str | None = None
    true_domains: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        numbers = bool(self.k) and all(isinstance(k, int) and k >= 2 for k in self.k)
        require(numbers or self.k == AUTO, "k", self.k, "auto, or whole numbers of at least 2")
        require(len(set(self.k)) == len(self.k), "k", self.k, "distinct")
        require(self.pca == 0 or self.pca >= 2, "pca", self.pca, "at least 2, or 0 for no PCA")
        check_fields(
            self,
            skip_first="at least 0",
            covariance=COVARIANCES,
            iterations="at least 1",
            fit="at least 2",
        )
        require(
            self.pca > 0 or self.skip_first == 0, "skip_first", self.skip_first, "0 without PCA"
        )
        minimum = 1 if len(self.k) == 1 and self.k != AUTO else 2
        require(
            self.seeds >= minimum,
            "seeds",
            self.seeds,
            f"at least {minimum}" + " to choose k" * (minimum > 1),
        )

    @property
    def is_auto(self) -> bool:
        """True if ``auto`` was given instead of numbers."""
        return self.k == AUTO

    @property
    def candidates(self) -> tuple[int, ...]:
        """Numbers of clusters to try, ascending."""
        return CANDIDATES if self.is_auto else tuple(sorted(int(k) for k in self.k))

    def identity(self) -> dict[str, Any]:
        """Return plain values for a fingerprint, without ``true_domains``, which changes no cluster.

        The caller adds the encoder.
        """
        return {
            key: value
            for key, value in asdict(self).items()
            if key not in ("true_domains", "encoder")
        }
