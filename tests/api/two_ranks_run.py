"""Score, weigh and adapt from lists in two processes, in one run's folder: argument 1 is a JSON of what to do."""

import json
import sys
from pathlib import Path

import dana

if __name__ == "__main__":
    told = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    dana.score(told["task"], told["general"], out=told["out"], detector="knn", encoder=told["encoder"])
    dana.weigh(told["out"], policy="sigmoid", beta=0.3)
    dana.adapt(told["model"], out=told["out"], **told["steps"])
