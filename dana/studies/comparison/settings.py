"""Settings of a comparison of selectors."""

from dataclasses import dataclass, field

from dana.core.config import check_fields, require
from dana.core.files import slug
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


@dataclass(frozen=True)
class CompareSettings:
    """Tasks, selectors and budgets to compare, and the pool.

    Attributes:
        tasks: Task cards, text files, or ``source:NAME`` for a source of the general text, which
            the pool then lacks. Empty for the recipe's task.
        selectors: Specs of selectors, for example ``random`` or ``lof``; ``oracle`` ranks the
            plants first.
        fit: Numbers of texts to fit on; sizes above those of a task are skipped, but one must
            remain.
        seeds: Draws of the text to fit on, for each size.
        plants: Texts of the task in the pool, at most a quarter of what the task has.
        others: Pieces of general text in the pool, an equal number of each source.
        budgets: Amounts to select: ``0.05`` (share of the documents), ``300 documents`` or ``20000
            tokens`` (words).
    """

    tasks: list[str] = field(default_factory=list)
    selectors: list[str] = field(default_factory=lambda: list(SELECTORS))
    fit: list[int] = field(default_factory=lambda: [100, 500, 2000])
    seeds: int = 3
    plants: int = 300
    others: int = 6000
    budgets: list[str] = field(default_factory=lambda: ["0.05", "0.2"])

    def __post_init__(self) -> None:
        for name in ("tasks", "selectors", "fit", "budgets"):
            values = getattr(self, name)
            require(len(set(values)) == len(values), name, values, "distinct")
            require(name == "tasks" or bool(values), name, values, "at least one")
        require(self.selectors != [ORACLE], "selectors", self.selectors, f"one besides {ORACLE}")
        require(all(size >= 20 for size in self.fit), "fit", self.fit, "at least 20 each")
        check_fields(self, seeds="at least 1", plants="at least 20", others="at least 20")
        for name in ("selectors", "tasks"):
            values = getattr(self, name)
            folders = len(set(map(slug, values)))
            require(
                folders == len(values), name, values, "distinct in their letters, digits, _ . and -"
            )
        for budget in self.budgets:
            parse_amount(budget, "budgets", COUNTED)
