r"""De-duplicate a pool by MinHash and score it with a run's selector: a datatrove pipeline, local, on Slurm or on Ray.

    python recipes/score_datatrove.py --run runs/mine --input pool --output scored --tasks 8
    python recipes/score_datatrove.py --run runs/mine --input pool --output scored --tasks 8 \
        --text-field content --id-field url --below auto
    python recipes/score_datatrove.py --run runs/mine --input s3://bucket/pool --output s3://bucket/scored \
        --tasks 64 --executor slurm --partition gpu --gpus 1 --env 'source .venv/bin/activate'
    python recipes/score_datatrove.py --run runs/mine --input s3://bucket/pool --output s3://bucket/scored \
        --tasks 64 --executor ray
    python recipes/score_datatrove.py --run runs/mine --output scored --join runs/pool

The run comes from ``dana score`` on a sample of the pool; every task must be able to read its
folder. There are four jobs: MinHash signatures, buckets, clusters of near duplicates, and scores of
one document per cluster. The output holds ``documents``, JSON lines with ``dana_score`` in the
metadata; ``scored``, tables that ``--join`` turns into a run for ``dana weigh``; ``minhash``; and
``logs``. With ``--below`` documents and tables hold only what scores below it, so that ``--join``
copies no more to its machine.

A killed pipeline resumes: the same command runs the unfinished tasks only. A task that finds no
document in its files fails, so it runs again when the command is mended. As soon as a task is
done, another pool, selector or flag that affects the result needs a new output: datatrove would
skip the finished tasks.
"""

import json
import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter

