"""Load, identify and check models in folders, on the Hub or shipped with dana.

Weights are safetensors only, and code in a model's folder never runs. A folder may also hold only
adapters (:mod:`dana.models.adapters`): it then names its base, and both are loaded as one model.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from dana.core.artifacts import Draft, fingerprint, list_differences, read_manifest
from dana.core.errors import ArtifactError, ConfigError, DanaError, nearest_path
from dana.core.files import check_sha256, file_digest
from dana.core.launch import PRECISION_VARIABLE
from dana.core.logging import get_logger
from dana.models import minilm, mpnet, smollm2
from dana.models.adapters import CONFIG, adapted_base, fold_adapter
from dana.models.convertible import (
    SUFFIXES,
    convert_command,
    is_static_model,
    no_weights,
    transformer_folder,
)
from dana.models.embeddings import token_range
from dana.models.head_file import gathered, head_architecture, load_head

log = get_logger(__name__)

# The sha256 of each model's model.safetensors, by the name of the model, which is also that of its
# folder beside this file.
SHIPPED = {"dana-mini": "f63a42a5bacd8ccfce41077d30094c4aa573673700bf36499dc1a969c3010f2c"}

# Types of safetensors that hold a weight as it is. Numbers of another type are quantised: without
# their scale, a cast to float32 gives other weights.
FLOATS = ("F64", "F32", "F16", "BF16")

# Ends of error messages, which say what to do. This one is for weights that do not fit config.json.
OF_ONE_MODEL = (
    "config.json is that of another model, or the weights were cut: copy both again from one place"
)
MERGE_ADAPTERS = "merge its adapters where they were trained: model.merge_and_unload() of peft"
SEE_CONFIG = "see its config.json, or take another model, such as dana-mini"

# Patterns of the files that transformers reads of a model's folder; CONFIG is that of adapters.
TOKENIZER_FILES = [
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.model",
    "chat_template*",
]
MODEL_FILES = [
    "config.json",
    CONFIG,
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    *TOKENIZER_FILES,
]


def resolve_model(model: str) -> str:
    """Return the folder of a model that dana knows by name; any other folder or Hub name unchanged.

    dana knows the model that ships with it, and ``minilm``, ``all-mpnet-base-v2`` and ``smollm2``,
    which packages of the index hold; the first time, the last two are written to the user's cache.
    A folder of such a name in the working directory has precedence.

    Raises:
        ArtifactError: If the weights are not the published ones, or packages are missing.
        PluginError: If the package of ``minilm`` is missing.
    """
    if Path(model).exists():
        return model
    if model == smollm2.NAME:
        with quiet_transformers():
            return str(smollm2.smollm2_folder())
    if model == minilm.NAME:
        return str(minilm.minilm_folder())
    if model == mpnet.NAME:
        return str(mpnet.mpnet_folder())
    if model in SHIPPED:
        return str(_shipped_folder(model))
    return model


@cache
def _shipped_folder(name: str) -> Path:
    """Return the folder of a model that ships with dana, and verify its weights, once in a process.

    Raises:
        ArtifactError: If the weights are missing, or not the published ones.
    """
    folder = Path(__file__).parent / name
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise ArtifactError(f"{weights}: missing; install dana again")
    check_sha256(weights, SHIPPED[name], "; install dana again")
    return folder


def model_name(model: str) -> str:
    """Return the last part of the path of a folder; any other name of a model unchanged."""
    if Path(model).is_dir():
        return Path(model).resolve().name
    return model


def licence_line(model: str) -> str:
    """Return the line ``license: NAME`` of a checkpoint's model card, with its line break.

    The card of a model that is made from the checkpoint repeats it. It is empty if there is no
    card, or if its front matter has no such line.
    """
    card = Path(resolve_model(model)) / "README.md"
    if not card.is_file():
        return ""
    text = card.read_text("utf-8", errors="replace")
    # The front matter begins with a line of dashes, and a line that begins with dashes ends it.
    match = re.match(r"---\n(?:(?!---).*\n)*?(license: +[\w.-]+\n)", text)
    if match is None:
        return ""
    return match[1]


def load_backbone(model: str) -> Any:
    """Load the ``AutoModel`` of a folder or Hub name in float32.

    A pooler that the checkpoint lacks is random.

    Raises:
        ArtifactError: If it cannot be loaded; see :func:`load_with_head`.
    """
    from transformers import AutoModel

    network, _ = load_with_head(AutoModel, model)
    return network


def load_complete(auto_class: Any, model: str, **options: Any) -> Any:
    """Load a model in float32 that has all its weights, those of its head included.

    Args:
        auto_class: See :func:`load_with_head`.
        model: See :func:`load_with_head`.
        options: See :func:`load_with_head`.

    Raises:
        ArtifactError: If it cannot be loaded, or weights are missing.
    """
    network, new = load_with_head(auto_class, model, **options)
    if new:
        raise ArtifactError(
            f"{model}: weights are missing: {_some(new)}; train them: dana adapt for tokens, "
            f"dana finetune --save for labels"
        )
    return network


def load_with_head(auto_class: Any, model: str, **options: Any) -> tuple[Any, frozenset[str]]:
    """Load a model of a folder or Hub name from safetensors, in float32 whatever its own precision.

    Adapters of a folder are added to the weights of their base.

    Args:
        auto_class: Class of transformers to load.
        model: A folder with ``config.json`` and safetensors, a folder of adapters, a Hub name, or a
            model that dana knows by name.
        options: Further arguments of ``from_pretrained``; with ``ignore_mismatched_sizes`` a head
            of another size is replaced.

    Returns:
        The model, and the names of parameters outside its backbone that are random, because the
        checkpoint lacks them or has them in another shape.

    Raises:
        ArtifactError: If there is no such model, its weights are pickled, quantised or not finite,
            it needs code of its own, weights of its backbone are missing or have another shape, or
            weights of layers or adapters have no place in it.
    """
    import torch

    load_config(model)  # it refuses what cannot be loaded, with a message that says why
    folder = resolve_model(model)
    base = adapted_base(folder)
    if base is not None:
        network, random_names = load_with_head(auto_class, base, **options)
        _fold_into(network, folder, base)
        return network, random_names
    options = {
        "use_safetensors": True,
        "dtype": torch.float32,
        "trust_remote_code": False,
        **options,
    }
    with loading(model):
        network, report = auto_class.from_pretrained(folder, output_loading_info=True, **options)
        missing = set(report["missing_keys"])
        # A sentence encoder has its head for language modelling in a file of its own.
        missing -= load_head(network, folder, missing)
    mismatched = {name for name, *_ in report["mismatched_keys"]}
    _set_new_biases(network, missing | mismatched)
    _check_floats(model, network)
    _check_finite(model, network)
    _check_backbone_complete(model, network, missing)
    _check_backbone_shapes(model, network, mismatched)
    _check_left_over(model, network, report["unexpected_keys"])
    return network, frozenset(missing | mismatched)


def _set_new_biases(network: Any, new: Collection[str]) -> None:
    """Set the biases that a checkpoint lacks to 0, in place, where every architecture begins them.

    transformers forgets some of them, those of the masked heads of Longformer, FNet, Data2Vec, LUKE and
    others: they then hold what was in memory, which may be no number.

    Args:
        network: The model.
        new: Names of the parameters that the checkpoint lacks.
    """
    import torch

    biases = []
    for name, value in network.named_parameters(remove_duplicate=False):
        if name in new and name.endswith("bias"):
            biases.append(value)
    with torch.no_grad(), gathered(biases, modifier_rank=0):
        for bias in biases:
            bias.zero_()


def _check_floats(model: str, network: Any) -> None:
    """Check that the files of a folder hold the parameters of a model as floating-point numbers.

    The files of a Hub name lie elsewhere and are not looked at.

    Raises:
        ArtifactError: If a parameter has another type.
    """
    from safetensors import safe_open

    # Files of the backbone alone leave out the prefix that the names have in a model with a head.
    stems = {_without_prefix(network, name) for name, _ in network.named_parameters()}
    for file in Path(resolve_model(model)).glob("*.safetensors"):
        wrong = set()
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118, it is no mapping
                is_float = tensors.get_slice(name).get_dtype() in FLOATS
                is_parameter = _without_prefix(network, name) in stems
                if is_parameter and not is_float:
                    wrong.add(name)
        if wrong:
            raise ArtifactError(
                f"{model}: weights are not floating-point numbers: {_some(wrong)}; "
                "use the weights of before they were quantised"
            )


def _check_finite(model: str, network: Any) -> None:
    """Check that no parameter of a model holds NaN or infinity.

    Raises:
        ArtifactError: If one does.
    """
    wrong = {name for name, value in network.named_parameters() if not value.isfinite().all()}
    if wrong:
        raise ArtifactError(
            f"{model}: weights are not finite: {_some(wrong)}; the file is damaged, or its "
            "training diverged: copy it again, or take an earlier checkpoint"
        )


def _backbone_prefix(network: Any) -> str:
    """Return what the names of a model's own backbone begin with; empty for a model without a head."""
    if network.base_model is network:
        return ""
    return f"{network.base_model_prefix}."


