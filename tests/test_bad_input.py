"""What a user can get wrong, over all commands: exit code 2, one line that says what to mend, nothing half-written.

A case is a command line and a part of what is said; ``{name}`` stands for a path of :class:`Place`, and a third entry
breaks something first. Nothing on disk may differ afterwards.
"""

import gzip
import json
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml

from dana.cli.main import main
from dana.core import registry
from dana.core.artifacts import MANIFEST
from dana.stages.held_out import held_out_stage
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
    examples = [[{"id": "a", "text": "apple"}], [{"id": "b", "text": "iron"}]]
    item = {"id": "0", "topic": "1", "label_a": "fruit", "label_b": "metal", "label": "metal"}
    item |= {"text": {"id": "t", "text": "zinc"}, "examples": {"on": examples, "off": examples}}
    write_lines(place.folder / "items.jsonl", [item])
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
    """Every file below a folder with a digest, and every folder; not what Python keeps of a record parser."""
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
CLUSTERS = f"clusters --general {{pool}} --out {{out}} {HASHING} "
TOPICS_OF = "topics fit --general {pool} --out {out} "
ASK = "few-shot --items-from {folder}/items.jsonl --out {out} --chat "
DRAW = "few-shot {card} --chat scripted:{folder}/replies.jsonl --out {out} "
HTTP = ASK + "http:http://127.0.0.1:9/v1,model=m,wait=0,"
AUGMENT = "augment {card} --topics-of {run} --out {out} "
GAP = "tasks topic-gap {card} --model {model} --out {out} --window 20 --n 5 --test 5 --validation 5 --topics-k 2 "
GAP += "--set topics.model=lda topics.min_documents=1 topics.max_share=1 finetune.max_tokens=24 "
COMPARE = "compare --task {task} --general {pool} --out {out} "
TRAIN = f"adapt {{run}} --model {{model}} --to {{out}} {ADAPT} "
TUNE_ONLY = "finetune --model {model} --task-card {card} --out {out} "
TUNE = TUNE_ONLY + SEEDS + " "
AUTO = f"score --task {{task}} --general {{pool}} --out {{run}} {HASHING} --selector detector --detector auto "
PREDICT = "predict {labeller} {pool} --out {out}.jsonl "

PAIRS = "{folder}/pairs.de {folder}/pairs.en"
SPLIT = f"splits make --domain toy {PAIRS} --dev 4 --test 4 --out {{out}} "
AUDIT = "splits audit {folder}/audited "

