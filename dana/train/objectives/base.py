"""Define the interface of a training objective: the model's heads, the special tokens, the batch of a step."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from dana.core.registry import origin_of
from dana.models.language_model import LanguageModel, load_language_model
from dana.train import LAYOUTS
from dana.train.examples import Batch, ExampleSet, SpecialTokens, TrainingText, build_examples
from dana.train.objectives.batch import NATS, StepBatch


class Collator(ABC):
    """Makes the batch of an optimizer step from its examples, for one tokenizer and one seed.

    Attributes:
        special_tokens: What :meth:`dana.train.examples.Examples.take` puts around each example.
    """

    special_tokens: SpecialTokens

    @abstractmethod
    def step_batch(self, batch: Batch, epochs: np.ndarray | int, denominator: str) -> StepBatch:
        """Make inputs, labels and loss coefficients of one optimizer step.

        Must be a pure function: the labels of an example depend on the seed, its epoch, its id and
        the position in it; never on the rank, the micro-batch, the order of the examples or the
        state of a generator.

        Args:
            batch: All examples of the step, on all ranks, with :attr:`special_tokens`.
            epochs: Shape (examples,), or one for all: epoch of each example, from 0.
            denominator: One of :data:`dana.train.DENOMINATORS`.
        """

    def warnings(self, examples: ExampleSet) -> list[str]:
        """Return sentences on what the examples make of the settings, which are logged and in the model card."""
        return []


@dataclass(frozen=True)
class ModelCardTerms:
    """Terms of an objective in a model card.

    Attributes:
        objective: Description, as in ``masked tokens, mask rate 0.15``.
        unit: Unit of held-out losses, as in ``masked token at fixed masks (15 %)``.
        pipeline: The Hub's ``pipeline_tag``.
        auto_class: The transformers class that loads the model.
        measure: What a loss is measured in.
    """

    objective: str
    unit: str
    pipeline: str
    auto_class: str
    measure: str = NATS


class Objective(ABC):
    """What a model learns to predict. A frozen dataclass; its fields are the parameters of the spec.

    Registered under the entry-point group ``dana.objectives`` and named by the training setting
    ``objective``, as in ``masked:mask_rate=0.3``. See ``docs/extend/objective.md``.

    Attributes:
        layouts: The layouts of :data:`dana.train.LAYOUTS` that keep its examples apart.
        batch_size: Examples of an optimizer step, where the settings give no number. DANA: 256.
        has_own_head: Whether its head is made for the training and left out of the saved model, as
            of an objective that trains the vectors of texts. Nothing can then be measured with the
            base, or with the saved model.
        cuts_sentences: Whether its examples are sentences of documents, so that windows as units
            and text of single sentences do not work.
    """

    layouts: ClassVar[tuple[str, ...]] = LAYOUTS
    batch_size: ClassVar[int] = 256
    has_own_head: ClassVar[bool] = False
    cuts_sentences: ClassVar[bool] = False

    def check_inputs(self) -> None:  # noqa: B027, most objectives name nothing
        """Refuse, before any work, what the objective names and is not there; it names nothing by default.

        Raises:
            ConfigError: Says what.
        """

    @abstractmethod
    def auto_class(self, config: Any) -> Any:
        """Return the transformers class with the heads that the objective needs, such as ``AutoModelForMaskedLM``.

        Args:
            config: Configuration of the model.

        Raises:
            ConfigError: If the objective does not support the architecture.
        """

    @abstractmethod
    def collator(self, tokenizer: Any, seed: int) -> Collator:
        """Make the collator of training batches.

        Args:
            tokenizer: A fast Hugging Face tokenizer.
            seed: Seed of the run.

        Raises:
            ConfigError: If the tokenizer lacks something that the objective needs, such as a mask
                token.
        """

    @abstractmethod
    def heldout_collator(self, tokenizer: Any) -> Collator:
        """Make the collator of held-out batches. They do not depend on settings or seed, so runs can be compared.

        The held-out loss is the mean of the first kind of loss in these batches, in nats.
        """

    def examples(
        self, text: TrainingText, tokenizer: Any, max_tokens: int, seed: int | None = None
    ) -> tuple[ExampleSet, dict[str, int]]:
        """Make examples of a text: by default windows of neighbouring selected units.

        Args:
            text: Tokenised documents and the weights of their units.
            tokenizer: A fast Hugging Face tokenizer.
            max_tokens: Most tokens of an example, special tokens included.
            seed: Seed of the run; None makes held-out examples, which like
                :meth:`heldout_collator` depend on no settings.

        Returns:
            The examples, and counts for the manifest.

        Raises:
            DataError: If the weights do not fit the text, or no example remains.
            ConfigError: If `max_tokens` is too small for the tokenizer.
        """
        if seed is None:
            special_tokens = self.heldout_collator(tokenizer).special_tokens
        else:
            special_tokens = self.collator(tokenizer, seed).special_tokens
        return build_examples(text.tokens, text.weights, special_tokens, max_tokens, text.exclude)

    def learning_rate(self, width: int) -> float:
        """Return the peak learning rate for a base of this width, where the settings give none. DANA: 1e-4."""
        return 1e-4

    @abstractmethod
    def card_terms(self) -> ModelCardTerms:
        """Return the terms for the model card."""

    def prepare_model(self, model: str, seed: int, dropout: float | None = None) -> LanguageModel:
        """Load a checkpoint with the heads that the objective needs; new parameters are warmed up before the run.

        Args:
            model: Folder with safetensors, or Hub name.
            seed: Decides the weights of new heads.
            dropout: Dropout of every layer in training; None keeps the checkpoint's.

        Raises:
            ArtifactError: If it cannot be loaded.
            ConfigError: If the objective does not support its architecture.
        """
        return load_language_model(model, self.auto_class, seed, dropout)

    def module(self, model: Any, bf16: bool = False) -> Any:
        """Wrap the model in the module that runs micro-batches; it has attributes ``model`` and ``bf16``."""
        from dana.models.heads import SelectedLogits

        return SelectedLogits(model, bf16)

    def decisive(self) -> dict[str, Any]:
        """Return the objective's part of a run's fingerprint."""
        return {"objective": {**asdict(self), "code": origin_of(self)}}  # type: ignore[call-overload]
