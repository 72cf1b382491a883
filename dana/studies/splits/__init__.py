"""Splits of aligned lines that share none, and their audit."""

from dana.core.studies import Study

STUDY = Study(
    "splits",
    commands={
        "splits": (
            "Split parallel text into train, dev and test that share no line, or audit splits that are there",
            f"{__name__}.command:add_splits",
        )
    },
)
