r"""Turn scores into weights (one process does it): the command ``dana weigh`` as a file.

    accelerate launch --config_file accelerate_configs/multi_gpu.yaml \
        recipes/weigh.py runs/mine --config recipes/weigh.yaml

The same is ``accelerate launch --config_file ... -m dana weigh ...``; ``dana weigh --help`` lists the flags.
"""

import sys

from dana.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["weigh", *sys.argv[1:]]))
