r"""accelerate launch --config_file accelerate_configs/cpu.yaml recipes/finetune.py --config recipes/finetune.yaml.

Fine-tune a checkpoint on a labelled task, over seeds; several processes share the seeds out. The same as ``dana
finetune``, whose ``--help`` lists the flags. Flags go before the YAML:

    torchrun --standalone --nproc_per_node 2 recipes/finetune.py --config recipes/finetune.yaml \
        --model runs/mine/adapted --task-card acl_arc --out runs/mine/finetune/acl_arc/dana
"""

import sys

from dana.cli import main

if __name__ == "__main__":
    sys.exit(main(["finetune", *sys.argv[1:]]))
