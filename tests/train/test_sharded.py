"""Parameters of which each rank holds a part: saved whole, put back in parts, and the same model in the end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM

from dana.train.layout import BatchLayout
from dana.train.loop import prepare
from dana.train.settings import TrainSettings
from dana.train.state import load_state, save_state
from tests.train import fsdp_recipe

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command += ["-m", "tests.train.fsdp_recipe", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=120, env=environment)
    assert process.returncode == 0, process.stderr
    return folder


@pytest.mark.slow
def test_saved_on_two_ranks_and_taken_up_again_it_is_what_one_process_makes(folder, run, examples):
    reference, _ = run(examples, steps=6, budget=64)
    tensors = load_file(folder / "end.safetensors")
    for name, value in reference.module.model.named_parameters():
        torch.testing.assert_close(tensors[f"parameter.{name}"], value.detach(), atol=1e-6, rtol=0)
    moments = reference.optimizer.state_dict()["state"]
    assert len(moments) * 2 == sum(name.startswith("exp_avg") for name in tensors)
    assert tensors["steps_taken"] == 6


@pytest.mark.slow
def test_one_process_goes_on_from_it(folder, tiny_model, tmp_path):
    state = prepare(tiny_model(), TrainSettings(), Accelerator(cpu=True), BatchLayout())
    load_state(state, folder / "state.safetensors")
    save_state(state, tmp_path / "again.safetensors")
    before, after = load_file(folder / "state.safetensors"), load_file(tmp_path / "again.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(value, before[name]) for name, value in after.items())


@pytest.mark.slow
def test_the_model_folder_is_whole(folder):
    model, report = AutoModelForMaskedLM.from_pretrained(folder / "model", output_loading_info=True)
    assert not report["missing_keys"]
    tensors = load_file(folder / "end.safetensors")
    for name, value in model.named_parameters():
        assert torch.equal(value, tensors[f"parameter.{name}"]), name
    assert fsdp_recipe.SETTINGS.steps == tensors["steps_taken"]
