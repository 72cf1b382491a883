"""Chat model on this machine: a causal language model of transformers with its tokenizer's chat template."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from dana.core.artifacts import fingerprint
from dana.core.config import require
from dana.core.errors import ArtifactError, DataError
from dana.models.folder import check_checkpoint, load_own_tokenizer, loading, model_identity
from dana.models.shipped import located
from dana.studies.few_shot.base import Message

DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class LocalChat:
    """A causal language model of transformers, from a folder or the Hub, with the chat template that it comes with.

    Attributes:
        model: A folder with safetensors weights, or a Hub name.
        max_new_tokens: Most tokens of a reply.
        temperature: 0 takes the likeliest token each time; above it tokens are drawn.
        dtype: ``auto`` is what the weights were saved in; or ``float32``, ``bfloat16``, ``float16``.
        device: ``auto`` takes CUDA when there is one.
    """

    model: str
    max_new_tokens: int = 512
    temperature: float = 0.0
    dtype: str = "auto"
    device: str = "auto"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require(self.max_new_tokens >= 1, "max_new_tokens", self.max_new_tokens, "at least 1")
        require(self.temperature >= 0, "temperature", self.temperature, "at least 0")
        require(self.dtype in DTYPES, "dtype", self.dtype, f"one of {', '.join(DTYPES)}")
        check_checkpoint(self.model)

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.studies.few_shot.base.ChatModel`."""
        decides = {"max_new_tokens": self.max_new_tokens, "temperature": self.temperature, "dtype": self.dtype}
        template = fingerprint(self._tokenizer.get_chat_template())
        return {"kind": "local", "model": model_identity(self.model), "template": template, **decides}

    def reply(self, messages: Sequence[Message], seed: int) -> str:
        """See :class:`dana.studies.few_shot.base.ChatModel`.

        Raises:
            DataError: If the conversation and a reply are longer than the model's positions.
        """
        from dana.core.torch_seed import seeded

        with loading(f"{self.model}: its chat template"):
            inputs = self._tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, return_tensors="pt", return_dict=True
            ).to(self._network.device)
        tokens = inputs["input_ids"].shape[1]
        most = getattr(self._network.config, "max_position_embeddings", None)
        if most is not None and tokens + self.max_new_tokens > most:
            said = f"{tokens:,} tokens so far and {self.max_new_tokens:,} of a reply"
            raise DataError(f"{self.model}: the conversation has {said}, and the model takes {most:,} in all")
        with seeded(seed, self._network.device):
            made = self._network.generate(**inputs)
        return self._tokenizer.decode(made[0, tokens:], skip_special_tokens=True)

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizer = load_own_tokenizer(self.model)
        if not tokenizer.chat_template:
            said = "its tokenizer has no chat template, so it cannot be talked to; take an instruction-tuned model"
            raise ArtifactError(f"{self.model}: {said}")
        return tokenizer

    @cached_property
    def _network(self) -> Any:
        from transformers import AutoModelForCausalLM

        from dana.core.device import device_named

        with loading(self.model):
            network = AutoModelForCausalLM.from_pretrained(located(self.model), use_safetensors=True, dtype=self.dtype)
            network.generation_config = self._generation(network.generation_config.eos_token_id)
            return network.eval().to(device=device_named(self.device))

    def _generation(self, ends: int | list[int] | None) -> Any:
        """How tokens are taken: of the checkpoint's habits, a repetition penalty say, only what ends a reply stays."""
        from transformers import GenerationConfig

        ends = self._tokenizer.eos_token_id if ends is None else ends
        fill = self._tokenizer.pad_token_id
        return GenerationConfig(
            max_new_tokens=self.max_new_tokens,
            eos_token_id=ends,
            pad_token_id=fill if fill is not None else ends[0] if isinstance(ends, list) else ends,
            do_sample=self.temperature > 0,
            **({"temperature": self.temperature, "top_k": 0} if self.temperature > 0 else {}),
        )
