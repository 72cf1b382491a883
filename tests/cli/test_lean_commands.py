"""Commands that do not compute with torch do not import it."""

import json
import random
import subprocess
import sys

HEAVY = ("torch", "transformers", "sklearn", "datasets", "matplotlib")
SCRIPT = f"""
import sys
from dana.cli.main import main
code = main(sys.argv[1:])
print(code, *(name for name in {HEAVY} if name in sys.modules))
"""
SETTINGS = (
    "adapt:\n  objective: masked:mask_rate=0.3\n  steps: 10\npretrain:\n  architecture: bert\n"
)


def heavy_imports(*words: object) -> list[str]:
    """Run a command in its own process; returns the heavy packages that it imported."""
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, words)], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    code, *packages = process.stdout.splitlines()[-1].split()
    assert code == "0"
    return packages


def write_texts(path, shift: int, documents: int) -> None:
    draw = random.Random(shift)
    words = [f"word{number}" for number in range(shift, shift + 200)]
    texts = [" ".join(draw.choices(words, k=9)).capitalize() + "." for _ in range(documents)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def test_scoring_at_random_and_weighing_import_nothing_heavy_and_reporting_no_torch(tmp_path):
    """Nor do settings of training in a recipe."""
    run = tmp_path / "run"
    write_texts(tmp_path / "task.jsonl", 0, 40)
    write_texts(tmp_path / "pool.jsonl", 100, 200)
    texts = ["--task", tmp_path / "task.jsonl", "--pool", tmp_path / "pool.jsonl"]
    assert heavy_imports("score", *texts, "--selector", "random", "--out", run) == []
    with (run / "recipe.yaml").open("a") as settings:
        settings.write(SETTINGS)
    assert heavy_imports("weigh", run) == []
    assert heavy_imports("weigh", run, "--policy", "sigmoid", "--out", tmp_path / "weights") == []
    assert not {"torch", "transformers"} & set(heavy_imports("report", run)), (
        "there are no stored vectors"
    )
    assert (run / "report.html").is_file()
