"""A chat model with replies from a file, as the entry point ``scripted`` while the studies' tests run."""

import json
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

from dana.core.errors import DataError
from dana.core.files import file_digest


@dataclass(frozen=True)
class ScriptedChat:
    """Replies from a JSONL file, by the first matching line.

    A line has ``reply``, and optionally ``turn`` (the user's turn to answer, from 1) and
    ``contains`` (text that occurs in this or an earlier turn of the user).

    Attributes:
        path: The file.
    """

    path: str

    def identity(self):
        return {"kind": "scripted", "file": file_digest(Path(self.path))}

    def reply(self, messages, seed):
        prompts = [message["content"] for message in messages if message["role"] == "user"]
        for text in Path(self.path).read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            fits = line.get("turn", len(prompts)) == len(prompts)
            if fits and any(line.get("contains", "") in prompt for prompt in prompts):
                return line["reply"]
        raise DataError(f"{self.path}: no line matches turn {len(prompts)}: {prompts[-1][:80]!r}")


ENTRY = EntryPoint("scripted", f"{__name__}:ScriptedChat", "dana.chat_models")
