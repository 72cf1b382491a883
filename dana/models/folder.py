"""Load, identify and check models in folders, on the Hub or shipped with dana.

Weights are safetensors only, and code in a model's folder never runs.
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
from dana.models.convertible import SUFFIXES, convert_command, no_weights, transformer_folder
from dana.models.embeddings import token_range
from dana.models.head_file import head_architecture, load_head

log = get_logger(__name__)

# Name of the model, and of its folder beside this file, to the sha256 of its model.safetensors.
SHIPPED = {"dana-mini": "f63a42a5bacd8ccfce41077d30094c4aa573673700bf36499dc1a969c3010f2c"}

# Types in safetensors; a cast of any other to float32 makes other weights.
FLOATS = ("F64", "F32", "F16", "BF16")

# What to do where weights and config.json do not fit each other.
OF_ONE_MODEL = (
    "config.json is that of another model, or the weights were cut: copy both again from one place"
)
MERGE_ADAPTERS = "merge its adapters where they were trained: model.merge_and_unload() of peft"
SEE_CONFIG = "see its config.json, or take another model, such as dana-mini"

# What transformers reads of a model's folder.
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

    Such names are that of the model that ships with dana, and ``minilm``, ``all-mpnet-base-v2`` and
    ``smollm2``, which packages of the index hold. A folder of that name in the working directory
    has precedence.

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
    folder = Path(__file__).parent / name
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise ArtifactError(f"{weights}: missing; install dana again")
    check_sha256(weights, SHIPPED[name], "; install dana again")
    return folder


def model_name(model: str) -> str:
    """Return the name of a folder, without its parents, or a Hub name as it is."""
    if Path(model).is_dir():
        return Path(model).resolve().name
    return model


def licence_line(model: str) -> str:
    """Read the licence in a checkpoint's model card; empty if it names none.

    It is a line for the front matter of a card of what is made from the checkpoint.
    """
    card = Path(resolve_model(model)) / "README.md"
    if not card.is_file():
        return ""
    text = card.read_text("utf-8", errors="replace")
    match = re.match(r"---\n(?:(?!---).*\n)*?(license: *[\w.-]+\n)", text)
    return match[1] if match else ""


def load_backbone(model: str) -> Any:
    """Load the ``AutoModel`` of a folder or Hub name; see :func:`load_with_head`.

    A pooler that the checkpoint lacks is random.
    """
    from transformers import AutoModel

    return load_with_head(AutoModel, model)[0]


def load_complete(auto_class: Any, model: str, **options: Any) -> Any:
    """Load a model with all its weights; see :func:`load_with_head`.

    Raises:
        ArtifactError: If it cannot be loaded, or weights are missing, those of its head included.
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

    Args:
        auto_class: Class of transformers to load.
        model: A folder with ``config.json`` and safetensors, a Hub name, or a model that ships with
            dana.
        options: Further arguments of ``from_pretrained``; with ``ignore_mismatched_sizes`` a head
            of another size is replaced.

    Returns:
        The model, and the names of parameters outside its backbone that are random, because the
        checkpoint lacks them.

    Raises:
        ArtifactError: If there is no such model, its weights are pickled, it needs code of its own,
            or weights of its backbone are missing, have another shape or have no place in it.
    """
    import torch

    load_config(model)
    folder = resolve_model(model)
    origin = adapted_base(folder)
    if origin is not None:
        network, new = load_with_head(auto_class, origin, **options)
        _fold_into(network, folder, origin)
        return network, new
    options = {
        "use_safetensors": True,
        "dtype": torch.float32,
        "trust_remote_code": False,
        **options,
    }
    with loading(model):
        network, report = auto_class.from_pretrained(folder, output_loading_info=True, **options)
        missing = set(report["missing_keys"])
        missing -= load_head(network, folder, missing)
    mismatched = {name for name, *_ in report["mismatched_keys"]}
    _check_floats(model, network)
    _check_finite(model, network)
    _check_backbone_complete(model, network, missing)
    _check_backbone_shapes(model, network, mismatched)
    _check_left_over(model, network, report["unexpected_keys"])
    return network, frozenset(missing | mismatched)


def _check_floats(model: str, network: Any) -> None:
    """Check that the files of a model hold its parameters as floating-point numbers."""
    from safetensors import safe_open

    base = f"{network.base_model_prefix}."
    stems = {name.removeprefix(base) for name, _ in network.named_parameters()}
    for file in Path(resolve_model(model)).glob("*.safetensors"):
        wrong = set()
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118, no mapping
                is_float = tensors.get_slice(name).get_dtype() in FLOATS
                if not is_float and name.removeprefix(base) in stems:
                    wrong.add(name)
        if wrong:
            raise ArtifactError(
                f"{model}: weights are not floating-point numbers: {_some(wrong)}; "
                "use the weights of before they were quantised"
            )


def _check_finite(model: str, network: Any) -> None:
    """Check that no parameter of a model holds NaN or infinity."""
    wrong = {name for name, value in network.named_parameters() if not value.isfinite().all()}
    if wrong:
        raise ArtifactError(
            f"{model}: weights are not finite: {_some(wrong)}; the file is damaged, or its "
            "training diverged: copy it again, or take an earlier checkpoint"
        )


def _backbone_prefix(network: Any) -> str:
    """Return what the names of a model's backbone begin with; empty for a model without a head."""
    if network.base_model is network:
        return ""
    return f"{network.base_model_prefix}."


