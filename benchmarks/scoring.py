"""Measure the cost of scoring without the encoder: documents per second with a free selector, and peak memory.

    DANA_DATA=... python benchmarks/scoring.py --copies 1 10

Reads the pool once; ``--copies N`` scores N copies of it (the same texts with other ids).
Each size runs in its own process, whose peak memory is reported. The selector is ``random``, so the
time is that of reading, splitting, building tables and writing. With ``--encoder SPEC`` a real
encoder embeds ``--documents`` documents, and ``busy`` is the share of the time that it works.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path


def copies(folder: Path, documents: int | None, times: int) -> Iterator:
    """Yield the documents of the pool several times, each time with other ids."""
    from itertools import islice

    from dana.core.schemas import Document, iterate_documents

    for copy in range(times):
        for document in islice(iterate_documents(folder), documents):
            yield Document(f"{document.doc_id}-{copy}", document.source, document.text)


def tables(documents: Iterator) -> Iterator:
    """Yield documents as tables of 4,096 rows."""
    from itertools import islice

    import pyarrow as pa

    from dana.core.schemas import DOCUMENTS

    while rows := list(islice(documents, 4096)):
        columns = {name: [getattr(row, name) for row in rows] for name in DOCUMENTS.names}
        yield pa.Table.from_pydict(columns, DOCUMENTS)


def one_size(work: Path, options: argparse.Namespace, times: int) -> dict[str, float]:
    """Score a pool of one size in this process."""
    from dana.core.artifacts import make
    from dana.core.launch import Share
    from dana.core.schemas import DOCUMENTS, write_parts
    from dana.scoring.inputs import PoolText, TargetText
    from dana.scoring.scoring import Scoring, build_selector
    from dana.scoring.settings import Selection
    from dana.stages.texts import target_stage

    def write(draft) -> None:
        write_parts(tables(copies(work / "pool", options.documents, times)), draft.path, DOCUMENTS)

    pool = make(work / f"corpus-{times}", "pool", {"times": times}, write)
    selection = Selection(encoder=options.encoder or "hashing")
    target = TargetText(target_stage("chemprot", work / "target"))
    selector = build_selector("detector" if options.encoder else "random", "knn", selection)
    scoring = Scoring(target, PoolText(pool), selection, selector, work / f"scores-{times}")
    model = scoring.prepare()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.monotonic()
    busy = scoring.score(model, Share())
    seconds = time.monotonic() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.monotonic()
    units = scoring.merge().manifest["counts"]["units"]
    documents = PoolText(pool).documents
    return {
        "documents": documents,
        "units": units,
        "documents_per_second": documents / seconds,
        "merged_per_second": documents / (time.monotonic() - start),
        "busy": busy / seconds,
        "before_mb": before / 1024,
        "peak_mb": peak / 1024,
        "peak_with_merge_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    """Read the pool once and score every size, each in its own process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--documents", type=int, help="documents per copy (default: all)")
    parser.add_argument("--encoder", help="spec of a real encoder")
    parser.add_argument("--work", type=Path, help="folder to keep and reuse the pool in")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one_size(options.work, options, options.one)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        from dana.stages.texts import pool_stage

        start = time.monotonic()
        pool = pool_stage([str(Path(os.environ["DANA_DATA"]) / "general")], work / "pool")
        rate = pool.manifest["counts"]["kept"] / (time.monotonic() - start)
        print(f"reading: {rate:,.0f} documents/s (if not reused)")
        for times in options.copies:
            command = [
                sys.executable,
                __file__,
                *sys.argv[1:],
                "--work",
                str(work),
                "--one",
                str(times),
            ]
            answer = subprocess.run(command, check=True, capture_output=True, text=True)
            row = json.loads(answer.stdout.splitlines()[-1])
            print("  ".join(f"{name} {value:,.2f}" for name, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