from datatrove.executor import LocalPipelineExecutor, RayPipelineExecutor, SlurmPipelineExecutor
from datatrove.executor.base import PipelineExecutor
from datatrove.io import get_datafolder
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.dedup import (
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.readers import JsonlReader, ParquetReader
from datatrove.pipeline.writers import JsonlWriter
from datatrove.utils.hashing import HashConfig

from dana.core.artifacts import fingerprint
from dana.core.config import require
from dana.core.errors import DanaError
from dana.core.storage import check_url, is_url
from dana.scoring.engines.datatrove import (
    DanaFilter,
    DanaScore,
    DanaWords,
    RefuseEmpty,
    check_compression,
    document_cut,
    join_scores,
)
from dana.scoring.saved_selector import load_selector

READERS = {"jsonl": JsonlReader, "parquet": ParquetReader}
# 14 buckets of 8 hashes of word 5-grams find 92 % of the pairs with a Jaccard index of 0.8.
# datatrove's default hash fails with xxhash 4 and later, which accepts no strings.
MINHASH = MinhashConfig(hash_config=HashConfig(hash_fc="sha1"))
CALL_FILE = "asked.json"  # in the output: everything that affects the result
DECISIVE = ("below", "format", "language", "tasks", "text_field", "id_field")  # flags that do
AUTO = "auto"


def threshold(text: str) -> float | str:
    """Read ``--below``: a number, or auto."""
    return text if text == AUTO else float(text)


def jobs(args: Namespace) -> list[tuple[str, list[PipelineStep], int]]:
    """Build the jobs in order: name, steps and number of tasks. The first and the last read the same files."""
    require(args.tasks >= 1, "--tasks", args.tasks, "at least 1")
    for url in filter(is_url, (args.input, str(args.output))):
        check_url(url)
    reader = READERS[args.format](args.input, text_key=args.text_field, id_key=args.id_field)
    read = [reader, RefuseEmpty(reader)]
    signatures, pairs, duplicates = (
        f"{args.output}/minhash/{name}" for name in ("signatures", "pairs", "removed")
    )
    below = document_cut(args.run) if args.below == AUTO else args.below
    score = DanaScore(args.run, f"{args.output}/scored", below=below)
    scores = [*read, MinhashDedupFilter(duplicates), score]
    selection = [] if below is None else [DanaFilter(below=below)]
    return [
        (
            "signatures",
            [*read, MinhashDedupSignature(signatures, MINHASH, DanaWords(args.language))],
            args.tasks,
        ),
        ("buckets", [MinhashDedupBuckets(signatures, pairs, config=MINHASH)], MINHASH.num_buckets),
        ("clusters", [MinhashDedupCluster(pairs, duplicates, config=MINHASH)], 1),
        ("scores", [*scores, *selection, JsonlWriter(f"{args.output}/documents")], args.tasks),
    ]


def record_call(args: Namespace) -> None:
    """Record the call in its output folder.

    Raises:
        ConfigError: If the pool has no file, or a task of an earlier call with another result is
            done there.
        PluginError: If a file of the pool cannot be unpacked.
    """
    pool = get_datafolder(args.input).find("", detail=True)
    require(bool(pool), "--input", args.input, "a folder with files")
    check_compression(pool)
    keys = ("size", "mtime", "LastModified", "ETag")
    files = {
        name: [str(info[key]) for key in keys if key in info] for name, info in sorted(pool.items())
    }
    call = {name: getattr(args, name) for name in DECISIVE}
    if args.below == AUTO:
        call["below"] = document_cut(args.run)
    call |= {"run": load_selector(args.run).description["digest"], "input": fingerprint(files)}
    output = get_datafolder(args.output)
    if output.exists(CALL_FILE):
        before = json.loads(output.cat_file(CALL_FILE))
        changes = [name for name, value in call.items() if before.get(name) != value]
        if not changes:
            return
        flags = [f"--{name.replace('_', '-')}" for name in changes]
        requirement = f"a new folder: this one has the results of another {' and '.join(flags)}"
        require(not is_started(args), "--output", args.output, requirement)
        if output.exists("minhash"):
            output.rm("minhash", recursive=True)  # what a task left that failed
    output.makedirs("", exist_ok=True)
    output.pipe_file(f"{CALL_FILE}.new", json.dumps(call).encode())
    output.mv(f"{CALL_FILE}.new", CALL_FILE)  # atomic: a killed call leaves no half file


def is_started(args: Namespace) -> bool:
    """Return whether a task is done in the output folder, or, with Slurm, may be waiting for its turn."""
    if args.executor == "slurm":
        return True
    output = get_datafolder(args.output)
    return bool(output.glob("logs/*/completions/*"))


def executor(args: Namespace) -> PipelineExecutor:
    """Build the executor of the last job, which starts the jobs that it depends on."""
    last = None
    for name, steps, tasks in jobs(args):
        gpus = args.gpus if name == "scores" else 0
        options = {
            "tasks": tasks,
            "workers": args.workers,
            "logging_dir": f"{args.output}/logs/{name}",
        }
        options |= {"depends": last}
        if args.executor == "local":
            options["workers"] = args.workers if args.workers > 0 else os.cpu_count()
            last = LocalPipelineExecutor(steps, **options)
            continue
        options |= {
            "cpus_per_task": args.cpus,
            "gpus_per_task": gpus,
            "mem_per_cpu_gb": args.memory,
        }
        if args.executor == "ray":
            last = RayPipelineExecutor(steps, **options)
        else:
            options |= {
                "time": args.time,
                "partition": args.partition,
                "job_name": f"dana_{name}",
                "qos": None,
            }
            last = SlurmPipelineExecutor(steps, env_command=args.env, **options)
    return last


def parser() -> ArgumentParser:
    """Build the parser of the command line."""
    flags = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    flags.add_argument("--run", required=True, help="folder of the run whose selector scores")
    flags.add_argument(
        "--input", help="folder of the pool, on any file system that datatrove reads"
    )
    flags.add_argument(
        "--format", choices=READERS, default="jsonl", help="format of the pool's files"
    )
    flags.add_argument("--output", required=True, help="folder of all outputs")
    flags.add_argument("--text-field", default="text", help="field of the text (default: text)")
    flags.add_argument(
        "--id-field",
        default="id",
        help="field of the id, which no two documents share (default: id)",
    )
    flags.add_argument(
        "--below",
        type=threshold,
        help="write only documents with a mean score below this; auto: that which keeps the share "
        "of documents that dana weigh selected in the run",
    )
    flags.add_argument("--language", default="en", help="language of the pool, an ISO 639-1 code")
    flags.add_argument(
        "--tasks", type=int, default=2, help="parallel parts of the pool, at most one per file"
    )
    flags.add_argument(
        "--workers",
        type=int,
        default=-1,
        help="tasks at a time; -1: one per core, or all (slurm, ray)",
    )
    flags.add_argument(
        "--executor", choices=("local", "slurm", "ray"), default="local", help="where the tasks run"
    )
    flags.add_argument("--cpus", type=int, default=1, help="CPUs per task (slurm, ray)")
    flags.add_argument("--gpus", type=int, default=0, help="GPUs per scoring task (slurm, ray)")
    flags.add_argument("--memory", type=int, default=4, help="memory per CPU in GB (slurm, ray)")
    flags.add_argument("--time", default="20:00:00", help="time limit per job (slurm)")
    flags.add_argument("--partition", default="main", help="partition of the cluster (slurm)")
    flags.add_argument("--env", help="command that activates the environment (slurm)")
    flags.add_argument("--join", help="only turn the scored tables into a run in this folder")
    return flags


def main() -> int:
    """Run the pipeline, or turn its scored tables into a run."""
    args = parser().parse_args()
    try:
        if args.join:
            join_scores(f"{args.output}/scored", args.run, args.join)
        elif args.input is None:
            parser().error("--input is missing: the folder of the pool")
        else:
            last = executor(args)
            record_call(args)
            last.run()
    except DanaError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
