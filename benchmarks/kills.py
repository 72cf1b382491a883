"""Kill commands at random moments, restart them, and compare every byte with an uninterrupted run.

    DANA_DATA=... python benchmarks/kills.py --kills 6
    DANA_DATA=... python benchmarks/kills.py --kills 2 --commands adapt finetune

Twelve commands run on small parts of DANA_DATA, one after another in one folder. Each is run once
without interruption and timed. Then, --kills times, it is started from the same state, killed with
all its processes (SIGKILL) after a random part of that time, and run again to its end. A process
that ends before the kill does not count. Prints one row per command: seconds, kills, compared
files, and bytes that differ. Not compared are seconds and what is computed from them, peaks of
memory, the sizes and digests in manifests (the files themselves are), the paths of inputs there, and
the embedding cache, in which a killed process leaves a file. The exit code is 1 if a byte differs.
"""

import argparse
import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

POOL = ["news_reuters.jsonl.gz", "pubmed.jsonl.gz"]
TASK = "arxiv.jsonl.gz"
DOCUMENTS = 150  # per file
TRAINING = [
    "--steps",
    "16",
    "--batch-size",
    "8",
    "--max-tokens",
    "64",
    "--set",
    "adapt.execution.save_every=4",
]
FINETUNING = ["--seeds", "3", "--set", "finetune.epochs=1", "--save"]
COMMANDS = {
    "score --rank-only": [
        "--task",
        "task.jsonl",
        "--pool",
        "pool",
        "--encoder",
        "hashing",
        "--out",
        "run",
    ],
    "score": [
        "--task",
        "task.jsonl",
        "--pool",
        "pool",
        "--encoder",
        "hashing",
        "--selector",
        "detector:iforest",
    ],
    "weigh": ["run"],
    "adapt": ["run", "--model", "dana-mini", *TRAINING],
    "distill": ["dana-mini", "static", "--on", "run", "--out", "static"],
    "finetune": ["--model", "dana-mini", "--task", "toy.yaml", *FINETUNING, "--out", "tuned"],
    "probe": [
        "--model",
        "base=dana-mini",
        "static=static",
        "--task",
        "toy.yaml",
        "--draws",
        "2",
        "--out",
        "probed",
    ],
    "predict": ["tuned-model", "pool", "--out", "labelled.parquet"],
    "studies clusters": [
        "--pool",
        "pool",
        "--encoder",
        "hashing",
        "--k",
        "4",
        "--seeds",
        "2",
        "--out",
        "clusters",
    ],
    "studies topics": [
        "fit",
        "--pool",
        "pool",
        "--model",
        "lda",
        "--k",
        "5",
        "--seeds",
        "2",
        "--out",
        "topics",
    ],
    "studies splits": [
        "make",
        "--domain",
        "it",
        "it.de",
        "it.en",
        "--dev",
        "200",
        "--test",
        "200",
        "--out",
        "splits",
    ],
    "report": ["run"],
}
COMMANDS["score"] += ["--out", "run"]
CARD = """name: toy
title: News or medicine?
version: 1
data: {local: .}
labels: [news_reuters, pubmed]
kind: single_label
metric: macro_f1
splits: {train: 120, dev: 60, test: 120}
notes: For this benchmark.
citation: none
"""
# Keys and columns. raw_files has the paths of the inputs, which lie in another folder than those of
# the uninterrupted run.
IGNORED = re.compile("second|_s$|^peak_memory$|^digest$|^bytes$|^ended$|^waiting$|^raw_files$")
MEASURED = re.compile(rb'[\d.,]+ seconds|data-title="(seconds|share)[^>]*>[^<]*')  # in pages


def prepare(folder: Path) -> None:
    """Write the inputs of all commands."""
    data = Path(os.environ["DANA_DATA"])
    (folder / "pool").mkdir()
    rows = []
    for name in POOL:
        lines = first_lines(data / "general" / name, DOCUMENTS)
        (folder / "pool" / name.removesuffix(".gz")).write_text("".join(lines), encoding="utf-8")
        rows += [
            {"text": json.loads(line)["text"][:300], "label": name.split(".")[0]} for line in lines
        ]
    (folder / "task.jsonl").write_text(
        "".join(first_lines(data / "general" / TASK, DOCUMENTS)), encoding="utf-8"
    )
    for side in ("de", "en"):
        lines = first_lines(data / "domains" / f"it.{side}.txt.gz", 1500)
        (folder / f"it.{side}").write_text("".join(lines), encoding="utf-8")
    random.Random(0).shuffle(rows)
    for name, part in (("train", rows[:120]), ("dev", rows[120:180]), ("test", rows[180:])):
        (folder / f"{name}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in part), encoding="utf-8"
        )
    (folder / "toy.yaml").write_text(CARD, encoding="utf-8")


