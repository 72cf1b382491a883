"""Write synthetic labelled texts on a topic that the labelled texts lack."""

from dana.core.studies import Study

HELP = "Write synthetic labelled texts on a topic that the labelled texts lack"
STUDY = Study("augmentation", commands={"augment": (HELP, f"{__name__}.command:add_augment")})
