"""Chat model that answers from a file: for tests, and to walk through a study without a model."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from dana.core.errors import ConfigError, DataError, nearest_path
from dana.core.files import file_digest
from dana.studies.few_shot.base import Message

KEYS = {"turn": int, "contains": str, "reply": str}


@dataclass(frozen=True)
class ScriptedChat:
    """Replies from a JSONL file: the first line that fits the conversation.

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
        """See :class:`dana.studies.few_shot.base.ChatModel`."""
        return {"kind": "scripted", "file": file_digest(Path(self.path))}

    def reply(self, messages: Sequence[Message], seed: int) -> str:
        """See :class:`dana.studies.few_shot.base.ChatModel`.

        Raises:
            DataError: If no line fits.
        """
        said = [message["content"] for message in messages if message["role"] == "user"]
        for line in self._lines:
            fits = line.get("turn", len(said)) == len(said)
            if fits and any(line.get("contains", "") in text for text in said):
                return line["reply"]
        raise DataError(f"{self.path}: no line answers turn {len(said)}: {said[-1][:80]!r}")

    @cached_property
    def _lines(self) -> list[dict[str, Any]]:
        try:
            text = Path(self.path).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be read: {error.strerror}{nearest_path(self.path)}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{self.path}: not UTF-8: {error}") from error
        return [self._line(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]

    def _line(self, number: int, line: str) -> dict[str, Any]:
        try:
            value = json.loads(line)
        except ValueError as error:
            raise DataError(f"{self.path}:{number}: not JSON: {error}") from error
        if not isinstance(value, dict) or "reply" not in value:
            raise DataError(f"{self.path}:{number}: must be an object with 'reply' and perhaps 'turn', 'contains'")
        for key, found in value.items():
            if key not in KEYS or type(found) is not KEYS[key]:
                allowed = ", ".join(f"{name} ({kind.__name__})" for name, kind in KEYS.items())
                raise DataError(f"{self.path}:{number}: {key}={found!r}: allowed are {allowed}")
        return value
