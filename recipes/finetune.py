r"""Fine-tune a checkpoint on a labelled task. Several processes share the seeds.

    accelerate launch --config_file accelerate_configs/cpu.yaml \
        recipes/finetune.py --model runs/mine/adapted --task-card chemprot --out runs/mine/finetune/chemprot/dana \
        --config recipes/finetune.yaml

The same as ``dana finetune``; ``dana finetune --help`` lists the flags.
"""

import sys

from dana.cli import main

if __name__ == "__main__":
    sys.exit(main(["finetune", *sys.argv[1:]]))
