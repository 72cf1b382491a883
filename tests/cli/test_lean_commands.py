"""Commands that compute nothing with torch end without having imported it: they start fast and hold little memory."""

import json
import random
import shutil
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
    """A run of 200 units that is scored at random, by a process that had no need of torch either."""
    folder = tmp_path_factory.mktemp("lean")
    write_texts(folder / "task.jsonl", 0, 40)
    write_texts(folder / "general.jsonl", 100, 200)
    texts = ["--task", str(folder / "task.jsonl"), "--general", str(folder / "general.jsonl")]
    assert ended("score", *texts, "--selector", "random", "--out", str(folder / "run")) == ["0"]
    return folder / "run"


@pytest.mark.parametrize("flags", [[], ["--policy", "sigmoid"], ["--beta", "0.4", "--set", "weigh.gamma=5"]])
def test_weighing_imports_nothing_heavy(run, flags, tmp_path):
    assert ended("weigh", str(run), *flags, "--to", str(tmp_path / "weights")) == ["0"]
    assert (tmp_path / "weights" / "part-00000.parquet").is_file()


def test_what_a_run_remembers_of_a_training_imports_nothing_heavy(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    with (copy / "settings.yaml").open("a") as settings:
        settings.write("adapt:\n  objective: masked:mask_rate=0.3\n  steps: 10\npretrain:\n  architecture: bert\n")
    assert ended("weigh", str(copy)) == ["0"]


@pytest.mark.parametrize("words", [["verify"], ["tasks", "list"]], ids=" ".join)
def test_looking_after_a_run_imports_nothing_heavy(run, words, tmp_path):
    command, *rest = [word.replace("OUT", str(tmp_path / "out")) for word in words]
    assert ended(command, *([] if command == "tasks" else [str(run)]), *rest) == ["0"]


def test_a_report_without_stored_vectors_imports_no_torch(run, tmp_path):
    reported = tmp_path / "run"
    shutil.copytree(run, reported)
    code, *imported = ended("report", str(reported))
    assert code == "0"
    assert not {"torch", "transformers"} & set(imported)
    assert (reported / "report.html").is_file()
