"""The contract of a training objective: the model's heads, the examples' special tokens, the loss of a step."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from dana.core.registry import origin_of
from dana.models.language_model import LanguageModel, load_language_model
from dana.train import LAYOUTS
from dana.train.examples import Batch, SpecialTokens
from dana.train.objectives.batch import StepBatch


class Collator(ABC):
    """Makes the batch of an optimizer step from its examples, for one tokenizer and one seed.

    Attributes:
        special_tokens: What :meth:`dana.train.examples.Examples.take` puts around each example.
    """

    special_tokens: SpecialTokens

    @abstractmethod
    def step_batch(self, batch: Batch, epochs: np.ndarray | int, denominator: str) -> StepBatch:
        """What is predicted in one optimizer step, and with which coefficients.

        A pure function: what is asked of an example depends on the seed, its epoch, its id and the position in it;
        never on the rank, the micro-batch, the order of the examples or a generator's state.

        Args:
            batch: All examples of the step, on all ranks, framed by :attr:`special_tokens`.
            epochs: Shape (examples,), or one for all: how many times the run went through the text before.
            denominator: One of :data:`dana.train.DENOMINATORS`.
        """


@dataclass(frozen=True)
class ModelCardTerms:
    """How a model card speaks of an objective.

    Attributes:
        objective: What was trained, as in ``masked tokens, mask rate 0.15``.
        unit: What held-out losses are a mean over, as in ``masked token at fixed masks (15 %)``.
        pipeline: The Hub's ``pipeline_tag``.
        auto_class: The transformers class that loads the model.
    """

    objective: str
    unit: str
    pipeline: str
    auto_class: str


class Objective(ABC):
    """What a model learns to predict. A frozen dataclass; its fields are the parameters of the spec.

    Registered under the entry-point group ``dana.objectives`` and named by the training setting ``objective``, as in
    ``masked:mask_rate=0.3``. See ``docs/extend/objective.md``.

    Attributes:
        layouts: The layouts of :data:`dana.train.LAYOUTS` that keep its examples apart.
    """

    layouts: ClassVar[tuple[str, ...]] = LAYOUTS

    @abstractmethod
    def auto_class(self, config: Any) -> Any:
        """The transformers class (``from_pretrained``, ``from_config``) with the heads that the objective needs.

        Args:
            config: The model's.

        Raises:
            ConfigError: If an architecture cannot be trained for it.
        """

    @abstractmethod
    def collator(self, tokenizer: Any, seed: int) -> Collator:
        """What makes training batches.

        Args:
            tokenizer: A fast Hugging Face tokenizer.
            seed: The run's.

        Raises:
            ConfigError: If the tokenizer lacks what the objective needs.
        """

    @abstractmethod
    def heldout_collator(self, tokenizer: Any) -> Collator:
        """What makes batches of held-out text: without a seed, and the same whatever is trained, so that runs compare.

        The mean of the first kind of loss in these batches is the held-out loss, in nats.
        """

    @abstractmethod
    def card_terms(self) -> ModelCardTerms:
        """The words of a model card."""

    def prepare_model(self, model: str, seed: int, dropout: float | None = None) -> LanguageModel:
        """Load a checkpoint with the heads that the objective needs; what it names as new is warmed up.

        Args:
            model: Folder with safetensors, or Hub name.
            seed: Decides the weights of new heads.
            dropout: Of every layer in training; None leaves the checkpoint's own.

        Raises:
            ArtifactError: If it cannot be loaded.
            ConfigError: If its architecture cannot be trained for the objective.
        """
        return load_language_model(model, self.auto_class, seed, dropout)

    def module(self, model: Any, bf16: bool = False) -> Any:
        """The module that micro-batches are passed through; it has the model as ``model`` and the switch ``bf16``."""
        from dana.models.heads import SelectedLogits

        return SelectedLogits(model, bf16)

    def decisive(self) -> dict[str, Any]:
        """The objective's part of a run's fingerprint."""
        return {"objective": {**asdict(self), "code": origin_of(self)}}  # type: ignore[call-overload]
