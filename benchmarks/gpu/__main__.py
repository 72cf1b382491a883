"""Measure training, encoding and fine-tuning on one GPU; without one, run every stage in small.

    python benchmarks gpu [STAGE ...]

With a GPU, the stages read what benchmarks/gpu/pack.py packed into .gpu/, and take eight minutes.
Without a GPU they run on tiny models and made-up texts in a minute: that says only that they run.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import made_up
import torch

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
PACKED = ROOT / ".gpu" / "data"
# Those marked `gpu` in the tests are skipped without one.
STAGES_WITHOUT_GPU = ["correct", "bert", "modernbert", "mini", "minilm", "score", "seeds"]


def main(stages: list[str]) -> int:
    """Run the stages by run.sh, and return the number of those that failed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(os.environ.get("OUT", folder))
        environment = {
            "QUEUE": str(FOLDER),
            "PYTHON": sys.executable,
            "INSTALL": "0",
            "OUT": str(out),
        }
        if torch.cuda.is_available():
            if not PACKED.is_dir():
                sys.exit(f"{PACKED}: missing; run python benchmarks/gpu/pack.py first")
            environment["GPU_DATA"] = str(PACKED)
        else:
            data = Path(folder) / "data"
            data.mkdir()
            made_up.write_data(data)
            environment["GPU_DATA"] = str(data)
            environment["OMP_NUM_THREADS"] = "1"
            environment["SLOW"] = "5"  # the limits are those of a GPU
            stages = stages or STAGES_WITHOUT_GPU
        if stages:
            environment["STAGES"] = " ".join(stages)
        command = ["bash", str(FOLDER / "run.sh")]
        return subprocess.run(command, cwd=ROOT, env=os.environ | environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
