"""Settings of weighting: the policy that turns scores into weights, and how much text is selected."""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from dana.core.config import require
from dana.core.errors import ConfigError, SettingError
from dana.core.settings import Bool, Count, Float, Int, OneOf, Share, settings_model

POLICIES = {
    "sigmoid": 1,
    "segments": 1,
    "sampled": 1,
}  # version of each: raised when its weights change
AUTO = "auto"
PAPERS_BETA = 0.2
MOST_UNITS = 2**63 - 1  # of a segment
BALANCES = "a table of groups, or TABLE:GROUP=SHARE,GROUP=SHARE with distinct groups and shares above 0 that sum to 1"


def parse_amount(text: str | float, key: str, kinds: Sequence[str]) -> tuple[float, str]:
    """Parse a share such as ``0.2``, or a count such as ``50000 units``.

    Args:
        text: Value of the setting.
        key: Name of the setting, for the error.
        kinds: What can be counted.

    Returns:
        The amount, and ``share`` or one of the kinds.

    Raises:
        ConfigError: If it is neither.
    """
    number, _, kind = str(text).strip().partition(" ")
    *others, last = (f'"N {name}"' for name in kinds)
    choices = f"a share in (0, 1], {', '.join(others)} or {last}"
    try:
        amount, kind = float(number), kind.strip() or "share"
    except ValueError as error:
        raise ConfigError(f"{key}={text!r}: must be {choices}") from error
    good = 0 < amount <= 1 if kind == "share" else kind in kinds and 0 < amount < math.inf
    require(good, key, text, choices)
    return amount, kind


@dataclass(frozen=True)
class Budget:
    """How much to select: a share of the units (the paper's β), or a number of units, tokens or documents.

    A share is one of units, not of segments: segments of short documents are smaller, so two
    selections of equally many segments would hold different amounts of text. A document counts as
    soon as one of its segments is selected.

    Attributes:
        amount: In (0, 1] for a share, else a positive count.
        kind: ``share``, ``units``, ``tokens`` or ``documents``.
    """

    amount: float
    kind: str = "share"

    @classmethod
    def parse(cls, text: str | float) -> "Budget":
        """Parse ``0.2``, ``50000 units``, ``2e6 tokens`` or ``300 documents``.

        Raises:
            ConfigError: If it is none of these.
        """
        return cls(*parse_amount(text, "budget", ("units", "tokens", "documents")))

    def max_amount(self, units: int) -> float:
        """Return the largest amount that may be selected from a pool of `units` units."""
        return float(round(self.amount * units)) if self.kind == "share" else self.amount


@dataclass(frozen=True)
class Balance:
    """Groups that share a budget, from the setting ``weigh.balance``.

    Attributes:
        table: Name of a table of groups in the run's folder, or its path.
        shares: Share of the budget by group; empty for equal shares of all groups.
    """

    table: str
    shares: dict[str, float]


def parse_balance(text: str) -> Balance:
    """Parse ``genres``, ``genres:news=0.7,law=0.3`` or ``genres.parquet:news=1``.

    Raises:
        ConfigError: If the text has another form, or the shares do not sum to 1.
    """
    table, _, text_of_shares = str(text).partition(":")
    pairs = re.findall(r"([^,=]+)=([^,=]+)(?:,|$)", text_of_shares)
    try:
        shares = {group: float(share) for group, share in pairs}
    except ValueError as error:
        raise ConfigError(f"balance={text!r}: must be {BALANCES}") from error
    is_complete = ",".join(f"{group}={share}" for group, share in pairs) == text_of_shares and len(
        shares
    ) == len(pairs)
    fits = all(share > 0 for share in shares.values()) and (
        not shares or abs(sum(shares.values()) - 1) < 1e-6
    )
    require(bool(table) and is_complete and fits and text != f"{table}:", "balance", text, BALANCES)
    return Balance(table, shares)


