"""Models that ship with dana: a name in, the folder of its checkpoint out, with the weights verified."""

from functools import cache
from hashlib import file_digest
from pathlib import Path

from dana.core.errors import ArtifactError

# Name, which is that of its folder beside this file, and sha256 of model.safetensors.
SHIPPED = {"dana-mini": "2eaeca1aa55e447e9e158fd29c67982ec2081010e793a2b0193064c1eadb386d"}


def located(model: str) -> str:
    """The folder of a model that ships with dana; any other folder or Hub name as it is.

    A folder of that name in the working directory goes first.

    Raises:
        ArtifactError: If the weights are not the published ones.
    """
    return str(_verified(model)) if model in SHIPPED and not Path(model).exists() else model


@cache
def _verified(name: str) -> Path:
    folder = Path(__file__).parent / name
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise ArtifactError(f"{weights}: missing; install dana again")
    with weights.open("rb") as stream:
        found = file_digest(stream, "sha256").hexdigest()
    if found != SHIPPED[name]:
        raise ArtifactError(f"{weights}: sha256 is {found}, not the published {SHIPPED[name]}; install dana again")
    return folder
