"""Read the tensors of a pickled checkpoint, such as ``pytorch_model.bin``.

This is the only module that opens a pickle which dana did not write, and ``dana files convert`` is
the only command that calls it. ``torch.load(weights_only=True)`` builds tensors and plain
containers and calls nothing else that a pickle names, so no code of the file runs.
"""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.core.errors import ArtifactError

if TYPE_CHECKING:
    from torch import Tensor

# Where training loops keep the weights in a larger file.
PLACES = ("state_dict", "model_state_dict", "model", "module")
# What wrappers put into the names of the modules that they hold: torch.compile, activation
# checkpointing and FSDP anywhere, data parallelism at the beginning.
WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")
DATA_PARALLEL = "module."


def read_tensors(file: Path) -> "dict[str, Tensor]":
    """Read the tensors of one pickled file, by name; no code of it runs.

    Raises:
        ArtifactError: If it is damaged, or holds objects that only code could build.
    """
    import torch

    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds
        what = _forbidden(str(error))
        if what:
            raise ArtifactError(
                f"{file}: holds {what}, which needs code, and dana runs none; where the model was "
                "made, save its weights alone: model.save_pretrained(FOLDER)"
            ) from error
        reason = str(error).partition("\n")[0].partition(". ")[0] or type(error).__name__
        raise ArtifactError(
            f"{file}: cannot be read: {reason}; copy or download it again"
        ) from error
    tensors = _find_tensors(content)
    for name, value in tensors.items():
        if value.layout != torch.strided or value.is_quantized:
            raise ArtifactError(
                f"{file}: {name} is sparse or quantised; save the model as it was before that"
            )
    if not tensors:
        raise ArtifactError(
            f"{file}: holds no tensors by name; it must be what model.state_dict() returns"
        )
    return tensors


def _forbidden(message: str) -> str:
    """Return what a file holds besides tensors by the message of torch; empty for other errors."""
    if "TorchScript" in message:
        return "a TorchScript program"
    if "weights_only" not in message and "Weights only" not in message:
        return ""
    name = re.search(r"GLOBAL ([\w.]+)", message)
    return name[1] if name else "more than tensors"


def _find_tensors(content: Any) -> "dict[str, Tensor]":
    """Return the tensors of a mapping, or of the mapping in it that holds the weights."""
    import torch

    if not isinstance(content, Mapping):
        return {}
    for place in PLACES:
        inside = content.get(place)
        if isinstance(inside, Mapping) and _find_tensors(inside):
            return _find_tensors(inside)
    return {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}


def plain_names(
    tensors: "Mapping[str, Tensor]", expected: Collection[str], where: str
) -> "dict[str, Tensor]":
    """Remove from the names of tensors what wrappers of the model have put there.

    Args:
        tensors: The tensors of a checkpoint, by name.
        expected: Names of the parameters of the model, with and without its prefix.
        where: The checkpoint, for messages.

    Returns:
        The tensors by the names that transformers knows. Each has memory of its own: tied weights
        are written under every name that they have.

    Raises:
        ArtifactError: If two tensors with different values get one name, or no name is one of the
            model's.
    """
    import torch

    unwrapped = {name: _without_wrappers(name) for name in tensors}
    prefix = _outer_prefix(unwrapped.values(), expected)
    plain: dict[str, Tensor] = {}
    origin: dict[str, str] = {}
    for name, value in tensors.items():
        key = unwrapped[name].removeprefix(prefix)
        if key in plain and not torch.equal(plain[key], value):
            raise ArtifactError(
                f"{where}: {origin[key]} and {name} both are {key} of the model, with other "
                "values; remove one of them: it is not known which was trained last"
            )
        origin.setdefault(key, name)
        plain[key] = value.detach().clone(memory_format=torch.contiguous_format)
    if not any(name in expected for name in plain):
        raise ArtifactError(
            f"{where}: no tensor has a name of the model in its config.json: they are called "
            f"{min(plain)} and the like, the model's {min(expected)}; it needs its own config.json"
        )
    return plain


def _without_wrappers(name: str) -> str:
    """Remove the parts of a name that wrappers of modules put into it."""
    before = ""
    while name != before:
        before = name
        name = name.removeprefix(DATA_PARALLEL)
        for part in WRAPPERS:
            if name.startswith(part) or f".{part}" in name:
                name = f".{name}".replace(f".{part}", ".", 1).removeprefix(".")
    return name


def _outer_prefix(names: Collection[str], expected: Collection[str]) -> str:
    """Return the prefix without which most names are the model's; empty where none helps.

    A training loop that holds the model as an attribute calls its tensors ``model.bert...``.
    """
    candidates = {""}
    for name in names:
        first, _, rest = name.partition(".")
        second = rest.partition(".")[0]
        candidates |= {f"{first}.", f"{first}.{second}."}

    def matches(prefix: str) -> int:
        return sum(name.removeprefix(prefix) in expected for name in names)

    return max(sorted(candidates), key=matches)


def expected_names(make: Callable[[], Any]) -> set[str]:
    """Return the names of a model's parameters, with and without the prefix of models with a head.

    Args:
        make: Makes the model without a head; called where tensors take no memory.
    """
    import torch

    with torch.device("meta"):
        model = make()
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return names | {f"{model.base_model_prefix}.{name}" for name in names}
