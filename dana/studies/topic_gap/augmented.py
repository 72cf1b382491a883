"""The arm of the paper's augmentation: off-topic documents, and synthetic ones on the topic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dana.core.config import require
from dana.studies.augmentation.keywords import PAPER
from dana.studies.augmentation.pool import PoolDocument, on_topic_prompts
from dana.studies.augmentation.synthetic import TOPIC, AugmentSettings, LabelledText, Prompt, counts_by_label
from dana.studies.topic_gap.arm import TopicCase
from dana.studies.topic_gap.synthetic_arm import SyntheticArm
from dana.studies.topics.model import Topics

UNUSED, TEST = "unused", "test"


@dataclass(frozen=True)
class AugmentedArm(SyntheticArm):
    """Off-topic documents and synthetic ones, written from the keywords of documents on the topic.

    Attributes:
        keywords: See :class:`dana.studies.augmentation.keywords.KeywordSettings`.
        reading: See there.
        pool: Where keywords are from, never looking at labels: ``unused``: the documents of no set that are most about
            the topic; ``test``: the test documents, as in the paper.

    References:
        Roussinov and Sharoff 2023, BERT goes off-topic, section 3.2.
    """

    keywords: int = 10
    reading: str = PAPER
    pool: str = UNUSED
    version: ClassVar[int] = 1
    control: ClassVar[str] = TOPIC

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.pool in (UNUSED, TEST), "pool", self.pool, f"{UNUSED} or {TEST}")

    def prompts(
        self, case: TopicCase, topics: Topics, rows: Sequence[LabelledText], settings: AugmentSettings
    ) -> list[Prompt]:
        """Those of as many documents as a label gets texts, those most about the topic first, of equal ones by id."""
        places = case.split.unused if self.pool == UNUSED else case.split.test
        shares = case.theta[places, case.topic]
        ranked = places[np.lexsort(([case.documents.id[at] for at in places.tolist()], -shares))].tolist()
        count = max(counts_by_label(rows, settings.ratio).values())
        pool, share = case.documents, case.theta[:, case.topic]
        found = [PoolDocument(float(share[at]), pool.id[at], pool.whole[at]) for at in ranked[:count]]
        return on_topic_prompts(topics, {case.topic: found}, settings, count)
