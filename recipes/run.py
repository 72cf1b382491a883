r"""Run every step of a recipe; a rerun goes on where it stopped: the command ``dana run`` as a file.

    accelerate launch --config_file accelerate_configs/multi_gpu.yaml \
        recipes/run.py quickstart

The same is ``accelerate launch --config_file ... -m dana run ...``; ``dana run --help`` lists the flags.
"""

import sys

from dana.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
