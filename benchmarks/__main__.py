"""List the benchmarks, run one (``python benchmarks NAME [ARGUMENTS]``), or run each at a small size (``all``)."""

import runpy
import subprocess
import sys
from ast import get_docstring, parse
from importlib.util import find_spec
from pathlib import Path

FOLDER = Path(__file__).parent
# Arguments that take minutes. The arguments used in the docs, which take hours, are at the top of
# each file.
SMALL = {
    "choice": ["--tables", "20"],
    "class_weights": ["--tasks", "sst2", "--natural", "--draws", "1"],
    "clusters": ["20000"],
    "consistency": ["runs/evidence", "--tasks", "acl_arc", "--sizes", "50"],
    "detectors": ["--quick"],
    "distillation": ["runs/evidence", "--tables"],
    "evidence": ["runs/evidence", "--tables"],
    "few_labels": ["runs/evidence", "--tables"],
    "figures": [],
    "gpu": [],
    "kills": ["--kills", "1", "--commands", "weigh"],
    "learning_curves": ["runs/evidence", "--tasks", "acl_arc", "--draws", "1"],
    "mutation": [
        "--sample",
        "3",
        "--targets",
        "dana/weighting/formulas.py",
        "--tests",
        "tests/weighting/test_formulas.py",
    ],
    "objectives": [
        "runs/objectives",
        *("--tasks", "rct_sample", "--objectives", "position", "--rates", "1e-3"),
        *("--steps", "5", "--adaptations", "1"),
    ],
    "pilot": ["runs/pilot", "--tasks", "sst2", "--steps", "5", "--draws", "1"],
    "planted": ["--tasks", "sst2", "--detectors", "knn", "lda", "--fit", "100", "--seeds", "1"],
    "presets": ["runs/presets", "mini=dana-mini", "--tasks", "sst2", "--seeds", "1"],
    "reading": ["100000"],
    "scoring": ["--copies", "1", "--documents", "2000"],
    "side_by_side": ["--", sys.executable, "-c", "print('{out}')"],
    "train_causal": ["--model", "runs/decoder", "--rounds", "1"],
    "train_mlm": ["--size", "tiny", "--rounds", "1"],
    "train_vectors": ["--steps", "5", "--rounds", "1"],
    "weigh_memory": ["--units", "1e5"],
}


def main() -> int:
    """List the benchmarks, run one in this process, or run all; return the number of failures."""
    name, *arguments = sys.argv[1:] or [""]
    if name == "all":
        return sum(run_small(one) != 0 for one in SMALL)
    if name in SMALL:
        sys.argv = [str(script_of(name)), *arguments]
        sys.path[0] = str(script_of(name).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")
        return 0
    for one in SMALL:
        text = get_docstring(parse(script_of(one).read_text(encoding="utf-8"))) or ""
        print(f"{one:<14} {text.splitlines()[0]}")
    return 2 if name else 0


def script_of(name: str) -> Path:
    """Return the script of a benchmark: a file of its name, or the main file of a folder."""
    script = FOLDER / f"{name}.py"
    return script if script.is_file() else FOLDER / name / "__main__.py"


def run_small(name: str) -> int:
    """Run a benchmark at its small size and return its exit code."""
    print(f"\n{name} {' '.join(SMALL[name])}", flush=True)
    if name == "mutation" and find_spec("cosmic_ray") is None:
        print("skipped: pip install cosmic-ray coverage")
        return 0
    return subprocess.run(
        [sys.executable, script_of(name), *SMALL[name]], cwd=FOLDER.parent
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
