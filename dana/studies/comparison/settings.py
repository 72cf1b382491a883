"""Settings of a comparison of selectors."""

from dataclasses import field
from typing import Annotated

from pydantic import Field

from dana.core.errors import SettingError
from dana.core.files import slug
from dana.core.settings import Count, Int, settings_model
from dana.weighting.settings import parse_amount

SOURCE = "source:"
ORACLE = "oracle"
SELECTORS = [
    "random",
    "dsir",
    "lexical",
    "moore_lewis",
    "knn",
    "lda",
    "contrastive_knn",
    "auto",
    ORACLE,
]
COUNTED = ("documents", "tokens")  # units of a budget


@settings_model
class CompareSettings:
    """Tasks, selectors and budgets to compare, and the pool."""

    tasks: list[str] = field(default_factory=list)
    """Task cards, text files, or source:NAME for a source of the pool, which the pool then
    lacks. Empty for the recipe's task."""
    selectors: list[str] = field(default_factory=lambda: list(SELECTORS))
    """Specs of selectors, for example random or lof; oracle ranks the plants first."""
    fit: list[Annotated[Int, Field(ge=20)]] = field(default_factory=lambda: [100, 500, 2000])
    """Numbers of texts to fit on; sizes above those of a task are skipped, but one must remain."""
    seeds: Count = 3
    """Draws of the text to fit on, for each size."""
    plants: Annotated[Int, Field(ge=20)] = 300
    """Texts of the task in the pool, at most a quarter of what the task has."""
    others: Annotated[Int, Field(ge=20)] | None = None
    """Pieces of pool text in the pool, an equal number of each source; null takes 6,000, or as
    many as the pool has documents."""
    budgets: list[str] = field(default_factory=lambda: ["0.05", "0.2"])
    """Amounts to select: 0.05 (share of the documents), 300 documents or 20000 tokens (words)."""

    def __post_init__(self) -> None:
        for name in ("tasks", "selectors", "fit", "budgets"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise SettingError(name, values, "distinct")
            if name != "tasks" and not values:
                raise SettingError(name, values, "at least one")
        if self.selectors == [ORACLE]:
            raise SettingError("selectors", self.selectors, f"one besides {ORACLE}")
        for name in ("selectors", "tasks"):
            values = getattr(self, name)
            if len(set(map(slug, values))) < len(values):
                remedy = "distinct in their letters, digits, _ . and -"
                raise SettingError(name, values, remedy)
        for budget in self.budgets:
            parse_amount(budget, "budgets", COUNTED)
