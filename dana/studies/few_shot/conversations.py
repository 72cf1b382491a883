"""Conversations of a study that is under way: a line of JSON each, put on the disk whole, read by the next run."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dana.core.artifacts import canonical, differing, write_text
from dana.core.errors import ArtifactError, Contradiction
from dana.core.json_lines import json_lines


@dataclass(frozen=True)
class ConversationLog:
    """A file whose first line says what the conversations depend on, and each further line is one of them.

    Attributes:
        path: The file; it is there from the first conversation on.
        depends_on: Settings and inputs that decide the conversations.
    """

    path: Path
    depends_on: dict[str, Any]

    def read(self) -> list[dict[str, Any]]:
        """The conversations so far. A line that a killed process has left unfinished is taken off the file.

        Raises:
            Contradiction: If they are of other settings.
            ArtifactError: If the file is damaged; names the line.
        """
        if not self.path.exists():
            return []
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(self.path, whole)
        lines = []
        for number, line in enumerate(content[:whole].splitlines(), 1):
            try:
                lines.append(json.loads(line))
            except ValueError as error:
                raise ArtifactError(f"{self.path}:{number}: damaged; remove the file to begin anew") from error
        there, now = lines[0]["depends_on"] if lines else {}, json.loads(canonical(self.depends_on))
        if there != now:
            raise Contradiction(self.path, "few-shot", there, now, "; ".join(differing(there, now)))
        return lines[1:]

    def append(self, conversation: dict[str, Any]) -> None:
        """Add a conversation; when this returns it is on the disk."""
        line = json_lines([conversation])
        if not self.path.exists():
            write_text(self.path, canonical({"depends_on": self.depends_on}) + "\n" + line)
            return
        with self.path.open("ab") as stream:
            stream.write(line.encode())
            stream.flush()
            os.fsync(stream.fileno())
