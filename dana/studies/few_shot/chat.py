"""Chat models: the interface and its specs, a local transformers model, and replies from a file."""

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import Field

from dana.core.artifacts import fingerprint
from dana.core.errors import ConfigError
from dana.core.registry import Registry
from dana.core.settings import Count, Float, settings_model
from dana.models.folder import check_checkpoint, model_identity
from dana.models.generation import ChatDecoder, RowSampling

CHAT_MODELS = Registry("dana.chat_models")
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
