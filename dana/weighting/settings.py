"""Settings of a weighing: the policy that turns scores into weights, and how much is kept."""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dana.core.config import require
from dana.core.errors import ConfigError

POLICIES = {"sigmoid": 1, "segments": 1, "sampled": 1}  # the version of each, raised when its weights change
AUTO = "auto"
PAPERS_BETA = 0.2
BALANCES = "a table of groups, or TABLE:GROUP=SHARE,GROUP=SHARE with distinct groups and shares above 0 that sum to 1"


def parse_amount(text: str | float, key: str, kinds: Sequence[str]) -> tuple[float, str]:
    """Read a share, ``0.2``, or a number of something, ``50000 units``.

    Args:
        text: What was given.
        key: The setting's name, for the error.
        kinds: What may be counted.

    Returns:
        The amount, and ``share`` or one of the kinds.

    Raises:
        ConfigError: If it is none of these.
    """
    number, _, kind = str(text).strip().partition(" ")
    *others, last = (f'"N {name}"' for name in kinds)
    allowed = f"a share in (0, 1], {', '.join(others)} or {last}"
    try:
        amount, kind = float(number), kind.strip() or "share"
    except ValueError as error:
        raise ConfigError(f"{key}={text!r}: must be {allowed}") from error
    good = 0 < amount <= 1 if kind == "share" else kind in kinds and 0 < amount < math.inf
    require(good, key, text, allowed)
    return amount, kind


@dataclass(frozen=True)
class Budget:
    """How much to keep: a share of the units (the paper's β), or at most so many units, tokens or documents.

    A share of the units, not of the segments: with short documents segments differ in size, and two selections of
    equally many segments would hold different amounts of text. A document counts with the first of its segments.

    Attributes:
        amount: In (0, 1] for a share, else a positive count.
        kind: ``share``, ``units``, ``tokens`` or ``documents``.
    """

    amount: float
    kind: str = "share"

    @classmethod
    def parse(cls, text: str | float) -> "Budget":
        """Read ``0.2``, ``50000 units``, ``2e6 tokens`` or ``300 documents``.

        Raises:
            ConfigError: If it is none of these.
        """
        return cls(*parse_amount(text, "budget", ("units", "tokens", "documents")))

    def max_amount(self, units: int) -> float:
        """The largest amount that may be kept of so many units."""
        return float(round(self.amount * units)) if self.kind == "share" else self.amount


@dataclass(frozen=True)
class Balance:
    """What the setting ``weigh.balance`` says.

    Attributes:
        table: Name of a table of groups in the run's folder, or the path of one.
        shares: Share of the budget of each group that is named; empty where all groups share alike.
    """

    table: str
    shares: dict[str, float]


def parse_balance(text: str) -> Balance:
    """Read ``genres``, ``genres:news=0.7,law=0.3`` or ``genres.parquet:news=1``.

    Raises:
        ConfigError: If it is nothing of the kind.
    """
    table, _, rest = str(text).partition(":")
    pairs = re.findall(r"([^,=]+)=([^,=]+)(?:,|$)", rest)
    try:
        shares = {group: float(share) for group, share in pairs}
    except ValueError as error:
        raise ConfigError(f"balance={text!r}: must be {BALANCES}") from error
    whole = ",".join(f"{group}={share}" for group, share in pairs) == rest and len(shares) == len(pairs)
    fits = all(share > 0 for share in shares.values()) and (not shares or abs(sum(shares.values()) - 1) < 1e-6)
    require(bool(table) and whole and fits and text != f"{table}:", "balance", text, BALANCES)
    return Balance(table, shares)


