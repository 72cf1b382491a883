"""What scoring costs besides the encoder: documents a second with a selector that costs nothing, memory, and waiting.

    DANA_DATA=... python benchmarks/scoring.py --copies 1 10

Reads the general corpus once; ``--copies N`` scores it N times over (the same texts under other names). Each size
runs in a process of its own, whose peak memory is reported. The selector is ``random``: reading, splitting, tables and
writing are what is left. ``--encoder SPEC`` adds how much of the time a real encoder is busy, on ``--documents``
documents.
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
    """Documents of the corpus, repeated under other names."""
    from itertools import islice

    from dana.core.schemas import Document, iterate_documents

    for copy in range(times):
        for document in islice(iterate_documents(folder), documents):
            yield Document(f"{document.doc_id}-{copy}", document.source, document.text)


def tables(documents: Iterator) -> Iterator:
    """Documents as tables of 4,096 rows."""
    from itertools import islice

    import pyarrow as pa

    from dana.core.schemas import DOCUMENTS

    while rows := list(islice(documents, 4096)):
        columns = {name: [getattr(row, name) for row in rows] for name in DOCUMENTS.names}
        yield pa.Table.from_pydict(columns, DOCUMENTS)


def one_size(work: Path, options: argparse.Namespace, times: int) -> dict[str, float]:
    """Score a corpus of one size in this process."""
    from dana.core.artifacts import make
    from dana.core.launch import Share
    from dana.core.schemas import DOCUMENTS, write_parts
    from dana.scoring.inputs import GeneralCorpus, TaskText
    from dana.scoring.scoring import Scoring, build_selector
    from dana.scoring.settings import Selection
    from dana.stages.texts import task_stage

    folder = work / f"corpus-{times}"
    corpus = make(
        folder,
        "corpus",
        {"times": times},
        lambda draft: (
            write_parts(tables(copies(work / "corpus", options.documents, times)), draft.path, DOCUMENTS) and None
        ),
    )
    selection = Selection(encoder=options.encoder or "hashing")
    task = TaskText(task_stage("chemprot", work / "task"))
    selector = build_selector("detector" if options.encoder else "random", "knn", selection)
    scoring = Scoring(task, GeneralCorpus(corpus), selection, selector, work / f"scores-{times}")
    fitted = scoring.prepare()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    busy = scoring.score(fitted, Share())
    seconds = time.monotonic() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    units = scoring.merge().manifest["counts"]["units"]
    documents = GeneralCorpus(corpus).documents
    return {
        "documents": documents,
        "units": units,
        "documents_per_second": documents / seconds,
        "merged_per_second": documents / (time.monotonic() - started),
        "busy": busy / seconds,
        "before_mb": before / 1024,
        "peak_mb": peak / 1024,
        "peak_with_merge_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    """Read once, score every size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--documents", type=int, help="only so many of them")
    parser.add_argument("--encoder", help="a real one, to see how busy it is kept")
    parser.add_argument("--work", type=Path, help="folder to keep the corpus in")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one_size(options.work, options, options.one)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        from dana.stages.texts import corpus_stage

        started = time.monotonic()
        made = corpus_stage([str(Path(os.environ["DANA_DATA"]) / "general")], work / "corpus")
        rate = made.manifest["counts"]["kept"] / (time.monotonic() - started)
        print(f"reading: {rate:,.0f} documents/s (if not reused)")
        for times in options.copies:
            command = [sys.executable, __file__, *sys.argv[1:], "--work", str(work), "--one", str(times)]
            answer = subprocess.run(command, check=True, capture_output=True, text=True)
            row = json.loads(answer.stdout.splitlines()[-1])
            print("  ".join(f"{name} {value:,.2f}" for name, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
