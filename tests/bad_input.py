"""Machinery of the cases that users get wrong: a place to work in, changes that break it, and the check of a refusal.

A case is a command line and a part of what is said; ``{name}`` stands for a path of :class:`Place`, and a third entry
breaks something first. Nothing on disk may differ afterwards.
"""

import json
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import pytest
import yaml

from dana.cli.main import main
from dana.core.artifacts import MANIFEST
from dana.stages.texts import held_out_stage
from tests.toy_task import write_checkpoint, write_task

HASHING = "--encoder hashing:dims=32,words=1"
ADAPT = "--steps 2 --batch-size 4 --max-tokens 24"
SEEDS = "--set finetune.preset=quick finetune.seeds=1 finetune.epochs=1"
TOPICS = {  # words that the small checkpoint's tokenizer knows
    "fruit": "apple pear plum word0 word1 word2 word3 word4 word5 word6",
    "metal": "iron zinc lead word20 word21 word22 word23 word24 word25 word26",
}


@dataclass(frozen=True)
class Place:
    """Where a case works: paths that its command line names.

    Attributes:
        folder: Everything below is in here.
        task: A task's text.
        pool: General text.
        labeller: A small classifier.
        run: A run's folder with corpus, task, ranking, scores and weights.
        model: A small checkpoint.
        card: A labelled task's YAML.
    """

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
    picked = [[words[(number * 7 + line * 3 + place * place) % 10] for place in range(6)] for line in range(3)]
    return " ".join(" ".join(line).capitalize() + f" {number}." for line in picked)


def write_lines(path: Path, records: list) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def write_labeller(place: Place) -> None:
    """The checkpoint as a sequence classifier."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    AutoModelForSequenceClassification.from_pretrained(place.model, num_labels=3).save_pretrained(place.labeller)
    AutoTokenizer.from_pretrained(place.model).save_pretrained(place.labeller)


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Place:
    """Texts, a checkpoint, a card and a run that has come as far as weights, made by the commands themselves."""
    place = Place(tmp_path_factory.mktemp("place"))
    write_lines(place.task, [{"id": f"t{n}", "text": sentences("fruit", n)} for n in range(40)])
    topics = ["fruit" if n % 5 == 0 else "metal" for n in range(100)]
    write_lines(
        place.pool,
        [{"id": f"p{n}", "source": topic, "text": sentences(topic, n + 50)} for n, topic in enumerate(topics)],
    )
    write_task(place.card.parent)
    write_checkpoint(place.model)
    write_labeller(place)
    for line in (
        f"rank --task {{task}} --general {{pool}} --out {{run}} {HASHING} --detectors knn,pca --seeds 2",
        f"score --task {{task}} --general {{pool}} --out {{run}} {HASHING} --detector knn",
        "weigh {run} --beta 0.3 --gamma 3",
    ):
        assert main(place.line(line)) == 0
    (place.folder / "notes.txt").write_text("An iron word0 word1.\n")
    (place.folder / "other.vec").write_text("1 2\nyouth 1 0\n")
    (place.folder / "nan.vec").write_text("apple 1 0\npear nan 0\n")
    write_lines(place.folder / "same.jsonl", [{"text": "An iron word0 word1 is a word2. " * n} for n in (20, 30)])
    for side in ("de", "en"):
        (place.folder / f"pairs.{side}").write_text("".join(f"{side} {n}\n" for n in range(30)))
    held_out_stage(place.run / "corpus", place.run / "held_out")
    write_lines(place.folder / "replies.jsonl", [{"reply": "Answer: Class B"}])
    return place


@pytest.fixture
def place(made, tmp_path) -> Place:
    """A copy that a case may break."""
    shutil.copytree(made.folder, tmp_path / "place")
    return Place(tmp_path / "place")


@pytest.fixture(autouse=True)
def own_task_path(monkeypatch):
    """What a case adds to the task path goes with it."""
    monkeypatch.setenv("DANA_TASK_PATH", "")


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder with a digest, and every folder."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts):
        is_file = path.is_file() and not path.is_symlink()
        digest = blake2b(path.read_bytes()).hexdigest() if is_file else ""
        found[str(path.relative_to(folder))] = digest
    return found


def text(name: str, content: str | bytes) -> Callable[[Place], None]:
    """Write a file before the command runs."""

    def write(place: Place) -> None:
        path = place.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def cut(name: str, keep: int = 40) -> Callable[[Place], None]:
    """Keep the first bytes of a file only."""
    return lambda place: (place.folder / name).write_bytes((place.folder / name).read_bytes()[:keep])


def remove(name: str) -> Callable[[Place], None]:
    """Remove a file or a folder."""

    def work(place: Place) -> None:
        path = place.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return work


def unreadable(name: str) -> Callable[[Place], None]:
    """A file that opens and cannot be read, whoever runs the tests: this process's memory, from its first byte on."""

    def link(place: Place) -> None:
        path = place.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to("/proc/self/mem")

    return link


