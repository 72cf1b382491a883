"""Settings of the two verbs that train a language model: ``dana adapt`` and ``dana pretrain``."""

from dataclasses import dataclass, field

from dana.core.config import require
from dana.train.settings import HeadWarmup, TrainSettings


@dataclass(frozen=True)
class AdaptSettings(TrainSettings):
    """How a model is adapted: :class:`~dana.train.settings.TrainSettings`, and what a missing head needs.

    Attributes:
        head_warmup: For a checkpoint without a language-model head.
        dropout: Of every layer during the run; None leaves the checkpoint's own, which the result has in any case.
    """

    head_warmup: HeadWarmup = field(default_factory=HeadWarmup)
    dropout: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.dropout is None or 0 <= self.dropout < 1, "dropout", self.dropout, "in [0, 1), or null")


@dataclass(frozen=True)
class PretrainSettings(TrainSettings):
    """How a model is made from scratch.

    Attributes:
        architecture: ``bert`` or ``modernbert``, see :func:`dana.models.language_model.architecture_config`.
        vocabulary: Most entries of the tokenizer.
        lowercase: Whether the tokenizer folds case and accents.
        dropout: 0 suits runs that see their text a few times.
        max_positions: Positions the model can tell apart, at least ``max_tokens``.
    """

    learning_rate: float = 1e-3
    warmup: float = 0.05
    architecture: str = "modernbert"
    vocabulary: int = 8192
    lowercase: bool = True
    dropout: float = 0.0
    max_positions: int = 512

    def __post_init__(self) -> None:
        from dana.models.language_model import ARCHITECTURES

        super().__post_init__()
        known = self.architecture in ARCHITECTURES
        require(known, "architecture", self.architecture, f"one of {', '.join(ARCHITECTURES)}")
        require(self.vocabulary >= 64, "vocabulary", self.vocabulary, "at least 64")
        require(0 <= self.dropout < 1, "dropout", self.dropout, "in [0, 1)")
        fits = self.max_positions >= self.max_tokens
        require(fits, "max_positions", self.max_positions, f"at least max_tokens={self.max_tokens}")