@settings_model
class WeighSettings:
    """How scores become weights."""

    policy: Annotated[str, OneOf(tuple(POLICIES))] = "segments"
    """sigmoid weighs every unit, segments keeps the best with weight 1 (the paper's headline
    system), sampled draws segments with probability proportional to their sigmoid."""
    beta: Share | Literal["auto"] = PAPERS_BETA
    """Share of the units to keep, in whole segments; for sigmoid the share that gets a weight of at
    least 0.5, where no midpoint is set. The paper uses 0.2. auto chooses it by held-out target text
    (docs/guide/choosing-how-much.md)."""
    budget: str | Float | None = None
    """Instead of beta, "50000 units", "2e6 tokens" (with --set weigh.tokenizer=NAME), "300
    documents", or a share as beta is."""
    below: Float | None = None
    """Instead of a budget, keep every segment whose mean score is below this. At 0 classifier,
    lexical, lda and svm take text for the target's."""
    balance: str | None = None
    """A table of groups, in the run's folder by its name or anywhere by its path, over which the
    budget is spread evenly, or by shares: genres.parquet:news=0.7,law=0.3. Where a group is used up
    the others get the rest."""
    gamma: Annotated[Int, Field(ge=1, le=MOST_UNITS)] = 15
    """Units in a segment; the paper uses 15."""
    min_tail: Count = 1
    """A document's last, short segment is dropped if it has fewer units."""
    shrink: Bool = True
    """Draw the means of short segments towards that of all, as their few units demand
    (dana.weighting.formulas.Components). The paper ranks the means as they are."""
    stream: Bool = False
    """Let segments run across documents, as the paper's one stream does. Selected text is still
    broken at every document's end."""
    sharpness: Annotated[Float, Field(ge=0)] = 4.0
    """The sigmoid's C. The paper gives no value; 4 is ours."""
    midpoint: Float | None = None
    """The sigmoid's α on standardised scores Ā; empty takes their beta-quantile. The paper gives no
    value."""
    tokenizer: str | None = None
    """Folder or Hub name of the tokenizer that counts a budget in tokens."""
    seed: Int = 0
    """Decides the draw of sampled."""

    def __post_init__(self) -> None:
        if self.min_tail > self.gamma:
            raise SettingError("min_tail", self.min_tail, f"from 1 to gamma={self.gamma}")
        if self.below is not None and (self.policy != "segments" or self.budget is not None):
            raise ConfigError(f"below={self.below!r}: needs policy=segments and no budget")
        if self.effective_budget.kind == "tokens" and self.tokenizer is None:
            raise ConfigError(f"budget={self.budget!r}: needs tokenizer=NAME to count tokens")
        if self.effective_budget.kind == "documents" and self.stream:
            raise ConfigError(
                f"budget={self.budget!r}: documents cannot be counted with stream=true; give units"
            )
        if self.balance is not None:
            self._check_balance(self.balance)

    def _check_balance(self, balance: str) -> None:
        parse_balance(balance)
        key = f"balance={balance!r}"
        if self.policy == "sigmoid":
            raise ConfigError(f"{key}: needs policy=segments or sampled; sigmoid has no budget")
        if self.below is not None:
            raise ConfigError(f"{key}: has no effect with below={self.below!r}; remove one of them")
        if self.is_auto:
            raise ConfigError(f"{key}: needs a budget or a beta in (0, 1], not beta=auto")

    def identity(self) -> dict[str, Any]:
        """Return plain values for a fingerprint: all parameters, and the version of the policy."""
        return {**asdict(self), "version": POLICIES[self.policy]}

    @property
    def is_auto(self) -> bool:
        """Whether beta has to be chosen, and decides the weights."""
        has_midpoint = self.policy == "sigmoid" and self.midpoint is not None
        return self.beta == AUTO and self.budget is None and self.below is None and not has_midpoint

    @property
    def share(self) -> float:
        """Beta as a number; the paper's value while ``beta=auto`` is not resolved."""
        return PAPERS_BETA if isinstance(self.beta, str) else self.beta

    @property
    def effective_budget(self) -> Budget:
        """The setting ``budget``, or else beta as a share."""
        return Budget.parse(self.budget) if self.budget is not None else Budget(self.share)
