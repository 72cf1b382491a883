"""Split parallel text into train, dev and test without common lines, and audit the overlap of splits."""

from dana.core.studies import Study

STUDY = Study(
    "splits",
    commands={
        "splits": (
            "Split parallel text into train, dev and test without common lines, or audit existing splits",
            f"{__name__}.command:add_splits",
        )
    },
)
