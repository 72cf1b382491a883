"""Chat models: the interface and its specs, a local transformers model, and replies from a file."""

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
from dana.core.rng import torch_seed
from dana.corpus.readers import read_records
from dana.models.folder import check_checkpoint, load_complete, load_own_tokenizer, loading, model_identity

CHAT_MODELS = Registry("dana.chat_models")
REPLY_KEYS = {"turn": int, "contains": str, "reply": str}
Message = dict[str, str]  # role ("user" or "assistant", alternating) and content, as in chat templates
_KEY = re.compile(r"(?:^|[:,])\s*(?:api_?)?(?:key|token|secret|password)\s*=", re.IGNORECASE)


class ChatModel(Protocol):
    """A chat model: a frozen dataclass of settings, registered under the entry-point group ``dana.chat_models``."""

    def identity(self) -> dict[str, Any]:
        """Return plain values for a fingerprint and for transcripts: all that decides a reply, without a key."""
        ...

    def reply(self, messages: Sequence[Message], seed: int) -> str:
        """Return the model's next reply, a function of the messages and, if it samples, the seed.

        Args:
            messages: The conversation so far; the last message is the user's.
            seed: Seed of the sampling, below 2**31; unused at temperature 0.

        Raises:
            DanaError: If there is no reply.
        """
        ...


def open_chat(spec: str) -> ChatModel:
    """Create a chat model from its spec, for example ``http:http://localhost:8000/v1,model=NAME``.

    Raises:
        PluginError: If the name is unknown.
        ConfigError: If a setting is invalid, or the spec has a key, which is not shown.
    """
    if _KEY.search(spec):
        raise ConfigError("chat: must not have a key, as specs are saved; set an environment variable and key_env=NAME")
    return CHAT_MODELS.create(spec)


@dataclass(frozen=True)
class LocalChat:
    """A causal language model of transformers with the chat template of its tokenizer.

    Runs in the precision of its weights, on a GPU if there is one.

    Attributes:
        model: Folder with safetensors weights, or Hub name.
        max_new_tokens: Maximum tokens of a reply.
        temperature: 0 for greedy decoding; above 0 tokens are sampled.
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
        decoding = {"max_new_tokens": self.max_new_tokens, "temperature": self.temperature}
        template = fingerprint(self._tokenizer.get_chat_template())
        return {"kind": "local", "model": model_identity(self.model), "template": template, **decoding}

    def reply(self, messages: Sequence[Message], seed: int) -> str:
        """Generate a reply.

        Raises:
            DataError: If conversation and reply exceed the model's maximum length.
        """
        with loading(f"{self.model}: its chat template"):
            inputs = self._tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, return_tensors="pt", return_dict=True
            ).to(self._network.device)
        tokens = inputs["input_ids"].shape[1]
        max_positions = getattr(self._network.config, "max_position_embeddings", None)
        if max_positions is not None and tokens + self.max_new_tokens > max_positions:
            length = f"{tokens:,} tokens and {self.max_new_tokens:,} of a reply"
            raise DataError(f"{self.model}: a conversation of {length} exceeds the model's {max_positions:,} positions")
        with torch_seed(seed, self._network.device):
            sequence = self._network.generate(**inputs)[0]
        return self._tokenizer.decode(sequence[tokens:], skip_special_tokens=True)

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizer = load_own_tokenizer(self.model)
        if not tokenizer.chat_template:
            raise ArtifactError(f"{self.model}: the tokenizer has no chat template; use an instruction-tuned model")
        return tokenizer

    @cached_property
    def _network(self) -> Any:
        from transformers import AutoModelForCausalLM, GenerationConfig

        from dana.core.device import find_device

        network = load_complete(AutoModelForCausalLM, self.model, dtype="auto")
        eos = network.generation_config.eos_token_id
        ends = self._tokenizer.eos_token_id if eos is None else eos
        fill = self._tokenizer.pad_token_id
        sampling = {"do_sample": True, "temperature": self.temperature, "top_k": 0}
        # Drops the checkpoint's other generation settings, such as a repetition penalty.
        network.generation_config = GenerationConfig(
            max_new_tokens=self.max_new_tokens,
            eos_token_id=ends,
            pad_token_id=fill if fill is not None else ends[0] if isinstance(ends, list) else ends,
            **(sampling if self.temperature > 0 else {"do_sample": False}),
        )
        return network.eval().to(device=find_device())


@dataclass(frozen=True)
class ScriptedChat:
    """Replies from a JSONL file, by the first matching line: for tests and dry runs.

    A line has ``reply``, and optionally ``turn`` (the user's turn to answer, from 1) and ``contains`` (text that occurs
    in this or an earlier turn of the user).

    Attributes:
        path: The file.
    """

    path: str
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        self._lines  # noqa: B018 - fail on a bad file before any work

    def identity(self) -> dict[str, Any]:
        return {"kind": "scripted", "file": file_digest(Path(self.path))}

    def reply(self, messages: Sequence[Message], seed: int) -> str:
        """Return the reply of the first matching line.

        Raises:
            DataError: If no line matches.
        """
        prompts = [message["content"] for message in messages if message["role"] == "user"]
        for line in self._lines:
            fits = line.get("turn", len(prompts)) == len(prompts)
            if fits and any(line.get("contains", "") in prompt for prompt in prompts):
                return line["reply"]
        raise DataError(f"{self.path}: no line matches turn {len(prompts)}: {prompts[-1][:80]!r}")

    @cached_property
    def _lines(self) -> list[dict[str, Any]]:
        lines = []
        for record in read_records([self.path]):
            kinds = {key: type(value) for key, value in record.fields.items()}
            fits = "reply" in kinds and kinds.items() <= REPLY_KEYS.items()
            if record.problem or not fits:
                remedy = "expected reply (text), and optionally turn (a whole number) and contains (text)"
                raise DataError(f"{record.location}: {record.problem or f'{record.fields}: {remedy}'}")
            lines.append(record.fields)
        return lines
