"""Chat models, a conversation so far to the next reply: their contract and specs, a local model, a file of replies."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

from dana.core.artifacts import fingerprint
from dana.core.config import require
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.files import file_digest
from dana.core.registry import Registry
from dana.core.rng import seeded
from dana.corpus.readers import read_records
from dana.models.folder import check_checkpoint, load_own_tokenizer, loading, located, model_identity

CHAT_MODELS = Registry("dana.chat_models")
REPLY_KEYS = {"turn": int, "contains": str, "reply": str}
Message = dict[str, str]  # role ("user" or "assistant", one after the other) and content, as chat templates take them
_KEY = re.compile(r"(?:^|[:,])\s*(?:api_?)?(?:key|token|secret|password)\s*=", re.IGNORECASE)


class ChatModel(Protocol):
    """A chat model: a frozen dataclass of settings, registered under the entry-point group ``dana.chat_models``."""

    def identity(self) -> dict[str, Any]:
        """Plain values for a fingerprint and for transcripts: all that decides a reply, and no key."""
        ...

    def reply(self, messages: Sequence[Message], seed: int) -> str:
        """What the model says next. It depends on nothing but the messages and, where it draws, the seed.

        Args:
            messages: The conversation so far; the last one is the user's.
            seed: Below 2**31, of what is drawn; at temperature 0 nothing is.

        Raises:
            DanaError: If there is no reply.
        """
        ...


def open_chat(spec: str) -> ChatModel:
    """The chat model that a spec names, for example ``http:http://localhost:8000/v1,model=NAME``.

    Raises:
        PluginError: If there is none of this name.
        ConfigError: If a setting is refused; a key in a spec is, and is not shown.
    """
    if _KEY.search(spec):
        remedy = "put it into an environment variable, key_env=NAME"
        raise ConfigError(f"chat: a spec is written down, so it takes no key; {remedy}")
    return CHAT_MODELS.create(spec)


@dataclass(frozen=True)
class LocalChat:
    """A causal language model of transformers, from a folder or the Hub, with the chat template that it comes with.

    It computes in the precision of its weights, on a GPU where there is one.

    Attributes:
        model: A folder with safetensors weights, or a Hub name.
        max_new_tokens: Most tokens of a reply.
        temperature: 0 takes the likeliest token each time; above it tokens are drawn.
    """

    model: str
    max_new_tokens: int = 512
    temperature: float = 0.0
    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        require(self.max_new_tokens >= 1, "max_new_tokens", self.max_new_tokens, "at least 1")
        require(self.temperature >= 0, "temperature", self.temperature, "at least 0")
        check_checkpoint(self.model)

    def identity(self) -> dict[str, Any]:
        """See :class:`ChatModel`."""
        decides = {"max_new_tokens": self.max_new_tokens, "temperature": self.temperature}
        template = fingerprint(self._tokenizer.get_chat_template())
        return {"kind": "local", "model": model_identity(self.model), "template": template, **decides}

    def reply(self, messages: Sequence[Message], seed: int) -> str:
        """See :class:`ChatModel`.

        Raises:
            DataError: If the conversation and a reply are longer than the model's positions.
        """
        with loading(f"{self.model}: its chat template"):
            inputs = self._tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, return_tensors="pt", return_dict=True
            ).to(self._network.device)
        tokens = inputs["input_ids"].shape[1]
        most = getattr(self._network.config, "max_position_embeddings", None)
        if most is not None and tokens + self.max_new_tokens > most:
            length = f"{tokens:,} tokens so far and {self.max_new_tokens:,} of a reply"
            raise DataError(f"{self.model}: the conversation has {length}, and the model takes {most:,} in all")
        with seeded(seed, self._network.device):
            sequence = self._network.generate(**inputs)[0]
        return self._tokenizer.decode(sequence[tokens:], skip_special_tokens=True)

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizer = load_own_tokenizer(self.model)
        if not tokenizer.chat_template:
            lack = "its tokenizer has no chat template, so it cannot be talked to; take an instruction-tuned model"
            raise ArtifactError(f"{self.model}: {lack}")
        return tokenizer

    @cached_property
    def _network(self) -> Any:
        from transformers import AutoModelForCausalLM, GenerationConfig

        from dana.core.device import device_named

        with loading(self.model):
            network = AutoModelForCausalLM.from_pretrained(located(self.model), use_safetensors=True, dtype="auto")
        own = network.generation_config.eos_token_id
        ends = self._tokenizer.eos_token_id if own is None else own
        fill = self._tokenizer.pad_token_id
        drawn = {"do_sample": True, "temperature": self.temperature, "top_k": 0}
        # Of the checkpoint's habits, a repetition penalty say, only what ends a reply stays.
        network.generation_config = GenerationConfig(
            max_new_tokens=self.max_new_tokens,
            eos_token_id=ends,
            pad_token_id=fill if fill is not None else ends[0] if isinstance(ends, list) else ends,
            **(drawn if self.temperature > 0 else {"do_sample": False}),
        )
        return network.eval().to(device=device_named())


@dataclass(frozen=True)
class ScriptedChat:
    """Replies from a JSONL file, the first line that fits: for tests, and to walk through a study without a model.

    A line has ``reply``, and may have ``turn``, the user's turn that it answers, from 1, and ``contains``, a text that
    the user has said in this or an earlier turn.

    Attributes:
        path: The file.
    """

    path: str
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        self._lines  # noqa: B018 - a bad file is told before any work

    def identity(self) -> dict[str, Any]:
        """See :class:`ChatModel`."""
        return {"kind": "scripted", "file": file_digest(Path(self.path))}

    def reply(self, messages: Sequence[Message], seed: int) -> str:
        """See :class:`ChatModel`.

        Raises:
            DataError: If no line fits.
        """
        prompts = [message["content"] for message in messages if message["role"] == "user"]
        for line in self._lines:
            fits = line.get("turn", len(prompts)) == len(prompts)
            if fits and any(line.get("contains", "") in prompt for prompt in prompts):
                return line["reply"]
        raise DataError(f"{self.path}: no line answers turn {len(prompts)}: {prompts[-1][:80]!r}")

    @cached_property
    def _lines(self) -> list[dict[str, Any]]:
        lines = []
        for record in read_records([self.path]):
            kinds = {key: type(value) for key, value in record.fields.items()}
            fits = "reply" in kinds and kinds.items() <= REPLY_KEYS.items()
            if record.problem or not fits:
                allowed = "allowed are reply (a text, needed), turn (a whole number) and contains (a text)"
                raise DataError(f"{record.location}: {record.problem or f'{record.fields}: {allowed}'}")
            lines.append(record.fields)
        return lines