def _without_prefix(network: Any, name: str) -> str:
    """Return the name of a parameter as it is in the backbone alone, whether the model has a head or not."""
    return name.removeprefix(f"{network.base_model_prefix}.")


def _of_backbone(network: Any, names: Collection[str]) -> set[str]:
    """Return those of some names that are parameters of the backbone; a pooler counts as a head."""
    prefix = _backbone_prefix(network)
    return {name for name in names if name.startswith(prefix) and "pooler" not in name}


def _check_backbone_complete(model: str, network: Any, missing: Collection[str]) -> None:
    """Check that a checkpoint lacks no weights of the backbone.

    Raises:
        ArtifactError: If it lacks some of them.
    """
    lost = _of_backbone(network, missing)
    if lost:
        raise ArtifactError(
            f"{model}: weights of its backbone are missing: {_some(lost)}; {OF_ONE_MODEL}"
        )


def _check_backbone_shapes(model: str, network: Any, mismatched: Collection[str]) -> None:
    """Check that weights of the backbone have the shapes that the configuration gives them.

    Raises:
        ArtifactError: If some have others.
    """
    wrong = _of_backbone(network, mismatched)
    if wrong:
        raise ArtifactError(
            f"{model}: weights have other shapes than in its config.json: {_some(wrong)}; "
            f"{OF_ONE_MODEL}"
        )


