"""What a reader gives: records, good or bad, each knowing the file and line it came from."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Record:
    """One record, good or bad.

    Attributes:
        origin: File or dataset it came from.
        line: Line or row, from 1.
        fields: What it holds; empty for a bad record.
        problem: Why it cannot be read; empty for a good one.
        rest_lost: Whether nothing after it in the file can be read either.
    """

    origin: str
    line: int
    fields: dict[str, Any]
    problem: str = ""
    rest_lost: bool = False

    @property
    def place(self) -> str:
        """``file:line``."""
        return f"{self.origin}:{self.line}"


class Damage(Exception):
    """Where the content of a file cannot be read any further, and why."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line
