"""Adapting under torchrun, accelerate, DeepSpeed and Slurm: the weights of one process, whatever stops it."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from dana.core.rng import torch_seed
from dana.stages.training import TrainingData, head_stage
from dana.train.settings import HeadWarmup
from tests.stages.tiny_training import (
    ADAPT,
    CROPS,
    PAIRS,
    POSITION,
    REPOSITORY,
    adapt,
    assert_same_weights,
    records,
)

ADAPT_RECIPE = REPOSITORY / "recipes" / "adapt.py"
ONE = ["torch.distributed.run", "--standalone", "--nproc_per_node", "1"]
TWO = [*ONE[:-1], "2"]
# As slurmstepd does: it starts the tasks, and a signal of the time limit reaches them and not their
# children.
SRUN = """#!{python}
import os, subprocess, sys
places = [dict(SLURM_PROCID=str(n), SLURM_LOCALID=str(n)) for n in range(int(os.environ["SLURM_NTASKS"]))]
tasks = [subprocess.Popen(sys.argv[1:], env=os.environ | place) for place in places]
open(os.environ["TASKS"], "w").write(" ".join(str(task.pid) for task in tasks))
sys.exit(max(task.wait() for task in tasks))
"""
SCONTROL = """#!/bin/bash
[ "$1" = show ] && echo localhost || echo "$@" > "$REQUEUED"
"""

pytestmark = pytest.mark.slow
needs_proc = pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")


def accelerate(config):
    pytest.importorskip("deepspeed", reason="the deepspeed extra is not installed")
    return ["accelerate.commands.launch", "--main_process_port", "0", "--config_file", str(config)]


def zero(stage, precision="no"):
    config = REPOSITORY / "accelerate_configs" / f"zero{stage}.yaml"
    return [*accelerate(config), "--mixed_precision", precision]


def write_run(base, inputs, out, settings, execution):
    """Write a run that holds the inputs where the commands look for them; return the arguments of ``dana adapt``."""
    run = out.with_name(f"{out.name}-run")
    for name, folder in zip(("pool", "target/held_out", "held_out"), inputs, strict=True):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        if not (run / name).exists():
            (run / name).symlink_to(folder)
    execution = {"micro_batch_tokens": 256, "trackers": [], **execution}
    values = {
        **asdict(settings),
        "head_warmup": {"steps": 3, "margin": -9.0},
        "execution": execution,
    }
    (run / "recipe.yaml").write_text(yaml.safe_dump({"adapt": values}))
    return [
        str(part)
        for part in (
            run,
            "--config",
            run / "recipe.yaml",
            "--model",
            base,
            "--unweighted",
            "--out",
            out,
        )
    ]


def launch(launcher, *arguments, **environment):
    command = [sys.executable, "-m", *launcher, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=400, env={**os.environ, **environment}
    )


@pytest.fixture
def launch_recipe(base, inputs, tmp_path):
    """Launch the recipe, which must succeed; return its log and the folder of the model."""

    def run(launcher, settings=ADAPT, **execution):
        out = tmp_path / "launched"
        outcome = launch(launcher, ADAPT_RECIPE, *write_run(base, inputs, out, settings, execution))
        assert outcome.returncode == 0, outcome.stderr
        return outcome.stderr, out

    return run


def test_a_step_that_deepspeed_took_with_a_gradient_that_is_not_finite_ends_the_run(
    base, inputs, tmp_path
):
    out = tmp_path / "launched"
    settings = replace(ADAPT, learning_rate=1e30, clip=1e30)
    arguments = write_run(base, inputs, out, settings, {})
    outcome = launch(zero(2), ADAPT_RECIPE, *arguments)
    assert outcome.returncode, "the launcher says no more of a failed process"
    assert "with which DeepSpeed has changed the model; try a lower learning_rate" in outcome.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    "settings",
    [ADAPT, PAIRS, POSITION, CROPS],
    ids=["masked tokens", "next sentence", "position", "crops"],
)
def test_two_processes_give_the_weights_of_one(adapted_to, launch_recipe, settings):
    log, out = launch_recipe(TWO, settings)
    assert "2 process(es) on cpu, MULTI_CPU" in log
    one = adapted_to(settings).path
    assert_same_weights(one, out)
    for first, second in zip(records(one, "step"), records(out, "step"), strict=True):
        assert second["loss"] == pytest.approx(first["loss"], rel=5e-6)
        assert second.get("next_sentence_loss") == pytest.approx(
            first.get("next_sentence_loss"), abs=1e-6
        )
        assert second.get("accuracy") == pytest.approx(first.get("accuracy"))
        assert second["grad_norm"] == pytest.approx(first["grad_norm"], rel=1e-4)


@pytest.mark.parametrize(
    ("stage", "settings"),
    [
        (1, ADAPT),
        (2, ADAPT),
        (3, ADAPT),
        (2, PAIRS),
        (3, PAIRS),
        (1, POSITION),
        (3, POSITION),
        (1, CROPS),
        (2, CROPS),
        (3, CROPS),
    ],
)
def test_zero_gives_the_weights_of_one_process(adapted_to, launch_recipe, stage, settings):
    assert_same_weights(adapted_to(settings).path, launch_recipe(zero(stage), settings)[1])


def save_decoder(base, folder):
    """Write a small decoder with the tokenizer of the base; return its folder."""
    shape = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    tokenizer = AutoTokenizer.from_pretrained(base)
    with torch_seed(1):
        LlamaForCausalLM(
            LlamaConfig(vocab_size=len(tokenizer), tie_word_embeddings=True, **shape)
        ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("stage", "adapter"), [(0, None), (3, None), (2, "lora:r=2"), (3, "lora:r=2")]
)
def test_a_decoder_gets_the_weights_of_one_process(base, inputs, tmp_path, stage, adapter):
    decoder = save_decoder(base, tmp_path / "decoder")
    settings, out = replace(ADAPT, objective="causal", adapter=adapter), tmp_path / "launched"
    outcome = launch(
        zero(stage) if stage else TWO, ADAPT_RECIPE, *write_run(decoder, inputs, out, settings, {})
    )
    assert outcome.returncode == 0, outcome.stderr
    assert_same_weights(adapt(decoder, inputs, tmp_path / "one", settings).path, out)


# Prints how many weights of the model a process holds after it was read, and how many there are.
COUNTING_RECIPE = """
import runpy, sys
from dana.stages import training
load = training._load_to_adapt
def load_and_count(*inputs):
    loaded = load(*inputs)
    weights = list(loaded.model.parameters())
    held = sum(getattr(weight, "ds_tensor", weight).numel() for weight in weights)
    print("holds", held, "of", sum(getattr(weight, "ds_numel", 0) for weight in weights), flush=True)
    return loaded