FLAGS = [
    # What is named is not there, or is nothing.
    ("rank --general {pool} --out {out}", "task"),
    ("rank --task {task} --out {out}", "general"),
    ("rank --task '' --general {pool} --out {out}", "task"),
    ("rank --task {task} --general '' --out {out}", "general"),
    ("rank --task {task} --general {pool} --out ''", "out"),
    ("rank --task {folder}/nope.txt --general {pool} --out {out}", "nope.txt"),
    ("rank --task {task} --general {folder}/nope.jsonl --out {out}", "nope.jsonl"),
    ("rank --task {task} --general '{folder}/*.nope' --out {out}", "*.nope"),
    ("rank --task chemport --general {pool} --out {out}", "did you mean 'chemprot'?"),
    ("rank --task {folder}/nope.yaml --general {pool} --out {out}", "nope.yaml"),
    (RANK + "--data {folder}/nope --task chemprot", "nope"),
    (RANK + "--config {folder}/nope.yaml", "nope.yaml"),
    (RANK + "--config {folder}", "place"),
    # Specs and numbers.
    (RANK + "--detectors ifrest", "did you mean 'iforest'?"),
    (RANK + "--detectors knn:k=0", "k"),
    (RANK + "--detectors knn:k=2.5", "k"),
    (RANK + "--detectors knn:k=many", "k"),
    (RANK + "--detectors knn:kay=3", "kay"),
    (RANK + "--detectors knn:k=.nan", "k"),
    (RANK + "--detectors 'knn:k=[1'", "knn"),
    (RANK + "--detectors knn,knn", "twice"),
    (RANK + "--detectors ''", "detectors"),
    (RANK + "--detectors iforest:trees=0", "trees"),
    (RANK + "--detectors iforest:samples=-1", "samples"),
    (RANK + "--detectors ocsvm:nu=2", "nu"),
    (RANK + "--detectors ocsvm:nu=.nan", "nu"),
    (RANK + "--detectors lof:k=-3", "k"),
    (RANK + "--detectors pca:share=7", "pca"),
    (RANK + "--detectors pyod:Nope", "Nope"),
    (RANK + "--detectors pyod", "pyod"),
    (RANK + "--encoder hashng", "did you mean 'hashing'?"),
    (RANK + "--encoder hashing:dims=0", "dims"),
    (RANK + "--encoder hashing:dims=-4", "dims"),
    (RANK + "--encoder hashing:dims=2.5", "dims"),
    (RANK + "--encoder transformer", "transformer"),
    (RANK + "--encoder transformer:{folder}/nope", "nope"),
    (RANK + "--encoder transformer:{task}", "task.jsonl"),
    (RANK + "--encoder ''", "encoder"),
    (RANK + "--geometry center+l3", "geometry"),
    (RANK + "--geometry whiten:0", "whiten"),
    (RANK + "--geometry whiten:many", "whiten"),
    (RANK + "--geometry ''", "geometry"),
    (RANK + "--units chapter", "units"),
    (RANK + "--units window:0", "window"),
    (RANK + "--units window:-5", "window"),
    (RANK + "--units window:x", "window"),
    (RANK + "--units window:64", "tokenizer"),
    (RANK + "--seeds 0", "seeds"),
    (RANK + "--seeds -1", "seeds"),
    (RANK + "--seeds many", "seeds"),
    (RANK + "--seeds 2.5", "seeds"),
    (RANK + "--seed x", "seed"),
    (RANK + "--seed 1.5", "seed"),
    (RANK + "--seed ''", "--seed"),
    (RANK + "--out=", "--out"),
    (RANK + "--set out=''", "out"),
    (RANK + "--beta 7", "beta"),
    (RANK + "--store ''", "--store"),
    (RANK + "--language ''", "--language"),
    (RANK + "--language english", "english"),
    (RANK + "--language 7", "language"),
    (RANK + "--text-field nope", "nope"),
    (RANK + "--text-field ''", "--text-field"),
    (RANK + "--id-field nope", "nope"),
    (RANK + "--id-field ''", "--id-field"),
    (RANK + "--text-documents page", "text_documents"),
    (RANK + "--record-parser nope", "record_parser"),
    (RANK + "--record-parser {folder}/nope.py:parse", "nope.py"),
    (RANK + "--record-parser json:nope", "nope"),
    (RANK + "--record-parser json:dumps --text-field body", "record_parser"),
    (RANK + "--set selection.general_share=2", "general_share"),
    (RANK + "--set selection.general_share=.nan", "general_share"),
    (RANK + "--set selection.store_dtype=float8", "store_dtype"),
    (RANK + "--set ranking.protocol=mine", "protocol"),
    (RANK + "--set ranking.folds=1", "folds"),
    (RANK + "--set ranking.prevalence=1", "prevalence"),
    (RANK + "--set hygiene.ngram=0", "ngram"),
    (RANK + "--on-bad-record ignore", "on_bad_record"),
    (RANK + "--near-duplicates 1.5", "near_duplicates"),
    (RANK + "--near-duplicates .nan", "near_duplicates"),
    (RANK + "--sample 0", "sample"),
    (RANK + "--sample 1.01", "sample"),
    (RANK + "--sample .nan", "sample"),
    (RANK + "--decontaminate nope", "nope"),
    (RANK + "--set selection.max_task_units=0", "max_task_units"),
    (RANK + "--set selection.nope=1", "nope"),
    (RANK + "--set nope", "key=value"),
    (RANK + "--set selection=3", "selection"),
    (RANK + "--set =3", "''"),
    (RANK + "--set 'selection.units=[1'", "YAML"),
    (SCORE + "--detector ''", "detector"),
    (SCORE + "--detector knm", "did you mean 'knn'?"),
    (SCORE + "--selector nope", "nope"),
    (SCORE + "--selector ''", "selector"),
    (SELECT + "cascade:keep=2", "keep"),
    (SELECT + "cascade:keep=.nan", "keep"),
    (SELECT + "cascade:keep=yes", "keep"),
    (SELECT + "clusters:k=1", "k=[1]: must be auto, or whole numbers of at least 2"),
    (SELECT + "clusters:smoothing=0", "smoothing=0"),
    (SELECT + "clusters:pca=1", "pca=1"),
    (SELECT + "clusters --detector knn", "--detector"),
    (SELECT + "cascade:detector=knm", "did you mean 'knn'?"),
    (SELECT + "random --detector knn", "--detector"),
    (SCORE + "--detector knn:k=2.5", "k"),
    (SCORE + "--detector dana:knm", "did you mean 'knn'?"),
    (SCORE + "--detector ocsvm:gamma=.inf", "gamma"),
    (SCORE + "--detector iforest:trees=ten", "trees"),
    (SCORE + "--detector pyod:LODA,bins=3", "bins"),
    (SCORE + "--detector lof:20,30", "lof"),
    (SCORE + "--shard 1/0", "1/0"),
    (SCORE + "--shard 1.5/2", "1.5/2"),
    (SCORE + "--shard 0/4", "0/4"),
    (SCORE + "--shard 5/4", "5/4"),
    (SCORE + "--shard x", "x"),
    (SCORE + "--shard 1/2", "no task here"),
    (SCORE + "--merge", "no task here"),
    (SCORE + "--dry-run --task {folder}/nope.txt", "nope.txt"),
    (SCORE + "--dry-run --detector knm", "did you mean 'knn'?"),
    ("weigh {folder}/nope", "nope"),
    ("weigh {task}", "task.jsonl"),
    (WEIGH + "--policy best", "policy"),
    (WEIGH + "--policy ''", "policy"),
    (WEIGH + "--beta 0", "beta"),
    (WEIGH + "--beta 1.4", "beta"),
    (WEIGH + "--beta -0.1", "beta"),
    (WEIGH + "--beta .nan", "beta"),
    (WEIGH + "--beta many", "beta"),
    (WEIGH + "--beta ''", "beta"),
    (WEIGH + "--balance topics", "balance='topics': must be clusters, or clusters:NUMBER=SHARE"),
    (WEIGH + "--balance clusters:0=0.5,1=0.6", "shares above 0 that sum to 1"),
    (WEIGH + "--balance clusters --policy sigmoid", "needs policy=segments or sampled"),
    (WEIGH + "--balance clusters --below 0", "spreads a budget"),
    (WEIGH + "--balance clusters --beta auto", "chosen by the scores alone"),
    (WEIGH + "--balance clusters", "dana clusters --out"),
    (WEIGH + "--gamma 0", "gamma"),
    (WEIGH + "--gamma -3", "gamma"),
    (WEIGH + "--gamma 1.5", "gamma"),
    (WEIGH + "--gamma 1e12", "gamma"),
    (WEIGH + "--gamma 9223372036854775808", "gamma"),
    (WEIGH + "--policy sigmoid --sharpness .nan", "sharpness"),
    (WEIGH + "--policy sigmoid --sharpness .inf", "sharpness"),
    (WEIGH + "--policy sigmoid --midpoint .nan", "midpoint"),
    (WEIGH + "--policy sigmoid --midpoint .inf", "midpoint"),
    (WEIGH + "--budget 50", "budget"),
    (WEIGH + "--budget '50 pages'", "budget"),
    (WEIGH + "--budget '0 units'", "budget"),
    (WEIGH + "--budget '.nan tokens'", "budget"),
    (WEIGH + "--budget ''", "budget"),
    ("weigh {run} --to {run}/corpus", "corpus"),
    ("weigh {run} --to {task}", "task.jsonl"),
    ("weigh {run} --beta 0.5", "beta"),
    (WEIGH + "--set weigh.min_tail=99", "min_tail"),
    (WEIGH + "--set weigh.shrink=perhaps", "shrink"),
    (WEIGH + "--budget '5 units' --beta 0.2", "--budget"),
    (EVALUATE + "{folder}/nope", "nope"),
    (EVALUATE + "a={model} a={labeller}", "different names"),
    (EVALUATE + "a/b={model}", "a/b"),
    (EVALUATE + "{model} --tasks {card} {card}", "called alike"),
    (EVALUATE + "a=", "NAME=MODEL"),
    (EVALUATE + "{task}", "task.jsonl"),
    (EVALUATE + "{model} --tasks nope", "nope"),
    ("evaluate {model} --out {out}", "tasks"),
    ("weigh {run} {run} --proportions 0.5,0.5 --to {out}", "each once"),
    ("weigh {run} {folder}/nope --proportions 0.5,0.5 --to {out}", "nope"),
    ("weigh {run} --proportions 0.5,0.5 --to {out}", "proportions"),
    ("weigh {run} {folder}/other --to {out}", "proportions"),
    ("score --general {pool} --out {out}", "task"),
    ("score --task {task} --out {out}", "general"),
    ("score --task {task} --general {folder}/nope.jsonl --out {out}", "nope.jsonl"),
    ("compare --task {task} --out {out}", "general"),
    (CLUSTERS + "--k 1", "k=[1]: must be auto, or whole numbers of at least 2"),
    (CLUSTERS + "--k few", "k=['few']"),
    (CLUSTERS + "--k 2.5", "k=['2.5']"),
    (CLUSTERS + "--k 5 5", "distinct"),
    (CLUSTERS + "--pca -3", "pca"),
    (CLUSTERS + "--pca 0 --skip-first 1", "skip_first"),
    (CLUSTERS + "--covariance round", "covariance"),
    (CLUSTERS + "--seeds 1", "seeds"),
    (CLUSTERS + "--fit 0", "fit"),
    (CLUSTERS + "--geometry flat", "geometry"),
    (CLUSTERS + "--encoder hashin", "did you mean 'hashing'?"),
    (CLUSTERS + "--encoder transformer:{model},pooling=max", "pooling='max': must be one of mean, cls"),
    (CLUSTERS + "--encoder words", "missing a required argument: 'vectors'"),
    (CLUSTERS + "--encoder words:{folder}/othr.vec", "did you mean"),
    (CLUSTERS + "--encoder words:{folder}", "no file of word vectors that can be read: Is a directory"),
    ("clusters --general {folder}/nope.jsonl --out {out}", "nope.jsonl"),
    ("clusters --out {out}", "general"),
    (TOPICS_OF + "--k 1", "k=[1]: must be whole numbers of at least 2"),
    (TOPICS_OF + "--k 5 5", "distinct"),
    (TOPICS_OF + "--seeds 0", "seeds"),
    (TOPICS_OF + "--fit 1", "fit"),
    (TOPICS_OF + "--vocabulary 1", "vocabulary"),
    (TOPICS_OF + "--min-documents 0", "min_documents"),
    (TOPICS_OF + "--max-share 50", "max_share=50.0: must be in (0, 1]"),
    (TOPICS_OF + "--max-share .nan", "max_share"),
    (TOPICS_OF + "--stop-words {folder}/nope.txt", "must be english, none, or a file with a word a line"),
    (TOPICS_OF + "--model etmm", "did you mean 'etm'?"),
    (TOPICS_OF + "--model etm:epochs=0", "epochs=0: must be at least 1"),
    (TOPICS_OF + "--model etm:layers=3", "EmbeddedTopics takes: epochs"),
    (TOPICS_OF + "--model etm:vectors={folder}/othr.vec", "did you mean"),
    (TOPICS_OF + "--set selection.encoder=hashing", "is not looked at with topics"),
    (TOPICS_OF + "--topics-of {run}", "--topics-of belongs to assign"),
    (AUGMENT + "--topic 0 --general {pool}", "no topic-model here"),
    (AUGMENT + "--ratio 0", "ratio=0.0: must be above 0"),
    (AUGMENT + "--keywords 0", "keywords=0: must be at least 1"),
    (AUGMENT + "--reading code", "reading='code': must be paper or release"),
    (AUGMENT + "--control topics", "control='topics': must be topic, random or none"),
    ("augment nope --topics-of {run} --out {out}", "unknown task 'nope'"),
    ("augment --topics-of {run} --out {out}", "name a task card, or a file with labelled texts by --data"),
    ("augment --data {folder}/nope.jsonl --topics-of {run} --out {out}", "nope.jsonl"),
    ("topics fit --out {out}", "general"),
    ("topics show --out {run}", "no topic-model here"),
    ("topics show --out {run} --k 5", "topics show: --k belongs to fit"),
    ("topics assign --out {run} --seed 1", "topics assign: --seed belongs to fit"),
    ("topics assign --out {run}", "no topic-model here"),
    ("topics assign --out {out} --general {pool} --topics-of {folder}/nope", "no topic-model here"),
    ("topics fit --out {out} --general {folder}/nope.jsonl", "nope.jsonl"),
    ("few-shot --items-from {folder}/items.jsonl --out {out}", "chat=''"),
    ("few-shot --items-from {folder}/itms.jsonl --out {out} --chat scripted:{folder}/replies.jsonl", "did you mean"),
    ("few-shot --items-from {pool} --out {out} --chat scripted:{folder}/replies.jsonl", "pool.jsonl:1: no item"),
    ("few-shot --chat scripted:{folder}/replies.jsonl --out {out}", "CARD=None"),
    ("few-shot {card} --items-from {folder}/items.jsonl --out {out} --chat scripted:{folder}/replies.jsonl", "CARD="),
    (ASK + "scripted:{folder}/replies.jsonl --items 5", "--items is not looked at with --items-from"),
    (DRAW + "--items 0", "items=0: must be at least 1"),
    (DRAW + "--shots 0", "shots=0: must be at least 1"),
    (DRAW + "--shots 9 --n 8", "n=8: must be at least shots, 9"),
    (DRAW + "--labels fruit metl", "did you mean 'metal'?"),
    (DRAW + "--topics-of {run}", "no topic-model here"),
    (DRAW + "--window 5000", "window=5000: longer than every text"),
    (DRAW + "--set topic_gap.n=[3]", "topic_gap.n is not looked at with few-shot"),
    (DRAW + "--set finetune.epochs=3", "finetune.epochs is not looked at with few-shot"),
    ("few-shot nope --chat scripted:{folder}/replies.jsonl --out {out}", "nope"),
    (ASK + "scriptd:x", "did you mean 'scripted'?"),
    (ASK + "scripted:{folder}/nope.jsonl", "nope.jsonl: cannot be read"),
    (ASK + "scripted:{pool}", "pool.jsonl:1: must be an object with 'reply'"),
    (ASK + "scripted:{folder}/replies.jsonl --arms on on", "arms=['on', 'on']"),
    (ASK + "scripted:{folder}/replies.jsonl --arms above", "must be on, off or both"),
    (ASK + "scripted:{folder}/replies.jsonl --script {folder}/nope.yaml", "nope.yaml"),
    (ASK + "scripted:{folder}/replies.jsonl --script {card}", "must be classes, example and turns"),
    (ASK + "local:{folder}/nope", "nope: no such folder"),
    (ASK + "local:{model}", "its tokenizer has no chat template"),
    (HTTP + "retries=1", "Connection refused (2 tries)"),
    (HTTP + "retries=-1", "retries=-1"),
    (HTTP + "timeout=.nan", "timeout"),
    (HTTP + "key_env=DANA_NOT_SET", "DANA_NOT_SET"),
    (HTTP + "key=secret", "takes no key"),
    (ASK + "http:http://127.0.0.1:9/v1", "missing a required argument: 'model'"),
    (ASK + "http:127.0.0.1:9,model=m", "base_url: must be http(s)://HOST"),
    (COMPARE + "--selectors lexcal", "did you mean 'lexical'?"),
    (COMPARE + "--selectors random random", "distinct"),
    (COMPARE + "--fit 0", "fit"),
    (COMPARE + "--seeds 0", "seeds"),
    (COMPARE + "--plants 0", "plants"),
    (COMPARE + "--others -5", "others"),
    (COMPARE + "--budgets '5 pages'", "budgets"),
    (COMPARE + "--runs {folder}/nope", "nope"),
    (COMPARE + "--jobs 0", "jobs"),
    (WEIGH + "--below 0 --beta 0.2", "--below"),
    (WEIGH + "--below 0 --budget '5 units'", "below"),
    (WEIGH + "--below 0 --policy sampled", "below"),
    (WEIGH + "--below .nan", "below"),
    (WEIGH + "--below -1000", "below=-1000"),
    (WEIGH + "--budget '5 tokens'", "tokenizer"),
    (WEIGH + "--budget '5 tokens' --set weigh.tokenizer={folder}/nope", "nope"),
    (WEIGH + "--sharpness 3", "--sharpness"),
    ("weigh {run}/corpus --to {out}", "scores"),
    ("adapt {run} --steps 2", "--model"),
    (TRAIN + "--model ''", "model"),
    (TRAIN + "--model {folder}/nope", "nope"),
    (TRAIN + "--model {task}", "task.jsonl"),
    (TRAIN + "--model {folder}/cards", "cards"),
    (TRAIN + "--weights {folder}/nope", "nope"),
    (TRAIN + "--weights {run}/corpus", "corpus"),
    ("adapt {folder}/nope --model {model}", "nope"),
    (TRAIN + "--steps 0", "steps"),
    (TRAIN + "--steps -4", "steps"),
    (TRAIN + "--steps many", "steps"),
    (TRAIN + "--tokens 0", "tokens"),
    (TRAIN + "--batch-size 0", "batch_size"),
    (TRAIN + "--max-tokens 2", "max_tokens"),
    (TRAIN + "--max-tokens 4096", "max_tokens"),
    (TRAIN + "--learning-rate 0", "learning_rate"),
    (TRAIN + "--learning-rate -1", "learning_rate"),
    (TRAIN + "--learning-rate .nan", "learning_rate"),
    (TRAIN + "--learning-rate .inf", "learning_rate"),
    (TRAIN + "--tokens 100 --steps 2", "tokens"),
    ("adapt {run} --model {model} --to {out} --epochs 0", "epochs"),
    ("adapt {run} --model {model} --to {out} --epochs .inf", "epochs"),
    (TRAIN + "--epochs 1", "epochs"),
    (TRAIN + "--schedule cubic", "schedule"),
    (TRAIN + "--replay 1", "replay"),
    (TRAIN + "--replay .nan", "replay"),
    (TRAIN + "--objective masked:whole_word=perhaps", "whole_word"),
    (TRAIN + "--objective caussal", "caussal"),
    (TRAIN + "--objective masked:rate=0.3", "mask_rate"),
    (TRAIN + "--set adapt.mask_rate=0.3", "objective: masked:mask_rate=0.15"),
    (TRAIN + "--set adapt.whole_word=true", "objective: masked:whole_word=true"),
    (TRAIN + "--extend {folder}/nope", "schedule"),
    (TRAIN + "--schedule constant --set adapt.warmup=0 --extend {folder}/nope", "nope"),
    (TRAIN + "--schedule constant --set adapt.warmup=0 --extend {run}/corpus", "corpus"),
    (TRAIN + "--unweighted --weights {run}/weights", "--unweighted"),
    (TRAIN + "--set adapt.floor=2", "floor"),
    (TRAIN + "--set adapt.cooldown=0", "cooldown"),
    (TRAIN + "--set adapt.betas=[1]", "betas"),
    (TRAIN + "--set adapt.betas=[.nan,0.9]", "betas"),
    (TRAIN + "--set adapt.eps=0", "eps"),
    (TRAIN + "--set adapt.dropout=1", "dropout"),
    (TRAIN + "--set adapt.eval_every=0", "eval_every"),
    (TRAIN + "--set adapt.batch_tokens=3", "batch_tokens"),
    (TRAIN + "--set adapt.execution.compile=on adapt.execution.layout=padded", "compile"),
    (TRAIN + "--set adapt.execution.save_minutes=-1", "save_minutes"),
    (TRAIN + "--denominator sum", "denominator"),
    (TRAIN + "--layout dense", "layout"),
    (TRAIN + "--resume maybe", "resume"),
    (TRAIN + "--set adapt.warmup=2", "warmup"),
    (TRAIN + "--set adapt.warmup=.nan", "warmup"),
    (TRAIN + "--objective masked:mask_rate=0", "mask_rate"),
    (TRAIN + "--objective masked:mask_rate=1.5", "mask_rate"),
    (TRAIN + "--objective masked:mask_rate=.nan", "mask_rate"),
    (TRAIN + "--set adapt.clip=0", "clip"),
    (TRAIN + "--set adapt.clip=.nan", "clip"),
    (TRAIN + "--set adapt.weight_decay=-1", "weight_decay"),
    (TRAIN + "--set adapt.evaluations=-1", "evaluations"),
    (TRAIN + "--set adapt.final=middle", "final"),
    (TRAIN + "--set adapt.execution.micro_batch_tokens=0", "micro_batch_tokens"),
    (TRAIN + "--set adapt.execution.save_every=-1", "save_every"),
    (TRAIN + "--set adapt.execution.keep=-1", "keep"),
    (TRAIN + "--set adapt.execution.trackers=[nope]", "nope"),
    (TRAIN + "--objective next_sentence --layout packed", "next_sentence"),
    (TRAIN + "--set adapt.next_sentence=true", "objective: next_sentence"),
    (TRAIN + "--set adapt.head_warmup.steps=-1", "steps"),
    ("adapt {run} --model {model} --to {run}/corpus", "corpus"),
    ("pack {run}", "--model"),
    ("pack {run} --model {folder}/nope", "nope"),
    ("pack {folder}/nope --model {model}", "nope"),
    ("pretrain {run} --to {out} --size huge", "size"),
    ("pretrain {run} --to {out} --size ''", "size"),
    ("pretrain {folder}/nope --to {out}", "nope"),
    ("pretrain {run} --to {out} --set pretrain.vocabulary=3", "vocabulary"),
    ("pretrain {run} --to {out} --set pretrain.max_tokens=4000", "max_tokens"),
    ("pretrain {run} --to {out} --set pretrain.dropout=2", "dropout"),
    ("pretrain {task} --to {out}", "task.jsonl"),
    ("pack {run} --model {folder}/cards", "cards"),
    ("finetune --task-card {card} --out {out}", "--model"),
    ("finetune --model {model} --out {out}", "--task-card"),
    (TUNE + "--task-card nope", "nope"),
    (TUNE + "--task-card {folder}/nope.yaml", "nope.yaml"),
    (TUNE + "--task-card {task}", "task.jsonl"),
    (TUNE + "--task-card ''", "task"),
    (TUNE + "--model {folder}/nope", "nope"),
    (TUNE + "--model {folder}/cards", "cards"),
    (TUNE + "--data {folder}/nope", "nope"),
    (TUNE_ONLY + "--preset nope", "nope"),
    (TUNE_ONLY + "--seeds 0", "seeds"),
    (TUNE_ONLY + "--seeds -2", "seeds"),
    (TUNE_ONLY + "--seeds many", "seeds"),
    (TUNE + "--set finetune.epochs=0", "epochs"),
    (TUNE + "--set finetune.batch_size=0", "batch_size"),
    (TUNE + "--set finetune.learning_rate=.nan", "learning_rate"),
    (TUNE + "--set finetune.max_tokens=1", "max_tokens"),
    (TUNE + "--set finetune.max_tokens=4096", "max_tokens"),
    (TUNE + "--set finetune.max_train=0", "max_train"),
    (TUNE + "--set finetune.evaluate=middle", "evaluate"),
    (TUNE_ONLY + "--seeds [0,0]", "seeds"),
    (TUNE + "--text-field nope", "nope"),
    (TUNE + "--label-field nope", "nope"),
    (TUNE + "--id-field nope", "nope"),
    (TUNE + "--label-field ''", "--label-field"),
    (TUNE + "--set finetune.warmup=1", "warmup"),
    (TUNE + "--set finetune.save=perhaps", "save"),
    (TUNE + "--set finetune.learning_rate=.inf", "learning_rate"),
    ("finetune --model {model} --task-card {card} --out ''", "out"),
    ("predict {folder}/nope {pool}", "nope"),
    ("predict {model} {pool}", "not a sequence classifier"),
    ("predict {task} {pool}", "task.jsonl"),
    ("predict {folder}/cards {pool}", "cards"),
    ("predict '' {pool}", "predict"),
    ("predict {labeller} {folder}/nope.txt", "nope.txt"),
    (PREDICT + "--text-pair-field nope", "nope"),
    ("predict {labeller} '{folder}/*.nope'", "*.nope"),
    ("predict {labeller} ''", "labeller"),
    (PREDICT + "--text-field nope", "nope"),
    (PREDICT + "--text-field ''", "--text-field"),
    (PREDICT + "--id-field nope", "nope"),
    (PREDICT + "--text-documents line", "--text-documents"),
    ("predict {labeller} {folder}/notes.txt --text-documents page", "text_documents"),
    ("predict {labeller} {folder}/notes.txt --record-parser json:dumps", "--record-parser"),
    (PREDICT + "--record-parser nope", "record_parser"),
    (PREDICT + "--record-parser json:dumps --text-field body", "record_parser"),
    (PREDICT + "--on-bad-record ignore", "--on-bad-record"),
    (PREDICT + "--out {out}.csv", "--out"),
    (PREDICT + "--out {pool}", "pool.jsonl"),
    (PREDICT + "--out {folder}/cards", "cards"),
    (PREDICT + "--out {task}/deeper.jsonl", "deeper.jsonl"),
    ("report {folder}/nope", "nope"),
    ("report {task}", "task.jsonl"),
    ("report {folder}/cards", "cards"),
    ("report", "DIR"),
    ("report {run} --out {out}", "--compare"),
    ("report {run} --compare {run} {folder}", "--compare"),
    ("report --compare {run} --out {out}", "two runs"),
    ("report --compare {run} {folder}/cards --out {out}", "cards"),
    ("report --compare {run} {folder}/nope --out {out}", "nope"),
    ("report --compare {run} {folder}/cards/../run --out {out}", "once"),
    ("report --compare {run} {run}/weights/.. --out {out}", "once"),
    ("run {folder}/nope.yaml", "nope.yaml"),
    ("run {card}", "unknown key"),
    ("run {folder}", "place"),
    ("run quickstart.yaml arms=[nope]", "nope"),
    ("run quickstart.yaml nope=1", "nope"),
    ("run quickstart.yaml out=", "out"),
    ("run quickstart.yaml model=null size=huge harvest=null", "task"),
    ("quickstart --set nope=1", "nope"),
    ("quickstart --out ''", "out"),
    ("detectors check", "name"),
    ("detectors check nope", "unknown detector 'nope'"),
    ("selectors check randm", "did you mean 'random'?"),
    ("selectors check cascade:keep=2", "keep"),
    ("encoders check hashng", "did you mean 'hashing'?"),
    ("encoders check hashing:dims=0", "dims"),
    ("encoders list hashing", "encoders check hashing"),
    ("detectors check ''", "check"),
    ("store info {folder}/nope", "nope"),
    ("store verify {folder}/nope", "nope"),
    ("store prune {folder}/nope --max-bytes 1G", "nope"),
    ("store prune {run}/embeddings", "--keep"),
    ("store prune {run}/embeddings --max-bytes lots", "lots"),
    ("store prune {run}/embeddings --max-bytes -1", "-1"),
    ("store prune {run}/embeddings --keep nope", "nope"),
    ("store info {run}/embeddings --keep hashing", "--keep"),
    ("store verify {run}/corpus", "corpus"),
    ("store info {task}", "task.jsonl"),
    ("verify {folder}/nope", "nope"),
    ("verify {task}", "task.jsonl"),
    ("verify {folder}/cards", "cards"),
    ("verify ''", "verify"),
    ("weigh ''", "weigh"),
    ("report ''", "report"),
    ("quickstart --config {folder}/nope.yaml", "nope.yaml"),
    ("run quickstart.yaml weigh.beta=7", "beta"),
    ("run quickstart.yaml adapt.steps=0 adapt.tokens=null", "steps"),
    ("run quickstart.yaml finetune.seeds=0", "seeds"),
    ("run quickstart.yaml detect=0", "detect=0.0: must be in (0, 1]"),
    ("run quickstart.yaml --pilot {folder}/nope", "nope"),
    ("run quickstart.yaml --dry-run --pilot {run}", "must be the folder of a run with results below finetune/"),
    ("run quickstart.yaml arms=[dana,dana]", "distinct"),
    ("run quickstart.yaml selection.encoder=hashng", "hashing"),
    ("run quickstart.yaml ranking.detectors=[knm]", "knn"),
    ("detectors list knn", "detectors check knn"),
    ("detectors check knn:k=2.5", "k"),
    ("tasks list chemprot", "dana tasks show chemprot"),
    ("tasks list --tag chemistri", "--tag 'chemistri'"),
    ("tasks show", "dana tasks show chemprot"),
    ("tasks show chemport", "did you mean 'chemprot'?"),
    ("tasks show {folder}/nope.yaml", "nope.yaml"),
    ("tasks show chemprot --tag science", "--tag belongs to list"),
    ("tasks list --strict", "--strict belongs to check"),
    ("tasks list --task-path {folder}/crads", "did you mean"),
    (RANK + "--task toys --task-path {folder}/cards", "did you mean 'toy'?"),
    (TUNE + "--task-card toys --task-path {folder}/cards", "did you mean 'toy'?"),
    ("tasks check", "dana tasks check chemprot"),
    ("tasks topic-gap", "name one, for example: dana tasks topic-gap chemprot"),
    ("tasks show {card} --n 5", "tasks show: --n belongs to topic-gap"),
    ("tasks list --set jobs=2", "tasks list: --set belongs to topic-gap"),
    ("tasks list --out {out}", "tasks list: --out belongs to check"),
    ("tasks check {card} --dry-run", "tasks check: --dry-run belongs to topic-gap"),
    ("tasks topic-gap {card} --out {out}", "--model=None: must be the checkpoint"),
    ("tasks topic-gap {card} --model {folder}/nope --out {out}", "nope"),
    (GAP + "--strict", "--strict belongs to check"),
    (GAP + "adapt.steps=5", "adapt.steps is not looked at by dana tasks"),
    (GAP + "--n 0", "n=[0]: must be distinct whole numbers of at least 1"),
    (GAP + "--n 5 5", "n=[5, 5]: must be distinct"),
    (GAP + "--test 0", "test=0: must be at least 1"),
    (GAP + "--validation 0", "validation=0: must be at least 1"),
    (GAP + "--topics some", "topics=['some']: must be all, or numbers"),
    (GAP + "--topics -1", "topics=[-1]: must be all, or numbers"),
    (GAP + "--topics 1 all", "topics=[1, 'all']: must be all, or numbers"),
    (GAP + "--arms on", "arms=['on']: must be off and others"),
    (GAP + "--arms off onn", "did you mean 'on'?"),
    (GAP + "--labels fruit mettal", "'mettal' is no label of toy; did you mean 'metal'?"),
    (GAP + "--labels fruit", "labels=['fruit']: must be at least two"),
    (GAP + "--short cut", "short='cut': must be drop or keep"),
    (GAP + "--draw best", "draw='best': must be ranks or random"),
    (GAP + "--window 0", "window=0: must be at least 1 character"),
    (GAP + "--window 5000", "window=5000: longer than every text; the longest has"),
    (GAP + "--window 5000 --short keep", "window=5000: longer than every text; the longest has"),
    (GAP + "finetune.max_train=5", "finetune.max_train is not looked at with topic-gap"),
    (GAP + "--preset quik", "did you mean 'quick'?"),
    (GAP + "--data {folder}/nope", "nope"),
    (GAP + "--text-field body", "no 'body'"),
    ("tasks topic-gap {card} --model {model} --topics-of {run} --topics-k 3", "--topics-k is not looked at with"),
    ("tasks topic-gap {card} --model {model} --topics-of {run} --out {out}", "no topic-model here"),
    ("tasks check {card} --out {task}", "task.jsonl"),
    ("tasks check {card} --out {task}/deeper", "deeper"),
    ("tasks check {card} --data {folder}/nope", "nope"),
    ("tasks check {card} --corpus {folder}/nope.jsonl --out {out}", "nope.jsonl"),
    ("splits make --out {out}", "--domain NAME SOURCE TARGET is missing"),
    (f"splits make --domain toy {PAIRS}", "--out DIR is missing"),
    ("splits make {folder} --out {out}", "name files by --domain"),
    ("splits make --domain toy --out {out}", "--domain toy: must be followed by one or two files"),
    (f"splits make --domain toy {PAIRS} {{pool}} --out {{out}}", "--domain toy: must be followed by one or two files"),
    (
        "splits make --domain toy {folder}/pairs.de {folder}/pairs.fr --out {out}",
        "pairs.fr: no such file; did you mean",
    ),
    ("splits make --domain toy {folder}/pairs.de {folder} --out {out}", "is a folder"),
    ("splits make --domain toy {folder}/pairs.de {folder}/pairs.de --out {out}", "the same file"),
    (SPLIT + f"--domain more {PAIRS}", "pairs.de (domain toy)"),
    (SPLIT + f"--domain toy {PAIRS}", "--domain toy: is given twice"),
    (SPLIT + "--domain notes {folder}/notes.txt", "2 side(s)"),
    (SPLIT + "--domain a/b {folder}/notes.txt", "domain='a/b'"),
    ("splits make --domain toy {pool} --sides de en --out {out}", "pool.jsonl:1: no 'de'; there is: id, source"),
    ("splits make --domain toy {pool} {folder}/pairs.de --out {out}", "holds records"),
    (SPLIT + "--sides de", "sides=['de']"),
    (SPLIT + "--sides de de", "sides=['de', 'de']"),
    (SPLIT + "--dev 26", "dev (26) and test (4) would leave none for train"),
    (SPLIT + "--dev 0", "dev=0"),
    (SPLIT + "--test -1", "test=-1"),
    (SPLIT + "--cap 0", "cap=0"),
    (SPLIT + "--out {task}", "task.jsonl"),
    (SPLIT + "--out {run}/corpus", "not 'splits'"),
    (SPLIT + "--out {folder}/cards", "not made by dana"),
    ("splits audit", "name folders"),
    ("splits audit {folder}/nope", "nope"),
    ("splits audit {model}", "holds neither train, dev"),
    ("splits audit {model} --dev 3", "--dev belongs to make"),
]

