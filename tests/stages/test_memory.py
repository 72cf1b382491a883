"""The bytes that a launch is said to hold are those of the tensors that its processes do hold.

Run by a launcher on two CPU processes, this file trains and prints the bytes of all tensors before
an optimizer step.
"""

import gc
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

from dana.cli.main import main
from dana.core.errors import ArtifactError, ConfigError
from dana.models.adapters import add_adapter
from dana.stages.memory import BUCKET, Launch, count_memory
from dana.train.examples import Examples
from dana.train.execution import is_deepspeed, make_accelerator
from dana.train.layout import BatchLayout
from dana.train.loop import TrainingState, prepare, take_step
from dana.train.objectives.causal import CausalCollator
from dana.train.settings import AdaptSettings, Execution
from dana.train.supervised import make_optimizer
from tests.train.conftest import SPECIAL_TOKENS

REPOSITORY = Path(__file__).parents[2]
CONFIG = LlamaConfig(
    vocab_size=3000,
    hidden_size=256,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=700,
)
SETTINGS = AdaptSettings(
    objective="causal", max_tokens=8, execution=Execution(micro_batch_tokens=8)
)
ENGINES = {"ddp": Launch("MULTI_GPU", 0, 2), "fsdp": Launch("FSDP", 0, 2, by_layer=True)}
ENGINES |= {
    f"zero{stage}": Launch("DEEPSPEED", stage, 2) for stage in (2, 3)
}  # ZeRO 1 drops gradients of others before the step


def state_of(engine, adapter, accelerator):
    model = LlamaForCausalLM(CONFIG)
    if adapter:
        add_adapter(model, None, adapter, "base", 0)
    if engine != "fsdp":  # which Accelerate refuses on CPUs
        return prepare(model, SETTINGS, accelerator, BatchLayout(budget=8))
    module = SETTINGS.make_objective().module(model)
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(module)
    return TrainingState(
        module, make_optimizer(module, 1e-4, 0.01), accelerator, BatchLayout(budget=8)
    )


def bytes_of_tensors():
    """Count each storage once, as a wrapped tensor shares its storage with its parts."""
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if isinstance(thing, torch.Tensor)]
    tensors += [one.grad for one in tensors if one.is_leaf and one.grad is not None]
    local = [one.to_local() if hasattr(one, "to_local") else one for one in tensors]
    sizes = {
        one.untyped_storage().data_ptr(): one.untyped_storage().nbytes()
        for one in local
        if one.device.type == "cpu"
    }
    return sum(sizes.values())


def measure(engine, adapter):
    """Take two steps: Adam's moments are made by the first, and stand beside the gradients of the second."""
    accelerator, measured = make_accelerator(), []
    before = bytes_of_tensors()
    state = state_of(engine, adapter, accelerator)
    sizes, ids, weights = np.full(4, 6), np.arange(4, dtype=np.uint64), np.ones(4, np.float32)
    examples = Examples(
        np.arange(24, dtype=np.uint16), np.arange(0, 24, 6), sizes, ids, weights, SPECIAL_TOKENS
    )
    batch = CausalCollator(SPECIAL_TOKENS).step_batch(examples.take(np.arange(4)), 0, "token_count")
    take_step(state, batch, 1e-4, 0, SETTINGS)
    owner = state.module if is_deepspeed(accelerator) else state.optimizer
    step = owner.step

    def watched(*arguments, **keywords):
        measured.append(bytes_of_tensors() - before)
        return step(*arguments, **keywords)

    owner.step = watched
    take_step(state, batch, 1e-4, 1, SETTINGS)
    return measured[0]


@pytest.fixture
def folder(tmp_path):
    config = CONFIG.to_dict() | {"architectures": ["LlamaForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def count(folder, launch, adapter=None, **execution):
    settings = replace(
        SETTINGS, adapter=adapter, execution=replace(SETTINGS.execution, **execution)
    )
    return count_memory(str(folder), settings, launch)


@pytest.mark.parametrize("adapter", [None, "lora:r=8"])
def test_one_process_holds_what_is_counted(folder, adapter):
    pytest.importorskip("peft")
    memory = count(folder, Launch(), adapter)
    held = memory.weights + memory.gradients + memory.moments
    assert measure("one", adapter) == pytest.approx(held, rel=0.02)
    assert (memory.learnable < memory.parameters / 5) == bool(adapter)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "adapter"), [("ddp", None), ("fsdp", None), ("zero3", None), ("zero2", "lora:r=8")]
)
def test_two_processes_hold_what_is_counted(folder, engine, adapter):
    launcher = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    if engine.startswith("zero"):
        pytest.importorskip("deepspeed", reason="the deepspeed extra is not installed")
        launcher = [
            "accelerate.commands.launch",
            "--main_process_port",
            "0",
            "--config_file",
            f"accelerate_configs/{engine}.yaml",
        ]
    command = [
        sys.executable,
        "-m",
        *launcher,
        "-m",
        "tests.stages.test_memory",
        engine,
        adapter or "",
    ]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.run(
        command, capture_output=True, text=True, cwd=REPOSITORY, env=environment
    )
    assert process.returncode == 0, process.stderr
    measured = [
        int(line.split()[1]) for line in process.stdout.splitlines() if line.startswith("held ")
    ]
    memory = count(folder, ENGINES[engine], adapter)
    assert len(measured) == 2, process.stdout
    bucket = 4 * BUCKET * (engine == "zero3")  # which ZeRO 2 has given back by then
    for held in measured:
        assert held - bucket == pytest.approx(
            memory.weights + memory.gradients + memory.moments, rel=0.1
        )


