"""What splitting parallel text costs: pairs a second and peak memory of `dana splits make` on generated pairs.

    OMP_NUM_THREADS=1 python benchmarks/splits.py [PAIRS]

Pairs (5,000,000 by default) of two plain-text files: a quarter repeats an earlier pair, a tenth has the source of an
earlier one and a target of its own; lines have 3 to 24 made-up words and a number. The command runs in a
process of its own, as a user would call it, with a cap of half the pairs.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

REPEATED, RETRANSLATED = 0.25, 0.1
CHUNK = 50_000


def write_pairs(source: Path, target: Path, pairs: int) -> None:
    """Write the two files; the same for the same number of pairs."""
    draw = np.random.Generator(np.random.Philox(0))
    words = ["".join(map(chr, draw.integers(97, 123, size))) for size in draw.integers(2, 9, 20_000)]
    phrases = [
        " ".join(words[place] for place in draw.integers(0, 20_000, size)) for size in draw.integers(1, 9, 50_000)
    ]
    with source.open("w", encoding="utf-8") as sources, target.open("w", encoding="utf-8") as targets:
        for start in range(0, pairs, CHUNK):
            drawn = draw.integers(0, len(phrases), (2, CHUNK, 3)).tolist()
            own, other = (
                [f"{phrases[a]} {phrases[b]} {phrases[c]} {start + row}" for row, (a, b, c) in enumerate(side)]
                for side in drawn
            )
            kind, earlier = draw.random(CHUNK).tolist(), draw.random(CHUNK).tolist()
            for row in range(1, CHUNK):
                if kind[row] < REPEATED + RETRANSLATED:
                    own[row] = own[int(earlier[row] * row)]
                if kind[row] < REPEATED:
                    other[row] = other[int(earlier[row] * row)]
            sources.write("\n".join(own) + "\n")
            targets.write("\n".join(other) + "\n")


def main() -> None:
    """Print sizes, seconds and memory."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, target = folder / "all.de", folder / "all.en"
        write_pairs(source, target, pairs)
        size = source.stat().st_size + target.stat().st_size
        print(f"{pairs:,} pairs, {size / 1e6:,.0f} MB", flush=True)
        command = [sys.executable, "-m", "dana", "splits", "make", "--domain", "all", str(source), str(target)]
        command += ["--sides", "de", "en", "--cap", str(pairs // 2), "--out", str(folder / "out")]
        started = time.monotonic()
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL, env={**os.environ})
        wall, used = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = used.ru_utime + used.ru_stime
        print(f"{wall:,.0f} s, {spent:,.0f} s of processor time: {pairs / spent:,.0f} pairs a second of it")
        print(f"peak memory {used.ru_maxrss / 1e3:,.0f} MB")


if __name__ == "__main__":
    main()