def first_lines(path: Path, count: int) -> list[str]:
    """Read the first lines of a compressed text file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [next(file) for _ in range(count)]


def start(command: str, folder: Path) -> subprocess.Popen:
    """Start a command in a folder, as the leader of a new process group."""
    arguments = [sys.executable, "-m", "dana", *command.split(), *COMMANDS[command]]
    with (folder.parent / f"{command}.log").open("ab") as log:
        return subprocess.Popen(
            arguments, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )


def finish(command: str, folder: Path) -> float:
    """Run a command to its end and return its seconds."""
    start_time = time.monotonic()
    if start(command, folder).wait():
        sys.exit(
            f"{command} failed:\n"
            + (folder.parent / f"{command}.log").read_text(encoding="utf-8")[-3000:]
        )
    return time.monotonic() - start_time


def without_ignored(value: object) -> object:
    """Remove measured values, and sizes and digests of files, from JSON."""
    if isinstance(value, dict):
        return {key: without_ignored(one) for key, one in value.items() if not IGNORED.search(key)}
    return [without_ignored(one) for one in value] if isinstance(value, list) else value


def content(path: Path) -> bytes:
    """Read the bytes of a file that are compared."""
    if path.suffix == ".json":
        return json.dumps(without_ignored(json.loads(path.read_bytes()))).encode()
    if path.name == "training.jsonl":
        return json.dumps(
            [without_ignored(json.loads(line)) for line in path.read_text().splitlines()]
        ).encode()
    if path.suffix == ".csv":
        table = pd.read_csv(path, dtype=str)
        if path.name == "steps.csv":
            table = table.drop(columns="share")  # of the seconds of all steps
        return table[[column for column in table if not IGNORED.search(column)]].to_csv().encode()
    if path.suffix in (".html", ".md"):
        return MEASURED.sub(b"", path.read_bytes())
    return path.read_bytes()


def differences(reference: Path, actual: Path) -> tuple[int, dict[str, int]]:
    """Compare two folders: number of files, and bytes that differ by file; a file in one folder only differs in all."""
    files = {
        path.relative_to(top)
        for top in (reference, actual)
        for path in top.rglob("*")
        if path.is_file()
    }
    files = {file for file in files if "embeddings" not in file.parts}
    result = {}
    for file in sorted(files):
        one, other = (
            content(top / file) if (top / file).is_file() else b"" for top in (reference, actual)
        )
        if one != other:
            same = sum(a == b for a, b in zip(one, other, strict=False))
            result[str(file)] = max(len(one), len(other)) - same or 1
    return len(files), result


def main() -> int:
    """Kill and compare every command; print one row for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kills", type=int, default=6, help="kills per command (default: %(default)s)"
    )
    parser.add_argument(
        "--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS), metavar="NAME"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the moments (default: %(default)s)"
    )
    arguments = parser.parse_args()
    moments, bad = random.Random(arguments.seed), 0
    with TemporaryDirectory() as temporary:
        reference, before, copy = (
            Path(temporary) / name for name in ("reference", "before", "copy")
        )
        reference.mkdir()
        prepare(reference)
        print(f"{'command':<10}{'seconds':>8}{'kills':>7}{'files':>7}{'differ':>8}", flush=True)
        for command in COMMANDS:
            shutil.copytree(reference, before)
            duration = finish(command, reference)
            kills = differ = files = 0
            while kills < arguments.kills and command in arguments.commands:
                shutil.copytree(before, copy)
                process = start(command, copy)
                time.sleep(moments.uniform(0, duration))
                if process.poll() is None:
                    kills += 1
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    finish(command, copy)
                    files, changes = differences(reference, copy)
                    for file, count in changes.items():
                        print(f"  {file}: {count} bytes", flush=True)
                    differ += sum(changes.values())
                shutil.rmtree(copy)
            print(f"{command:<10}{duration:>8.1f}{kills:>7}{files:>7}{differ:>8}", flush=True)
            bad += differ
            shutil.rmtree(before)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
