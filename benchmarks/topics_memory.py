"""Peak memory of ``dana topics assign``: made texts of several numbers of documents to a line each.

python benchmarks/topics_memory.py FOLDER 2000 20000
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

WORDS = 60  # of a document
MODEL = ("--model", "lda:epochs=1", "--k", "10")


def main() -> None:
    """Print a line a number of documents."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="for the texts and runs; must not be there")
    parser.add_argument("documents", type=int, nargs="+", help="numbers of documents; topics are of the first")
    given = parser.parse_args()
    given.folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    vocabulary = np.array([f"{a}{b}{c}{d}" for a in "bdfgklm" for b in "aeiou" for c in "nprstvz" for d in "aeiou"])
    for count in given.documents:
        with (given.folder / f"{count}.jsonl").open("w") as lines:
            for number in range(count):
                text = " ".join(random.choice(vocabulary, WORDS))
                lines.write(json.dumps({"id": f"{number}", "text": text}) + "\n")
    run = given.folder / "fitted"
    first = given.folder / f"{given.documents[0]}.jsonl"
    peak_of("fit", "--general", str(first), "--out", str(run), *MODEL)
    for count in given.documents:
        out = given.folder / f"run-{count}"
        peak = peak_of(
            "assign", "--general", f"{given.folder}/{count}.jsonl", "--topics-of", str(run), "--out", str(out)
        )
        print(f"{count:,} documents: {peak:.0f} MiB", flush=True)


def peak_of(*words: str) -> float:
    """MiB that ``dana topics`` held at most, a process of its own."""
    made = subprocess.Popen(
        [sys.executable, "-m", "dana", "topics", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(made.pid, 0)
    if status:
        raise SystemExit(f"dana topics {' '.join(words)}: exit code {os.waitstatus_to_exitcode(status)}")
    return usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