BROKEN = [
    # Text that is no text.
    (RANK, "task.jsonl", text("task.jsonl", "")),
    (RANK, "task.jsonl:1", text("task.jsonl", "{not json\n")),
    (RANK, "task.jsonl:1", text("task.jsonl", "[1, 2]\n")),
    (RANK, "text", text("task.jsonl", '{"body": "x"}\n')),
    (RANK, "task.jsonl:1", text("task.jsonl", '{"text": 7}\n')),
    (RANK, "task.jsonl", text("task.jsonl", b'{"text": "\xff\xfe"}\n')),
    (RANK, "too few", text("task.jsonl", '{"text": "Only one sentence."}\n')),
    (RANK, "pool.jsonl", text("pool.jsonl", "")),
    (RANK, "pool.jsonl", text("pool.jsonl", '{"text": "   "}\n')),
    (RANK, "pool.jsonl", text("pool.jsonl", b"\x00\x01\x02\x03" * 50)),
    (RANK + "--general {bad}.jsonl.gz", "bad.jsonl.gz", text("bad.jsonl.gz", b"no gzip")),
    (
        RANK + "--general {bad}.jsonl.gz",
        "bad.jsonl.gz",
        text("bad.jsonl.gz", gzip.compress(b'{"text": "a"}\n' * 99)[:-9]),
    ),
    (RANK + "--general {bad}.jsonl.zst", "bad.jsonl.zst", text("bad.jsonl.zst", b"no zstandard")),
    (RANK + "--general {bad}.parquet", "bad.parquet", text("bad.parquet", b"PAR1 and no more")),
    (RANK + "--general {bad}.parquet", "bad.parquet", text("bad.parquet", b"")),
    (RANK + "--general {bad}.csv", "bad.csv", text("bad.csv", "a,b\n1,2\n")),
    (RANK + "--general {bad}.csv", "bad.csv", text("bad.csv", 'text\n"never closed\n' + "line\n" * 50)),
    (RANK + "--general {bad}.docx", "bad.docx", text("bad.docx", "what is this")),
    (RANK + "--general {bad}.jsonl", "bad.jsonl", lambda place: (place.folder / "bad.jsonl").mkdir()),
    (RANK + "--task {bad}.txt", "bad.txt", lambda place: (place.folder / "bad.txt").mkdir()),
    (RANK + "--general {bad}", "bad", unreadable("bad/x.jsonl")),
    (RANK + "--general {bad}.txt", "bad.txt", unreadable("bad.txt")),
    (RANK + "--task {bad}.jsonl", "bad.jsonl", unreadable("bad.jsonl")),
    (RANK + "--config {bad}.yaml", "bad.yaml", unreadable("bad.yaml")),
    (RANK + "--general {bad}.jsonl", "bad.jsonl", lambda place: (place.folder / "bad.jsonl").symlink_to("gone")),
    (RANK + "--record-parser {bad}.py:parse", "bad.py:2", text("bad.py", "def parse(fields):\n    return 1 / 0\n")),
    (RANK + "--record-parser {bad}.py:parse", "int", text("bad.py", "def parse(fields):\n    return 7\n")),
    (RANK + "--record-parser {bad}.py:parse", "bad.py", text("bad.py", "def parse(")),
    (RANK + "--general {bad}", "bad", lambda place: place.bad.mkdir()),
    (RANK + "--general {bad}", "bad", lambda place: place.bad.symlink_to(place.folder / "gone")),
    (RANK + "--config {bad}.yaml", "bad.yaml", text("bad.yaml", "a: [1\n")),
    (RANK + "--config {bad}.yaml", "bad.yaml", text("bad.yaml", "- a\n")),
    (RANK + "--config {bad}.yaml", "bad.yaml", text("bad.yaml", "")),
    (RANK + "--config {bad}.yaml", "bad.yaml", text("bad.yaml", b"\xff\xfe\x00")),
    ("rank --task {task} --out {out} --config {bad}.yaml", "general", text("bad.yaml", "general: 7\n")),
    (RANK + "--config {bad}.yaml", "beata", text("bad.yaml", "weigh: {beata: 1}\n")),
    # Places where nothing can be written.
    (RANK + "--out {task}", "task.jsonl", lambda place: None),
    (RANK + "--out {task}/deeper", "task.jsonl", lambda place: None),
    (RANK + "--out /proc/nope", "/proc/nope", lambda place: None),
    (RANK + "--out /dev/null/x", "/dev/null", lambda place: None),
    (RANK + "--out {folder}/" + "x" * 300, "too long", lambda place: None),
    (RANK + "--store {task}", "task.jsonl", lambda place: None),
    (RANK, "not made by dana", text("out/corpus/mine.txt", "somebody's own file")),
    (RANK, "not made by dana", text("out/task/mine.txt", "somebody's own file")),
    (WEIGH + "--to /proc/nope", "/proc/nope", lambda place: None),
    (TRAIN + "--to /proc/nope", "/proc/nope", lambda place: None),
    (TUNE + "--out /proc/nope", "/proc/nope", lambda place: None),
    (PREDICT + "--out /proc/nope.jsonl", "/proc/nope.jsonl", lambda place: None),
    ("pack {run} --model {model}", "tokens", text("run/tokens", "in the way")),
    # What dana wrote, damaged.
    ("weigh {run}", "settings.yaml", text("run/settings.yaml", "a: [1")),
    ("weigh {run}", "settings.yaml", text("run/settings.yaml", "- 1")),
    ("weigh {run}", "settings.yaml", text("run/settings.yaml", "weigh: {beata: 1}")),
    ("weigh {run}", "settings.yaml", text("run/settings.yaml", b"\xff\xfe")),
    ("weigh {run} --to {out}", "scores", text("run/scores/__dana__/manifest.json", "")),
    ("weigh {run} --to {out}", "scores", text("run/scores/__dana__/manifest.json", "{")),
    ("weigh {run} --to {out}", "scores", text("run/scores/__dana__/manifest.json", "[]")),
    ("weigh {run} --to {out}", "scores", text("run/scores/__dana__/manifest.json", "{}")),
    ("weigh {run} --to {out}", "scores", text("run/scores/__dana__/manifest.json", b"\xff\xfe")),
    ("weigh {run} --to {out}", "part-00000.parquet", cut("run/scores/part-00000.parquet")),
    ("weigh {run} --to {out}", "part-00000.parquet", remove("run/scores/part-00000.parquet")),
    ("weigh {run} --to {out}", "corpus", remove("run/corpus")),
    ("weigh {run} --to {out}", "part-00000.parquet", cut("run/corpus/part-00000.parquet")),
    (AUTO, "ranking", text("run/ranking/__dana__/manifest.json", "")),
    (AUTO, "ranking", text("run/ranking/__dana__/manifest.json", "[]")),
    (RANK + "--out {run}", "ranking", text("run/ranking/__dana__/manifest.json", "{")),
    (TRAIN, "part-00000.parquet", cut("run/weights/part-00000.parquet")),
    (TRAIN, "weights", remove("run/weights")),
    (TRAIN, "task", remove("run/task")),
    (TRAIN, "manifest.json", text("run/weights/__dana__/manifest.json", "null")),
    (TRAIN, "manifest.json", text("run/corpus/__dana__/manifest.json", "null")),
    # Checkpoints.
    (TRAIN, "model", cut("model/model.safetensors")),
    (TRAIN, "model", cut("model/config.json")),
    (TRAIN, "model", text("model/config.json", "[]")),
    (TRAIN, "model", config(model_type="nope")),
    (TRAIN, "model", remove("model/config.json")),
    (TRAIN, "model", remove("model/model.safetensors")),
    (TRAIN, "tokenizer", remove("model/tokenizer.json")),
    (TRAIN, "tokenizer", cut("model/tokenizer.json")),
    (TRAIN, "model", config(vocab_size=8)),
    (TRAIN, "model", config(hidden_size=64)),
    (TUNE, "model", cut("model/model.safetensors")),
    (TUNE, "model", text("model/config.json", "")),
    (TUNE, "tokenizer", remove("model/tokenizer.json")),
    # Cards and their data.
    (TUNE, "toy.yaml", text("cards/toy.yaml", "")),
    (TUNE, "labels", card(labels=["fruit"])),
    (TUNE, "labels", card(labels="fruit")),
    (TUNE, "labels", card(labels=["fruit", "fruit", "metal"])),
    (TUNE, "metric", card(metric="bleu")),
    (TUNE, "metric", card(metric=None)),
    (TUNE, "nope", card(nope=1)),
    (TUNE, "splits", card(splits={"dress": 4})),
    (TUNE, "presets", card(presets=[1])),
    (TUNE, "epochs", card(presets={"quick": {"epochs": 0}})),
    (TUNE, "bird", card(labels=["fruit", "metal"])),
    (TUNE, "train.jsonl:1: no 'hypothesis'", card(text_pair="hypothesis")),
    (TUNE, "text_pair", card(text_pair="")),
    (TUNE, "template", card(template="{text")),
    (TUNE, "kind", card(kind="pairs")),
    (TUNE, "metric", card(kind="multi_label", metric="accuracy")),
    (TUNE, "labels", card(kind="regression", metric="mae")),
    (TUNE, "train.jsonl:1: label 'fruit'", card(kind="multi_label", metric="micro_f1")),
    (TUNE, "train.jsonl:1: label 'fruit'", card(kind="regression", metric="mae", labels=None)),
    (TUNE, "train.jsonl:1: label 'fruit'", card(kind="token_labels", metric="accuracy")),
    (TUNE, "direction", card(direction="lower")),
    (TUNE, "train.jsonl:1: no 'title'", card(template="{title} {text}")),
    (TUNE, "dev", remove("cards/toy/dev.jsonl")),
    (TUNE, "train", text("cards/toy/train.jsonl", "")),
    (TUNE, "train.jsonl:1", text("cards/toy/train.jsonl", "{\n")),
    (TUNE, "label", text("cards/toy/train.jsonl", '{"text": "iron"}\n')),
    (TUNE, "test", text("cards/toy/test.jsonl", "")),
    (TUNE, "text", text("cards/toy/train.jsonl", '{"label": "fruit"}\n')),
    (TUNE, "train.jsonl", text("cards/toy/train.jsonl", b"\xff\xfe\n")),
    (PREDICT, "labeller", cut("labeller/model.safetensors")),
    (PREDICT, "labeller", text("labeller/config.json", "[]")),
    (PREDICT, "tokenizer", cut("labeller/tokenizer.json")),
    (PREDICT, "pool.jsonl:1", text("pool.jsonl", "{\n")),
    (PREDICT, "pool.jsonl", text("pool.jsonl", "")),
    ("report {run}", "ranking", text("run/ranking/__dana__/manifest.json", "")),
    ("report {run}", "ranking", text("run/ranking/__dana__/manifest.json", "[]")),
    ("report {run}", "metrics.json", text("run/finetune/toy/base/metrics.json", "{")),
    ("report {run}", "part-00000.parquet", cut("run/scores/part-00000.parquet")),
    ("tasks check {card} --out {out}", "label 'bird'", card(labels=["fruit", "metal"])),
    ("tasks check {card} --out {out}", "test.jsonl", remove("cards/toy/test.jsonl")),
    (GAP, "label 'fish': none of its 0 documents is left", card(labels=["fruit", "metal", "bird", "fish"])),
    (GAP, "text_pair='label': must be left out", card(text_pair="label")),
    (GAP, "kind='multi_label': must be single_label", card(kind="multi_label")),
    (GAP, "test.jsonl", remove("cards/toy/test.jsonl")),
    ("tasks check {card} --out {out}", "holds no examples", text("cards/toy/dev.jsonl", "\n")),
    ("tasks show {card}", "tags=['Not Lower']", card(tags=["Not Lower"])),
    ("tasks show {card}", "in a circle", card(include="toy.yaml")),
    ("tasks list --task-path {folder}/cards", "also defined by", text("cards/sst2.yaml", "name: toy")),
    (TUNE, "include='toyy.yaml'", card(include="toyy.yaml")),
    # Parallel text.
    (SPLIT, "pairs.de: 30 lines, {folder}/pairs.en: 2 lines: not aligned", text("pairs.en", "one\ntwo\n")),
    (SPLIT, "pairs.de: 0 lines, {folder}/pairs.en: 30 lines: not aligned", text("pairs.de", "")),
    (
        "splits make --domain toy {bad}.txt --out {out}",
        "bad.txt: the file is empty",
        text("bad.txt", ""),
    ),
    (SPLIT, "pairs.de:2: byte 0xff is not UTF-8", text("pairs.de", b"a\n\xff\n" + b"a\n" * 28)),
    (SPLIT, "pairs.de:1: a quarter of its first bytes is NUL", text("pairs.de", b"\x00" * 99)),
    (SPLIT, "toy: 1 of 30 rows are kept", text("pairs.de", "same\n" * 30)),
    (SPLIT, "toy: 0 of 30 rows are kept", text("pairs.de", " \n" * 30)),
    (SPLIT, "not made by dana", text("out/mine.txt", "somebody's own file")),
    (AUDIT, "holds train files only", text("audited/train.de", "a\n")),
    (AUDIT + "--out {task}", "task.jsonl", text("audited/train.de", "a\n")),
]

