"""Settings of a comparison: tasks, selectors, fit sizes and seeds, how plants are hidden, and how much is kept."""

from dataclasses import dataclass, field

from dana.core.config import require
from dana.core.files import slug
from dana.weighting.settings import parse_amount

SOURCE = "source:"
ORACLE = "oracle"
SELECTORS = ["random", "dsir", "lexical", "moore_lewis", "knn", "lda", "contrastive_knn", "auto", "oracle"]
FIT = [100, 500, 2000]
BUDGETS = ["0.05", "0.2"]
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
        without: Sources of the general text that are left out.
        runs: Folders of runs whose scores are measured as they are, without plants; arms of a run too.
        budgets: How much is kept: ``0.05`` (a share of the documents), ``300 documents`` or ``20000 tokens`` (words).
    """

    tasks: list[str] = field(default_factory=list)
    selectors: list[str] = field(default_factory=lambda: list(SELECTORS))
    fit: list[int] = field(default_factory=lambda: list(FIT))
    seeds: int = 3
    plants: int = 300
    others: int = 6000
    without: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    budgets: list[str] = field(default_factory=lambda: list(BUDGETS))

    def __post_init__(self) -> None:
        for name in ("tasks", "selectors", "fit", "budgets"):
            values = getattr(self, name)
            require(len(set(values)) == len(values), name, values, "distinct")
            require(name == "tasks" or bool(values), name, values, "at least one")
        require(all(size >= 20 for size in self.fit), "fit", self.fit, "at least 20 each")
        require(self.seeds >= 1, "seeds", self.seeds, "at least 1")
        require(self.plants >= 20, "plants", self.plants, "at least 20")
        require(self.others >= 20, "others", self.others, "at least 20")
        for values, key in ((self.selectors, "selectors"), (self.tasks, "tasks"), (self.runs, "runs")):
            slugs = [slug(value) for value in values]
            twice = [value for value, name in zip(values, slugs, strict=True) if slugs.count(name) > 1]
            require(not twice, key, twice, "told apart by letters, digits, _ . and -")
        for budget in self.budgets:
            parse_amount(budget, "budgets", COUNTED)
