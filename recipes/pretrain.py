"""accelerate launch --config_file accelerate_configs/cpu.yaml recipes/pretrain.py recipes/pretrain.yaml.

Train a WordPiece tokenizer and a BERT from nothing but text, so that a comparison needs no downloads. The
YAML explains the settings; any can be overridden at the end of the line, for example ``size=mini``.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from dana.config import load, read_yaml
from dana.errors import ConfigError, DanaError
from dana.logging import setup
from dana.stages.pretrain import PretrainSettings, pretrain_stage


@dataclass(frozen=True)
class Recipe:
    """What to train, on what, to where.

    Attributes:
        corpus: Folder of a corpus artifact.
        task_heldout: Folder of task documents to measure on.
        general_heldout: Folder of general documents to measure on.
        out: Where the model goes.
        size: ``tiny``, ``mini``, ``small``, ``medium`` or ``base``.
        training: The run.
    """

    corpus: Path
    task_heldout: Path
    general_heldout: Path
    out: Path
    size: str = "tiny"
    training: PretrainSettings = field(default_factory=PretrainSettings)


def main(arguments: list[str]) -> int:
    """Run the recipe; 2 after an error of the user's, 75 after a stop that saved."""
    setup()
    try:
        if not arguments:
            raise ConfigError("give the recipe's settings: recipes/pretrain.py recipes/pretrain.yaml [key=value ...]")
        path, *overrides = arguments
        recipe = load(Recipe, read_yaml(Path(path)), overrides, origin=path)
        pretrain_stage(
            recipe.size,
            recipe.corpus,
            recipe.task_heldout,
            recipe.general_heldout,
            recipe.training,
            recipe.out,
        )
    except DanaError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