def _check_left_over(model: str, network: Any, unexpected: Collection[str]) -> None:
    """Check that the weights without a place in the model are heads of other tasks.

    Raises:
        ArtifactError: If layers of the backbone or adapters are left over.
    """
    prefix = _backbone_prefix(network)
    backbone_patterns = set()
    for name, _ in network.named_parameters():
        if name.startswith(prefix):
            backbone_patterns.add(_pattern(name.removeprefix(prefix)))
    adapters = set()
    extra = set()
    for name in unexpected:
        if "lora_" in name:
            adapters.add(name)
        # A left-over layer has the name of another one but for its number.
        if _pattern(_without_prefix(network, name)) in backbone_patterns:
            extra.add(name)
    extra |= adapters
    if extra:
        remedy = OF_ONE_MODEL
        if adapters:
            remedy = MERGE_ADAPTERS
        raise ArtifactError(
            f"{model}: weights have no place in the model of its config.json: {_some(extra)}; "
            f"{remedy}"
        )


def lacks_head(auto_class: Any, model: str) -> bool:
    """Return whether a checkpoint lacks weights of a class of transformers, whose head it may not have.

    Weights are not read, but for those in the file of a head, and unless ZeRO-3 is on.

    Args:
        auto_class: The class.
        model: Folder with safetensors, or Hub name.

    Raises:
        ArtifactError: If there is no such model, or it cannot be loaded.
    """
    from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

    load_config(model)
    folder = resolve_model(model)
    base = adapted_base(folder)
    if base is not None:
        return lacks_head(auto_class, base)
    device: str | None = "meta"  # parameters on it have a shape and no values
    if is_deepspeed_zero3_enabled():
        # ZeRO-3 cuts weights up as it reads them, and from_pretrained then takes no device.
        device = None
    with loading(model):
        network, report = auto_class.from_pretrained(
            folder,
            output_loading_info=True,
            device_map=device,
            use_safetensors=True,
            trust_remote_code=False,
        )
        missing = set(report["missing_keys"])
        # It says which of them the file of a head has; to set them on "meta" does nothing.
        missing -= load_head(network, folder, missing)
    return bool(missing)