ENVIRONMENT = [
    ("WORLD_SIZE", "abc", RANK, "WORLD_SIZE"),
    ("WORLD_SIZE", "0", RANK, "WORLD_SIZE"),
    ("RANK", "x", RANK, "RANK"),
    ("RANK", "-1", "detectors list", "RANK"),
    ("WORLD_SIZE", "1.5", TRAIN, "WORLD_SIZE"),
    ("DANA_DATA", "/nope", RANK + "--task chemprot", "/nope"),
    ("DANA_TASK_PATH", "/nope", RANK + "--task words", "/nope: no such folder of task cards"),
]


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


@pytest.mark.parametrize("line", [TRAIN, TUNE, PREDICT, SELECT + "random", CLUSTERS + "--k 2 3 --pca 4"])
def test_what_the_cases_change_is_accepted(line, place, capfd):
    """Else they would be refused for another reason; the lines of rank, score and weigh made the place."""
    assert main(place.line(line)) == 0


@pytest.mark.parametrize(("line", "says"), FLAGS, ids=[line.replace("{", "").replace("}", "") for line, _ in FLAGS])
def test_flags_that_are_refused(line, says, made, capfd, monkeypatch):
    monkeypatch.chdir(made.folder)
    refuse(line, says, made, capfd)


@pytest.mark.parametrize(("line", "says", "damage"), BROKEN, ids=[f"{at}-{case[1]}" for at, case in enumerate(BROKEN)])
def test_files_that_are_refused(line, says, damage, place, capfd, monkeypatch):
    monkeypatch.chdir(place.folder)
    damage(place)
    refuse(line, says, place, capfd)


