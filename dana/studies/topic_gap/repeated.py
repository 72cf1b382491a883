"""The off-topic texts several times over: a control with the steps of an arm with synthetic text, and no new text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from dana.core.config import require
from dana.studies.topic_gap.arm import ArmTexts, TopicCase


@dataclass(frozen=True)
class RepeatedArm:
    """Trained on the texts of ``off``, each several times: what more steps alone do.

    Attributes:
        times: How often each text is in the training set; 2 has the steps of synthetic text one to one.
    """

    times: int = 2
    version: ClassVar[int] = 1
    seeded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(self.times >= 2, "times", self.times, "at least 2")

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.studies.topic_gap.arm.TopicArm`."""
        return {"arm": "repeated", "times": self.times}

    def texts(self, case: TopicCase, seed: int, folder: Path) -> ArmTexts:
        """See :class:`dana.studies.topic_gap.arm.TopicArm`."""
        return ArmTexts(case.texts(case.split.off) * self.times)
