"""Learn the vectors that a teacher gives to sentences: by a linear map, and by their cosines within a step.

A sentence i of the step has the student's vector s_i, the teacher's vector z_i and the weight l_i. W is a
linear map to the width of the teacher. With

    v_i = 1 - cos(W s_i, z_i)
    r_i = Σ_{j≠i} l_j (cos(s_i, s_j) - cos(z_i, z_j))² / Σ_{j≠i} l_j

the loss of the step is Σ l_i (v_i + β r_i) / Z, with the three denominators of
:mod:`dana.train.objectives.batch` and one label a sentence. The first term says that the student knows
what the teacher knows, the second that its vectors lie as the teacher's do, so that they can be used
without W, which is not saved. Weight 0 equals absence in both.

The teacher reads the text of the student's tokens, so that the two may have different tokenizers; what
the student's tokenizer takes away, such as capital letters, the teacher does not see.

References:
    Reimers and Gurevych 2020, Making monolingual sentence embeddings multilingual using knowledge
    distillation, equation 1, for the first term; Park, Kim, Lu and Cho 2019, Relational knowledge
    distillation, for the second; Yao, Huang, Wang, Dong and Wei 2021, Adapt-and-distill, for a
    teacher that was adapted to the domain.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from dana.core.config import require
from dana.core.device import tensor_on
from dana.core.errors import ConfigError, DanaError
from dana.core.registry import ENCODERS, origin_of
from dana.models.folder import (
    check_whole,
    load_config,
    load_tokenizer,
    model_identity,
    model_name,
    resolve_model,
)
from dana.train.documents import DrawSentences
from dana.train.examples import Batch, ExampleSet, SpecialTokens
from dana.train.objectives.architectures import is_decoder, reads_two_texts
from dana.train.objectives.base import Collator, ModelCardTerms
from dana.train.objectives.batch import loss_scale
from dana.train.objectives.masked import HELDOUT_SEED
from dana.train.objectives.vectors import HEAD_RATE, TextVectors, VectorObjective, VectorsBatch

TEACHER_TOKENS = 256  # of a sentence; longer ones are cut
CASED = "A"  # a text that a tokenizer without capital letters changes


class MappedVectors(TextVectors):
    """The vectors of texts, and their linear map to the width of a teacher, side by side.

    Args:
        model: The model.
        width: Width of the teacher's vectors.
        bf16: Compute in bfloat16 by autocast.
    """

    rate_factors: ClassVar[Mapping[str, float]] = {"map.": HEAD_RATE}

    def __init__(self, model: Any, width: int, bf16: bool = False) -> None:
        super().__init__(model, bf16)
        self.map = nn.Linear(model.config.hidden_size, width, bias=False)
        nn.init.eye_(self.map.weight)
        self.map.to(model.device)

    def forward(self, *inputs: Any, **named_inputs: Any) -> Tensor:
        """Compute float32 of shape (texts, own width + width of the teacher)."""
        vectors = super().forward(*inputs, **named_inputs)
        mapped = self.map(vectors.to(self.map.weight.dtype)).float()
        return torch.cat([vectors.float(), mapped], dim=1)


def distillation_losses(
    vectors: Tensor, mapped: Tensor, teacher: Tensor, weights: Tensor, relations: float
) -> Tensor:
    """Compute the losses v_i + β r_i of sentences.

    Args:
        vectors: Shape (sentences, width), s.
        mapped: Shape (sentences, teacher's width), W s.
        teacher: Shape (sentences, teacher's width), z.
        weights: Shape (sentences,), l.
        relations: β.

    Returns:
        Shape (sentences,). Of a sentence alone, the first term.
    """
    units = nn.functional.normalize(vectors, dim=1)
    teacher_units = nn.functional.normalize(teacher, dim=1)
    mapped_units = nn.functional.normalize(mapped, dim=1)
    distances = 1 - (mapped_units * teacher_units).sum(1)
    errors = (units @ units.T - teacher_units @ teacher_units.T) ** 2
    others = weights.repeat(len(weights), 1).fill_diagonal_(0)
    totals = others.sum(1).clamp(min=torch.finfo(others.dtype).tiny)
    return distances + relations * (errors * others).sum(1) / totals


@dataclass(frozen=True)
class DistillBatch(VectorsBatch):
    """The sentences of one step on all ranks.

    Attributes:
        weights: float32 of shape (sentences,), l.
        teacher: float32 of shape (sentences, width), z.
        relations: β.
    """

    loss_unit: ClassVar[str] = ""  # cosine distances

    weights: np.ndarray
    teacher: np.ndarray
    relations: float

    def joint_losses(self, vectors: Tensor) -> Tensor:
        teacher = tensor_on(self.teacher, vectors.device)
        weights = tensor_on(self.weights, vectors.device)
        own_width = vectors.shape[1] - teacher.shape[1]
        own, mapped = vectors.split([own_width, teacher.shape[1]], dim=1)
        return distillation_losses(own, mapped, teacher, weights, self.relations)

    def joint_coefficients(self) -> np.ndarray:
        return self.scale.coefficients


@dataclass(frozen=True)
class DistillCollator(Collator):
    """Lets the teacher read the sentences of a step.

    Attributes:
        tokenizer: The student's.
        encoder: The teacher, a :class:`dana.encoders.transformer.TransformerEncoder`.
        relations: β.
    """

    special_tokens: SpecialTokens
    tokenizer: Any
    encoder: Any
    relations: float

    def step_batch(self, batch: Batch, epochs: np.ndarray | int, denominator: str) -> DistillBatch:
        parts = np.split(batch.tokens, batch.offsets[1:-1])
        texts = self.tokenizer.batch_decode(parts, skip_special_tokens=True)
        counts = np.ones(len(batch), dtype=np.int64)
        return DistillBatch(
            examples=batch,
            inputs=batch.tokens,
            labels=np.zeros(len(batch), dtype=np.int64),
            owners=np.arange(len(batch)),
            counts=counts,
            scale=loss_scale(batch.weights, counts, denominator),
            weights=batch.weights.astype(np.float32),
            teacher=self.encoder.encode(texts).float().cpu().numpy(),
            relations=self.relations,
        )

    def warnings(self, examples: ExampleSet) -> list[str]:
        if _keeps_capitals(self.tokenizer) or not _keeps_capitals(self.encoder.tokenizer):
            return []
        return [
            "the teacher reads text without capital letters, as the student's tokenizer has none"
        ]


def _keeps_capitals(tokenizer: Any) -> bool:
    """Return whether the text of a tokenizer's tokens has the capital letters of what it read."""
    tokens = tokenizer(CASED, add_special_tokens=False)["input_ids"]
    return CASED in tokenizer.decode(tokens)


@dataclass(frozen=True)
class Distill(VectorObjective):
    """Learn the vectors that a teacher gives to the sentences of documents.

    Attributes:
        teacher: Folder or name of an encoder, which pools as its files say.
        relations: Weight of the cosines within a step, β.
        sentences: Sentences of each document that an epoch reads; 0 reads all.
    """

    teacher: str = ""
    relations: float = 1.0
    sentences: int = 2
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        form = "the folder or name of a model, as in distill:teacher=all-mpnet-base-v2"
        require(bool(self.teacher), "teacher", self.teacher, form)
        require(self.relations >= 0, "relations", self.relations, "at least 0")
        require(self.sentences >= 0, "sentences", self.sentences, "0 for all, or a number")

    def check_inputs(self) -> None:
        """Refuse a teacher that is missing or damaged, has no tokenizer, or is no encoder.

        Raises:
            ConfigError: Names the teacher.
        """
        try:
            config, _ = load_tokenizer(self._folder)
            check_whole(self._folder)
        except DanaError as error:
            looked = "a folder is looked for from the working directory"
            raise ConfigError(f"distill: teacher={self.teacher}: {looked}; {error}") from error
        require(not is_decoder(config), "teacher", self.teacher, "an encoder, not a decoder")
        form = f"an encoder: a model of type {config.model_type} wants a text for its decoder, too"
        require(not reads_two_texts(config), "teacher", self.teacher, form)

    @cached_property
    def _folder(self) -> str:
        return resolve_model(self.teacher)

    @cached_property
    def _encoder(self) -> Any:
        encoder: Any = ENCODERS.load("transformer")
        return encoder.of_checkpoint(self._folder, TEACHER_TOKENS)

    def module(self, model: Any, bf16: bool = False) -> MappedVectors:
        return MappedVectors(model, load_config(self._folder).hidden_size, bf16)

    def collator(self, tokenizer: Any, seed: int) -> DistillCollator:
        special_tokens = SpecialTokens.from_tokenizer(tokenizer)
        return DistillCollator(special_tokens, tokenizer, self._encoder, self.relations)

    def heldout_collator(self, tokenizer: Any) -> DistillCollator:
        return self.collator(tokenizer, HELDOUT_SEED)

    def draw(self, seed: int) -> DrawSentences:
        return DrawSentences(seed, self.sentences or None)

    def heldout_draw(self) -> DrawSentences:
        return DrawSentences(HELDOUT_SEED, None)

    def decisive(self) -> dict[str, Any]:
        """Return the fingerprint of the objective, with the teacher's weights for its name."""
        parameters = {**asdict(self), "teacher": model_identity(self._folder)}
        return {"objective": {**parameters, "code": origin_of(self)}}

    def card_terms(self) -> ModelCardTerms:
        return ModelCardTerms(
            f"vectors that {model_name(self.teacher)} gives to sentences, relations {self.relations:g}",
            "sentence",
            "sentence-similarity",
            "AutoModel",
            measure="cosine distance",
        )