def brings_head(auto_class: Any, model: str) -> bool:
    """Return whether a checkpoint has the head of a class of transformers, and it fits the backbone.

    A head does not fit if dana trained the backbone later without it; the manifest then names it
    under ``untrained``.

    Args:
        auto_class: The class.
        model: Folder with safetensors, or Hub name.

    Raises:
        ArtifactError: If there is no such model, it cannot be loaded, or its manifest is damaged.
    """
    manifest = read_manifest(Path(resolve_model(model)))
    is_stale = bool(manifest.get("untrained"))
    return not is_stale and not lacks_head(auto_class, model)


def _fold_into(network: Any, folder: str, base: str) -> None:
    """Add the adapters of a folder to the weights of a model that was loaded from their base, in place.

    The model may have another head than the one that was adapted. Parameters that the adapted model
    does not have stay as they are. The configuration of the model names the folder afterwards.

    Args:
        network: The model.
        folder: Folder of the adapters.
        base: Folder or Hub name of their base.

    Raises:
        ArtifactError: If the base has changed since, or the adapters do not fit it.
    """
    import torch

    _check_base_unchanged(folder, base)
    # peft knows modules by their names in the class that was adapted.
    adapted = load_complete(own_class(base), base)
    with loading(folder):
        adapted = fold_adapter(adapted, folder)
    weights = {}
    for name, value in adapted.state_dict().items():
        weights[_without_prefix(adapted, name)] = value
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            stem = _without_prefix(network, name)
            whole_shape = getattr(parameter, "ds_shape", parameter.shape)  # ZeRO-3 keeps a part
            # A head of other labels has another shape, and is not that of the adapted model.
            if stem in weights and weights[stem].shape == whole_shape:
                parameter.copy_(weights[stem])
    network.config.name_or_path = folder


def _check_base_unchanged(folder: str, base: str) -> None:
    """Check that the base of adapters is the model that they were trained on.

    Only adapters that dana trained say which this is; of others nothing is checked.

    Raises:
        ArtifactError: If the base is not that model; names what differs.
    """
    depends_on = read_manifest(Path(folder)).get("depends_on", {})
    before = depends_on.get("model")
    if not before:
        return
    now = model_identity(base)
    differences = "; ".join(list_differences(before, now))
    if differences:
        raise ArtifactError(
            f"{folder}: its base {base} has changed since ({differences}); restore it, "
            f"or train the adapters again: dana adapt DIR --model {base} --set adapt.adapter=lora"
        )


def own_class(model: str) -> Any:
    """Return the class of transformers that a checkpoint was saved from, with its head.

    The configuration names it, or the file of the head if the head has a file of its own. Of
    adapters it is the class of their base.

    Raises:
        ArtifactError: If there is no such model, it names no class, or transformers lacks the class.
    """
    import transformers

    config = load_config(model)
    folder = resolve_model(model)
    with loading(model):
        names = config.architectures
        folder_with_weights = adapted_base(folder) or folder
        class_with_head = head_architecture(folder_with_weights)
        if class_with_head:
            names = [class_with_head]
        if not names:
            raise ArtifactError(
                f"{model}: its config.json does not say what it predicts; add, for example, "
                '"architectures": ["BertForMaskedLM"]'
            )
        return getattr(transformers, names[0])


def _pattern(parameter: str) -> str:
    """Return a parameter's name with # for every number, so that all layers have the same names."""
    return re.sub(r"\d+", "#", parameter)


