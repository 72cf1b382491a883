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


def forget(manifest, key):
    value = json.loads(manifest.read_text())
    del value[key]
    manifest.write_text(json.dumps(value))


def names(checkpoints):
    return sorted(path.name for path in checkpoints.folder.iterdir())


def test_the_newest_are_kept_and_the_best_beside_them(checkpoints):
    for step in (5, 10, 15):
        save(checkpoints, step)
    save(checkpoints, 10, kind="best")
    assert names(checkpoints) == ["best-00000010", "step-00000010", "step-00000015"]
    assert checkpoints.newest().manifest["step"] == 15
    assert checkpoints.newest("best").manifest["step"] == 10


def test_where_only_the_best_is_saved_a_run_goes_on_from_there(checkpoints):
    save(checkpoints, 10, kind="best")
    save(checkpoints, 20, kind="best")
    assert names(checkpoints) == ["best-00000020"]
    assert checkpoints.newest().manifest["step"] == 20


@pytest.mark.parametrize("damage", ["cut", "flip", "missing", "no manifest", "bad manifest", "not its own", "a list"])
def test_a_broken_checkpoint_is_passed_over_with_a_warning(checkpoints, caplog, damage):
    save(checkpoints, 5)
    save(checkpoints, 10)
    broken = checkpoints.folder / "step-00000010"
    {
        "cut": lambda: (broken / "state").write_text("state"),
        "flip": lambda: (broken / "state").write_text("state 11"),
        "missing": lambda: (broken / "state").unlink(),
        "no manifest": lambda: (broken / "manifest.json").unlink(),
        "bad manifest": lambda: (broken / "manifest.json").write_text("{"),
        "not its own": lambda: forget(broken / "manifest.json", "depends_on"),
        "a list": lambda: (broken / "manifest.json").write_text("[1]"),
    }[damage]()
    assert checkpoints.newest().manifest["step"] == 5
    assert "step-00000010 is damaged" in caplog.text


def test_a_checkpoint_of_another_run_is_refused_with_the_difference(checkpoints):
    save(checkpoints, 5)
    other = Checkpoints(checkpoints.folder, {"corpus": "b", "settings": {"seed": 0}})
    with pytest.raises(ArtifactError, match=r'corpus: "a" there, "b" now.*resume=never'):
        other.newest()


def test_the_manifest_has_sizes_and_digests(checkpoints):
    save(checkpoints, 5)
    manifest = json.loads((checkpoints.folder / "step-00000005" / "manifest.json").read_text())
    assert manifest["files"]["state"]["bytes"] == 7
    assert len(manifest["files"]["state"]["digest"]) == 32


def test_an_error_while_saving_leaves_the_older_ones_and_nothing_else(checkpoints):
    save(checkpoints, 5)

    def fail(folder):
        (folder / "state").write_text("half")
        raise OSError("disk full")

    with pytest.raises(ArtifactError, match=r"step-00000010: cannot be written \(disk full\); free some space"):
        checkpoints.save(10, fail, {})
    assert names(checkpoints) == ["step-00000005"]


@contextmanager
def small_disk():
    """Files of more than 4,000 bytes cannot be written: as on a full disk, also by code that is not Python's.

    Not a fixture: pytest reports a test before it tears fixtures down, and its own report may be a longer file.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: save_file({"a": torch.zeros(10_000)}, folder / "state.safetensors"),
        lambda folder: (folder / "records").write_text("a" * 10_000),
    ],
    ids=["tensors", "records"],
)
def test_a_full_disk_is_one_line_and_leaves_the_older_ones(checkpoints, write):
    save(checkpoints, 5)
    message = r"step-00000010: cannot be written \(.*[Ff]ile too large"
    with small_disk(), pytest.raises(ArtifactError, match=message) as told:
        checkpoints.save(10, write, {})
    assert "\n" not in str(told.value)
    assert names(checkpoints) == ["step-00000005"]
    assert checkpoints.newest().manifest["step"] == 5


def test_a_best_that_is_newer_is_what_a_run_goes_on_from(checkpoints):
    save(checkpoints, 5)
    save(checkpoints, 10, kind="best")
    assert checkpoints.newest().manifest["step"] == 10
    save(checkpoints, 15)
    assert checkpoints.newest().manifest["step"] == 15
    save(checkpoints, 15, kind="best")
    assert checkpoints.newest().path.name == "step-00000015", "of two alike the plain one"


def test_a_save_that_was_killed_is_swept_away_by_the_next(checkpoints):
    save(checkpoints, 5)
    child = os.fork()
    if child == 0:
        checkpoints.save(10, lambda folder: os._exit(9), {})
    os.waitpid(child, 0)
    assert any(".tmp-" in name for name in names(checkpoints))
    assert checkpoints.newest().manifest["step"] == 5
    save(checkpoints, 10)
    assert names(checkpoints) == ["step-00000005", "step-00000010"]
