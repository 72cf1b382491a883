import pytest
import torch

from dana.core.errors import ConfigError
from dana.train.execution import check_launch, make_accelerator, share_cores


@pytest.mark.parametrize(
    ("processes", "kind", "world", "asked"),
    [
        (1, "NO", 1, "DATA"),
        (2, "MULTI_CPU", 2, "DATA"),
        (8, "MULTI_GPU", 8, "DATA"),
        (2, "DEEPSPEED", 2, "DEEPSPEED"),
    ],
)
def test_what_was_asked_for_passes(processes, kind, world, asked):
    check_launch(processes, kind, world, asked)


@pytest.mark.parametrize(
    ("processes", "kind", "world", "asked", "message"),
    [
        (1, "NO", 2, "DATA", "2 processes were launched, but Accelerate sees 1"),
        (2, "NO", 2, "DATA", "2 processes would not share gradients"),
        (2, "MULTI_CPU", 2, "DEEPSPEED", "DEEPSPEED was requested, but Accelerate runs MULTI_CPU"),
        (2, "MULTI_CPU", 2, "FSDP", "FSDP was requested, but Accelerate runs MULTI_CPU"),
    ],
)
def test_silent_fallbacks_are_errors_that_say_how_to_launch(processes, kind, world, asked, message):
    with pytest.raises(ConfigError, match=message) as caught:
        check_launch(processes, kind, world, asked)
    assert "accelerate launch --config_file" in str(caught.value)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="a GPU can run FSDP")
def test_fsdp_without_a_gpu_is_refused(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ConfigError, match="FSDP needs a GPU"):
        make_accelerator()


def test_deepspeed_switched_off_by_the_cpu_flag_is_refused(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    with pytest.raises(ConfigError, match="ACCELERATE_USE_CPU turns DeepSpeed off"):
        make_accelerator()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}, 4),
        ({"LOCAL_WORLD_SIZE": "16", "OMP_NUM_THREADS": "1"}, 1),
        ({"ACCELERATE_DYNAMO_BACKEND": "no", "OMP_NUM_THREADS": "1"}, 8),
        ({"LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "3"}, None),
        ({"OMP_NUM_THREADS": "1"}, None),
    ],
)
def test_each_process_takes_its_share_of_the_cores_unless_told_otherwise(monkeypatch, environment, expected):
    for name in ("LOCAL_WORLD_SIZE", "ACCELERATE_DYNAMO_BACKEND", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = []
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(8))
    monkeypatch.setattr(torch, "set_num_threads", found.append)
    share_cores()
    assert found == ([] if expected is None else [expected])


@pytest.mark.parametrize(("trackers", "expected"), [([], []), (["tensorboard"], ["tensorboard"])])
def test_trackers_and_their_folder_reach_accelerate(tmp_path, trackers, expected):
    made = make_accelerator(trackers, tmp_path)
    assert [str(tracker) for tracker in made.log_with] == expected
    assert made.logging_dir == str(tmp_path)
    assert (made.num_processes, made.distributed_type.value) == (1, "NO")
