r"""Write report.html, report.md and tables of a run (one process does it): the command ``dana report`` as a file.

    accelerate launch --config_file accelerate_configs/multi_gpu.yaml \
        recipes/report.py runs/mine

The same is ``accelerate launch --config_file ... -m dana report ...``; ``dana report --help`` lists the flags.
"""

import sys

from dana.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["report", *sys.argv[1:]]))