training._load_to_adapt = load_and_count
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_the_8b_configuration_reads_a_decoder_in_parts(base, inputs, tmp_path):
    decoder = save_decoder(base, tmp_path / "decoder")
    settings = replace(ADAPT, objective="causal")
    out = tmp_path / "launched"
    recipe = tmp_path / "counting.py"
    recipe.write_text(COUNTING_RECIPE)
    options = ["--num_processes", "2", "--mixed_precision", "no"]
    launcher = [*accelerate(REPOSITORY / "accelerate_configs" / "zero3-8b.yaml"), *options]
    arguments = write_run(decoder, inputs, out, settings, {})
    outcome = launch(launcher, recipe, ADAPT_RECIPE, *arguments)
    assert outcome.returncode == 0, outcome.stderr
    # Only the first process's output is shown.
    [(held, every)] = re.findall(r"holds (\d+) of (\d+)", outcome.stdout)
    assert int(held) == pytest.approx(int(every) / 2, rel=0.05)
    assert_same_weights(adapt(decoder, inputs, tmp_path / "one", settings).path, out)


@pytest.mark.parametrize("launcher", ["two processes", "zero2", "zero3"])
def test_new_words_have_the_weights_of_one_process(base, inputs, tmp_path, launcher):
    settings = replace(ADAPT, vocabulary=40)
    out = tmp_path / "launched"
    arguments = write_run(base, inputs, out, settings, {})
    run = out.with_name("launched-run")
    (run / "target" / "fit").symlink_to(inputs[1])
    folders = [run / "pool", run / "target" / "held_out", run / "held_out"]
    one = adapt(base, folders, tmp_path / "one", settings).path
    start = TWO if launcher == "two processes" else zero(launcher[-1])
    outcome = launch(start, ADAPT_RECIPE, *arguments)
    assert outcome.returncode == 0, outcome.stderr
    assert_same_weights(one, out)
    assert (one / "tokenizer.json").read_bytes() == (out / "tokenizer.json").read_bytes()


NEW_HEAD = replace(ADAPT, head_warmup=HeadWarmup(3, margin=-9.0))


