r"""De-duplicate a pool by MinHash and score it by a run's selector: a datatrove pipeline, here, on Slurm or on Ray.

    python recipes/score_datatrove.py --run runs/mine --input pool --output scored --tasks 8
    python recipes/score_datatrove.py --run runs/mine --input s3://bucket/pool --output s3://bucket/scored \
        --tasks 64 --executor slurm --partition gpu --gpus 1 --env 'source .venv/bin/activate'
    python recipes/score_datatrove.py --run runs/mine --input s3://bucket/pool --output s3://bucket/scored \
        --tasks 64 --executor ray
    python recipes/score_datatrove.py --run runs/mine --output scored --join runs/pool

The run, made by ``dana score`` on a sample of the pool, must lie where every task finds it. Four jobs: signatures,
buckets, clusters of near duplicates, and scores of one document a cluster. Below the output: ``documents``, JSON lines
with ``dana_score`` in the metadata; ``scored``, tables that ``--join`` makes a run of, for ``dana weigh``; ``minhash``
and ``logs``. Killed: the same command goes on with the tasks that are not done. Another selector, pool or flag that
decides the result is refused: datatrove would take the finished tasks of the first call for its own.
"""

import json
import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter

from datatrove.executor import LocalPipelineExecutor, RayPipelineExecutor, SlurmPipelineExecutor
from datatrove.executor.base import PipelineExecutor
from datatrove.io import get_datafolder
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.readers import JsonlReader, ParquetReader
from datatrove.pipeline.writers import JsonlWriter
from datatrove.utils.hashing import HashConfig

from dana.core.artifacts import fingerprint
from dana.core.config import require
from dana.core.errors import DanaError
from dana.core.storage import check_url, is_url
from dana.scoring.engines.datatrove import DanaFilter, DanaScore, DanaWords, join_scores
from dana.scoring.saved_selector import load_selector

READERS = {"jsonl": JsonlReader, "parquet": ParquetReader}
# 14 buckets of 8 hashes of runs of 5 words find 92 % of the pairs with a Jaccard index of 0.8. With xxhash from version
# 4 on, datatrove's default hash fails: it takes no strings.
MINHASH = MinhashConfig(hash_config=HashConfig(hash_fc="sha1"))
ASKED = "asked.json"  # in the output: what decides the result


def jobs(given: Namespace) -> list[tuple[str, list[PipelineStep], int]]:
    """Name, steps and number of tasks of each job, in order. The first and the last one read alike."""
    require(given.tasks >= 1, "--tasks", given.tasks, "at least 1")
    for url in filter(is_url, (given.input, str(given.output))):
        check_url(url)
    read = READERS[given.format](given.input)
    signatures, pairs, removed = (f"{given.output}/minhash/{name}" for name in ("signatures", "pairs", "removed"))
    scores = [read, MinhashDedupFilter(removed), DanaScore(given.run, f"{given.output}/scored")]
    kept = [] if given.below is None else [DanaFilter(below=given.below)]
    return [
        ("signatures", [read, MinhashDedupSignature(signatures, MINHASH, DanaWords(given.language))], given.tasks),
        ("buckets", [MinhashDedupBuckets(signatures, pairs, config=MINHASH)], MINHASH.num_buckets),
        ("clusters", [MinhashDedupCluster(pairs, removed, config=MINHASH)], 1),
        ("scores", [*scores, *kept, JsonlWriter(f"{given.output}/documents")], given.tasks),
    ]


def refuse_another_call(given: Namespace) -> None:
    """Compare what decides the result with what the first call with this output noted; without one, note it."""
    found = get_datafolder(given.input).find("", detail=True)
    marks = ("size", "mtime", "LastModified", "ETag")
    files = {name: [str(about[mark]) for mark in marks if mark in about] for name, about in sorted(found.items())}
    named = {name: getattr(given, name) for name in ("below", "format", "language", "tasks")}
    asked = named | {"run": load_selector(given.run).description["digest"], "input": fingerprint(files)}
    notes = get_datafolder(given.output)
    if notes.exists(ASKED):
        before = json.loads(notes.cat_file(ASKED))
        other = [f"--{name}" for name, value in asked.items() if before.get(name) != value]
        said = f"a place that holds nothing of a call with another {' and '.join(other)}"
        require(not other, "--output", given.output, said)
    else:
        notes.makedirs("", exist_ok=True)
        notes.pipe_file(f"{ASKED}.new", json.dumps(asked).encode())
        notes.mv(f"{ASKED}.new", ASKED)  # whole or not at all


def executor(given: Namespace) -> PipelineExecutor:
    """The last job, which starts those that it depends on."""
    last = None
    for name, steps, tasks in jobs(given):
        gpus = given.gpus if name == "scores" else 0
        shared = {"tasks": tasks, "workers": given.workers, "logging_dir": f"{given.output}/logs/{name}"}
        shared |= {"depends": last}
        if given.executor == "local":
            shared["workers"] = given.workers if given.workers > 0 else os.cpu_count()
            last = LocalPipelineExecutor(steps, **shared)
            continue
        shared |= {"cpus_per_task": given.cpus, "gpus_per_task": gpus, "mem_per_cpu_gb": given.memory}
        if given.executor == "ray":
            last = RayPipelineExecutor(steps, **shared)
        else:
            shared |= {"time": given.time, "partition": given.partition, "job_name": f"dana_{name}", "qos": None}
            last = SlurmPipelineExecutor(steps, env_command=given.env, **shared)
    return last


def parser() -> ArgumentParser:
    """The flags."""
    made = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    made.add_argument("--run", required=True, help="folder of the run whose selector scores")
    made.add_argument("--input", help="folder of the pool, on any file system that datatrove reads")
    made.add_argument("--format", choices=READERS, default="jsonl", help="of the pool's files")
    made.add_argument("--output", required=True, help="folder of all that is written")
    made.add_argument("--below", type=float, help="keep only documents whose mean score is below it")
    made.add_argument("--language", default="en", help="of the pool, a code of ISO 639-1")
    made.add_argument("--tasks", type=int, default=2, help="parts of the pool, at most one a file")
    made.add_argument("--workers", type=int, default=-1, help="tasks at a time; here one a core, else all")
    made.add_argument("--executor", choices=("local", "slurm", "ray"), default="local", help="where tasks run")
    made.add_argument("--cpus", type=int, default=1, help="of a task (slurm, ray)")
    made.add_argument("--gpus", type=int, default=0, help="of a task that scores (slurm, ray)")
    made.add_argument("--memory", type=int, default=4, help="GB a CPU (slurm, ray)")
    made.add_argument("--time", default="20:00:00", help="limit of a job (slurm)")
    made.add_argument("--partition", default="main", help="of the cluster (slurm)")
    made.add_argument("--env", help="command that activates the environment (slurm)")
    made.add_argument("--join", help="make a run of the scored tables in this folder, and do nothing else")
    return made


def main() -> int:
    """Run the pipeline, or join what it left."""
    given = parser().parse_args()
    try:
        if given.join:
            join_scores(f"{given.output}/scored", given.run, given.join)
        elif given.input is None:
            parser().error("--input names the pool")
        else:
            last = executor(given)
            refuse_another_call(given)
            last.run()
    except DanaError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
