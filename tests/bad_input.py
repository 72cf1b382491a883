"""Check that a command line with a mistake is refused: exit code 2, one line that names the mistake, nothing written.

In a command line ``{name}`` stands for a path of :class:`Workspace`.
"""

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from dana.cli.main import main
from dana.core.artifacts import MANIFEST
from dana.core.logging import progress
from dana.stages.texts import held_out_stage
from tests.toy_task import write_checkpoint, write_task

HASHING = "--encoder hashing:dims=32,words=1"
TWO = "--set ranking.detectors=[knn,pca] ranking.seeds=2"
ADAPT = "--steps 2 --batch-size 4 --max-tokens 24"
SEEDS = "--set finetune.preset=quick finetune.seeds=1 finetune.epochs=1"
TOPICS = {  # words that the small checkpoint's tokenizer knows
    "fruit": "apple pear plum word0 word1 word2 word3 word4 word5 word6",
    "metal": "iron zinc lead word20 word21 word22 word23 word24 word25 word26",
}


@dataclass(frozen=True)
class Workspace:
    """A folder with a task's text, pool text, a run, a checkpoint, a classifier and a task card."""

    folder: Path

    task = property(lambda self: self.folder / "task.jsonl")
    pool = property(lambda self: self.folder / "pool.jsonl")
    run = property(lambda self: self.folder / "run")
    model = property(lambda self: self.folder / "model")
    labeller = property(lambda self: self.folder / "labeller")
    card = property(lambda self: self.folder / "cards" / "toy.yaml")
    out = property(lambda self: self.folder / "out")
    bad = property(lambda self: self.folder / "bad")

    def line(self, text: str) -> list[str]:
        """The command line of a case."""
        names = ("folder", "task", "pool", "run", "model", "labeller", "card", "out", "bad")
        return shlex.split(text.format(**{name: getattr(self, name) for name in names}))


def sentences(topic: str, number: int) -> str:
    words = TOPICS[topic].split()
    lines = [
        [words[(number * 7 + line * 3 + word * word) % 10] for word in range(6)]
        for line in range(3)
    ]
    return " ".join(" ".join(line).capitalize() + f" {number}." for line in lines)


def write_lines(path: Path, records: list) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def write_labeller(workspace: Workspace) -> None:
    """The checkpoint as a sequence classifier."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    classifier = AutoModelForSequenceClassification.from_pretrained(workspace.model, num_labels=3)
    for part in (classifier, AutoTokenizer.from_pretrained(workspace.model)):
        part.save_pretrained(workspace.labeller)


@pytest.fixture(scope="session")
def workspace(tmp_path_factory) -> Workspace:
    """Texts, a checkpoint, a card and a run with weights, written by the commands; tests leave it as it is."""
    workspace = Workspace(tmp_path_factory.mktemp("workspace"))
    topics = ["fruit" if n % 5 == 0 else "metal" for n in range(100)]
    pool = [
        {"id": f"p{n}", "source": topic, "text": sentences(topic, n + 50)}
        for n, topic in enumerate(topics)
    ]
    write_lines(workspace.pool, pool)
    write_lines(workspace.task, [{"id": f"t{n}", "text": sentences("fruit", n)} for n in range(40)])
    write_task(workspace.card.parent)
    write_checkpoint(workspace.model)
    write_labeller(workspace)
    for line in (
        f"score --rank-only --task {{task}} --pool {{pool}} --out {{run}} {HASHING} {TWO}",
        f"score --task {{task}} --pool {{pool}} --out {{run}} {HASHING} --selector detector:knn",
        "weigh {run} --beta 0.3 --gamma 3",
    ):
        assert main(workspace.line(line)) == 0
    files = {
        "notes.txt": "An iron word0 word1.\n",
        "other.vec": "1 2\nyouth 1 0\n",
        "nan.vec": "apple 1 0\npear nan 0\n",
    }
    files |= {f"pairs.{side}": "".join(f"{side} {n}\n" for n in range(30)) for side in ("de", "en")}
    for name, content in files.items():
        (workspace.folder / name).write_text(content)
    write_lines(
        workspace.folder / "same.jsonl",
        [{"text": "An iron word0 word1 is a word2. " * n} for n in (20, 30)],
    )
    write_lines(workspace.folder / "replies.jsonl", [{"reply": "Answer: Class B"}])
    held_out_stage(workspace.run / "pool", workspace.run / "held_out")
    return workspace


@pytest.fixture
def workspace_copy(workspace, tmp_path) -> Workspace:
    """A copy that a test may damage."""
    shutil.copytree(workspace.folder, tmp_path / "workspace")
    return Workspace(tmp_path / "workspace")


@pytest.fixture(autouse=True)
def empty_task_path(monkeypatch):
    monkeypatch.setenv("DANA_TASK_PATH", "")


def contents(folder: Path) -> dict[str, str]:
    """Digest every file below a folder; folders have an empty digest."""
    paths = [path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts]
    files = {path for path in paths if path.is_file() and not path.is_symlink()}
    digests = {path: blake2b(path.read_bytes()).hexdigest() for path in files}
    return {str(path.relative_to(folder)): digests.get(path, "") for path in paths}


def text(name: str, content: str | bytes) -> Callable[[Workspace], None]:
    """Write a file before the command runs."""

    def write(workspace: Workspace) -> None:
        path = workspace.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def truncate(name: str, keep: int = 40) -> Callable[[Workspace], None]:
    """Truncate a file to its first bytes."""
    return lambda workspace: (workspace.folder / name).write_bytes(
        (workspace.folder / name).read_bytes()[:keep]
    )


def remove(name: str) -> Callable[[Workspace], None]:
    """Remove a file or a folder."""

    def work(workspace: Workspace) -> None:
        path = workspace.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return work


def unreadable(name: str) -> Callable[[Workspace], None]:
    """A file that opens and cannot be read, whoever runs the tests: this process's memory, from its first byte on."""

    def link(workspace: Workspace) -> None:
        path = workspace.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to("/proc/self/mem")

    return link


