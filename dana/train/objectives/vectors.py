"""Train the vectors of texts: the module that pools hidden states, what it reads, what its objectives share."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from accelerate.utils import send_to_device
from torch import Tensor

from dana.core.errors import ArtifactError
from dana.models.folder import running
from dana.models.head_file import gathered
from dana.models.heads import WrappedModel
from dana.models.language_model import LanguageModel, ordinary_tokens
from dana.models.pooling import Pooling, read_pooling
from dana.models.varlen import NAME as UNPADDED_ATTENTION
from dana.train.documents import Documents, Draw, build_documents
from dana.train.examples import SpecialTokens, TrainingText
from dana.train.layout import BatchLayout, lay_out
from dana.train.objectives.architectures import is_masked_model, refuse_architecture
from dana.train.objectives.base import Objective
from dana.train.objectives.batch import JointBatch, MicroBatch
from dana.train.objectives.masked import HELDOUT_SEED

DOCUMENTS_A_STEP = 64
# Peak learning rates by the width of the base (docs/results/objectives.md). 256 is the width of
# dana-mini: its rate is the best of three. 384 is that of MiniLM: the better of two for the objective
# position. 768 was not measured: its rate is low, to be safe. A base of another width gets the rate of
# the next wider one, and one that is wider than all gets that of the widest.
RATES = {256: 1e-3, 384: 2e-4, 768: 5e-5}
HEAD_RATE = 10.0  # learning rate of a new head, as a multiple of the model's
TRIAL_TOKENS = 4  # read once to find out which parameters the vectors depend on


class TextVectors(WrappedModel):
    """A model that returns the vectors of texts, pooled as its checkpoint says, before any normalisation.

    Parameters that the vectors do not depend on, such as those of a head for language modelling,
    are not trained: they stay as they are.

    Attributes:
        rate_factors: Multiples of the learning rate, by the prefix of a parameter's name.
    """

    rate_factors: ClassVar[Mapping[str, float]] = {}

    def __init__(self, model: Any, bf16: bool = False) -> None:
        super().__init__(model, bf16)
        origin = model.config.name_or_path  # empty for a model from scratch
        self.pooling = read_pooling(origin) if origin else Pooling()
        self._freeze_others()

    def forward(
        self, input_ids: Tensor, where: Tensor, text: Tensor, texts: int, **attention: Any
    ) -> Tensor:
        """Compute vectors, float32 of shape (texts, width); :func:`text_inputs` makes the arguments."""
        with self.computing(input_ids.device):
            states = self.model.base_model(input_ids=input_ids, **attention)[0]
        return self.pooling.pool(states.flatten(0, 1).index_select(0, where), text, texts)

    def _freeze_others(self) -> None:
        """Stop training parameters that the vectors do not depend on, found by reading a few tokens."""
        model = self.model
        parameters = [value for value in model.parameters() if value.requires_grad]
        was_training = model.training
        is_unpadded = model.config._attn_implementation == UNPADDED_ATTENTION
        layout = "unpadded" if is_unpadded else "padded"
        shape = BatchLayout.from_config(model.config, TRIAL_TOKENS, layout)
        tokens = ordinary_tokens(model, TRIAL_TOKENS)
        inputs = text_inputs(tokens, np.array([0, TRIAL_TOKENS]), np.array([0]), shape)
        model.eval()  # no dropout, which might hide a parameter
        # Not self(...): a subclass adds its head to forward, and makes it after this constructor.
        with gathered(parameters), torch.enable_grad():
            vectors = TextVectors.forward(self, **send_to_device(inputs, model.device))
            with running(model):
                gradients = torch.autograd.grad(vectors.sum(), parameters, allow_unused=True)
        model.train(was_training)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.requires_grad_(gradient is not None)


class VectorObjective(Objective):
    """An objective that trains the vectors of texts, which are made of sentences of a document.

    A subclass says which pieces of a document an epoch reads, and brings collators and a module.
    One that predicts classes is a :class:`dana.train.objectives.classes.ClassObjective`.

    Attributes:
        pieces_a_text: How many pieces of a document are joined to one text. Each may have
            ``max_tokens // pieces_a_text`` tokens.
    """

    batch_size: ClassVar[int] = DOCUMENTS_A_STEP
    has_own_head: ClassVar[bool] = True
    cuts_sentences: ClassVar[bool] = True
    pieces_a_text: ClassVar[int] = 1

    @abstractmethod
    def draw(self, seed: int) -> Draw:
        """Return what decides which pieces an epoch of training reads."""

    def heldout_draw(self) -> Draw:
        """Return what decides which held-out pieces are read.

        By default it is the same for all parameters of an objective, so that their losses compare.
        """
        with_defaults = type(self)()
        return with_defaults.draw(HELDOUT_SEED)

    def auto_class(self, config: Any) -> Any:
        """Return the class of transformers of an encoder's checkpoint, with the heads that it has.

        Raises:
            ConfigError: If the model is a decoder, or no text encoder.
            ArtifactError: If its ``config.json`` names a class that transformers lacks.
        """
        import transformers

        is_encoder = is_masked_model(config) and not getattr(config, "is_decoder", False)
        if not is_encoder:
            name = type(self).__name__.lower()
            refuse_architecture(name, config, "has no vectors of texts to train: encoders have")
        names = config.architectures or ["AutoModel"]
        class_name = names[0]
        if not hasattr(transformers, class_name):
            raise ArtifactError(
                f"architectures={names} in its config.json: no class of transformers; "
                'name one, such as ["BertForMaskedLM"], or remove the key'
            )
        return getattr(transformers, class_name)

    def learning_rate(self, width: int) -> float:
        at_least_as_wide = [measured for measured in RATES if measured >= width]
        return RATES[min(at_least_as_wide, default=max(RATES))]

    def prepare_model(self, model: str, seed: int, dropout: float | None = None) -> LanguageModel:
        # Heads that the checkpoint lacks are not used, and so not warmed up.
        return replace(super().prepare_model(model, seed, dropout), new=frozenset())

    def examples(
        self, text: TrainingText, tokenizer: Any, max_tokens: int, seed: int | None = None
    ) -> tuple[Documents, dict[str, int]]:
        special_tokens = SpecialTokens.from_tokenizer(tokenizer)
        draw = self.heldout_draw() if seed is None else self.draw(seed)
        return build_documents(text, special_tokens, max_tokens // self.pieces_a_text, draw)


def text_inputs(
    tokens: np.ndarray, offsets: np.ndarray, rows: np.ndarray, layout: BatchLayout
) -> dict[str, Any]:
    """Lay texts out for a forward pass of :class:`TextVectors`.

    Args:
        tokens: Shape (tokens,), all texts of the step end to end.
        offsets: Shape (texts of the step + 1,), where each begins.
        rows: Indices of the texts of this pass, at least one.
        layout: How they are laid out.

    Returns:
        ``input_ids``, int64 of shape (rows of the pass, width); ``where``, int64 of shape (tokens,),
        the positions in the flattened rows that hold a token and no padding; ``text``, int64 of
        shape (tokens,), the text of each; ``texts``, their number; and what the attention needs.
    """
    positions, attention = lay_out(rows, offsets, layout)
    is_token = positions >= 0
    ids = np.where(is_token, tokens[np.maximum(positions, 0)], layout.pad).astype(np.int64)
    text = np.repeat(np.arange(rows.size), np.diff(offsets)[rows])
    return {
        "input_ids": torch.from_numpy(ids),
        "where": torch.from_numpy(np.flatnonzero(is_token)),
        "text": torch.from_numpy(text),
        "texts": rows.size,
        **attention,
    }


@dataclass(frozen=True)
class VectorsBatch(JointBatch):
    """A step whose losses compare the vectors of its texts: a pass of :class:`TextVectors` reads some of them."""

    def micro(self, rows: np.ndarray, layout: BatchLayout) -> MicroBatch:
        """Make the tensors of some texts. They have no labels: losses are of the vectors of the whole step.

        Without texts the first one is read: a rank with nothing to do takes part in every pass, and
        its vector is not used.
        """
        passed = rows
        if not rows.size:
            passed = np.array([0])
        inputs = text_inputs(self.inputs, self.examples.offsets, passed, layout)
        no_labels = torch.zeros(0)
        no_coefficients = torch.zeros(0)
        return MicroBatch(inputs, no_labels, torch.from_numpy(rows), no_coefficients)
