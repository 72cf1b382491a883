"""The setting that spreads a budget over groups: its text to a table of groups and their shares."""

import re
from dataclasses import dataclass

from dana.core.config import require
from dana.core.errors import ConfigError

ALLOWED = "a table of groups, or TABLE:GROUP=SHARE,GROUP=SHARE with distinct groups and shares above 0 that sum to 1"


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
    """Read ``clusters``, ``clusters:0=0.7,3=0.3`` or ``genres.parquet:news=1``.

    Raises:
        ConfigError: If it is nothing of the kind.
    """
    table, _, rest = str(text).partition(":")
    pairs = re.findall(r"([^,=]+)=([^,=]+)(?:,|$)", rest)
    try:
        shares = {group: float(share) for group, share in pairs}
    except ValueError as error:
        raise ConfigError(f"balance={text!r}: must be {ALLOWED}") from error
    whole = ",".join(f"{group}={share}" for group, share in pairs) == rest and len(shares) == len(pairs)
    fits = all(share > 0 for share in shares.values()) and (not shares or abs(sum(shares.values()) - 1) < 1e-6)
    require(bool(table) and whole and fits and text != f"{table}:", "balance", text, ALLOWED)
    return Balance(table, shares)
