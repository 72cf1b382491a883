"""What reading a corpus costs: documents a second of processor time and peak memory, over generated short documents.

    OMP_NUM_THREADS=1 python benchmarks/reading.py 100000 1000000 10000000 [--processes 3] [--given-ids]

JSON lines of six to twenty words; a tenth repeats an earlier one. Each number of documents is read in a process of its
own, by the code of the working directory, as `dana score` reads its general text: distinct documents to Parquet.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

REPEATED = 0.1
CHUNK = 50_000


def write_pool(path: Path, documents: int, given_ids: bool) -> None:
    """Write the documents; the same for the same number of them."""
    draw = np.random.Generator(np.random.Philox(0))
    words = ["".join(map(chr, draw.integers(97, 123, size))) for size in draw.integers(2, 9, 20_000)]
    sizes = draw.integers(3, 11, 50_000)
    phrases = [" ".join(words[place] for place in draw.integers(0, 20_000, size)) for size in sizes]
    with path.open("w", encoding="utf-8") as lines:
        for start in range(0, documents, CHUNK):
            drawn = draw.integers(0, len(phrases), (CHUNK, 2)).tolist()
            repeats, earlier = (draw.random(CHUNK) < REPEATED).tolist(), draw.random(CHUNK).tolist()
            texts = [f"{phrases[one]} {phrases[two]} {start + row}" for row, (one, two) in enumerate(drawn)]
            for row in range(min(CHUNK, documents - start)):
                record = {"text": texts[int(earlier[row] * row)] if repeats[row] else texts[row]}
                if given_ids:
                    record["id"] = f"{start + row}"
                lines.write(json.dumps(record) + "\n")


def read(path: Path, folder: Path, processes: int) -> None:
    """Read the pool in this process, and print what it cost as JSON."""
    from dana.stages import texts as corpus

    corpus.reading_processes = lambda files: processes
    base, before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, os.times()
    made = corpus.corpus_stage([str(path)], folder)
    after, peak = os.times(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    spent = sum(after[:4]) - sum(before[:4])  # its own and that of the processes beside it
    counts = made.manifest["counts"]
    print(json.dumps({"in": counts["in"], "kept": counts["kept"], "spent": spent, "base": base, "peak": peak}))


def main() -> None:
    """Print a line a number of documents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", type=int, nargs="+")
    parser.add_argument("--processes", type=int, default=1, help="that read and parse side by side")
    parser.add_argument("--given-ids", action="store_true", help="records have ids of their own")
    parser.add_argument("--pool", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.pool:
        read(given.pool, given.pool.with_name("corpus"), given.processes)
        return
    for count in given.documents:
        with tempfile.TemporaryDirectory() as name:
            pool = Path(name, "pool.jsonl")
            write_pool(pool, count, given.given_ids)
            command = [sys.executable, __file__, str(count), "--pool", str(pool), "--processes", str(given.processes)]
            said = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
            found = json.loads(said)
        print(
            f"{found['in']:>11,} documents, {found['kept']:,} kept: {found['in'] / found['spent']:,.0f} documents/s,"
            f" peak memory {found['peak'] / 1e3:,.0f} MB ({found['base'] / 1e3:,.0f} MB before the first)",
            flush=True,
        )


if __name__ == "__main__":
    main()
