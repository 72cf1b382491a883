"""Score, weigh and adapt from lists in two processes, in one run's folder: argument 1 is a JSON of what to do."""

import json
import sys
from pathlib import Path

import dana

if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    dana.score(job["task"], job["pool"], out=job["out"], detector="knn", encoder=job["encoder"])
    dana.weigh(job["out"], policy="sigmoid", beta=0.3)
    dana.adapt(job["model"], out=job["out"], **job["steps"])
