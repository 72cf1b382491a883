"""Settings of a comparison: tasks, selectors, fit sizes and seeds, how plants are hidden, and how much is kept."""

from dataclasses import dataclass, field

from dana.core.config import require
from dana.core.files import slug
from dana.weighting.settings import parse_amount

SOURCE = "source:"
ORACLE = "oracle"
SELECTORS = ["random", "dsir", "lexical", "moore_lewis", "knn", "lda", "contrastive_knn", "auto", ORACLE]
COUNTED = ("documents", "tokens")  # by a budget


@dataclass(frozen=True)
class CompareSettings:
    """What is compared, and on which pool.

    Attributes:
        tasks: Task cards, text files, or ``source:NAME`` for a source of the general text as the target; that source
            is then left out of the pool. Empty takes the recipe's task.
        selectors: Selectors' specs, for example ``random`` or ``lof``; ``oracle`` takes the plants first.
        fit: Texts that are fitted on; sizes that a task does not have are passed over, but one must be left.
        seeds: Draws of the text to fit on, for each size.
        plants: Texts of the task that are hidden in the pool; at most a quarter of what the task has.
        others: Pieces of general text in the pool, an equal number of each source.
        budgets: How much is kept: ``0.05`` (a share of the documents), ``300 documents`` or ``20000 tokens`` (words).
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
        for name, least in (("seeds", 1), ("plants", 20), ("others", 20)):
            require(getattr(self, name) >= least, name, getattr(self, name), f"at least {least}")
        for name in ("selectors", "tasks"):
            values = getattr(self, name)
            folders = len(set(map(slug, values)))
            require(folders == len(values), name, values, "told apart by letters, digits, _ . and -")
        for budget in self.budgets:
            parse_amount(budget, "budgets", COUNTED)
