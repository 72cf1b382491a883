"""From bytes on disk to weights: documents a second and peak memory of each command, by size, engine and processes.

    python benchmarks/scale.py FOLDER --documents 100000 1000000 10000000 --engines 1
    python benchmarks/scale.py FOLDER --documents 200000 --engines 1 2 ray datatrove datatrove-2 --repeats 3
    python benchmarks/scale.py FOLDER --documents 20000 --sentences 14 --selector lexical --engines 1 datatrove steps

Makes documents of --sentences sentences (JSON Lines in eight files, none twice) and a task of 200 of them by another
choice of words. Engines take turns, --repeats times: a number of processes of one launch; ``ray``, two nodes of one CPU
each on this machine; ``datatrove``, that library's own reader, trivial filter and writer over the same files, in one
process (or ``datatrove-2``, two); ``steps``, the same with dana's two steps instead of the filter, by a selector that
was fitted on the first file. Prints a line a command: wall and CPU seconds with those of its children, the most memory
that any process held; and at the end the medians of documents a second.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np

FILES = 8
WORDS = 12  # of a sentence
TROVE = """
import sys
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.filters import LambdaFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
source, out, tasks, run = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
middle = [LambdaFilter(lambda document: len(document.text) > 60)]
if run:
    from dana.engines.datatrove import DanaFilter, DanaScore, document_cut
    middle = [DanaScore(run), DanaFilter(below=document_cut(run))]
steps = [JsonlReader(source), *middle, JsonlWriter(out)]
LocalPipelineExecutor(steps, tasks=8, workers=tasks, logging_dir=out + "-logs").run()
"""


def write_documents(folder: Path, count: int, sentences: int) -> None:
    """Documents of words drawn by Zipf's law, in eight files; the number in each makes it another one."""
    if (folder / "done").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    pool = [_sentence(random) for _ in range(20_000)]
    chosen = random.integers(0, len(pool), (count, sentences))
    for number in range(FILES):
        with (folder / f"part-{number}.jsonl").open("w") as lines:
            for row in range(number * count // FILES, (number + 1) * count // FILES):
                text = f"Number {row}. " + " ".join(pool[place] for place in chosen[row])
                lines.write(f'{{"id": "{row}", "text": "{text}"}}\n')
    (folder / "done").touch()


def write_task(path: Path) -> None:
    """200 documents of five sentences whose frequent words are other ones."""
    random = np.random.default_rng(1)
    rows = [{"id": f"t{row}", "text": " ".join(_sentence(random, 500) for _ in range(5))} for row in range(200)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _sentence(random: np.random.Generator, shift: int = 0) -> str:
    words = [f"w{(place + shift) % 5000}" for place in random.zipf(1.3, WORDS) % 5000]
    return " ".join(words).capitalize() + "."


def timed(words: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Run a command: its wall seconds, CPU seconds and the MiB that it or any child held at most."""
    code = (
        "import json, resource, subprocess, sys, time\n"
        "began = time.perf_counter()\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(json.dumps([done.returncode, time.perf_counter() - began, used.ru_utime + used.ru_stime, "
        "used.ru_maxrss / 1024, done.stderr[-2000:]]))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, env={**os.environ, **environment}
    )
    status, wall, cpu, peak, said = json.loads(ran.stdout)
    if status:
        raise SystemExit(f"{' '.join(words)}: exit code {status}\n{said}")
    return {"wall": wall, "cpu": cpu, "peak": peak}


@contextmanager
def two_nodes() -> Iterator[str]:
    """The address of a Ray cluster of two nodes of one CPU each on this machine."""
    from ray.cluster_utils import Cluster

    memory = {"object_store_memory": 200 << 20, "num_cpus": 1}
    cluster = Cluster(initialize_head=True, head_node_args=memory)
    cluster.add_node(**memory)
    try:
        yield cluster.address
    finally:
        cluster.shutdown()


def commands(engine: str, address: str, options: argparse.Namespace, source: Path, out: Path) -> dict[str, list[str]]:
    """The commands of an engine, by step."""
    dana = [sys.executable, "-m", "dana"]
    if engine.startswith(("datatrove", "steps")):
        tasks, run = engine.partition("-")[2] or "1", f"{out}-fitted" if engine.startswith("steps") else ""
        filtered = {"filter": [sys.executable, "-c", TROVE, str(source), str(out), tasks, run]}
        if not run:
            return filtered
        texts = ["--task", str(options.folder / "task.jsonl"), "--general", str(source / "part-0.jsonl"), "--out", run]
        return {
            "fit": [*dana, "score", *texts, "--selector", options.selector],
            "weigh": [*dana, "weigh", run],
            **filtered,
        }
    texts = ["--task", str(options.folder / "task.jsonl"), "--general", str(source / "*.jsonl"), "--out", str(out)]
    score = ["score", *texts, "--selector", options.selector]
    if engine == "ray":
        launched = [*dana, *score, "--engine", "ray", "--address", address]
    elif engine == "1":
        launched = [*dana, *score]
    else:
        module = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", engine]
        launched = [*module, "-m", "dana", *score]
    return {"score": launched, "weigh": [*dana, "weigh", str(out)]}


def main() -> None:
    """Print a line a command, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=int, nargs="+", default=[100_000])
    parser.add_argument("--sentences", type=int, default=1)
    parser.add_argument("--engines", nargs="+", default=["1"])
    parser.add_argument("--selector", default="random")
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    write_task(options.folder / "task.jsonl")
    rates: dict[tuple[int, str], list[float]] = {}
    environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    for count in options.documents:
        source = options.folder / f"documents-{count}-{options.sentences}"
        write_documents(source, count, options.sentences)
        print(f"{count:,} documents, {sum(file.stat().st_size for file in source.glob('*.jsonl')) / 1e6:,.0f} MB")
        for repeat in range(options.repeats):
            for engine in options.engines:
                seconds = _one(engine, options, source, options.folder / f"run-{count}-{engine}-{repeat}", environment)
                rates.setdefault((count, engine), []).append(count / seconds)
        shutil.rmtree(source)
    for (count, engine), found in rates.items():
        print(f"{count:,} documents, {engine}: {median(found):,.0f} documents/s, median of {len(found)}")


def _one(engine: str, options: argparse.Namespace, source: Path, out: Path, environment: dict[str, str]) -> float:
    """Wall seconds of all steps of one engine; what it wrote is removed."""
    total = 0.0
    with two_nodes() if engine == "ray" else _nowhere() as address:
        for step, words in commands(engine, address, options, source, out).items():
            took = timed(words, environment)
            total += took["wall"]
            about = f"{took['wall']:.1f} s, {took['cpu']:.1f} s of CPU, {took['peak']:,.0f} MiB in one process"
            print(f"  {engine:<12} {step:<7} {about}", flush=True)
    for folder in out.parent.glob(f"{out.name}*"):
        shutil.rmtree(folder)
    return total


@contextmanager
def _nowhere() -> Iterator[str]:
    yield ""


if __name__ == "__main__":
    main()
