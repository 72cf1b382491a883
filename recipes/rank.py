r"""Which detector tells this task from this general text? DANA section 3.1.

    accelerate launch --config_file accelerate_configs/cpu.yaml \
        recipes/rank.py --task chemprot \
        --general pool/ --out runs/mine \
        --config recipes/rank.yaml

The same as ``dana rank``; ``dana rank --help`` lists the flags.
"""

import sys

from dana.cli import main

if __name__ == "__main__":
    sys.exit(main(["rank", *sys.argv[1:]]))
