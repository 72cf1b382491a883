"""Dataclasses without tensors are written as torch writes them, and read without torch."""

import subprocess
import sys
from dataclasses import dataclass

import pytest
from safetensors.torch import save_file

from dana.core.errors import ArtifactError
from dana.core.tensors import load_tensors, save_tensors


@dataclass(frozen=True)
class Plain:
    seed: int
    name: str


def test_what_has_no_tensors_is_written_as_torch_writes_it_and_read_again(tmp_path):
    save_tensors(Plain(3, "three"), tmp_path, "plain")
    save_file({}, tmp_path / "torch.safetensors")
    assert (tmp_path / "plain.safetensors").read_bytes() == (tmp_path / "torch.safetensors").read_bytes()
    assert load_tensors(Plain, tmp_path, "plain") == Plain(3, "three")


def test_a_damaged_file_without_tensors_is_named(tmp_path):
    save_tensors(Plain(3, "three"), tmp_path, "plain")
    (tmp_path / "plain.safetensors").write_bytes(b"no header")
    with pytest.raises(ArtifactError, match=r"plain\.safetensors: damaged"):
        load_tensors(Plain, tmp_path, "plain")
    (tmp_path / "plain.safetensors").unlink()
    with pytest.raises(ArtifactError, match=r"plain\.safetensors"):
        load_tensors(Plain, tmp_path, "plain")


def test_a_fitted_selector_without_tensors_is_written_and_read_without_torch(tmp_path):
    code = (
        "import sys; from pathlib import Path; from dana.selectors.random import RandomSelector\n"
        "folder = Path(sys.argv[1]); fitted = RandomSelector().fit(['a text'])\n"
        "fitted.save(folder); assert RandomSelector().load(folder) == fitted\n"
        "print('torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
