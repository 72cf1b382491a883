"""Golden files: compare text with a committed file, or write the file with UPDATE_GOLDEN=1."""

import difflib
import os
from pathlib import Path

import pytest

COMMAND = "UPDATE_GOLDEN=1 python -m pytest tests -k golden"


def check_golden(file: Path, text: str) -> None:
    """Fail with a diff and the command that regenerates the file, if the text is not the file's."""
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    before = file.read_text(encoding="utf-8") if file.is_file() else ""
    if text != before:
        diff = difflib.unified_diff(
            before.splitlines(), text.splitlines(), file.name, "now", lineterm="", n=0
        )
        pytest.fail(
            "\n".join([f"{file.name} has changed. If the new text is right: {COMMAND}", *diff])
        )
