"""Workers with faults, which Ray's processes import by name. What they look for lies in the working directory."""

import os
import time
from pathlib import Path

from dana.engines.ray_shards import ShardWorker


class SlowWorker(ShardWorker):
    def score(self, number, documents):
        time.sleep(0.5)
        return super().score(number, documents)


class DyingWorker(ShardWorker):
    """Ends its process at the shard that the file ``poison`` names."""

    def score(self, number, documents):
        if Path("poison").is_file() and Path("poison").read_text(encoding="utf-8") == str(number):
            os._exit(1)
        return super().score(number, documents)
