"""Measure memory and time of weighing generated scores by the number of units, each in a fresh process.

    python benchmarks/weigh_memory.py --units 1e5 1e6 1e7 --policies segments sampled sigmoid
    python benchmarks/weigh_memory.py --policies segments --budget "3000000 tokens" --tokenizer dana-mini
    python benchmarks/weigh_memory.py --units 1e8 --gamma 1       # the worst case: one segment per unit; 2 GB of disk

Documents are short and have nine units on average, like corpora of sentences. A tenth scores like
the task, which has 600 held-out units. Prints one row per weighing: units, policy, seconds, peak
resident memory, memory after the imports, and digest of the table (to compare two versions).
"""

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import make
from dana.core.schemas import DOCUMENTS, HELD_OUT_TARGET, SCORES, part_files, write_parts

UNIT = 5  # characters


def documents(units: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield blocks of documents: the number of the first one and the unit counts of all."""
    random, first = np.random.default_rng(0), 0
    while units > 0:
        sizes = random.geometric(1 / 9, 4096)
        sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), units)) + 1]
        sizes[-1] -= max(0, int(sizes.sum()) - units)
        yield first, sizes
        units, first = units - int(sizes.sum()), first + sizes.size


def texts(units: int) -> Iterator[pa.Table]:
    """Yield the tables of the pool."""
    for first, sizes in documents(units):
        ids = [f"doc-{first + row:09d}" for row in range(sizes.size)]
        yield pa.table(
            [ids, ["pool"] * sizes.size, ["abcd " * int(size) for size in sizes]], schema=DOCUMENTS
        )


def scores(units: int) -> Iterator[pa.Table]:
    """Yield the tables of the units' scores."""
    random = np.random.default_rng(1)
    for first, sizes in documents(units):
        of = np.repeat(np.arange(sizes.size), sizes)
        unit = (np.arange(of.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)).astype(np.int32)
        level = np.where(random.random(sizes.size) < 0.1, 0.0, 3.0) + random.normal(
            0, 0.5, sizes.size
        )
        ids = pa.array([f"doc-{first + row:09d}" for row in range(sizes.size)]).take(pa.array(of))
        keys = [
            ids,
            pa.array(["pool"] * of.size),
            unit,
            unit.astype(np.int64) * UNIT,
            (unit + 1) * UNIT - 1,
        ]
        score = level[of] + random.normal(size=of.size)
        short = pa.array(np.zeros(of.size, dtype=bool))
        yield pa.table([*map(pa.array, keys), pa.array(score), short], schema=SCORES)


def generate(run: Path, units: int) -> None:
    """Write the pool and scores of a run."""
    pool = make(
        run / "pool",
        "pool",
        {"units": units},
        lambda d: [write_parts(texts(units), d.path, DOCUMENTS)],
    )
    rows = np.arange(600, dtype=np.int32)
    columns = [
        [f"t{row // 3}" for row in rows],
        ["task"] * 600,
        rows % 3,
        rows % 3 * UNIT,
        rows % 3 * UNIT + 4,
    ]
    columns += [np.random.default_rng(2).normal(size=600), np.zeros(600, dtype=bool)]
    task = pa.table(columns, names=SCORES.names).cast(SCORES)

    def write(draft) -> None:
        write_parts(scores(units), draft.path, SCORES)
        pq.write_table(task, draft.path / HELD_OUT_TARGET)

    make(run / "scores", "scores", {"pool": pool.fingerprint}, write)


def peak(process: int) -> float:
    """Read the peak resident memory of a process in MB, without that of its parent before the fork."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def weigh(run: Path, changes: dict[str, str | int], units: int) -> None:
    """Weigh with changed settings and print the row of results."""
    from dana.stages.settings import RunSettings
    from dana.stages.weigh import weigh_stage

    policy = str(changes["policy"])
    imports = peak(os.getpid())
    start = time.monotonic()
    settings = replace(RunSettings().weigh, **changes)
    weights = weigh_stage(run / "scores", run / "pool", settings, run / policy)
    seconds = time.monotonic() - start
    digest = blake2b(digest_size=8)
    for part in part_files(weights.path):
        digest.update(part.read_bytes())
    print(
        f"{units:>13,} {policy:>9} {seconds:8.1f} s {peak(os.getpid()):6.0f} MB {imports:6.0f} MB "
        f"{digest.hexdigest()}",
        flush=True,
    )


def main() -> None:
    """Generate and weigh every number of units; print one row for each policy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--units", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument("--policies", nargs="+", default=["segments", "sampled", "sigmoid"])
    parser.add_argument(
        "--folder", type=Path, help="folder of the generated files (default: a temporary one)"
    )
    parser.add_argument("--budget", help="budget as in dana weigh (default: that of the settings)")
    parser.add_argument("--tokenizer", help="tokenizer of a budget in tokens")
    parser.add_argument(
        "--gamma", type=int, help="units per segment (default: that of the settings)"
    )
    args = parser.parse_args()
    amount = {
        name: value for name in ("budget", "tokenizer", "gamma") if (value := getattr(args, name))
    }
    fresh = multiprocessing.get_context("spawn")
    print(f"{'units':>13} {'policy':>9} {'time':>10} {'peak':>9} {'imports':>9} table")
    for units in map(int, args.units):
        with TemporaryDirectory(dir=args.folder) as folder:
            weighings = [(weigh, ({"policy": policy, **amount}, units)) for policy in args.policies]
            for call, arguments in [(generate, (units,)), *weighings]:
                process = fresh.Process(target=call, args=(Path(folder), *arguments))
                process.start()
                process.join()


if __name__ == "__main__":
    main()
