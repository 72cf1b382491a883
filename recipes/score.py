r"""Score every unit of the pool against the task: the command ``dana score`` as a file.

    accelerate launch --config_file accelerate_configs/multi_gpu.yaml \
        recipes/score.py --config recipes/score.yaml --out runs/mine

The same is ``accelerate launch --config_file ... -m dana score ...``; ``dana score --help`` lists
the flags.
"""

import sys

from dana.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["score", *sys.argv[1:]]))
