"""Show the nearest labelled texts of a few test texts, before and after adaptation."""

from collections.abc import Mapping
from typing import Any

from dana.report.page import ExampleGroup, SourceExamples, UnitExample, number
from dana.report.run import RunFrames
from dana.report.tables import arm_name
from dana.report.unit_texts import beginning
from dana.report.verdicts import main_arms

MOST_SHOWN = 3  # texts whose neighbours are shown


def nearest_texts(run: RunFrames) -> tuple[ExampleGroup, ...]:
    """Show the first test texts whose nearest labelled text is another one after adaptation.

    Without the vectors of two models there are none.
    """
    arms = list(run.neighbours)
    ours = next(iter(main_arms(arms)), "")
    if "base" not in arms or not ours or ours == "base":
        return ()
    before, after = run.neighbours["base"], run.neighbours[ours]
    pairs = [
        (old, new) for old, new in zip(before, after, strict=False) if old["text"] == new["text"]
    ]
    changed = [
        (old, new)
        for old, new in pairs
        if old["neighbours"][0]["text"] != new["neighbours"][0]["text"]
    ]
    shown = tuple(
        SourceExamples(
            f"{beginning(old['text'])} ({old['label']})",
            (
                *_units(arm_name("base"), old["neighbours"]),
                *_units(arm_name(ours), new["neighbours"]),
            ),
        )
        for old, new in changed[:MOST_SHOWN]
    )
    title = (
        f"Nearest labelled text before and after adaptation: another one for {len(changed)} of the "
        f"first {len(pairs)} test texts"
    )
    return (ExampleGroup(title, shown),)


def _units(name: str, neighbours: list[Mapping[str, Any]]) -> tuple[UnitExample, ...]:
    """Describe the nearest of the neighbours that one model finds."""
    nearest = neighbours[0]
    note = f"{name}; {nearest['label']}, cosine {number(nearest['cosine'], 2)}"
    return (UnitExample(beginning(nearest["text"]), note),)
