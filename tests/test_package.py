"""An installed package brings its recipes, task cards and configurations of accelerate."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHIPPED = ("recipes", "tasks", "accelerate_configs")
SOURCES = ("dana", *SHIPPED, "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
PIP = ["-m", "pip"]
BUILD_SDIST = "from setuptools.build_meta import build_sdist; import sys; build_sdist(sys.argv[1])"
# Prints where the package lies, and that a recipe, a card, text and a configuration are found there.
FIND = """
import sys
import dana
from dana.core.shipped import find_recipe, find_shipped
from dana.stages.recipe import read_recipe
from dana.tasks.card import load_card
from dana.tasks.examples import read_folds

print(dana.__file__)
print(find_recipe("quickstart"))
print(find_recipe("papers/dana/table4"))
print(load_card("chemprot").name)
print(len(read_folds(load_card(read_recipe("quickstart")[0]["task"]))))
print(find_shipped("accelerate_configs/fsdp.yaml"))
"""


def _python(*arguments, cwd, path=None):
    """Run Python in a folder, with a folder before all others on its path; return what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _files(folder):
    """The files below a folder that ship, relative to it."""
    return {
        path.relative_to(folder).as_posix()
        for name in SHIPPED
        for path in (folder / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_shipped_files_of_a_checkout_are_those_beside_the_package(tmp_path):
    _, quickstart, table, card, sentences, config = _python("-c", FIND, cwd=tmp_path).splitlines()
    assert quickstart == str(ROOT / "recipes" / "quickstart.yaml")
    assert table == str(ROOT / "recipes" / "papers" / "dana" / "table4.yaml")
    assert card == "chemprot"
    assert sentences == "2000"
    assert config == str(ROOT / "accelerate_configs" / "fsdp.yaml")


@pytest.mark.slow
def test_a_wheel_of_the_sdist_installed_into_a_folder_finds_what_ships(tmp_path, monkeypatch):
    source = tmp_path / "source"
    source.mkdir()
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name)
        else:
            shutil.copy(path, source / name)
    imported = source / "recipes" / "papers" / "dana" / "__pycache__"
    imported.mkdir(exist_ok=True)
    (imported / "tables.cpython-311.pyc").write_bytes(b"")
    (source / "tests").mkdir()
    (source / "tests" / "test_part.py").write_text("")  # setuptools takes such files by itself

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for folder in ("built", "again"):
        (tmp_path / folder).mkdir()
        _python("-c", BUILD_SDIST, tmp_path / folder, cwd=source)
        os.utime(source / "README.md", (1, 1))
    (archive,) = tmp_path.glob("built/*.tar.gz")
    assert archive.read_bytes() == (tmp_path / "again" / archive.name).read_bytes()
    with tarfile.open(archive) as file:
        file.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert _files(unpacked) == _files(ROOT)
    assert not (unpacked / "tests").exists(), "a part of the tests, without what they import"

    wheel = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", tmp_path]
    _python(*wheel, unpacked, cwd=tmp_path)
    (built,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(built).namelist()
    assert not [name for name in names if "__pycache__" in name]
    target = tmp_path / "target"
    install = [*PIP, "install", "--no-deps", "--no-index", "--no-compile", "-q"]
    _python(*install, "--target", target, built, cwd=tmp_path)
    assert _files(target / "dana" / "shipped") == _files(ROOT)

    package, quickstart, table, card, sentences, config = _python(
        "-c", FIND, cwd=tmp_path, path=target
    ).splitlines()
    shipped = target / "dana" / "shipped"
    assert package == str(target / "dana" / "__init__.py")
    assert quickstart == str(shipped / "recipes" / "quickstart.yaml")
    assert table == str(shipped / "recipes" / "papers" / "dana" / "table4.yaml")
    assert card == "chemprot"
    assert sentences == "2000"
    assert config == str(shipped / "accelerate_configs" / "fsdp.yaml")
    listing = _python("-m", "dana", "plugins", "list", cwd=tmp_path, path=target)
    assert "knn" in listing
    assert "chemprot" in _python("-m", "dana", "task", "list", cwd=tmp_path, path=target)
