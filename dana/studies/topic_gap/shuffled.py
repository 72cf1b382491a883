"""The arm of shuffled labels: what the arm ``augmented`` trains on, with the labels of synthetic texts shuffled."""

from dataclasses import dataclass
from typing import ClassVar

from dana.studies.augmentation.synthetic import SyntheticRow, shuffle_labels
from dana.studies.topic_gap.augmented import AugmentedArm


@dataclass(frozen=True)
class ShuffledArm(AugmentedArm):
    """Off-topic documents and synthetic ones on the topic, which get each other's labels at random.

    References:
        Roussinov and Sharoff 2023, BERT goes off-topic, section 4.2.
    """

    version: ClassVar[int] = 1

    def arranged(self, rows: list[SyntheticRow], seed: int) -> list[SyntheticRow]:
        """The labels dealt out anew."""
        return shuffle_labels(rows, seed)