@pytest.mark.parametrize("launcher", ["two processes", "zero3"])
def test_a_head_in_a_file_of_its_own_has_the_weights_of_one_process(
    sentence_base, inputs, tmp_path, launcher
):
    model = sentence_base
    if launcher == "zero3":
        data = TrainingData(inputs[0], None, *inputs[1:])
        model = head_stage(str(sentence_base), data, NEW_HEAD, tmp_path / "head")
    one = adapt(model, inputs, tmp_path / "one", NEW_HEAD).path
    out = tmp_path / "launched"
    arguments = write_run(model, inputs, out, NEW_HEAD, {})
    outcome = launch(zero(3) if launcher == "zero3" else TWO, ADAPT_RECIPE, *arguments)
    assert outcome.returncode == 0, outcome.stderr
    assert_same_weights(one, out, "model.safetensors")
    assert_same_weights(one, out, "head.safetensors")


def test_a_new_head_is_refused_under_zero3(sentence_base, inputs, tmp_path):
    arguments = write_run(sentence_base, inputs, tmp_path / "launched", NEW_HEAD, {})
    outcome = launch(zero(3), ADAPT_RECIPE, *arguments)
    assert outcome.returncode != 0
    assert "dana: error: a new head cannot be trained under ZeRO-3" in outcome.stderr
    assert not (tmp_path / "launched").exists()


@pytest.mark.parametrize("settings", [POSITION, CROPS], ids=["position", "crops"])
def test_vectors_are_trained_under_zero_as_it_ships(launch_recipe, settings):
    log, out = launch_recipe(zero(2, "bf16"), settings)
    assert "precision bf16: set by the launch" in log
    losses = [line["loss"] for line in records(out, "step")]
    assert len(losses) == ADAPT.steps
    assert all(0 < loss < 10 for loss in losses)


@pytest.mark.parametrize("stage", [2, 3])
def test_zero_as_it_ships_computes_in_bf16_and_saves_the_weights_it_keeps_in_float32(
    launch_recipe, stage
):
    config = REPOSITORY / "accelerate_configs" / f"zero{stage}.yaml"
    log, out = launch_recipe(accelerate(config))
    assert "precision bf16: set by the launch" in log
    tensors = load_file(out / "model.safetensors")
    assert {value.dtype for value in tensors.values()} == {torch.float32}
    kernel = tensors["bert.encoder.layer.0.attention.self.query.weight"]
    assert (kernel != kernel.bfloat16().float()).float().mean() > 0.9, "rounded nowhere"
    model = AutoModelForMaskedLM.from_pretrained(out)
    assert model.dtype == torch.float32
    assert torch.equal(model.bert.encoder.layer[0].attention.self.query.weight, kernel)


STOPPING_RECIPE = REPOSITORY / "tests" / "stages" / "stopping_recipe.py"


@pytest.mark.parametrize("name", ["1", "2", "zero1", "zero2", "zero3"])
def test_a_run_that_was_stopped_has_the_bytes_of_one_that_was_not(
    adapted_to, base, inputs, tmp_path, name
):
    launcher = {"1": ONE, "2": TWO}.get(name) or zero(name[-1])
    straight = launch(
        launcher, ADAPT_RECIPE, *write_run(base, inputs, tmp_path / "straight", ADAPT, {})
    )
    assert straight.returncode == 0, straight.stderr
    arguments = write_run(base, inputs, tmp_path / "out", ADAPT, {})
    outcome = launch(launcher, STOPPING_RECIPE, *arguments, STOP_AFTER="2")
    assert outcome.returncode != 0
    assert re.search("stopped by a signal .*after step 2.*; saved", outcome.stderr), outcome.stderr
    files = [path.name for path in (tmp_path / "out-checkpoints").iterdir()]
    assert files == ["last.safetensors"]
    outcome = launch(launcher, ADAPT_RECIPE, *arguments)
    assert outcome.returncode == 0, outcome.stderr
    assert "resumed at step 2" in outcome.stderr
    assert_same_weights(adapted_to(ADAPT).path, tmp_path / "out")
    one, other = (tmp_path / folder / "model.safetensors" for folder in ("straight", "out"))
    assert one.read_bytes() == other.read_bytes()
    assert [line["step"] for line in records(tmp_path / "out", "step")] == [1, 2, 3, 4]
    assert not (tmp_path / "out-checkpoints").exists()


