"""Selectors compared on a pool with planted task text: how pool and plants are made, and what is measured."""

from dana.core.studies import Study

STUDY = Study(
    "compare",
    settings=f"{__name__}.settings:CompareSettings",
    commands={
        "compare": (
            "Compare ways of selecting text on task text that is hidden in a pool of general text",
            f"{__name__}.command:add_comparison",
        )
    },
)
