"""Outliers: units in a cluster of another domain; how long they are, how many have digits, pronouns, questions."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

TOKEN = re.compile(r"\w+|[^\w\s]")  # words and single marks
DIGIT = re.compile(r"\d")
# Personal pronouns with their object and possessive forms.
PRONOUNS = {
    *("i", "me", "my", "mine", "you", "your", "yours", "he", "him", "his", "she", "her", "hers", "it", "its"),
    *("we", "us", "our", "ours", "they", "them", "their", "theirs"),
}
EVERY_OUTLIER, EVERY_UNIT = "all outliers", "all units"


def surface_of(texts: Sequence[str]) -> pd.DataFrame:
    """What can be counted in texts, a row each.

    Returns:
        tokens (words and single marks of punctuation), digits (whether there are any), conversational (whether there is
        a personal pronoun of English, or a question mark).

    References:
        Aharoni and Goldberg 2020, section 2.6; their tokens and pronouns are not specified.
    """
    tokens = [TOKEN.findall(text) for text in texts]
    said = [not PRONOUNS.isdisjoint(map(str.casefold, own)) or "?" in own for own in tokens]
    digits = [bool(DIGIT.search(text)) for text in texts]
    return pd.DataFrame({"tokens": list(map(len, tokens)), "digits": digits, "conversational": said})


def outlier_table(true: np.ndarray, assigned: np.ndarray, names: Sequence[str], surface: pd.DataFrame) -> pd.DataFrame:
    """Outliers by the domain that attracts them, the most attractive first, then all outliers, then all units.

    Args:
        true: int of shape (units,), each one's domain.
        assigned: int of shape (units,), the domain that its cluster is mapped to.
        names: Of the domains.
        surface: Of :func:`surface_of`.

    Returns:
        Columns domain, units, share (of all units), tokens (mean), digits and conversational (shares of the units).
    """
    is_outlier = np.asarray(true != assigned)
    rows = [_row(name, surface[is_outlier & (assigned == at)], len(surface)) for at, name in enumerate(names)]
    rows.sort(key=lambda row: -row["units"])
    rows += [_row(EVERY_OUTLIER, surface[is_outlier], len(surface)), _row(EVERY_UNIT, surface, len(surface))]
    return pd.DataFrame(rows)


def _row(name: str, own: pd.DataFrame, units: int) -> dict[str, Any]:
    means = {str(column): own[column].mean() if len(own) else np.nan for column in own}
    return {"domain": name, "units": len(own), "share": len(own) / units, **means}


def outlier_examples(
    true: np.ndarray, assigned: np.ndarray, nearness: np.ndarray, texts: Sequence[str], most: int
) -> dict[tuple[int, int], list[int]]:
    """The clearest outliers of each pair of domains: those nearest to the centre of the wrong cluster.

    Args:
        true: int of shape (units,).
        assigned: The same.
        nearness: Log density of each unit's own component, shape (units,).
        texts: Units; of equal ones the first is taken.
        most: So many of each pair.

    Returns:
        (true, assigned) to places of units, for every pair that has some, in order of the pairs.
    """
    found: dict[tuple[int, int], list[int]] = {}
    seen = set()
    for place in np.argsort(-nearness, kind="stable").tolist():
        pair = int(true[place]), int(assigned[place])
        if pair[0] != pair[1] and (pair, texts[place]) not in seen and len(found.setdefault(pair, [])) < most:
            found[pair].append(place)
            seen.add((pair, texts[place]))
    return dict(sorted(found.items()))
