"""The arm of augmentation without control: off-topic documents, and synthetic ones written without keywords."""

from dataclasses import dataclass
from typing import ClassVar

from dana.studies.topic_gap.synthetic_arm import SyntheticArm


@dataclass(frozen=True)
class AugmentedBaselineArm(SyntheticArm):
    """Off-topic documents and synthetic ones; generators learn and write without keywords, the prefix alone.

    References:
        Roussinov and Sharoff 2023, BERT goes off-topic, Table 5, "aug baseline".
    """

    version: ClassVar[int] = 1
