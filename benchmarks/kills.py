"""Kill commands at random moments, start them again, and compare every byte with those of a run that was let be.

    DANA_DATA=... python benchmarks/kills.py --kills 6
    DANA_DATA=... python benchmarks/kills.py --kills 2 --commands adapt finetune

Ten commands work on small parts of DANA_DATA, one after another in one folder. Each is run whole and timed; then, from
the state before it, as often as --kills says: started, killed with all its processes (SIGKILL) after a random part of
that time, and started again until it ends. A process that had ended before is not counted as killed. Prints a row
a command: its seconds, kills, files that were compared, and bytes that differ. Left out are seconds, peaks of memory,
sizes and digests in manifests, as the files themselves are compared, and the embedding cache, in which a killed process
leaves a file of its own. Ends with 1 if a byte differs.
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

GENERAL = ["news_reuters.jsonl.gz", "pubmed.jsonl.gz"]
TASK = "arxiv.jsonl.gz"
DOCUMENTS = 150  # of each of them
TRAINING = ["--steps", "16", "--batch-size", "8", "--max-tokens", "64", "--set", "adapt.execution.save_every=4"]
FINETUNING = ["--seeds", "3", "--set", "finetune.epochs=1", "--save"]
COMMANDS = {
    "rank": ["--task", "task.jsonl", "--general", "general", "--encoder", "hashing", "--out", "run"],
    "score": ["--task", "task.jsonl", "--general", "general", "--encoder", "hashing", "--detector", "iforest"],
    "weigh": ["run"],
    "adapt": ["run", "--model", "dana-mini", *TRAINING],
    "finetune": ["--model", "dana-mini", "--task-card", "toy.yaml", *FINETUNING, "--out", "tuned"],
    "predict": ["tuned-model", "general", "--out", "labelled.parquet"],
    "clusters": ["--general", "general", "--encoder", "hashing", "--k", "4", "6", "--seeds", "2", "--out", "clusters"],
    "topics": ["fit", "--general", "general", "--model", "lda", "--k", "5", "8", "--seeds", "2", "--out", "topics"],
    "splits": ["make", "--domain", "it", "it.de", "it.en", "--dev", "200", "--test", "200", "--out", "splits"],
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


MEASURED = re.compile("second|_s$|^peak_memory$|^digest$|^bytes$")  # keys and columns


def prepare(folder: Path) -> None:
    """Write the small inputs."""
    data = Path(os.environ["DANA_DATA"])
    (folder / "general").mkdir()
    rows = []
    for name in GENERAL:
        lines = first_lines(data / "general" / name, DOCUMENTS)
        (folder / "general" / name.removesuffix(".gz")).write_text("".join(lines), encoding="utf-8")
        rows += [{"text": json.loads(line)["text"][:300], "label": name.split(".")[0]} for line in lines]
    (folder / "task.jsonl").write_text("".join(first_lines(data / "general" / TASK, DOCUMENTS)), encoding="utf-8")
    for side in ("de", "en"):
        lines = first_lines(data / "domains" / f"it.{side}.txt.gz", 1500)
        (folder / f"it.{side}").write_text("".join(lines), encoding="utf-8")
    random.Random(0).shuffle(rows)
    for name, part in (("train", rows[:120]), ("dev", rows[120:180]), ("test", rows[180:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")
    (folder / "toy.yaml").write_text(CARD, encoding="utf-8")


def first_lines(path: Path, count: int) -> list[str]:
    """The beginning of a compressed text file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [next(file) for _ in range(count)]


def start(command: str, folder: Path) -> subprocess.Popen:
    """Start a command in a folder, as the leader of its processes."""
    arguments = [sys.executable, "-m", "dana", command, *COMMANDS[command]]
    with (folder.parent / f"{command}.log").open("ab") as log:
        return subprocess.Popen(arguments, cwd=folder, stdout=log, stderr=log, start_new_session=True)


def finish(command: str, folder: Path) -> float:
    """Run a command to its end; returns the seconds."""
    started = time.monotonic()
    if start(command, folder).wait():
        sys.exit(f"{command} failed:\n" + (folder.parent / f"{command}.log").read_text(encoding="utf-8")[-3000:])
    return time.monotonic() - started


def timeless(value: object) -> object:
    """JSON without what is measured, and sizes and digests of files."""
    if isinstance(value, dict):
        return {key: timeless(one) for key, one in value.items() if not MEASURED.search(key)}
    return [timeless(one) for one in value] if isinstance(value, list) else value


def content(path: Path) -> bytes:
    """What is compared of a file."""
    if path.suffix == ".json":
        return json.dumps(timeless(json.loads(path.read_bytes()))).encode()
    if path.name == "training.jsonl":
        return json.dumps([timeless(json.loads(line)) for line in path.read_text().splitlines()]).encode()
    if path.suffix == ".csv":
        table = pd.read_csv(path, dtype=str)
        return table[[column for column in table if not MEASURED.search(column)]].to_csv().encode()
    return path.read_bytes()


def differences(expected: Path, actual: Path) -> tuple[int, dict[str, int]]:
    """How many files there are, and of each that differs or is in one folder alone the bytes that differ."""
    files = {path.relative_to(top) for top in (expected, actual) for path in top.rglob("*") if path.is_file()}
    files = {file for file in files if "embeddings" not in file.parts}
    result = {}
    for file in sorted(files):
        one, other = (content(top / file) if (top / file).is_file() else b"" for top in (expected, actual))
        if one != other:
            same = sum(a == b for a, b in zip(one, other, strict=False))
            result[str(file)] = max(len(one), len(other)) - same or 1
    return len(files), result


def main() -> int:
    """Print a row a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=6, help="of each command")
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS), metavar="NAME")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    arguments = parser.parse_args()
    moments, bad = random.Random(arguments.seed), 0
    with TemporaryDirectory() as place:
        whole, before, killed = (Path(place) / name for name in ("whole", "before", "killed"))
        whole.mkdir()
        prepare(whole)
        print(f"{'command':<10}{'seconds':>8}{'kills':>7}{'files':>7}{'differ':>8}", flush=True)
        for command in COMMANDS:
            shutil.copytree(whole, before)
            takes = finish(command, whole)
            kills = differ = files = 0
            while kills < arguments.kills and command in arguments.commands:
                shutil.copytree(before, killed)
                process = start(command, killed)
                time.sleep(moments.uniform(0, takes))
                if process.poll() is None:
                    kills += 1
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    finish(command, killed)
                    files, changed = differences(whole, killed)
                    for file, count in changed.items():
                        print(f"  {file}: {count} bytes", flush=True)
                    differ += sum(changed.values())
                shutil.rmtree(killed)
            print(f"{command:<10}{takes:>8.1f}{kills:>7}{files:>7}{differ:>8}", flush=True)
            bad += differ
            shutil.rmtree(before)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
