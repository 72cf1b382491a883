"""Run a benchmark, ``python benchmarks NAME [ARGUMENTS]``; or each at a size of minutes, ``all``; or list them."""

import runpy
import subprocess
import sys
from ast import get_docstring, parse
from importlib.util import find_spec
from pathlib import Path

FOLDER = Path(__file__).parent
# Name to arguments that take minutes. Those of the docs, which take hours, are in each file's first lines.
SMALL = {
    "clusters": ["20000"],
    "detectors": ["--quick"],
    "kills": ["--kills", "1", "--commands", "weigh"],
    "mutation": [
        "--sample",
        "3",
        "--targets",
        "dana/weighting/weights.py",
        "--tests",
        "tests/weighting/test_w*.py",
    ],
    "planted": ["--tasks", "sst2", "--detectors", "knn", "lda", "--fit", "100", "--seeds", "1"],
    "reading": ["100000"],
    "scoring": ["--copies", "1", "--documents", "2000"],
    "train_mlm": ["--size", "tiny", "--rounds", "1"],
    "weigh_memory": ["--units", "1e5"],
}


def main() -> int:
    """List the benchmarks, run one in this process, or run all; returns the number of those that failed."""
    name, *arguments = sys.argv[1:] or [""]
    if name == "all":
        return sum(map(failed, SMALL))
    if name in SMALL:
        sys.argv = [str(FOLDER / f"{name}.py"), *arguments]
        runpy.run_path(sys.argv[0], run_name="__main__")
        return 0
    for one in SMALL:
        text = get_docstring(parse((FOLDER / f"{one}.py").read_text(encoding="utf-8"))) or ""
        print(f"{one:<14} {text.splitlines()[0]}")
    return 2 if name else 0


def failed(name: str) -> bool:
    """Run one at its small size; whether it ended with an error."""
    print(f"\n{name} {' '.join(SMALL[name])}", flush=True)
    if name == "mutation" and find_spec("cosmic_ray") is None:
        print("left out: pip install cosmic-ray coverage")
        return False
    return subprocess.run([sys.executable, FOLDER / f"{name}.py", *SMALL[name]], cwd=FOLDER.parent).returncode != 0


if __name__ == "__main__":
    sys.exit(main())
