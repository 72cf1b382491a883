r"""Train a WordPiece tokenizer and a BERT from scratch: the command ``dana pretrain`` as a file.

    accelerate launch --config_file accelerate_configs/multi_gpu.yaml \
        recipes/pretrain.py runs/mine --config recipes/pretrain.yaml

The same is ``accelerate launch --config_file ... -m dana pretrain ...``; ``dana pretrain --help`` lists the flags.
"""

import sys

from dana.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["pretrain", *sys.argv[1:]]))
