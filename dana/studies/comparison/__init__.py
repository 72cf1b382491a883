"""Compare selectors on a pool of other text with planted target text."""

from dana.core.studies import Study

HELP = "Compare selectors by how well they find target text planted in a pool of other text"
STUDY = Study(
    "compare",
    settings=f"{__name__}.settings:CompareSettings",
    commands={"compare": (HELP, f"{__name__}.command:add_comparison")},
)
