"""Show a few test texts before and after adaptation: their nearest labelled text, a hidden word."""

from collections.abc import Mapping
from typing import Any

from dana.report.page import ExampleGroup, SourceExamples, UnitExample, number, percent
from dana.report.run import RunFrames
from dana.report.tables import arm_name
from dana.report.unit_texts import beginning
from dana.report.verdicts import main_arms

MOST_SHOWN = 3  # texts whose neighbours are shown


def nearest_texts(run: RunFrames) -> tuple[ExampleGroup, ...]:
    """Show the first test texts whose nearest labelled text is another one after adaptation.

    Without the vectors of two models there are none.
    """
    ours, pairs = _before_and_after(run)
    if not pairs:
        return ()
    changed = []
    for old, new in pairs:
        nearest = old["neighbours"][0]["text"]
        if nearest != new["neighbours"][0]["text"]:
            changed.append((old, new))
    shown = []
    for old, new in changed[:MOST_SHOWN]:
        title = f"{beginning(old['text'])} ({old['label']})"
        before = _nearest_unit(arm_name("base"), old["neighbours"])
        after = _nearest_unit(arm_name(ours), new["neighbours"])
        shown.append(SourceExamples(title, (before, after)))
    title = (
        f"Nearest labelled text before and after adaptation: another one for {len(changed)} of the "
        f"first {len(pairs)} test texts"
    )
    return (ExampleGroup(title, tuple(shown)),)


def filled_texts(run: RunFrames) -> tuple[ExampleGroup, ...]:
    """Show what both models fill in for a hidden word of the first test texts.

    The note says how probable the hidden word is to them. Without two heads for masked tokens that
    were trained there are none.
    """
    ours, pairs = _before_and_after(run)
    filled = []
    for old, new in pairs:
        if old.get("filled") and new.get("filled"):
            filled.append((old["filled"], new["filled"]))
    if not filled:
        return ()
    shown = []
    for old, new in filled[:MOST_SHOWN]:
        sentence = f"{old['before']}[{old['word']}]{old['after']}"
        before = _filled_unit(arm_name("base"), old)
        after = _filled_unit(arm_name(ours), new)
        shown.append(SourceExamples(sentence, (before, after)))
    likelier = sum(new["probability"] > old["probability"] for old, new in filled)
    title = (
        f"A hidden word before and after adaptation: likelier after it in {likelier} of the first "
        f"{len(filled)} test texts"
    )
    return (ExampleGroup(title, tuple(shown)),)


def _before_and_after(
    run: RunFrames,
) -> tuple[str, list[tuple[dict[str, Any], dict[str, Any]]]]:
    """Return our arm, and what the base and our arm say of each of the same test texts.

    Without both arms, the two are empty.
    """
    arms = list(run.neighbours)
    ours = next(iter(main_arms(arms)), "")
    if "base" not in arms or not ours or ours == "base":
        return "", []
    pairs = zip(run.neighbours["base"], run.neighbours[ours], strict=False)
    return ours, [(old, new) for old, new in pairs if old["text"] == new["text"]]


def _filled_unit(name: str, filled: Mapping[str, Any]) -> UnitExample:
    """Describe what one model fills in."""
    note = f"{name}; {percent(filled['probability'])} for {filled['word']}"
    return UnitExample(", ".join(filled["fills"]), note)


def _nearest_unit(name: str, neighbours: list[Mapping[str, Any]]) -> UnitExample:
    """Describe the nearest of the neighbours that one model finds."""
    nearest = neighbours[0]
    note = f"{name}; {nearest['label']}, cosine {number(nearest['cosine'], 2)}"
    return UnitExample(beginning(nearest["text"]), note)