@pytest.mark.parametrize(("name", "value", "line", "says"), ENVIRONMENT)
def test_environments_that_are_refused(name, value, line, says, made, capfd, monkeypatch):
    monkeypatch.setenv(name, value)
    refuse(line, says, made, capfd)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the size of files as Linux does")
@pytest.mark.parametrize("line", [RANK, SCORE, WEIGH])
def test_a_full_disk_is_one_line(line, made, capfd):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        refuse(line, "too large", made, capfd)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


LATE = [
    (RANK + "--store /proc/nope", "/proc/nope"),
    (SELECT + "moore_lewis:min_count=9999", "min_count=9999"),
    (SELECT + f"clusters:k=999 {HASHING} --store none", "k=999: there are"),
    (SELECT + "clusters:k=5,pca=2 --encoder hashing:dims=16 --geometry whiten:900 --store none", "whiten"),
    (GAP + "--n 500", "documents and 1,010 are needed (5 to test, 5 to validate, 500 on and 500 off topic); n="),
    (GAP + "--test 500", "no n does, with so many to test and validate"),
    (GAP + "--topics-k 1000", "k=1000:"),
    (GAP + "topics.min_documents=900", "vocabulary: 0 of the"),
    (GAP + "--topics 0 7", "topics=[0, 7]: must be numbers of topics, which are 0 to 1"),
    (TOPICS_OF + "--k 101", "k=101: 20 documents have a word of the vocabulary; ask for at most so many topics"),
    (TOPICS_OF + "--min-documents 101", "vocabulary: 0 of the"),
    (TOPICS_OF + "--model etm:vectors={folder}/other.vec", "has a vector"),
    (TOPICS_OF + "--model etm:vectors={folder}/notes.txt", "notes.txt:1: could not convert string to float"),
    (TOPICS_OF + "--model etm:vectors={folder}/nan.vec", "nan.vec:2: a number is not finite"),
    (CLUSTERS + "--store none --k 999", "k=999: there are"),
    (CLUSTERS + "--store none --k 5 --pca 40", "pca=40:"),
    (CLUSTERS + "--store none --units window:8", "window"),
    (CLUSTERS + "--store none --true-domains fruit metl", "did you mean 'metal'?"),
    (CLUSTERS + "--store none --true-domains fruit", "one domain"),
    (CLUSTERS + "--store none --encoder words:{folder}/other.vec --k 2", "k=2: all units have the same vector"),
    (CLUSTERS + "--store none --encoder words:{folder}/notes.txt", "notes.txt:1: could not convert string to float"),
    (CLUSTERS + "--store none --encoder words:{pool}", "pool.jsonl:1: could not convert string to float"),
    (
        f"clusters --general {{folder}}/same.jsonl --out {{out}} {HASHING} --store none",
        "k=2: there are 1 distinct units to fit on; ask for at most so many clusters",
    ),
    (CLUSTERS + "--store none --encoder transformer:{model},layer=9", "layer=9: must be from -"),
]