def card(**changes: object) -> Callable[[Place], None]:
    """Change a card's keys; None removes one."""

    def write(place: Place) -> None:
        values = yaml.safe_load(place.card.read_text()) | changes
        place.card.write_text(yaml.safe_dump({key: value for key, value in values.items() if value is not None}))

    return write


def config(**changes: object) -> Callable[[Place], None]:
    """Change the checkpoint's config.json."""

    def write(place: Place) -> None:
        path = place.model / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return write


RANK = f"rank --task {{task}} --general {{pool}} --out {{out}} {HASHING} --detectors knn --seeds 2 "
SCORE = f"score --task {{task}} --general {{pool}} --out {{out}} {HASHING} --detector knn "
SELECT = "score --task {task} --general {pool} --out {out} --selector "
WEIGH = "weigh {run} --to {out} "
EVALUATE = "evaluate --tasks {card} --preset quick --out {out} "
TRAIN = f"adapt {{run}} --model {{model}} --to {{out}} {ADAPT} "
TUNE_ONLY = "finetune --model {model} --task-card {card} --out {out} "
TUNE = TUNE_ONLY + SEEDS + " "
AUTO = f"score --task {{task}} --general {{pool}} --out {{run}} {HASHING} --selector detector --detector auto "
PREDICT = "predict {labeller} {pool} --out {out}.jsonl "


def _parts(folder: Path) -> list[Path]:
    """What lies in a run's folder, that of the folders of a grid that hold artifacts instead of these."""
    named = [path for path in folder.glob("*") if path.name in ("grid", "topics") and not (path / MANIFEST).is_file()]
    return [path for path in folder.glob("*") if path not in named] + [part for path in named for part in _parts(path)]


def refuse(
    line: str, says: str, place: Place, capfd: pytest.CaptureFixture[str], stays: tuple[str, ...] = ("task",)
) -> None:
    """Run a command line that must be refused; of the run's folder only `stays`, read before, may be there, whole."""
    before = contents(place.folder)
    try:
        code = main(place.line(line))
        captured = capfd.readouterr()
        after = contents(place.folder)
        left = [path for path in _parts(place.out) if str(path.relative_to(place.folder)) not in before]
        whole = [path.name for path in left if path.name == "embeddings" or (path / MANIFEST).is_file()]
    finally:
        shutil.rmtree(place.out, ignore_errors=True)  # the next case finds the place as it was
    errors = [said for said in captured.err.splitlines() if said.startswith("dana: error:")]
    assert code == 2, captured.err
    assert len(errors) == 1, captured.err
    assert says.replace("{folder}", str(place.folder)).lower() in errors[0].lower()
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert {name: after.get(name) for name in before} == before
    assert all(name.split("/")[0] == "out" for name in after.keys() - before.keys())
    assert {path.name for path in left} == set(whole) <= set(stays)
