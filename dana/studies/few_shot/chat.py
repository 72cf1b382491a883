"""Chat models: the interface and its specs, a local transformers model, and replies from a file."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import Field

from dana.core.artifacts import fingerprint
from dana.core.errors import ConfigError, DataError
from dana.core.files import file_digest
from dana.core.registry import Registry
from dana.core.settings import Count, Float, settings_model
from dana.corpus.readers import read_records
from dana.models.folder import check_checkpoint, model_identity
from dana.models.generation import ChatDecoder, RowSampling

CHAT_MODELS = Registry("dana.chat_models")
REPLY_KEYS = {"turn": int, "contains": str, "reply": str}
# Role ("user" or "assistant", alternating) and content, as in chat templates.
Message = dict[str, str]
_KEY = re.compile(r"(?:^|[:,])\s*(?:api_?)?(?:key|token|secret|password)\s*=", re.IGNORECASE)


class ChatModel(Protocol):
    """A chat model: a frozen dataclass of settings, and an entry point of ``dana.chat_models``.

    One that answers several conversations together also has ``batch``, how many, and
    ``replies(conversations, seeds)``.
    """

    def identity(self) -> dict[str, Any]:
        """Return plain values for a fingerprint and for transcripts.

        They are all that decides a reply, without a key.
        """
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
        raise ConfigError(
            "chat: must not have a key, as specs are saved; set an environment variable and"
            " key_env=NAME"
        )
    chat: ChatModel = CHAT_MODELS.create(spec)
    return chat


@settings_model
class LocalChat:
    """A causal language model of transformers with the chat template of its tokenizer.

    See :class:`ChatDecoder`.

    Attributes:
        model: Folder with safetensors weights, Hub name, or ``smollm2``.
        max_new_tokens: Maximum tokens of a reply.
        temperature: 0 for greedy decoding; above 0 tokens are sampled.
        batch: Conversations that are answered together.
    """

    model: str
    max_new_tokens: Count = 512
    temperature: Annotated[Float, Field(ge=0)] = 0.0
    batch: Count = 16
    version: ClassVar[int] = 4

    def __post_init__(self) -> None:
        check_checkpoint(self.model)

    def identity(self) -> dict[str, Any]:
        template = fingerprint(self._decoder.tokenizer.get_chat_template())
        return {
            "kind": "local",
            "model": model_identity(self.model),
            "template": template,
            "max_new_tokens": self.max_new_tokens,
            "temperature": self.temperature,
            "batch": self.batch,
        }

    def reply(self, messages: Sequence[Message], seed: int) -> str:
        """Generate a reply.

        Raises:
            DataError: If conversation and reply exceed the model's maximum length.
        """
        return self.replies([messages], [seed])[0]

    def replies(
        self, conversations: Sequence[Sequence[Message]], seeds: Sequence[int]
    ) -> list[str]:
        """Generate a reply to each conversation, with a seed each.

        Replies are independent of each other up to rounding.

        Raises:
            DataError: If a conversation and its reply exceed the model's maximum length.
        """
        sampling = RowSampling(0, 1.0, seeds, self.temperature) if self.temperature > 0 else None
        return self._decoder.answer(conversations, self.max_new_tokens, sampling)

    @cached_property
    def _decoder(self) -> ChatDecoder:
        return ChatDecoder(self.model)


@dataclass(frozen=True)
class ScriptedChat:
    """Replies from a JSONL file, by the first matching line: for tests and dry runs.

    A line has ``reply``, and optionally ``turn`` (the user's turn to answer, from 1) and
    ``contains`` (text that occurs in this or an earlier turn of the user).

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
                reply: str = line["reply"]
                return reply
        raise DataError(f"{self.path}: no line matches turn {len(prompts)}: {prompts[-1][:80]!r}")

    @cached_property
    def _lines(self) -> list[dict[str, Any]]:
        lines = []
        for record in read_records([self.path]):
            types = {key: type(value) for key, value in record.fields.items()}
            problem = record.problem
            if not problem and ("reply" not in types or not types.items() <= REPLY_KEYS.items()):
                problem = (
                    f"{record.fields}: expected reply (text), and optionally turn (a whole number)"
                    " and contains (text)"
                )
            if problem:
                raise DataError(f"{record.location}: {problem}")
            lines.append(record.fields)
        return lines