@dataclass(frozen=True)
class WeighSettings:
    """How scores become weights.

    Attributes:
        policy: ``sigmoid`` weighs every unit, ``segments`` keeps the best with weight 1 (the paper's headline
            system), ``sampled`` draws segments with probability proportional to their weight.
        beta: Share of the units to keep, in whole segments; also places the sigmoid's midpoint. The paper uses 0.2.
            ``auto`` chooses it by held-out task text (docs/guide/choosing-how-much.md).
        budget: Instead of beta, ``"50000 units"``, ``"2e6 tokens"`` (with ``--set weigh.tokenizer=NAME``),
            ``"300 documents"``, or a share as beta is.
        below: Instead of a budget, keep every segment whose mean score is below this. At 0 ``classifier``, ``lexical``,
            ``lda`` and ``svm`` take text for the task's.
        balance: A table of groups, in the run's folder by its name or anywhere by its path, over which the budget is
            spread evenly, or by shares: ``genres.parquet:news=0.7,law=0.3``. Where a group is used up the others get
            the rest.
        gamma: Units in a segment; the paper uses 15.
        min_tail: A document's last, short segment is dropped if it has fewer units.
        shrink: Draw the means of short segments towards that of all, as their few units demand
            (:class:`dana.weighting.weights.Components`). The paper ranks the means as they are.
        stream: Let segments run across documents, as the paper's one stream does. Selected text is still
            broken at every document's end.
        sharpness: The sigmoid's C. The paper gives no value; 4 is ours.
        midpoint: The sigmoid's α on standardised scores; empty takes the beta-quantile, so that both modes
            keep the same mass. The paper gives no value.
        tokenizer: Folder or Hub name of the tokenizer that counts a budget in tokens.
        seed: Decides the draw of ``sampled``.
    """

    policy: str = "segments"
    beta: float | str = PAPERS_BETA
    budget: str | float | None = None
    below: float | None = None
    balance: str | None = None
    gamma: int = 15
    min_tail: int = 1
    shrink: bool = True
    stream: bool = False
    sharpness: float = 4.0
    midpoint: float | None = None
    tokenizer: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.policy in POLICIES, "policy", self.policy, f"one of {', '.join(POLICIES)}")
        is_share = not isinstance(self.beta, str) and 0 < self.beta <= 1
        require(is_share or self.beta == AUTO, "beta", self.beta, "in (0, 1], or auto")
        require(1 <= self.gamma < 2**63, "gamma", self.gamma, "from 1 to 9223372036854775807")
        require(1 <= self.min_tail <= self.gamma, "min_tail", self.min_tail, f"in [1, gamma={self.gamma}]")
        require(0 <= self.sharpness < math.inf, "sharpness", self.sharpness, "a finite number, at least 0")
        for name in ("midpoint", "below"):
            value = getattr(self, name)
            require(value is None or math.isfinite(value), name, value, "a finite number, or null")
        if self.below is not None and (self.policy != "segments" or self.budget is not None):
            raise ConfigError(f"below={self.below!r}: takes the place of a budget, and needs policy=segments")
        if self.effective_budget.kind == "tokens" and self.tokenizer is None:
            raise ConfigError(f"budget={self.budget!r}: counting tokens needs tokenizer=NAME")
        if self.effective_budget.kind == "documents" and self.stream:
            raise ConfigError(f"budget={self.budget!r}: with stream=true a segment may be of several documents")
        if self.balance is not None:
            self._check_balance(self.balance)

    def _check_balance(self, balance: str) -> None:
        parse_balance(balance)
        given = f"balance={balance!r}"
        if self.policy == "sigmoid":
            raise ConfigError(f"{given}: needs policy=segments or sampled; sigmoid has no budget to spread")
        if self.below is not None:
            raise ConfigError(f"{given}: spreads a budget, and below={self.below!r} stands for none; leave one out")
        if self.is_auto:
            raise ConfigError(f"{given}: beta=auto is chosen by the scores alone; give a share in (0, 1], or a budget")

    def identity(self) -> dict[str, Any]:
        """Plain values for a fingerprint: all parameters, and the version of the policy."""
        return {**asdict(self), "version": POLICIES[self.policy]}

    @property
    def is_auto(self) -> bool:
        """Whether beta is still to be chosen, and something depends on it."""
        placed = self.policy == "sigmoid" and self.midpoint is not None
        return self.beta == AUTO and self.budget is None and self.below is None and not placed

    @property
    def share(self) -> float:
        """Beta as a number; the paper's where it is still to be chosen, which is what a ranking goes by."""
        return PAPERS_BETA if isinstance(self.beta, str) else self.beta

    @property
    def effective_budget(self) -> Budget:
        """The budget, or beta as one."""
        return Budget.parse(self.budget) if self.budget is not None else Budget(self.share)
