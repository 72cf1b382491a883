"""Measure the cost of reading a pool of short documents: documents per processor second, and peak memory.

    OMP_NUM_THREADS=1 python benchmarks/reading.py 100000 1000000 10000000 [--processes 3]
    [--given-ids]

The documents are generated JSON lines of six to twenty words; a tenth are duplicates. Each number
of documents is read in its own process, with the code of the working directory, as `dana score`
reads pool text: distinct documents are written to Parquet.
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

DUPLICATES = 0.1  # share of the documents
CHUNK = 50_000


def write_pool(path: Path, documents: int, given_ids: bool) -> None:
    """Write generated documents, the same for the same number of them."""
    draw = np.random.Generator(np.random.Philox(0))
    words = [
        "".join(map(chr, draw.integers(97, 123, size))) for size in draw.integers(2, 9, 20_000)
    ]
    sizes = draw.integers(3, 11, 50_000)
    phrases = [" ".join(words[row] for row in draw.integers(0, 20_000, size)) for size in sizes]
    with path.open("w", encoding="utf-8") as lines:
        for start in range(0, documents, CHUNK):
            pairs = draw.integers(0, len(phrases), (CHUNK, 2)).tolist()
            repeats, earlier = (
                (draw.random(CHUNK) < DUPLICATES).tolist(),
                draw.random(CHUNK).tolist(),
            )
            texts = [
                f"{phrases[one]} {phrases[two]} {start + row}"
                for row, (one, two) in enumerate(pairs)
            ]
            for row in range(min(CHUNK, documents - start)):
                record = {"text": texts[int(earlier[row] * row)] if repeats[row] else texts[row]}
                if given_ids:
                    record["id"] = f"{start + row}"
                lines.write(json.dumps(record) + "\n")


def read(path: Path, folder: Path, processes: int) -> None:
    """Read the pool in this process and print its counts, seconds and memory as JSON."""
    from dana.stages import texts as pool

    pool.reading_processes = lambda files: processes
    base, before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, os.times()
    artifact = pool.pool_stage([str(path)], folder)
    after, peak = os.times(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    spent = sum(after[:4]) - sum(before[:4])  # of this process and its children
    counts = artifact.manifest["counts"]
    print(
        json.dumps(
            {"in": counts["in"], "kept": counts["kept"], "spent": spent, "base": base, "peak": peak}
        )
    )


def main() -> None:
    """Generate and read every number of documents; print one line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("documents", type=int, nargs="+")
    parser.add_argument(
        "--processes", type=int, default=1, help="processes that read and parse in parallel"
    )
    parser.add_argument("--given-ids", action="store_true", help="records have an id")
    parser.add_argument("--pool", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.pool:
        read(args.pool, args.pool.with_name("pool"), args.processes)
        return
    for count in args.documents:
        with tempfile.TemporaryDirectory() as name:
            pool = Path(name, "pool.jsonl")
            write_pool(pool, count, args.given_ids)
            command = [
                sys.executable,
                __file__,
                str(count),
                "--pool",
                str(pool),
                "--processes",
                str(args.processes),
            ]
            output = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            ).stdout
            row = json.loads(output)
        print(
            f"{row['in']:>11,} documents, {row['kept']:,} kept: {row['in'] / row['spent']:,.0f} documents/s,"
            f" peak memory {row['peak'] / 1e3:,.0f} MB ({row['base'] / 1e3:,.0f} MB before the first)",
            flush=True,
        )


if __name__ == "__main__":
    main()