def _of_backbone(network: Any, names: Collection[str]) -> set[str]:
    """Select the names of parameters of a model's backbone; a pooler counts as a head."""
    prefix = _backbone_prefix(network)
    return {name for name in names if name.startswith(prefix) and "pooler" not in name}


def _check_backbone_complete(model: str, network: Any, missing: Collection[str]) -> None:
    """Check that a checkpoint lacks no weights of the backbone."""
    lost = _of_backbone(network, missing)
    if lost:
        raise ArtifactError(
            f"{model}: weights of its backbone are missing: {_some(lost)}; {OF_ONE_MODEL}"
        )


def _check_backbone_shapes(model: str, network: Any, mismatched: Collection[str]) -> None:
    """Check that weights of the backbone have the shapes that the configuration gives them."""
    wrong = _of_backbone(network, mismatched)
    if wrong:
        raise ArtifactError(
            f"{model}: weights have other shapes than in its config.json: {_some(wrong)}; "
            f"{OF_ONE_MODEL}"
        )


def _check_left_over(model: str, network: Any, unexpected: Collection[str]) -> None:
    """Check that the weights without a place in the model are heads of other tasks.

    Layers and adapters may not be left over.
    """
    prefix = _backbone_prefix(network)
    layers = set()  # names of the backbone, any number in place of a layer's
    for name, _ in network.named_parameters():
        if name.startswith(prefix):
            layers.add(_pattern(name.removeprefix(prefix)))
    base = f"{network.base_model_prefix}."
    adapters = {name for name in unexpected if "lora_" in name}
    extra = {name for name in unexpected if _pattern(name.removeprefix(base)) in layers}
    extra |= adapters
    if extra:
        remedy = MERGE_ADAPTERS if adapters else OF_ONE_MODEL
        raise ArtifactError(
            f"{model}: weights have no place in the model of its config.json: {_some(extra)}; "
            f"{remedy}"
        )


def lacks_head(auto_class: Any, model: str) -> bool:
    """Return whether a checkpoint lacks weights of a class of transformers.

    The weights are not read.

    Args:
        auto_class: The class.
        model: Folder with safetensors, or Hub name.

    Raises:
        ArtifactError: If there is no such model.
    """
    from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

    load_config(model)
    folder = resolve_model(model)
    base = adapted_base(folder)
    if base is not None:
        return lacks_head(auto_class, base)
    # ZeRO-3 cuts weights up as it reads them, and from_pretrained then takes no device.
    device = None if is_deepspeed_zero3_enabled() else "meta"
    with loading(model):
        network, report = auto_class.from_pretrained(
            folder,
            output_loading_info=True,
            device_map=device,
            use_safetensors=True,
            trust_remote_code=False,
        )
        missing = set(report["missing_keys"])
        missing -= load_head(network, folder, missing)
    return bool(missing)


