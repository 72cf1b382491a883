"""Compare selectors on a pool of general text with planted task text."""

from dana.core.studies import Study

HELP = "Compare selectors by how well they find task text planted in a pool of general text"
STUDY = Study(
    "compare",
    settings=f"{__name__}.settings:CompareSettings",
    commands={"compare": (HELP, f"{__name__}.command:add_comparison")},
)