def card(**changes: object) -> Callable[[Workspace], None]:
    """Change a card's keys; None removes one."""

    def write(workspace: Workspace) -> None:
        values = yaml.safe_load(workspace.card.read_text()) | changes
        workspace.card.write_text(
            yaml.safe_dump({key: value for key, value in values.items() if value is not None})
        )

    return write


def config(**changes: object) -> Callable[[Workspace], None]:
    """Change the checkpoint's config.json."""

    def write(workspace: Workspace) -> None:
        path = workspace.model / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return write


RANK = f"score --rank-only --task {{task}} --pool {{pool}} --out {{out}} {HASHING} --set ranking.detectors=[knn] "
SCORE = f"score --task {{task}} --pool {{pool}} --out {{out}} {HASHING} --selector detector:knn "
SELECT = "score --task {task} --pool {pool} --out {out} --selector "
WEIGH = "weigh {run} --out {out} "
EVALUATE = "finetune --task {card} --preset quick --out {out} --model "
TRAIN = f"adapt {{run}} --model {{model}} --out {{out}} {ADAPT} "
TUNE_ONLY = "finetune --model {model} --task {card} --out {out} "
TUNE = TUNE_ONLY + SEEDS + " "
AUTO = f"score --task {{task}} --pool {{pool}} --out {{run}} {HASHING} --selector detector "
PREDICT = "predict {labeller} {pool} --out {out}.jsonl "


def _artifacts(folder: Path) -> list[Path]:
    """List the folders of a run; of a run, those of its steps."""
    groups = [
        path
        for path in folder.glob("*")
        if path.name in ("steps", "topics") and not (path / MANIFEST).is_file()
    ]
    direct = [path for path in folder.glob("*") if path not in groups]
    return direct + [path for inner in groups for path in _artifacts(inner)]


def refuse(
    line: str,
    names: str | tuple[str, ...],
    workspace: Workspace,
    capfd: pytest.CaptureFixture[str],
    stays: tuple[str, ...] = ("target",),
    error: type[Exception] | None = None,
) -> None:
    """Run a command line that must be refused.

    Args:
        line: The command line.
        names: The key, value or file that the message must name.
        workspace: Nothing in it may change; of the run's folder, new ones may hold complete
            artifacts only.
        capfd: Captures what is printed.
        stays: Artifacts that may have been completed before the mistake was met.
        error: The type of the error.
    """
    before = contents(workspace.folder)
    types, write = [], progress.write

    def record(message: str, file=sys.stderr) -> None:
        types.append(sys.exc_info()[0])
        write(message, file=file)

    try:
        with patch.object(progress, "write", record):
            code = main(workspace.line(line))
        output = capfd.readouterr()
        after = contents(workspace.folder)
        artifacts = [
            path
            for path in _artifacts(workspace.out)
            if str(path.relative_to(workspace.folder)) not in before
        ]
        complete = {
            path.name
            for path in artifacts
            if path.name == "embeddings" or (path / MANIFEST).is_file()
        }
    finally:
        shutil.rmtree(
            workspace.out, ignore_errors=True
        )  # the next test finds the workspace as it was
    errors = [message for message in output.err.splitlines() if message.startswith("dana: error:")]
    assert code == 2, output.err
    assert len(errors) == 1, output.err
    for name in (names,) if isinstance(names, str) else names:
        assert name.replace("{folder}", str(workspace.folder)).lower() in errors[0].lower()
    if error is not None:
        assert issubclass(types[-1], error), f"{types[-1]}: {errors[0]}"
    assert "Traceback" not in output.err
    assert output.out == ""
    assert {name: after.get(name) for name in before} == before
    assert all(name.split("/")[0] == "out" for name in after.keys() - before.keys())
    assert {path.name for path in artifacts} == complete <= set(stays)
