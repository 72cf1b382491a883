"""Dataclasses without tensors are written as torch writes them; tests/cli holds that torch is not imported."""

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
    file = tmp_path / "plain.safetensors"
    save_tensors(Plain(3, "three"), tmp_path, "plain")
    save_file({}, tmp_path / "torch.safetensors")
    assert file.read_bytes() == (tmp_path / "torch.safetensors").read_bytes()
    assert load_tensors(Plain, tmp_path, "plain") == Plain(3, "three")
    file.write_bytes(b"no header")
    with pytest.raises(ArtifactError, match=r"plain\.safetensors: damaged"):
        load_tensors(Plain, tmp_path, "plain")
    file.unlink()
    with pytest.raises(ArtifactError, match=r"plain\.safetensors"):
        load_tensors(Plain, tmp_path, "plain")
