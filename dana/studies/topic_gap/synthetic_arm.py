"""What arms with synthetic text share: off-topic documents, and texts that a generator a label writes after them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from dana.core.logging import get_logger
from dana.studies.augmentation.base import GENERATORS
from dana.studies.augmentation.by_label import generator_identity, synthesize_by_label
from dana.studies.augmentation.synthetic import (
    NONE,
    AugmentSettings,
    LabelledText,
    Prompt,
    SyntheticRow,
    choose_prompts,
)
from dana.studies.topic_gap.arm import ArmTexts, TopicCase, TrainingText
from dana.studies.topic_gap.views import strip_to_letters
from dana.studies.topics.model import Topics

log = get_logger(__name__)


@dataclass(frozen=True)
class SyntheticArm:
    """Off-topic documents and synthetic ones of the same labels.

    Generators learn from the windows as they are; what they write is stripped to letters as all else.

    Attributes:
        ratio: Synthetic texts of a label for each off-topic document of it.
        generator: A generator's spec, its settings parted by ``;``: ``t5:model=t5-small;epochs=16``.
    """

    ratio: float = 1.0
    generator: str = "embedded"
    seeded: ClassVar[bool] = True
    control: ClassVar[str] = NONE

    def __post_init__(self) -> None:
        GENERATORS.create(self.settings(0).generator)

    def settings(self, seed: int) -> AugmentSettings:
        """The settings of the synthetic texts."""
        given = asdict(self) | {"generator": self.generator.replace(";", ",")}
        given.pop("pool", None)
        return AugmentSettings(**given, control=self.control, seed=seed)

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.studies.topic_gap.arm.TopicArm`."""
        made = generator_identity(self.settings(0).generator)
        return {"arm": type(self).__name__, **asdict(self), "made_by": made}

    def prompts(
        self, case: TopicCase, topics: Topics, rows: Sequence[LabelledText], settings: AugmentSettings
    ) -> list[Prompt]:
        """What the synthetic texts are to be about."""
        return choose_prompts(topics, rows, settings)

    def arranged(self, rows: list[SyntheticRow], seed: int) -> list[SyntheticRow]:
        """The synthetic rows as they are trained on."""
        return rows

    def texts(self, case: TopicCase, seed: int, folder: Path) -> ArmTexts:
        """See :class:`dana.studies.topic_gap.arm.TopicArm`; arms of equal keywords and generator share what they write.

        What is written without a letter, or is a test text by its letters, is left out.
        """
        pool, settings, topics = case.documents, self.settings(seed), Topics.load(case.topics)
        rows = [LabelledText(pool.id[at], pool.whole[at], pool.label[at]) for at in case.split.off.tolist()]
        prompts = self.prompts(case, topics, rows, settings)
        made = self.arranged(synthesize_by_label(topics, rows, prompts, settings, folder), seed)
        tested = {pool.stripped[at] for at in case.split.test.tolist()}
        texts = [_training_text(row) for row in made]
        kept = [one for one in texts if one.text and one.text not in tested]
        if len(kept) < len(texts):
            said = "topic %d: %d of %d synthetic texts hold no letter, or are a test text"
            log.warning(said, case.topic, len(texts) - len(kept), len(texts))
        return ArmTexts((*case.texts(case.split.off), *kept))


def _training_text(row: SyntheticRow) -> TrainingText:
    about = {name: value for name, value in asdict(row).items() if name not in ("id", "text", "label")}
    return TrainingText(row.id, strip_to_letters(row.text), row.label, about)
