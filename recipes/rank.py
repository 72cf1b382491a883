r"""Compare the detectors on held-out task text (one process does it): the command ``dana rank`` as a file.

    accelerate launch --config_file accelerate_configs/multi_gpu.yaml \
        recipes/rank.py --config recipes/rank.yaml --out runs/mine

The same is ``accelerate launch --config_file ... -m dana rank ...``; ``dana rank --help`` lists the flags.
"""

import sys

from dana.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["rank", *sys.argv[1:]]))
