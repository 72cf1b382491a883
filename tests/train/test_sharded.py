"""Parameters of which each rank holds a part: saved whole, put back in parts, and the same model in the end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM

from dana.train.state import load_state, save_state
from tests.train.conftest import bert, new_state, run

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.slow
def test_saved_on_two_ranks_and_taken_up_again_it_is_what_one_process_makes(examples, tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [*launcher, "-m", "tests.train.fsdp_recipe", tmp_path]
    process = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=120, env=environment)
    assert process.returncode == 0, process.stderr
    reference, _ = run(examples, steps=6, budget=64)
    tensors = load_file(tmp_path / "end.safetensors")
    for name, value in reference.module.model.named_parameters():
        torch.testing.assert_close(tensors[f"parameter.{name}"], value.detach(), atol=1e-6, rtol=0)
    moments = reference.optimizer.state_dict()["state"]
    assert len(moments) * 2 == sum(name.startswith("exp_avg") for name in tensors)
    assert tensors["steps_taken"] == 6

    state = new_state(bert())
    load_state(state, tmp_path / "state.safetensors")
    save_state(state, tmp_path / "again.safetensors")
    before, after = load_file(tmp_path / "state.safetensors"), load_file(tmp_path / "again.safetensors")
    assert before.keys() == after.keys(), "one process goes on from it"
    assert all(torch.equal(value, before[name]) for name, value in after.items())

    model, report = AutoModelForMaskedLM.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not report["missing_keys"]
    for name, value in model.named_parameters():
        assert torch.equal(value, tensors[f"parameter.{name}"]), name
