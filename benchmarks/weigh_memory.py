"""Memory and time of weighing by the number of units: scores are generated and weighed, each time in a fresh process.

    python benchmarks/weigh_memory.py --units 1e5 1e6 1e7 --policies segments sampled sigmoid
    taskset -c 0 python benchmarks/weigh_memory.py --units 1e7    # on one core: by one process

Documents have nine units on average, as corpora of sentences have, and short text; a tenth scores like the task, of
which 600 held-out units are scored, too. Prints a row a weighing: units, policy, seconds, peak resident memory, the
part of it that the imports take, and the digest of the table, by which two versions can be compared.
"""

import argparse
import multiprocessing
import resource
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import make
from dana.core.schemas import DOCUMENTS, HELD_OUT_TASK, SCORES, parts, write_parts

UNIT = 5  # characters


def documents(units: int) -> Iterator[tuple[int, np.ndarray]]:
    """Number of the first document, and the units of each, a block at a time."""
    random, first = np.random.default_rng(0), 0
    while units > 0:
        sizes = random.geometric(1 / 9, 4096)
        sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), units)) + 1]
        sizes[-1] -= max(0, int(sizes.sum()) - units)
        yield first, sizes
        units, first = units - int(sizes.sum()), first + sizes.size


def texts(units: int) -> Iterator[pa.Table]:
    """The corpus."""
    for first, sizes in documents(units):
        ids = [f"doc-{first + row:09d}" for row in range(sizes.size)]
        yield pa.table([ids, ["pool"] * sizes.size, ["abcd " * int(size) for size in sizes]], schema=DOCUMENTS)


def scores(units: int) -> Iterator[pa.Table]:
    """The scores of its units."""
    random = np.random.default_rng(1)
    for first, sizes in documents(units):
        of = np.repeat(np.arange(sizes.size), sizes)
        unit = (np.arange(of.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)).astype(np.int32)
        level = np.where(random.random(sizes.size) < 0.1, 0.0, 3.0) + random.normal(0, 0.5, sizes.size)
        ids = pa.array([f"doc-{first + row:09d}" for row in range(sizes.size)]).take(pa.array(of))
        keys = [ids, pa.array(["pool"] * of.size), unit, unit.astype(np.int64) * UNIT, (unit + 1) * UNIT - 1]
        score = level[of] + random.normal(size=of.size)
        yield pa.table([*map(pa.array, keys), pa.array(score)], schema=SCORES)


def generate(run: Path, units: int) -> None:
    """A run's corpus and scores."""
    corpus = make(run / "corpus", "corpus", {"units": units}, lambda d: [write_parts(texts(units), d.path, DOCUMENTS)])
    rows = np.arange(600, dtype=np.int32)
    columns = [[f"t{row // 3}" for row in rows], ["task"] * 600, rows % 3, rows % 3 * UNIT, rows % 3 * UNIT + 4]
    task = pa.table([*columns, np.random.default_rng(2).normal(size=600)], names=SCORES.names).cast(SCORES)

    def write(draft) -> None:
        write_parts(scores(units), draft.path, SCORES)
        pq.write_table(task, draft.path / HELD_OUT_TASK)

    make(run / "scores", "scores", {"general": corpus.fingerprint}, write)


def peak() -> float:
    """Largest resident memory of a process so far, MB: this one, or any that it started and that has ended."""
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024


def weigh(run: Path, policy: str, units: int) -> None:
    """Weigh, and print the row."""
    from dana.stages.weigh import weigh_stage
    from dana.weighting.settings import WeighSettings

    imports, began = peak(), time.monotonic()
    made = weigh_stage(run / "scores", run / "corpus", WeighSettings(policy=policy), run / policy)
    seconds, digest = time.monotonic() - began, blake2b(digest_size=8)
    for part in parts(made.path):
        digest.update(part.read_bytes())
    print(
        f"{units:>13,} {policy:>9} {seconds:8.1f} s {peak():6.0f} MB {imports:6.0f} MB {digest.hexdigest()}", flush=True
    )


def main() -> None:
    """Print a row a number of units and policy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--units", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument("--policies", nargs="+", default=["segments", "sampled", "sigmoid"])
    parser.add_argument("--folder", type=Path, help="for what is generated (default: a temporary one)")
    given = parser.parse_args()
    fresh = multiprocessing.get_context("spawn")
    print(f"{'units':>13} {'policy':>9} {'time':>10} {'peak':>9} {'imports':>9} table")
    for units in map(int, given.units):
        with TemporaryDirectory(dir=given.folder) as folder:
            for call, arguments in [(generate, (units,))] + [(weigh, (policy, units)) for policy in given.policies]:
                process = fresh.Process(target=call, args=(Path(folder), *arguments))
                process.start()
                process.join()


if __name__ == "__main__":
    main()
