"""Code of the README and of the guide, and a folder in which they run as a reader pastes them, at a size for tests."""

import argparse
import ast
import gzip
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Collection
from contextlib import redirect_stderr
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from dana.cli.main import main
from dana.stages.base import SMALLEST
from dana.stages.recipe import WRITTEN

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^( *)```(bash|python|yaml)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
# Large values of the pages, and the small ones that tests take.
SMALL = {
    r"--steps (\d)\d*": r"--steps \g<1>0 --batch-size 4 --max-tokens 32",
    r"--seeds [28]": "--seeds 1",
    r"steps: 1000": "steps: 2, batch_size: 4, max_tokens: 32",
    r"seeds: \{adaptations: 5, finetunings: 2\}": "seeds: {adaptations: 2, finetunings: 1}\n"
    "finetune: {epochs: 1, steps: 1, max_tokens: 32}",
    r"steps=1000": "steps=10, batch_size=4, max_tokens=32",
    r"seeds=[258]": "seeds=1, epochs=1, steps=1, max_tokens=24",
    r"translation\.layers=6 translation\.width=512": "translation.layers=1 translation.width=64 "
    "translation.vocabulary=300 translation.epochs=1 translation.dev_pairs=2 translation.test_pairs=2 "
    "translation.max_tokens=32",
    r"quick=True": "quick=True, selector='lexical', "
    "adapt={'objective': 'masked', 'steps': 2, 'batch_size': 4, 'max_tokens': 32}, "
    "finetune={'epochs': 1, 'steps': 1, 'max_tokens': 32}, seeds={'finetunings': 1}",
    r"max_tokens=256": "max_tokens=24",
    r"num_train_epochs=1": "max_steps=1, report_to=[], use_cpu=True",
    r"gradient_accumulation_steps=8": "gradient_accumulation_steps=2",
}
FINETUNED = ["finetune.max_tokens=32", "finetune.epochs=1", "finetune.steps=1"]
FINETUNED += ["finetune.pooling=cls"]  # that of BERT-base, which a narrow model stands for
RUN = [
    "selector=lexical",
    "adapt.objective=masked",
    "adapt.tokens=400",
    "adapt.batch_size=4",
    "adapt.max_tokens=32",
    "adapt.evaluations=0",
]
RUN += ["seeds.finetunings=1", "candidates=[]"]
CARD = """\
name: tickets
title: Which team should answer a support ticket?
version: 1
data: {local: parts}
labels: [billing, hardware]
metric: macro_f1
splits: {train: 80, dev: 20, test: 20}
"""
FAST_ENCODER = "hashing:dims=64,words=1"


def fenced(path: Path, language: str) -> list[str]:
    """The page's blocks of a language."""
    return [
        text
        for _, kind, text in BLOCK.findall(path.read_text(encoding="utf-8"))
        if kind == language
    ]


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a command's subcommands by their names."""
    return next(
        (action.choices for action in parser._actions if isinstance(action.choices, dict)), {}
    )


def leaves(parser, name=""):
    """The parser of every command by its name, of actions of a command as ``task check``."""
    inner = [leaves(one, f"{name} {word}".strip()) for word, one in subcommands(parser).items()]
    return dict(item for parsers in inner for item in parsers.items()) or {name: parser}


def write_reader_files(texts: list[str]) -> None:
    """Write what the pages take for granted: labelled texts, a pool and new texts, in the current folder."""
    words = [("invoice", "billing"), ("disk", "hardware")] * 60
    tickets = [
        {"text": f"{word} {text}", "label": label}
        for text, (word, label) in zip(texts, words, strict=False)
    ]
    pd.DataFrame(tickets).to_csv("tickets.csv", index=False)
    Path("parts").mkdir()
    for part, rows in {"test": tickets[:20], "dev": tickets[20:40], "train": tickets[40:]}.items():
        pd.DataFrame(rows).to_csv(f"parts/{part}.csv", index=False)
    Path("tickets.yaml").write_text(CARD, encoding="utf-8")
    for folder in ("pool", "more/extra"):
        Path(folder).mkdir(parents=True)
    pool = "".join(json.dumps({"text": text}) + "\n" for text in texts[120:])
    Path("pool/pool.jsonl").write_text(pool, encoding="utf-8")
    pd.DataFrame({"body": texts[:30]}).to_csv("more/extra/notes.csv", index=False)
    openings = enumerate(text[:60] for text in texts[120:150])
    new = [
        f"the invoice {row} is wrong, and so is the letter about {text}" for row, text in openings
    ]
    Path("new.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in new), encoding="utf-8"
    )
    Path("notes.txt").write_text("\n".join(new), encoding="utf-8")
    for side in ("de", "en"):
        lines = "".join(f"{side} line {row}\n" for row in range(100))
        Path(f"it.{side}.gz").write_bytes(gzip.compress(lines.encode()))
    laws = {side: [f"{side} law {row}" for row in range(100)] for side in ("de", "en")}
    pd.DataFrame(laws).to_csv("law.csv", index=False)


def write_installed_texts() -> None:
    """Write docstrings of two parts of scipy as labelled texts, and those of numpy as a pool, in the current folder."""
    tickets = [
        {"text": text, "label": part}
        for part in ("linalg", "signal")
        for text in installed_docstrings(f"scipy.{part}", 40)
    ]
    pd.DataFrame(tickets).to_csv("tickets.csv", index=False)
    Path("pool").mkdir()
    pool = [json.dumps({"text": text}) + "\n" for text in installed_docstrings("numpy.lib", 80)]
    Path("pool/pool.jsonl").write_text("".join(pool), encoding="utf-8")


def installed_docstrings(package: str, count: int) -> list[str]:
    """Return the beginnings of the first docstrings of a package, each once; its files are only parsed."""
    texts: dict[str, None] = {}
    folder = Path(next(iter(find_spec(package).submodule_search_locations)))
    for file in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                words = " ".join((ast.get_docstring(node) or "").split())
                if len(words) > 150:
                    texts[words[:400]] = None
    return list(texts)[:count]


def run_page(
    path: Path, model: Path, languages: Collection[str] = ("bash", "python", "yaml")
) -> dict[str, object]:
    """Run a page's blocks in order, in the current folder.

    A block of YAML or Python whose first line is a comment with a file's name is written to that
    file; such a file with code for a script runs in a process of its own.

    Args:
        path: The page.
        model: Small checkpoint that stands for ``bert-base-uncased``, ``dana-mini`` and
            ``smollm2``.
        languages: Languages of the blocks that are run.

    Returns:
        The names that the page's Python has made.
    """
    names, page = {}, path.read_text(encoding="utf-8")
    for folder in re.findall(
        r"""(?:dana (?:score|studies clusters) .*--out |out=")(runs/\w+)""", page
    ):
        choose_encoder(Path(folder))
    for _, language, block in BLOCK.findall(page):
        if language not in languages:
            continue
        text = reduce_size(block, model)
        file = re.match(r"# ([\w-]+\.(?:yaml|py))\n", text)
        if file:
            Path(file[1]).write_text(text, encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            # dana init takes the smallest model, whatever is installed.
            patch.setattr("dana.stages.init.choose_base", lambda: (SMALLEST, {}))
            if language == "bash":
                run_commands(text)
            elif language == "python" and file and "__main__" in text:
                subprocess.run([sys.executable, file[1]], check=True)
            elif language == "python":
                exec(compile(text, str(path), "exec"), names)
    return names


def choose_encoder(run: Path) -> None:
    """Let a run that has not begun take an encoder that needs no checkpoint."""
    if not run.exists():
        run.mkdir(parents=True)
        recipe = f"{WRITTEN} for tests\nselection: {{encoder: '{FAST_ENCODER}'}}\n"
        (run / "recipe.yaml").write_text(recipe, encoding="utf-8")


def reduce_size(text: str, model: Path) -> str:
    """Replace large values of a block by small ones."""
    for name in ("bert-base-uncased", "dana-mini", "smollm2"):
        text = text.replace(name, str(model))
    for large, small in SMALL.items():
        text = re.sub(large, small, text)
    return text


def run_commands(lines: str) -> None:
    """Run the commands of a shell block by the command line's own function; each must succeed."""
    for line in lines.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        assert words[0] == "dana", line
        if {"finetune", "topic-gap"} & set(words[1:3]):
            words += ["--set", *FINETUNED]
        if "finetune.method=contrastive" in words:
            words.append("finetune.pooling=mean")
        if words[1] == "finetune" and "--seeds" not in words:
            words.append("finetune.seeds=1")
        if words[1:3] == ["run", "tickets"] and "--dry-run" not in words:
            words += ["--set", *RUN, *FINETUNED]
        if words[2] == "compare":
            words += ["--others", "100"]
        # What it says stands in the failure, where a long output is cut.
        said = io.StringIO()
        with redirect_stderr(said):
            code = main(words[1:])
        assert code == 0, f"{line}\n{said.getvalue()[-1000:]}"
