"""Commands that do not compute with torch do not import it."""

import json
import random
import shutil
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "sklearn", "datasets", "matplotlib")
SCRIPT = f"""
import sys
from dana.cli.main import main
code = main(sys.argv[1:])
print(code, *(name for name in {HEAVY} if name in sys.modules))
"""


def run_alone(*words: str) -> list[str]:
    """Run a command in its own process; returns its exit code and the heavy packages that it imported."""
    ran = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()[-1].split()


def write_texts(path, shift: int, documents: int) -> None:
    draw = random.Random(shift)
    words = [f"word{number}" for number in range(shift, shift + 200)]
    texts = [" ".join(draw.choices(words, k=9)).capitalize() + "." for _ in range(documents)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of 200 units scored at random, without torch, too."""
    folder = tmp_path_factory.mktemp("lean")
    write_texts(folder / "task.jsonl", 0, 40)
    write_texts(folder / "general.jsonl", 100, 200)
    texts = ["--task", str(folder / "task.jsonl"), "--general", str(folder / "general.jsonl")]
    assert run_alone("score", *texts, "--selector", "random", "--out", str(folder / "run")) == ["0"]
    return folder / "run"


@pytest.mark.parametrize("flags", [[], ["--policy", "sigmoid"]])
def test_weighing_imports_nothing_heavy(run, flags, tmp_path):
    assert run_alone("weigh", str(run), *flags, "--to", str(tmp_path / "weights")) == ["0"]
    assert (tmp_path / "weights" / "part-00000.parquet").is_file()


def test_remembered_settings_of_training_import_nothing_heavy(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    with (folder / "settings.yaml").open("a") as settings:
        settings.write("adapt:\n  objective: masked:mask_rate=0.3\n  steps: 10\npretrain:\n  architecture: bert\n")
    assert run_alone("weigh", str(folder)) == ["0"]
    assert run_alone("verify", str(folder)) == ["0"]
    assert run_alone("tasks", "list") == ["0"]
    code, *modules = run_alone("report", str(folder))
    assert code == "0"
    assert not {"torch", "transformers"} & set(modules), "there are no stored vectors"
    assert (folder / "report.html").is_file()
