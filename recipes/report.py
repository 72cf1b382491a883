r"""Write report.html, report.md and tables of a run's folder.

    accelerate launch --config_file accelerate_configs/cpu.yaml \
        recipes/report.py runs/mine

The same as ``dana report``; ``dana report --help`` lists the flags.
"""

import sys

from dana.cli import main

if __name__ == "__main__":
    sys.exit(main(["report", *sys.argv[1:]]))