def brings_head(auto_class: Any, model: str) -> bool:
    """Return whether a checkpoint has the head of a class of transformers, trained with it.

    A head that a later training left as it was no longer fits.

    Args:
        auto_class: The class.
        model: Folder with safetensors, or Hub name.

    Raises:
        ArtifactError: If there is no such model.
    """
    is_stale = bool(read_manifest(Path(resolve_model(model))).get("untrained"))
    return not is_stale and not lacks_head(auto_class, model)


def _fold_into(network: Any, folder: str, base: str) -> None:
    """Add the adapters of a folder to the weights of a model loaded from their base.

    The model may have another head than the one that was adapted.
    """
    import torch

    _check_base_unchanged(folder, base)
    # peft knows modules by their names in the class that was adapted.
    full = load_complete(own_class(base), base)
    with loading(folder):
        full = fold_adapter(full, folder)
    prefix_of_full = f"{full.base_model_prefix}."
    weights = {
        name.removeprefix(prefix_of_full): value for name, value in full.state_dict().items()
    }
    prefix = f"{network.base_model_prefix}."
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            stem = name.removeprefix(prefix)
            parameter.copy_(weights.get(stem, parameter))
    network.config.name_or_path = folder


def _check_base_unchanged(folder: str, base: str) -> None:
    """Check that the base of adapters is the model that they were trained on, if they say which."""
    before = read_manifest(Path(folder)).get("depends_on", {}).get("model")
    now = model_identity(base)
    if not before:
        return
    differences = "; ".join(list_differences(before, now))
    if differences:
        raise ArtifactError(
            f"{folder}: its base {base} has changed since ({differences}); restore it, "
            f"or train the adapters again: dana adapt DIR --model {base} --set adapt.adapter=lora"
        )


def own_class(model: str) -> Any:
    """Return the class of transformers that a checkpoint's configuration names.

    Where the head is in a file of its own, that file names the class.

    Raises:
        ArtifactError: If they name none.
    """
    import transformers

    config = load_config(model)
    folder = resolve_model(model)
    with loading(model):
        names = config.architectures
        class_with_head = head_architecture(adapted_base(folder) or folder)
        if class_with_head:
            names = [class_with_head]
        if not names:
            raise ArtifactError(
                f"{model}: its config.json does not say what it predicts; add, for example, "
                '"architectures": ["BertForMaskedLM"]'
            )
        return getattr(transformers, names[0])


def _pattern(parameter: str) -> str:
    """Replace the numbers of layers in a parameter's name."""
    return re.sub(r"\d+", "#", parameter)


def _some(names: Collection[str]) -> str:
    """Name the first of some parameters, and count the others."""
    if len(names) == 1:
        return min(names)
    return f"{min(names)} and {len(names) - 1} others"


def load_own_tokenizer(model: str) -> Any:
    """Load the ``AutoTokenizer`` of a folder or Hub name.

    Raises:
        ArtifactError: If it cannot be loaded.
    """
    from transformers import AutoTokenizer

    with loading(f"{model}: its tokenizer"):
        return AutoTokenizer.from_pretrained(resolve_model(model), trust_remote_code=False)


def padding_id(tokenizer: Any) -> int:
    """Return the id that fills rows.

    It is that of the padding token, else of the end of a text, which no text holds, else 0.
    """
    padding: int | None = tokenizer.pad_token_id
    if padding is not None:
        return padding
    end: int | None = tokenizer.eos_token_id
    if end is not None:
        return end
    return 0


