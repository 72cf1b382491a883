"""Workers with faults, which Ray's processes import by name. What they look for lies in the working directory."""

import os
import time
from pathlib import Path

import ray

from dana.scoring.engines.ray_shards import ShardWorker


class DoomedWorker(ShardWorker):
    """On the node that the file ``doomed`` names it begins a shard and never ends; elsewhere it waits for that."""

    def score(self, number, documents):
        if ray.get_runtime_context().get_node_id() == Path("doomed").read_text(encoding="utf-8"):
            Path("begun").touch()
            time.sleep(600)
        while not Path("begun").exists():
            time.sleep(0.05)
        return super().score(number, documents)


class DyingWorker(ShardWorker):
    """Ends its process at the shard that the file ``poison`` names."""

    def score(self, number, documents):
        if Path("poison").is_file() and Path("poison").read_text(encoding="utf-8") == str(number):
            os._exit(1)
        return super().score(number, documents)
