r"""Turn scores into weights.

    accelerate launch --config_file accelerate_configs/cpu.yaml \
        recipes/weigh.py runs/mine \
        --config recipes/weigh.yaml

The same as ``dana weigh``; ``dana weigh --help`` lists the flags.
"""

import sys

from dana.cli import main

if __name__ == "__main__":
    sys.exit(main(["weigh", *sys.argv[1:]]))
