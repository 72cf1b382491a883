"""The arm of random keywords: off-topic documents, and synthetic ones from keywords of off-topic documents."""

from dataclasses import dataclass
from typing import ClassVar

from dana.studies.augmentation.keywords import PAPER
from dana.studies.augmentation.synthetic import RANDOM
from dana.studies.topic_gap.synthetic_arm import SyntheticArm


@dataclass(frozen=True)
class RandomKeywordsArm(SyntheticArm):
    """Off-topic documents and synthetic ones, from the keywords of off-topic documents of any label, at random.

    Attributes:
        keywords: See :class:`dana.studies.augmentation.keywords.KeywordSettings`.
        reading: See there.

    References:
        Roussinov and Sharoff 2023, BERT goes off-topic, Table 6, the rows "random".
    """

    keywords: int = 10
    reading: str = PAPER
    version: ClassVar[int] = 1
    control: ClassVar[str] = RANDOM