def test_what_is_cut_up_shrinks_with_the_processes_and_the_rest_does_not(folder):
    one, two = (count(folder, Launch("DEEPSPEED", 3, processes, 2)) for processes in (1, 2))
    assert (two.weights, two.gradients, two.moments) == (
        one.weights // 2,
        one.gradients // 2,
        one.moments // 2,
    )
    assert two.buffers == 2 * (two.parameters + BUCKET)
    whole, layers = (count(folder, Launch("FSDP", 0, 8, 2, by_layer)) for by_layer in (False, True))
    assert whole.buffers == 2 * whole.parameters
    assert layers.buffers == 2 * 2 * 3000 * 256 + 2 * 256, (
        "the embeddings, the head and the last norm"
    )
    second = count(folder, Launch("DEEPSPEED", 2, 2, 2))
    assert second.weights == 2 * second.parameters + 4 * second.parameters // 2
    again = count(folder, Launch(), gradient_checkpointing=True, micro_batch_tokens=64)
    assert again.activations < count(folder, Launch(), micro_batch_tokens=64).activations
    assert one.total == one.weights + one.gradients + one.moments + one.buffers + one.activations


def test_the_command_reads_a_launch_and_prints_a_table(folder, capsys, tmp_path):
    command = [
        "files",
        "memory",
        "--model",
        str(folder),
        "--set",
        "adapt.objective=causal",
        "--launch",
    ]
    for name in ("fsdp-8b", "zero3-8b", "multi_gpu"):
        assert main([*command, f"accelerate_configs/{name}.yaml", "--json"]) == 0
        values = json.loads(capsys.readouterr().out)
        assert values["parameters"] == sum(
            part.numel() for part in LlamaForCausalLM(CONFIG).parameters()
        )
        assert (values["buffers"] > 0) == (name != "multi_gpu")
    assert Launch.of(REPOSITORY / "accelerate_configs" / "zero3-8b.yaml") == Launch(
        "DEEPSPEED", 3, 8, 2
    )
    assert Launch.of(REPOSITORY / "accelerate_configs" / "fsdp-8b.yaml") == Launch(
        "FSDP", 0, 8, 2, by_layer=True
    )
    zero = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: "
    stages = [zero, zero + "3", zero + "{zero_stage: auto}", zero + "{zero_stage: 4}"]
    stages += [zero + "{deepspeed_config_file: zero.json}"]
    for text in ["a: 1\n", "distributed_type: MULTI_GPU\nnum_processes: 0\n", *stages]:
        (tmp_path / "other.yaml").write_text(text)
        assert main([*command, str(tmp_path / "other.yaml")]) == 2
        assert (
            "configures no accelerate launch (distributed_type, num_processes,"
            in capsys.readouterr().err
        )
    (tmp_path / "other.yaml").write_text("distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n")
    assert Launch.of(tmp_path / "other.yaml") == Launch("FSDP", 0, 2)


def test_a_folder_without_a_configuration_or_of_an_encoder_is_refused(tmp_path):
    with pytest.raises(ArtifactError):
        count(tmp_path / "nothing", Launch())
    (tmp_path / "config.json").write_text(
        '{"model_type": "bert", "architectures": ["BertForMaskedLM"]}'
    )
    with pytest.raises(ConfigError, match="masked for a model of type bert"):
        count(tmp_path, Launch())


if __name__ == "__main__":
    line = f"held {measure(sys.argv[1], sys.argv[2])}\n"
    os.write(
        1, line.encode()
    )  # at once: unbuffered, as launchers run it, print writes word by word and lines mingle
    torch.distributed.barrier()
    os._exit(0)
