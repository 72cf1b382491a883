r"""Fine-tune a checkpoint on a labelled task, over seeds: the command ``dana finetune`` as a file.

    accelerate launch --config_file accelerate_configs/multi_gpu.yaml \
        recipes/finetune.py --config recipes/finetune.yaml

The same is ``accelerate launch --config_file ... -m dana finetune ...``; ``dana finetune --help``
lists the flags.
"""

import sys

from dana.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["finetune", *sys.argv[1:]]))