def load_config(model: str) -> Any:
    """Load a checkpoint's configuration.

    Raises:
        ArtifactError: If there is no such model, or its configuration is damaged or needs code of
            its own.
    """
    from transformers import AutoConfig

    check_checkpoint(model)
    folder = resolve_model(model)
    with loading(model):
        config = AutoConfig.from_pretrained(
            resolve_model(adapted_base(folder) or folder), trust_remote_code=False
        )
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
    """Load a checkpoint's configuration and tokenizer.

    Args:
        model: Folder with safetensors, or Hub name.

    Raises:
        ArtifactError: If there is no such model, or it has no tokenizer.
    """
    config = load_config(model)
    tokenizer = load_own_tokenizer(model)
    # For a folder without tokenizer, transformers makes up one that has only special tokens.
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ArtifactError(
            f"{model}: has no tokenizer; copy that of the model into the folder: tokenizer.json, "
            "or vocab.txt, vocab.json with merges.txt, or *.model"
        )
    size = getattr(config, "vocab_size", None)
    ids = token_range(tokenizer)
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
    """Identify a model for a manifest.

    A folder is identified by digests of the files that transformers reads, a Hub name by its
    commit.

    Args:
        model: Folder with safetensors, or Hub name.
        digest: Computes the digest of a file; :meth:`dana.core.raw_files.RawFiles.digest` remembers
            it.

    Raises:
        ArtifactError: If there is no such model.
    """
    check_checkpoint(model)
    folder = Path(resolve_model(model))
    if not folder.is_dir():
        return {"name": model, "commit": getattr(load_config(model), "_commit_hash", None)}
    files: set[Path] = set()  # some match two patterns
    for pattern in MODEL_FILES:
        files.update(folder.glob(pattern))
    identity: dict[str, Any] = {file.name: digest(file) for file in sorted(files)}
    base = adapted_base(str(folder))
    if base is not None:
        identity["base"] = model_identity(base, digest)
    return identity


def note_weights(draft: Draft) -> None:
    """Put the digests of a model's weights into its manifest, by which a report traces models."""
    files = sorted(draft.path.glob("*.safetensors"))
    draft.notes["weight_digests"] = {file.name: file_digest(file) for file in files}


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Silence transformers and safetensors, and turn their errors into an ArtifactError.

    The message is one line. With a damaged file they raise OSError, ValueError, KeyError,
    RuntimeError or errors of their own.

    Args:
        what: The model, for the message.

    Raises:
        ArtifactError: For any error inside but dana's own.
    """
    try:
        with quiet_transformers():
            yield
    except DanaError:
        raise
    except Exception as error:
        message = _reason(error)
        if "trust_remote_code" in str(error):
            message = (
                "its architecture needs code from its folder, which dana never runs; take a model "
                "of an architecture that transformers has"
            )
        elif "ignore_mismatched_sizes" in message:  # refers to a table that is silenced
            message = f"its weights have other shapes than in its config.json; {OF_ONE_MODEL}"
        elif "Unrecognized configuration class" in message:
            message = _no_class(message)
        elif re.search("does not appear to have a file named .*safetensors", message):
            message = f"{message}; {convert_command(what)} opens pytorch_model.bin"
        raise ArtifactError(f"{what}: cannot be loaded: {message}") from error


def _no_class(message: str) -> str:
    """Say which class transformers lacks for an architecture, and what works."""
    kind = re.search(r"\.(\w+)Config\b", message)
    auto_class = re.search(r"kind of AutoModel: (\w+)", message)
    name = auto_class[1] if auto_class else "class"
    architecture = "its architecture"
    if kind:
        architecture += f" ({kind[1]})"
    remedy = "take another model, such as dana-mini"
    if name == "AutoModelForSequenceClassification":
        remedy = "fine-tune it with --set finetune.pooling=mean, which needs none"
    return f"transformers has no {name} for {architecture}; {remedy}"


def _reason(error: Exception) -> str:
    """Return the first line of a library's error, after its type if that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = lines[0] if lines else ""
    if message.endswith(":"):  # the reason stands behind the colon
        message = " ".join(lines[:2])
    if message and isinstance(error, OSError | ValueError | RuntimeError):
        return message
    return f"{type(error).__name__}: {message}"


