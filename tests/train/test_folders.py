"""Folders of checkpoints: which are kept and resumed, damage, full disks, kills."""

import json
import os
import resource
from contextlib import contextmanager

import pytest
import torch
from safetensors.torch import save_file

from dana.core.errors import ArtifactError
from dana.train.checkpoints import Checkpoints


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "c", {"corpus": "a", "settings": {"seed": 0}})


def save(checkpoints, step, **more):
    checkpoints.save(step, lambda folder: (folder / "state").write_text(f"state {step}"), {"notes": {}}, **more)


def names(checkpoints):
    return sorted(path.name for path in checkpoints.folder.iterdir())


def test_the_two_newest_and_the_best_are_kept_and_the_latest_is_resumed(checkpoints):
    for step in (5, 10, 15):
        save(checkpoints, step)
    save(checkpoints, 5, kind="best")
    save(checkpoints, 10, kind="best")
    assert names(checkpoints) == ["best-00000010", "step-00000010", "step-00000015"]
    assert checkpoints.newest().manifest["step"] == 15
    assert checkpoints.newest("best").manifest["step"] == 10
    save(checkpoints, 15, kind="best")
    assert checkpoints.newest().path.name == "step-00000015", "of two of one step the plain one"
    save(checkpoints, 20, kind="best")
    assert checkpoints.newest().path.name == "best-00000020"
    files = json.loads((checkpoints.folder / "step-00000015" / "manifest.json").read_text())["files"]
    assert (files["state"]["bytes"], len(files["state"]["digest"])) == (8, 32)


DAMAGES = {
    "shorter": ("state", "state"),
    "flipped": ("state", "state 11"),
    "missing": ("state", None),
    "no manifest": ("manifest.json", None),
    "bad manifest": ("manifest.json", "{"),
    "no inputs": ("manifest.json", '{"files": {}, "step": 10}'),
    "a list": ("manifest.json", "[1]"),
}


@pytest.mark.parametrize(("name", "content"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_not_used(checkpoints, caplog, name, content):
    save(checkpoints, 5)
    save(checkpoints, 10)
    file = checkpoints.folder / "step-00000010" / name
    file.unlink()
    if content is not None:
        file.write_text(content)
    assert checkpoints.newest().manifest["step"] == 5
    assert "step-00000010 is damaged" in caplog.text


def test_a_checkpoint_of_another_run_is_refused_with_the_difference(checkpoints):
    save(checkpoints, 5)
    other = Checkpoints(checkpoints.folder, {"corpus": "b", "settings": {"seed": 0}})
    with pytest.raises(ArtifactError, match=r'corpus: "a" there, "b" now.*resume=never'):
        other.newest()


@contextmanager
def small_disk():
    """Refuses files of more than 4,000 bytes, also to code that is not Python's, as a full disk does.

    Not a fixture: pytest writes its report before it tears fixtures down.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


WRITES = {
    "tensors": lambda folder: save_file({"a": torch.zeros(10_000)}, folder / "state.safetensors"),
    "records": lambda folder: (folder / "records").write_text("a" * 10_000),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_full_disk_is_one_line_and_leaves_the_older_checkpoints(checkpoints, write):
    save(checkpoints, 5)
    with small_disk(), pytest.raises(ArtifactError, match="step-00000010: cannot be written") as error:
        checkpoints.save(10, write, {})
    assert "\n" not in str(error.value)
    assert names(checkpoints) == ["step-00000005"]
    assert checkpoints.newest().manifest["step"] == 5


def test_what_a_killed_save_left_is_removed_by_the_next(checkpoints):
    save(checkpoints, 5)
    child = os.fork()
    if child == 0:
        checkpoints.save(10, lambda folder: os._exit(9), {})
    os.waitpid(child, 0)
    assert any(".tmp-" in name for name in names(checkpoints))
    assert checkpoints.newest().manifest["step"] == 5
    save(checkpoints, 10)
    assert names(checkpoints) == ["step-00000005", "step-00000010"]
