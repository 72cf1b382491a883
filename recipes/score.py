r"""Score every unit of the general text against the task.

    accelerate launch --config_file accelerate_configs/cpu.yaml \
        recipes/score.py --task chemprot \
        --general pool/ --out runs/mine \
        --config recipes/score.yaml

The same as ``dana score``; ``dana score --help`` lists the flags.
"""

import sys

from dana.cli import main

if __name__ == "__main__":
    sys.exit(main(["score", *sys.argv[1:]]))