def lacks_memory(error: Exception) -> bool:
    """Return whether an error of a forward or backward pass is one of memory, of any library."""
    import torch

    is_named = re.search("out of memory|ALLOC_FAILED|allocate", str(error))
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or is_named is not None


def autocast_name() -> str:
    """Return the precision of autocast here, ``bfloat16`` or ``float16``; empty without it."""
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
        to_float32: What computes in float32, for a pass in another precision.

    Raises:
        ArtifactError: Names the model, the precision if it is another than float32, and its
            library's reason.
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
    """Silence transformers' progress bar and table of missing weights.

    The callers check the weights themselves.
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

    Raises:
        ArtifactError: If it is not.
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
        if path.is_absolute() or model.startswith(".") or model.count("/") > 1:
            raise ArtifactError(
                f"{model}: no such folder{nearest_path(model)}; models that are installed: "
                f"{', '.join([*SHIPPED, minilm.NAME, mpnet.NAME, smollm2.NAME])}"
            )
        return  # a Hub name
    base = adapted_base(str(path))
    if base is not None:
        if adapted_base(resolve_model(base)):
            raise ArtifactError(
                f"{model}: its base {base} is an adapter, too; "
                f"fold that first: dana files fold {base}"
            )
        return check_checkpoint(base)
    if not (path / "config.json").is_file():
        raise ArtifactError(
            f"{model}: not the folder of a model: config.json is missing; {_nearby_model(path)}"
        )
    for index in path.glob("*.index.json"):
        _check_index(model, index)
    if not list(path.glob("*.safetensors")):
        _refuse_without_weights(model, path)


def _refuse_without_weights(model: str, folder: Path) -> NoReturn:
    """Say how to get safetensors into the folder of a model that has none."""
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
    if transformer_folder(folder) != folder:
        return f"its layout is an old one of sentence-transformers: {convert_command(str(folder))}"
    inside = sorted(file.parent for file in folder.glob("*/config.json"))
    inside = [place for place in inside if any(place.glob("*.safetensors"))]
    if inside:
        return f"did you mean {str(inside[0])!r}?"
    return "copy the whole folder of the model"


def _check_index(model: str, index: Path) -> None:
    """Check that an index names safetensors beside it, and nothing else."""
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
    if not isinstance(content.get("metadata"), dict):  # transformers reads it
        raise ArtifactError(
            f"{model}/{index.name}: the key 'metadata' is missing; add \"metadata\": {{}}"
        )


def tokenizer_identity(tokenizer: Any, special_tokens: str) -> str:
    """Hash the content of a tokenizer, on which the tokens of a text depend, to a hex digest.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
        special_tokens: How the caller treats special tokens such as "[MASK]" in a text, in words.

    Raises:
        ConfigError: If the tokenizer is slow.
    """
    return fingerprint({"tokenizer": uncut(tokenizer).to_str(), "special tokens": special_tokens})


def uncut(tokenizer: Any) -> Any:
    """Copy a tokenizer's core (``tokenizers.Tokenizer``), without truncation and padding.

    The copy takes nothing in a text for a special token. In a text, "[MASK]" becomes a bracket, a
    word and a bracket, never the special token.

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
        # It matches the pieces of special tokens in the text: rename them.
        special = {token["content"] for token in state["added_tokens"] if token["special"]}
        vocabulary = []
        for piece, odds in state["model"]["vocab"]:
            name = f"\uffff{piece}" if piece in special else piece
            vocabulary.append([name, odds])
        state["model"]["vocab"] = vocabulary
    copy = Tokenizer.from_str(json.dumps(state, ensure_ascii=False))
    copy.encode_special_tokens = True
    copy.no_truncation()
    copy.no_padding()
    return copy
