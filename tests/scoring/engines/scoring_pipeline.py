"""A datatrove pipeline that scores slowly, to be killed: python scoring_pipeline.py RUN POOL OUT TASKS EXECUTOR."""

import sys

from datatrove.executor import LocalPipelineExecutor, RayPipelineExecutor, SlurmPipelineExecutor
from datatrove.pipeline.readers import JsonlReader

from dana.scoring.engines.datatrove import DanaScore


def slowly(data, rank=0, world_size=1):
    import time  # a function of this script travels to Slurm without what stands around it

    for document in data:
        time.sleep(0.0003)
        yield document


if __name__ == "__main__":
    run, pool, out, tasks, executor = sys.argv[1:]
    kinds = {"local": (LocalPipelineExecutor, {"workers": 2})}
    kinds |= {"ray": (RayPipelineExecutor, {"workers": 2, "mem_per_cpu_gb": 1})}
    kinds |= {
        "slurm": (SlurmPipelineExecutor, {"time": "1:00:00", "partition": "any", "qos": None})
    }
    steps = [JsonlReader(pool), slowly, DanaScore(run, f"{out}/scored")]
    kind, settings = kinds[executor]
    kind(steps, tasks=int(tasks), logging_dir=f"{out}/logs", **settings).run()
