"""Task cards described: a card to its whole YAML and to where its data lies, many cards to rows of a table."""

from collections.abc import Iterable
from dataclasses import asdict

import yaml

from dana.core.errors import ConfigError, DataError, suggestion
from dana.core.text_table import Value
from dana.corpus.hub import is_hub
from dana.tasks.card import SPLITS, TaskCard


def card_rows(cards: Iterable[TaskCard], data: str | None, tag: str | None = None) -> list[dict[str, Value]]:
    """A row a card: name, kind, metric, number of labels, expected examples by split, whether its data is here, ...

    Args:
        cards: Which.
        data: See :meth:`dana.tasks.card.TaskCard.files`.
        tag: Only cards with this tag.

    Raises:
        ConfigError: If no card has the tag; the nearest is suggested.
    """
    cards = list(cards)
    tags = {name for card in cards for name in card.tags}
    if tag is not None and tag not in tags:
        raise ConfigError(f"--tag {tag!r}: no card has it{suggestion(tag, tags)}")
    return [
        {
            "name": card.name,
            "kind": card.kind,
            "metric": card.metric,
            "labels": len(card.labels),
            **{split: " or ".join(f"{count:,}" for count in card.expected(split)) or "-" for split in SPLITS},
            "data": _availability(card, data),
            "tags": ", ".join(card.tags),
            "title": card.title,
        }
        for card in cards
        if tag is None or tag in card.tags
    ]


def card_text(card: TaskCard, data: str | None) -> str:
    """The whole card as YAML that can be used as a card; above it, as comments, its file and where its data is.

    Args:
        card: Which.
        data: See :meth:`dana.tasks.card.TaskCard.files`.
    """
    own, *included = card.origins
    lines = [f"# file: {own}", *(f"# includes: {path}" for path in included)]
    lines += [f"# {split}: {place}" for split, place in _places(card, data).items()]
    values = {name: value for name, value in asdict(card).items() if name != "origins" and value not in (None, "", [])}
    return "\n".join(lines) + "\n" + yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)


def _places(card: TaskCard, data: str | None) -> dict[str, str]:
    """The source of each split; of one that is nowhere, where it was looked for."""
    found = {}
    for split in SPLITS:
        try:
            [found[split]] = card.files(data, [split])
        except DataError as error:
            found[split] = f"missing: {error}"
    return found


def _availability(card: TaskCard, data: str | None) -> str:
    """``here``, ``hub``, ``missing``, or which splits are missing."""
    places = _places(card, data)
    missing = [split for split, place in places.items() if place.startswith("missing: ")]
    if missing:
        return "missing" if len(missing) == len(SPLITS) else f"no {', '.join(missing)}"
    return "hub" if any(is_hub(place) for place in places.values()) else "here"
