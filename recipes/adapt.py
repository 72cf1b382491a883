"""accelerate launch --config_file accelerate_configs/cpu.yaml recipes/adapt.py recipes/adapt.yaml.

Continue pre-training a model on text that was weighed (``dana weigh``), on any number of CPUs or GPUs. Two
CPU processes: ``torchrun --standalone --nproc_per_node 2 recipes/adapt.py recipes/adapt.yaml``. The YAML
explains the settings; any can be overridden at the end of the line, for example ``training.steps=100``.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from dana.config import load, read_yaml
from dana.errors import ConfigError, DanaError
from dana.logging import setup
from dana.stages.adapt import AdaptSettings, adapt_stage


@dataclass(frozen=True)
class Recipe:
    """What to adapt, on what, to where.

    Attributes:
        model: Folder with safetensors, or Hub name.
        corpus: Folder of a corpus artifact.
        task_heldout: Folder of task documents to measure on.
        general_heldout: Folder of general documents to measure on.
        out: Where the adapted model goes.
        weights: Folder of a weights artifact; none trains on the whole corpus equally.
        training: The run.
    """

    model: str
    corpus: Path
    task_heldout: Path
    general_heldout: Path
    out: Path
    weights: Path | None = None
    training: AdaptSettings = field(default_factory=AdaptSettings)


def main(arguments: list[str]) -> int:
    """Run the recipe; 2 after an error of the user's, 75 after a stop that saved."""
    setup()
    try:
        if not arguments:
            raise ConfigError("give the recipe's settings: recipes/adapt.py recipes/adapt.yaml [key=value ...]")
        path, *overrides = arguments
        recipe = load(Recipe, read_yaml(Path(path)), overrides, origin=path)
        adapt_stage(
            recipe.model,
            recipe.corpus,
            recipe.weights,
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
