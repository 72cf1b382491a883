r"""Every step of a recipe, resumable.

    accelerate launch --config_file accelerate_configs/cpu.yaml \
        recipes/run.py recipes/quickstart.yaml [key=value ...]

The same as ``dana run``; ``dana run --help`` lists the flags.
"""

import sys

from dana.cli import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