@pytest.mark.parametrize(("line", "says"), LATE)
def test_what_is_refused_once_the_texts_are_read(line, says, made, capfd):
    refuse(line, says, made, capfd, stays=("task", "corpus", "pool", "topic-model", "shares"))


PLUG_IN = """
import torch
from dana.selectors.base import Selector

class Encodes:
    def identity(self):
        return {"encoder": "mine"}

    def encode(self, texts):
        return torch.ones(len(texts), 3)

class FailsToEncode(Encodes):
    def encode(self, texts):
        return 1 / 0

class GivesNaN(Encodes):
    def encode(self, texts):
        return torch.full((len(texts), 3), torch.nan)

class GivesOneRow(Encodes):
    def encode(self, texts):
        return torch.ones(1, 3)

class FailsToSayWhatItIs(Encodes):
    def identity(self):
        return 1 / 0

class FailsToBeMade(Encodes):
    def __init__(self):
        1 / 0

class FailsToFit:
    def fit(self, embeddings, seed):
        return 1 / 0

class FailsToScore:
    def fit(self, embeddings, seed):
        return self

    def to(self, device):
        return self

    def score(self, embeddings):
        return 1 / 0

class FailsToSelect(Selector):
    def learn(self, task, general, seed):
        return 1 / 0

class IsNoSelector:
    def fit(self, task, general, seed):
        return self
"""
PLUG_INS = [
    *((f"{RANK} --encoder {name}", "somebody") for name in ("FailsToEncode", "GivesOneRow", "FailsToSayWhatItIs")),
    (f"{RANK} --encoder FailsToBeMade", "somebody"),
    (CLUSTERS + "--store none --encoder GivesNaN", "unit 0 of document 'p"),
    *((f"{RANK} --detectors {name}", "somebody") for name in ("FailsToFit", "FailsToScore")),
    (SELECT + "FailsToSelect", "somebody"),
    (SELECT + "IsNoSelector", "somebodys: IsNoSelector is no subclass of dana.selectors.base.Selector"),
    (f"{RANK} --encoder NotThere", "somebody"),
]


@pytest.mark.parametrize(("line", "says"), PLUG_INS, ids=[line.split()[-1] for line, _ in PLUG_INS])
def test_plug_ins_that_fail_are_named_with_their_package(line, says, place, tmp_path, capfd, monkeypatch):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "somebodys.py").write_text(PLUG_IN)
    monkeypatch.syspath_prepend(tmp_path / "site")
    installed = registry.entry_points
    name = line.split()[-1]
    monkeypatch.setattr(
        registry,
        "entry_points",
        lambda group: [*installed(group=group), EntryPoint(name, f"somebodys:{name}", group)],
    )
    refuse(line, says, place, capfd, stays=("task", "corpus", "embeddings"))
