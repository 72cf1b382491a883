"""Forecast of a run: settings and a pilot's results to the smallest difference each card's seeds and test set show."""

from dataclasses import dataclass
from pathlib import Path

from dana.core.errors import ArtifactError, ConfigError, nearest_path
from dana.core.logging import get_logger
from dana.core.statistics import fewest_seeds
from dana.report.cells import Finetuned
from dana.report.run import read_cells
from dana.report.verdicts import (
    MOST_SEEDS,
    Spread,
    assumed_spread,
    detectable,
    measure_pair,
    pooled,
    questions,
    seeds_needed,
    smallest_detectable,
)
from dana.stages.settings import RunSettings
from dana.tasks.card import TaskCard

log = get_logger(__name__)


@dataclass(frozen=True)
class Pilot:
    """Results of an earlier run on a task.

    Attributes:
        folder: The run's.
        seeds: How many.
        texts: Test examples.
        spread: Of our arm against base and random text, pooled.
    """

    folder: Path
    seeds: int
    texts: int
    spread: Spread


def forecast(settings: RunSettings, cards: list[TaskCard | str]) -> list[str]:
    """A line a card: the difference that its seeds and test examples show in four of five runs, and what more would.

    The spread is that of results in ``settings.pilot``, or in the run's own folder, where they are of the card's task,
    have two seeds or more and no collapsed model. Else one is assumed (:func:`dana.report.verdicts.assumed_spread`).

    Args:
        settings: Of the run.
        cards: Its task cards; of one that is not made yet the name.

    Raises:
        ConfigError: If ``settings.pilot`` holds no results of fine-tuning.
        ArtifactError: If they cannot be read.
    """
    asked = questions(list(dict.fromkeys(["base", *(arm.name for arm in settings.described_arms)])))
    if not asked:
        return []
    cells, count = _results(settings), len(asked) * len(cards)
    said = []
    for card in cards:
        if isinstance(card, str):
            least = f"{_questions(count)} at least {fewest_seeds(count)} seeds"
            said.append(f"{card}: its test texts are not counted yet; {least}")
        else:
            said.append(f"{card.name}: {_what_is_seen(card, settings, count, cells)}")
    return said


def _results(settings: RunSettings) -> tuple[Finetuned, ...]:
    """The pilot's results. What is wrong with the run's own is for the cells to say that make them."""
    if settings.pilot is None:
        try:
            return read_cells(Path(settings.out), {})
        except ArtifactError as error:
            log.warning("power     no pilot: %s", error)
            return ()
    folder = Path(settings.pilot)
    if not folder.is_dir():
        raise ConfigError(f"pilot={settings.pilot!r}: no such folder{nearest_path(folder)}")
    cells = read_cells(folder, {})
    if not cells:
        raise ConfigError(f"pilot={settings.pilot!r}: must be the folder of a run with results below finetune/")
    return cells


def find_pilot(cells: tuple[Finetuned, ...], task: str, folder: Path) -> Pilot | None:
    """What the results say of a task's spread; None where they do not have two arms made alike, with two seeds."""
    arms = {cell.arm: cell for cell in cells if cell.task == task}
    rows = [measure_pair(arms[ours], arms[other]) for ours, other in questions(list(arms))]
    rows = [row for row in rows if row.mixed == row.mixed and not row.collapsed]
    if not rows:
        return None
    predictions = arms[rows[0].arm].predictions
    texts = 0 if predictions is None else predictions.labels.size
    spread = pooled([Spread(row.std, row.examples, row.mixed) for row in rows])
    return Pilot(folder, min(row.n for row in rows), texts, spread)


def _what_is_seen(card: TaskCard, settings: RunSettings, count: int, cells: tuple[Finetuned, ...]) -> str:
    pilot = find_pilot(cells, card.name, Path(settings.pilot or settings.out))
    declared = card.splits.get("test", 0)
    texts = pilot.texts if pilot else min(declared) if isinstance(declared, list) else declared
    if not texts:
        return "its card does not say how many test texts there are"
    if not pilot and not card.target.assumes_spread:
        return f"how far {card.metric} varies is not assumed; with --pilot DIR, or after a first run, results tell"
    spread = pilot.spread if pilot else assumed_spread(texts)
    seeds, fewest = len(settings.finetune.resolve(card).seed_list), fewest_seeds(count)
    origin = f"pilot: {pilot.seeds} seeds in {pilot.folder}" if pilot else "spread assumed, no pilot"
    shown = max(seeds, fewest)
    seen = f"with {shown} seeds and {texts:,} test texts you can see differences of about "
    seen += f"±{detectable(spread, shown, count):.3f} ({origin})"
    if seeds < fewest:
        few = "1 seed decides" if seeds == 1 else f"{seeds} seeds decide"
        seen = f"{few} nothing, {_questions(count)} at least {fewest}; {seen}"
    return f"{seen}; {_what_would(spread, settings.detect, count, texts)}"


def _what_would(spread: Spread, wanted: float, count: int, texts: int) -> str:
    """What it takes to see a difference of so much."""
    needed = seeds_needed(spread, wanted, count)
    if needed is None:
        best = smallest_detectable(spread)
        return f"no number of seeds shows ±{wanted:g}, so many test texts show ±{best:.3f} at best"
    return f"±{wanted:g} takes {f'more than {MOST_SEEDS:,}' if needed > MOST_SEEDS else needed} seeds"


def _questions(count: int) -> str:
    return "1 question takes" if count == 1 else f"{count} questions take"
