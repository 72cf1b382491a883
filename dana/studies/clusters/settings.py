"""Settings of domain clusters."""

from dataclasses import asdict, field
from typing import Annotated, Any

from pydantic import Field

from dana.core.errors import SettingError
from dana.core.settings import Count, CountOrZero, Int, OneOf, settings_model

AUTO = ["auto"]
CANDIDATES = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20)  # of auto
COVARIANCES = ("full", "tied", "diag", "spherical")


@settings_model
class ClusterSettings:
    """How units are clustered."""

    k: list[Int | str] = field(default_factory=lambda: list(AUTO))
    """Numbers of clusters to choose from, for example 5 10 15; auto tries ten from 2 to 20."""
    pca: Int = 50
    """Number of principal components; 0 for none."""
    skip_first: CountOrZero = 0
    """Leading components to leave out before them."""
    covariance: Annotated[str, OneOf(COVARIANCES)] = "full"
    """Shape of a cluster: full, tied (one for all), diag or spherical."""
    iterations: Count = 150
    """Maximum steps of expectation maximisation."""
    seeds: Count = 5
    """Initialisations of each k; the likeliest fit is used, and the agreement of all is the
    stability."""
    fit: Annotated[Int, Field(ge=2)] = 10_000
    """Units to fit on, drawn at random; all units are assigned."""
    encoder: str | None = None
    """Encoder spec; null takes the run's, or minilm where that is static, the default."""
    true_domains: list[str] = field(default_factory=list)
    """Sources that are true domains, or all; reports purity, confusions and outliers."""

    def __post_init__(self) -> None:
        numbers = [k for k in self.k if isinstance(k, int)]
        are_numbers = bool(numbers) and len(numbers) == len(self.k) and min(numbers) >= 2
        if self.k != AUTO and not are_numbers:
            raise SettingError("k", self.k, "auto, or whole numbers of at least 2")
        if len(set(self.k)) < len(self.k):
            raise SettingError("k", self.k, "distinct")
        if self.pca < 0 or self.pca == 1:
            raise SettingError("pca", self.pca, "at least 2, or 0 for no PCA")
        if self.pca == 0 and self.skip_first > 0:
            raise SettingError("skip_first", self.skip_first, "0 without PCA")
        if self.seeds == 1 and (len(self.k) > 1 or self.is_auto):
            raise SettingError("seeds", self.seeds, "at least 2 to choose k")

    @property
    def is_auto(self) -> bool:
        """True if ``auto`` was given instead of numbers."""
        return self.k == AUTO

    @property
    def candidates(self) -> tuple[int, ...]:
        """Numbers of clusters to try, ascending."""
        return CANDIDATES if self.is_auto else tuple(sorted(int(k) for k in self.k))

    def identity(self) -> dict[str, Any]:
        """Return plain values for a fingerprint.

        ``true_domains`` is not among them, as it changes no cluster. The caller adds the encoder.
        """
        values = asdict(self)
        del values["true_domains"]
        del values["encoder"]
        return values