def _some(names: Collection[str]) -> str:
    """Name the alphabetically first of one or more parameters, and count the others."""
    if len(names) == 1:
        return min(names)
    return f"{min(names)} and {len(names) - 1} others"


def load_own_tokenizer(model: str) -> Any:
    """Load the ``AutoTokenizer`` of a folder or Hub name, whether or not the model fits it.

    Raises:
        ArtifactError: If there is none, or it cannot be loaded.
    """
    from transformers import AutoTokenizer

    with loading(f"{model}: its tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(resolve_model(model), trust_remote_code=False)
    # For a folder without tokenizer, transformers makes up one that has only special tokens.
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ArtifactError(
            f"{model}: has no tokenizer; copy that of the model into the folder: tokenizer.json, "
            "or vocab.txt, vocab.json with merges.txt, or *.model"
        )
    return tokenizer


def padding_id(tokenizer: Any) -> int:
    """Return the id that fills rows of token ids up to their common length.

    It is that of the padding token. If there is none, it is that of the token for the end of a
    text, which does not occur within one; if there is none of either, it is 0.
    """
    padding: int | None = tokenizer.pad_token_id
    if padding is not None:
        return padding
    end: int | None = tokenizer.eos_token_id
    if end is not None:
        return end
    return 0


def load_config(model: str) -> Any:
    """Load a checkpoint's configuration; of adapters it is that of their base.

    Raises:
        ArtifactError: If there is no such model, its folder is not that of a checkpoint with
            safetensors, it is quantised, or its configuration is damaged or needs code of its own.
    """
    from transformers import AutoConfig

    check_checkpoint(model)
    folder = resolve_model(model)
    with loading(model):
        base = adapted_base(folder)
        if base is not None:
            folder = resolve_model(base)
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    names = config.architectures or []
    if not isinstance(names, list):
        raise ArtifactError(
            f"{model}: architectures={names!r} in its config.json: must be a list of names, "
            'such as ["BertForMaskedLM"]'
        )
    if hasattr(config, "quantization_config"):
        raise ArtifactError(
            f"{model}: is quantised (quantization_config in its config.json); "
            "use its original weights"
        )
    return config


def load_tokenizer(model: str) -> tuple[Any, Any]:
    """Load a checkpoint's configuration and tokenizer, and check that they fit each other.

    Args:
        model: Folder with safetensors, or Hub name.

    Returns:
        The configuration and the tokenizer.

    Raises:
        ArtifactError: If there is no such model, it has no tokenizer, it reads no tokens, or it has
            fewer rows of embeddings than its tokenizer has tokens.
    """
    config = load_config(model)
    tokenizer = load_own_tokenizer(model)
    size = getattr(config, "vocab_size", None)
    ids = token_range(tokenizer)  # number of rows that the token ids need
    if size is None:
        raise ArtifactError(
            f"{model}: a model of type {config.model_type} reads no tokens (no vocab_size in its "
            "config.json); take a model of text"
        )
    if ids > size:
        raise ArtifactError(
            f"{model}: the tokenizer has {ids} tokens, the model only {size}; to give them rows: "
            f"{convert_command(model, '--resize-embeddings')}; dana adapt has this flag, too"
        )
    return config, tokenizer


def model_identity(model: str, digest: Callable[[Path], str] = file_digest) -> dict[str, Any]:
    """Return what identifies a model in a manifest.

    Args:
        model: Folder with safetensors, or Hub name.
        digest: Function that computes the digest of a file.
            :meth:`dana.core.raw_files.RawFiles.digest` is one that remembers it.

    Returns:
        Of a folder, the digest of each file that transformers reads, by the file's name; of
        adapters also the identity of their ``base``. Of a Hub name, its ``name`` and ``commit``,
        which is None if it is not known.

    Raises:
        ArtifactError: If there is no such model.
    """
    check_checkpoint(model)
    folder = Path(resolve_model(model))
    if not folder.is_dir():
        config = load_config(model)
        return {"name": model, "commit": getattr(config, "_commit_hash", None)}
    files: set[Path] = set()  # a set, as some files match two patterns
    for pattern in MODEL_FILES:
        files.update(folder.glob(pattern))
    identity: dict[str, Any] = {file.name: digest(file) for file in sorted(files)}
    base = adapted_base(str(folder))
    if base is not None:
        identity["base"] = model_identity(base, digest)
    return identity


def note_weights(draft: Draft) -> None:
    """Put the digests of a model's weights into the notes of its draft, and so into its manifest.

    By these a report traces which model another one was made from.
    """
    files = sorted(draft.path.glob("*.safetensors"))
    draft.notes["weight_digests"] = {file.name: file_digest(file) for file in files}


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Silence transformers, and turn the errors of libraries into an ArtifactError of one line.

    With a damaged file, transformers and safetensors raise OSError, ValueError, KeyError,
    RuntimeError or errors of their own.

    Args:
        what: Folder or Hub name of the model, or what of it is loaded; the message begins with it.

    Raises:
        ArtifactError: For any error inside the block but those of dana, which stay as they are.
    """
    try:
        with quiet_transformers():
            yield
    except DanaError:
        raise
    except Exception as error:
        message = _reason(error)
        # The messages of transformers are known by their words, since their types do not tell.
        if "trust_remote_code" in str(error):
            message = (
                "its architecture needs code from its folder, which dana never runs; take a model "
                "of an architecture that transformers has"
            )
        elif "couldn't connect to" in message and not Path(what).exists():
            message = (
                f"there is no such folder{nearest_path(what)}, and the Hub, which may have a model of "
                f"this name, cannot be reached; models that are installed: {_shipped_names()}"
            )
        elif "ignore_mismatched_sizes" in message:
            # Its message refers to a table of weights, which is silenced.
            message = f"its weights have other shapes than in its config.json; {OF_ONE_MODEL}"
        elif "Unrecognized configuration class" in message:
            message = _no_class(message)
        elif re.search("does not appear to have a file named .*safetensors", message):
            message = f"{message}; {convert_command(what)} opens pytorch_model.bin"
        raise ArtifactError(f"{what}: cannot be loaded: {message}") from error


def _shipped_names() -> str:
    """List the names of the models that need no Hub."""
    return ", ".join([*SHIPPED, minilm.NAME, mpnet.NAME, smollm2.NAME])


def _no_class(message: str) -> str:
    """Say which class transformers lacks for an architecture, and what works.

    Args:
        message: Transformers' message, "Unrecognized configuration class <class
            '...configuration_clip.CLIPConfig'> for this kind of AutoModel: AutoModelForMaskedLM."
    """
    configuration = re.search(r"\.(\w+)Config\b", message)
    auto_class = re.search(r"kind of AutoModel: (\w+)", message)
    name = "class"
    if auto_class:
        name = auto_class[1]
    architecture = "its architecture"
    if configuration:
        architecture += f" ({configuration[1]})"
    remedy = "take another model, such as dana-mini"
    if name == "AutoModelForSequenceClassification":
        remedy = "fine-tune it with --set finetune.pooling=mean, which needs none"
    return f"transformers has no {name} for {architecture}; {remedy}"


def _reason(error: Exception) -> str:
    """Return the first line of a library's error that is not blank, and the next if it ends in a colon.

    The name of the error's type stands before it, unless messages of the type are sentences, as those
    of OSError, ValueError and RuntimeError are.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = ""
    if lines:
        message = lines[0]
    if message.endswith(":"):
        message = " ".join(lines[:2])
    is_sentence = isinstance(error, OSError | ValueError | RuntimeError)
    if message and is_sentence:
        return message
    return f"{type(error).__name__}: {message}"


def lacks_memory(error: Exception) -> bool:
    """Return whether an error of a forward or backward pass says that memory is too short.

    Some libraries, such as cuBLAS, and torch on a CPU or on Metal, say it in the message alone.
    """
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    words = re.search("out of memory|not enough memory|allocate memory|ALLOC_FAILED", str(error))
    return isinstance(error, RuntimeError) and words is not None


def autocast_name() -> str:
    """Return the precision of the autocast that is on here, ``bfloat16`` or ``float16``; empty if none is."""
    import torch

    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            return str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    return ""


@contextmanager
def running(network: Any, to_float32: str = f"set {PRECISION_VARIABLE}=no") -> Iterator[None]:
    """Turn an error of a model's forward pass into an ArtifactError of one line.

    Lack of memory stays as it is. Put it around the call of the model alone, so that it hides no
    error of dana.

    Args:
        network: A model of transformers; its configuration knows the folder or Hub name that it was
            loaded from.
        to_float32: How the user can have the model computed in float32; the message says it if the
            pass was under autocast.

    Raises:
        ArtifactError: If the pass fails; names the model, the precision of autocast if it is on, and
            the library's reason.
    """
    try:
        yield
    except Exception as error:
        if lacks_memory(error):
            raise
        name = network.config.name_or_path or network.config.model_type
        precision = autocast_name()
        problem = "the model cannot run"
        remedy = SEE_CONFIG
        if precision:
            problem += f" in {precision}"
            remedy = f"float32 may work: {to_float32}"
        raise ArtifactError(f"{name}: {problem}: {_reason(error)}; {remedy}") from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' progress bar and its table of missing weights while the block runs.

    The callers check the weights themselves. The whole process is silenced, other threads included.
    """
    from transformers import logging

    level = logging.get_verbosity()
    has_bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if has_bars:
            logging.enable_progress_bar()


def check_checkpoint(model: str) -> None:
    """Check, before any work, that a local path is a folder of a checkpoint with safetensors.

    Of a folder of adapters, their base is checked. A Hub name is not looked up.

    Raises:
        ArtifactError: If it is a file, there is no such folder, or its files are not those of a
            checkpoint; says what to do.
    """
    path = Path(resolve_model(model))
    if path.is_file():
        remedy = f"name its folder: {path.parent}"
        if path.suffix in SUFFIXES:
            remedy = f"make a folder of it: {convert_command(model)}"
        raise ArtifactError(
            f"{model}: expected a folder with config.json and *.safetensors, got a file; {remedy}"
        )
    if not path.is_dir():
        may_be_hub_name = not (path.is_absolute() or model.startswith(".") or model.count("/") > 1)
        if may_be_hub_name:
            return
        raise ArtifactError(
            f"{model}: no such folder{nearest_path(model)}; models that are installed: "
            f"{_shipped_names()}"
        )
    base = adapted_base(str(path))
    if base is not None:
        if adapted_base(resolve_model(base)):
            raise ArtifactError(
                f"{model}: its base {base} is an adapter, too; "
                f"fold that first: dana files fold {base}"
            )
        check_checkpoint(base)
        return
    if not (path / "config.json").is_file():
        raise ArtifactError(
            f"{model}: not the folder of a model: config.json is missing; {_nearby_model(path)}"
        )
    for index in path.glob("*.index.json"):
        _check_index(model, index)
    if not list(path.glob("*.safetensors")):
        _refuse_without_weights(model, path)


def check_whole(model: str) -> None:
    """Check, before any work, that the weights of a local folder were not cut.

    The header of a safetensors file says how long the file is, so no weight is read. Of a folder of
    adapters, their base is checked, too. A Hub name is not looked up.

    Raises:
        ArtifactError: If a file is cut or damaged; names the file.
    """
    from safetensors import SafetensorError, safe_open

    check_checkpoint(model)
    folder = resolve_model(model)
    for file in sorted(Path(folder).glob("*.safetensors")):
        try:
            with safe_open(file, "np"):
                pass
        except (OSError, SafetensorError) as error:
            remedy = "copy the file again, whole"
            raise ArtifactError(f"{file}: is cut or damaged ({error}); {remedy}") from error
    base = adapted_base(folder)
    if base is not None:
        check_whole(base)


def _refuse_without_weights(model: str, folder: Path) -> NoReturn:
    """Raise an error that says how to get safetensors into the folder of a model that has none.

    Raises:
        ArtifactError: Always.
    """
    files = [*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pkl")]
    pickles = sorted(file.name for file in files)
    if not pickles:
        raise ArtifactError(f"{model}: needs weights as *.safetensors: it {no_weights(folder)}")
    raise ArtifactError(
        f"{model}: needs weights as *.safetensors; {', '.join(pickles)}: pickles run code when "
        f"opened and are refused; convert them: {convert_command(model)}"
    )


def _nearby_model(folder: Path) -> str:
    """Say what to take instead of a folder without ``config.json``."""
    if is_static_model(str(folder)):
        return "it is a static model, which has no transformer; take the checkpoint that it was made from"
    if transformer_folder(folder) != folder:  # old layouts have the transformer in a folder inside
        return f"its layout is an old one of sentence-transformers: {convert_command(str(folder))}"
    folders_inside = sorted(file.parent for file in folder.glob("*/config.json"))
    models_inside = [inner for inner in folders_inside if any(inner.glob("*.safetensors"))]
    if models_inside:
        return f"did you mean {str(models_inside[0])!r}?"
    return "copy the whole folder of the model"


def _check_index(model: str, index: Path) -> None:
    """Check that an index of shards names safetensors beside it, and nothing else.

    Raises:
        ArtifactError: If it names another file or one that is not there, or cannot be read.
    """
    with loading(f"{model}/{index.name}"):
        content = json.loads(index.read_text(encoding="utf-8"))
        names = set(content["weight_map"].values())
    for name in sorted(map(str, names)):
        if Path(name).name != name or Path(name).suffix != ".safetensors":
            raise ArtifactError(
                f"{model}/{index.name}: {name}: must be the name of a *.safetensors file "
                f"beside it; of others: {convert_command(model)}"
            )
        if not (index.parent / name).is_file():
            raise ArtifactError(
                f"{model}/{index.name}: {name}: no such file; copy the folder again, whole"
            )
    if not isinstance(content.get("metadata"), dict):  # transformers needs it
        raise ArtifactError(
            f"{model}/{index.name}: the key 'metadata' is missing; add \"metadata\": {{}}"
        )


def tokenizer_identity(tokenizer: Any, special_tokens: str) -> str:
    """Compute a hex digest of everything in a tokenizer that the tokens of a text depend on.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
        special_tokens: How the caller treats special tokens such as "[MASK]" in a text, in words.
            These words are hashed, too, so another wording gives another digest.

    Raises:
        ConfigError: If the tokenizer is slow.
    """
    content = uncut(tokenizer).to_str()
    return fingerprint({"tokenizer": content, "special tokens": special_tokens})


def uncut(tokenizer: Any) -> Any:
    """Return a copy of a tokenizer's core that neither truncates nor pads.

    The copy takes nothing in a text for a special token. In a text, "[MASK]" becomes a bracket, a
    word and a bracket, never the special token.

    Args:
        tokenizer: A fast Hugging Face tokenizer, which stays as it is.

    Returns:
        A ``tokenizers.Tokenizer``.

    Raises:
        ConfigError: If the tokenizer is slow, and so lacks the offsets of tokens.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ConfigError(
            f"tokenizer {type(tokenizer).__name__}: has no character offsets; "
            "use a fast tokenizer: save one as tokenizer.json to the model's folder"
        )
    from tokenizers import Tokenizer

    state = json.loads(tokenizer.backend_tokenizer.to_str())
    if state["model"]["type"] == "Unigram":
        # Its special tokens are pieces of its vocabulary, which it finds in any text. So they get
        # names that no text contains; U+FFFF is no character.
        special = {token["content"] for token in state["added_tokens"] if token["special"]}
        vocabulary = []
        for piece, log_probability in state["model"]["vocab"]:
            name = piece
            if piece in special:
                name = f"\uffff{piece}"
            vocabulary.append([name, log_probability])
        state["model"]["vocab"] = vocabulary
    copy = Tokenizer.from_str(json.dumps(state, ensure_ascii=False))
    copy.encode_special_tokens = True  # encode the names of special tokens like other text
    copy.no_truncation()
    copy.no_padding()
    return copy
