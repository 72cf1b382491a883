"""Commands that compute nothing with torch end without having imported it: they start fast and hold little memory."""

import json
import random
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "sklearn", "datasets", "matplotlib")
ENDED = f"""
import sys
from dana.cli.main import main
code = main(sys.argv[1:])
print(code, *(name for name in {HEAVY} if name in sys.modules))
"""


def ended(*words: str) -> list[str]:
    """The exit code of a command in a process of its own, and what it imported of the heavy packages."""
    ran = subprocess.run([sys.executable, "-c", ENDED, *words], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()[-1].split()


def write_texts(path, shift: int, documents: int) -> None:
    draw = random.Random(shift)
    words = [f"word{number}" for number in range(shift, shift + 200)]
    texts = [" ".join(draw.choices(words, k=9)).capitalize() + "." for _ in range(documents)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of 200 units that is scored, by a process of its own."""
    folder = tmp_path_factory.mktemp("lean")
    write_texts(folder / "task.jsonl", 0, 40)
    write_texts(folder / "general.jsonl", 100, 200)
    texts = ["--task", str(folder / "task.jsonl"), "--general", str(folder / "general.jsonl")]
    code, *_ = ended("score", *texts, "--selector", "random", "--out", str(folder / "run"))
    assert code == "0"
    return folder / "run"


@pytest.mark.parametrize("flags", [[], ["--policy", "sigmoid"], ["--beta", "0.4", "--set", "weigh.gamma=5"]])
def test_weighing_imports_nothing_heavy(run, flags, tmp_path):
    assert ended("weigh", str(run), *flags, "--to", str(tmp_path / "weights")) == ["0"]
    assert (tmp_path / "weights" / "part-00000.parquet").is_file()
