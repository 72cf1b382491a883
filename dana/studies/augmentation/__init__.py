"""Write synthetic labelled texts on a topic that the labelled texts lack."""

from dana.core.studies import Study

STUDY = Study(
    "augmentation",
    commands={
        "augment": (
            "Write synthetic labelled texts on a topic that the labelled texts lack",
            f"{__name__}.command:add_augment",
        )
    },
)
