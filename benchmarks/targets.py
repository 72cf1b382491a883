"""Several targets over one pool: seconds of scoring them in one pass and by themselves, and whether the bytes agree.

    DANA_DATA=... OMP_NUM_THREADS=1 python benchmarks/targets.py --encoder static --documents 2000

A target is the first 60 documents of a source of the general corpus, the pool as many of the next documents of every
source. Texts are read and selectors fitted beforehand; timed are ``dana score RUN`` for each run and ``dana score RUN
RUN ...`` for all, in fresh copies of the prepared runs and without the start of Python. Medians of ``--repeats``.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

TASK = 60  # documents


def write_texts(work: Path, documents: int, targets: int) -> list[str]:
    """Task files and ``pool.jsonl``; returns the targets' names."""
    from dana.core.json_lines import json_lines
    from dana.corpus.documents import Tally, read_documents
    from dana.corpus.places import expand

    files = expand(str(Path(os.environ["DANA_DATA"]) / "general"))
    names = [Path(file).name.split(".")[0] for file in files]
    each = documents // len(files)
    with (work / "pool.jsonl").open("w", encoding="utf-8") as pool:
        for file, name in zip(files, names, strict=True):
            read = islice(read_documents([str(file)], "fail", Tally()), TASK + each)
            rows = [{"text": document.text, "source": name} for document in read]
            pool.write(json_lines(rows[TASK:]))
            (work / f"{name}.jsonl").write_text(json_lines(rows[:TASK]), encoding="utf-8")
    return names[:targets]


def prepare(work: Path, name: str, encoder: str, store: str | None) -> Path:
    """A run whose texts are read and whose selector is fitted, as ``dana score --prepare --share`` leaves it."""
    from dana.core.config import load
    from dana.stages.remember import remember
    from dana.stages.score import open_scoring
    from dana.stages.settings import RunSettings, with_store

    out = work / "prepared" / name
    texts = {"task": str(work / f"{name}.jsonl"), "general": [str(work / "pool.jsonl")], "share": str(work / "share")}
    selection = {"encoder": encoder, "store": store}
    settings = with_store(load(RunSettings, {"out": str(out), "detector": "knn", "selection": selection, **texts}))
    open_scoring(settings).prepare()
    remember(settings, out)
    return out


def timed(act: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and of processor time."""
    wall, cpu = time.monotonic(), time.process_time()
    act()
    return time.monotonic() - wall, time.process_time() - cpu


def score(runs: list[Path], work: Path, together: bool) -> tuple[float, float, list[bytes]]:
    """Both times of scoring copies of runs, and the bytes of the scores."""
    from dana.core.schemas import parts
    from dana.scoring.sharded import make_tables
    from dana.stages.score_targets import open_targets

    copies = [Path(shutil.copytree(run, work / "scored" / run.name)) for run in runs]
    passes = [copies] if together else [[copy] for copy in copies]
    wall, cpu = timed(lambda: [make_tables(open_targets(each)) for each in passes])
    made = [part.read_bytes() for copy in copies for part in parts(copy / "scores")]
    shutil.rmtree(work / "scored")
    return wall, cpu, made


def main() -> None:
    """Print a row a number of targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="static")
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--targets", type=int, nargs="+", default=[1, 3, 10])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--store", help="none goes without; default: that of the shared folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        names = write_texts(work, options.documents, max(options.targets))
        runs = [prepare(work, name, options.encoder, options.store) for name in names]
        stored = work / "share" / "embeddings"
        print("| targets | apart: clock | processor | one pass: clock | processor | of it |")
        print("|---:|---:|---:|---:|---:|---:|")
        for count in options.targets:
            seconds: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
            for _ in range(options.repeats):
                made = {}
                for together, kept in seconds.items():
                    if stored.is_dir():  # as it was before any was scored
                        shutil.rmtree(stored)
                    wall, cpu, made[together] = score(runs[:count], work, together)
                    kept.append((wall, cpu))
                assert made[True] == made[False], "the bytes differ"
            medians = [[*map(statistics.median, zip(*both, strict=True))] for both in seconds.values()]
            cells = [
                *(f"{value:.1f} s" for value in (*medians[0], *medians[1])),
                f"{100 * medians[1][1] / medians[0][1]:.0f} %",
            ]
            print(f"| {count} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
