r"""Continue pretraining a model on weighed text: the command ``dana adapt`` as a file.

    accelerate launch --config_file accelerate_configs/multi_gpu.yaml \
        recipes/adapt.py runs/mine --config recipes/adapt.yaml

The same is ``accelerate launch --config_file ... -m dana adapt ...``; ``dana adapt --help`` lists
the flags.
"""

import sys

from dana.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["adapt", *sys.argv[1:]]))
