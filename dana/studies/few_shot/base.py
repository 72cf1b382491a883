"""Contract of chat models, a conversation so far to the next reply; and their specs, which hold no key."""

import re
from collections.abc import Sequence
from typing import Any, Protocol, TypedDict

from dana.core.errors import ConfigError
from dana.core.registry import Registry

CHAT_MODELS = Registry("dana.chat_models")
_KEY = re.compile(r"(?:^|[:,])\s*(?:api_?)?(?:key|token|secret|password)\s*=", re.IGNORECASE)


class Message(TypedDict):
    """One turn of a conversation.

    Attributes:
        role: ``user`` or ``assistant``, one after the other.
        content: What was said.
    """

    role: str
    content: str


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
        said = "a spec is written down, so it takes no key; put it into an environment variable, key_env=NAME"
        raise ConfigError(f"chat: {said}")
    return CHAT_MODELS.create(spec)