def test_a_checkpoint_of_another_launch_is_refused_in_one_line(base, inputs, tmp_path):
    arguments = write_run(base, inputs, tmp_path / "out", ADAPT, {})
    launch(zero(2), STOPPING_RECIPE, *arguments, STOP_AFTER="2")
    checkpoint = tmp_path / "out-checkpoints" / "last.safetensors"
    before = checkpoint.read_bytes()
    differences = (
        (ONE, r"launch\.processes: 2 there, 1 now"),
        (TWO, r'launch\.kind: "DEEPSPEED" there, "MULTI_CPU" now'),
        (zero(3), r"launch\.zero_stage: 2 there, 3 now"),
    )
    for launcher, difference in differences:
        outcome = launch(launcher, ADAPT_RECIPE, *arguments)
        assert outcome.returncode != 0
        error = [line for line in outcome.stderr.splitlines() if "dana: error:" in line]
        assert len(error) == 1, outcome.stderr
        assert re.search(difference, error[0]), error
    assert checkpoint.read_bytes() == before
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("launcher", ["2", "zero3"])
def test_ranks_agree_on_what_is_done_on_the_way(adapted_to, launch_recipe, launcher):
    settings = replace(ADAPT, schedule="wsd", warmup=0.0, objective="masked:whole_word=true")
    on_the_way = {"gradient_checkpointing": True, "export_every": 2}
    _, out = launch_recipe(TWO if launcher == "2" else zero(3), settings, **on_the_way)
    one = adapted_to(settings).path
    assert_same_weights(one, out)
    assert_same_weights(one, out.with_name("launched-exports") / "step-00000004")


def test_accelerate_launch_that_starts_one_process_of_two_is_refused(base, tmp_path):
    launcher = ["accelerate.commands.launch", "--cpu", "--num_processes"]
    recipe = [ADAPT_RECIPE, tmp_path, "--model", base]
    alone, short = (launch([*launcher, count], *recipe) for count in ("1", "2"))
    assert "no part-*.parquet" in alone.stderr, "one process was asked for, and gets to work"
    assert "instead of several" in short.stderr
    assert short.returncode != 0


@pytest.fixture
def long_run(base, inputs, tmp_path):
    """Write a run that takes long; return the arguments of ``dana adapt``."""
    return write_run(base, inputs, tmp_path / "out", replace(ADAPT, steps=5000), {"save_every": 1})


def alive(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def stop(command, folder, signal_workers, environment):
    """Signal the workers once a checkpoint is there; return the exit code, the log and the processes that are alive."""
    log = folder / "log"
    with log.open("w") as stream:
        job = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdout=stream, stderr=stream
        )
        try:
            deadline = time.monotonic() + 150
            while not (folder / "out-checkpoints" / "last.safetensors").exists():
                assert job.poll() is None, log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.2)
            processes = signal_workers(job)
            code = job.wait(timeout=60)
        finally:
            job.kill()
    assert "saved, the same command resumes from there" in log.read_text()
    return code, log.read_text(), [process for process in processes if alive(process)]


@needs_proc
def test_under_slurm_every_task_saves_ends_with_75_and_the_job_is_requeued(long_run, tmp_path):
    commands, tasks, requeue = tmp_path / "bin", tmp_path / "tasks", tmp_path / "requeued"
    commands.mkdir()
    for name, text in (("srun", SRUN.format(python=sys.executable)), ("scontrol", SCONTROL)):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    slurm = {"NTASKS": "2", "NNODES": "1", "JOB_ID": "17", "JOB_NODELIST": "localhost"}
    environment = {
        **os.environ,
        **{f"SLURM_{name}": value for name, value in slurm.items()},
        "PATH": f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "MASTER_PORT": "29617",
        "TASKS": str(tasks),
        "REQUEUED": str(requeue),
    }

    def signal_tasks(job):
        processes = tasks.read_text().split()
        for process in processes:
            os.kill(int(process), signal.SIGUSR1)
        return processes

    command = ["bash", str(REPOSITORY / "recipes" / "slurm.sh"), *long_run]
    code, _, alive_tasks = stop(command, tmp_path, signal_tasks, environment)
    assert (code, alive_tasks) == (0, [])
    assert requeue.read_text() == "requeue 17\n"
    assert (tmp_path / "out-checkpoints" / "last.safetensors").is_file()


@needs_proc
def test_usr1_to_the_workers_of_torchrun_saves_and_leaves_no_orphans(long_run, tmp_path):
    def signal_children(job):
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        subprocess.run(["pkill", "-USR1", "-P", str(job.pid), "-f", "adapt.py"], check=True)
        return children

    command = [sys.executable, "-m", *TWO, str(ADAPT_RECIPE), *long_run]
    code, log, orphans = stop(command, tmp_path, signal_children, dict(os.environ))
    assert (code, orphans) == (1, []), "torchrun has no other code for a worker that ended with 75"
    assert "exitcode  : 75" in log
