"""Shared artifacts: made once, linked into every run that wants the same, whole in each of them whatever happens."""

import itertools
import os
import subprocess
import sys

import pytest

from dana.core.artifacts import MANIFEST, OWN, open_artifact
from dana.core.errors import ArtifactError, Contradiction
from dana.core.shared import make_shared

ABOUT = {"of": "this"}
SCRIPT = """
import os, sys
from pathlib import Path
from dana.core.shared import make_shared

def write(draft):
    print("begun", flush=True)
    sys.stdin.readline()
    (draft.path / "a.txt").write_text("theirs")

{before}
make_shared(Path(sys.argv[1]), "kind", {{"of": "this"}}, write, Path(sys.argv[2]))
"""


def write(draft):
    (draft.path / "a.txt").write_text("ours")
    (draft.path / OWN / "below").mkdir()
    (draft.path / OWN / "below" / "b.txt").write_text("b")


def never(draft):
    pytest.fail("made again")


def inodes(folder):
    return {file.relative_to(folder): file.stat().st_ino for file in folder.rglob("*") if file.is_file()}


def start(tmp_path, before=""):
    script = SCRIPT.format(before=before)
    places = [str(tmp_path / "theirs" / "x"), str(tmp_path / "share")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", script, *places], text=True, **pipes)


def test_what_is_wanted_twice_is_made_once_and_takes_no_further_space(tmp_path):
    one = make_shared(tmp_path / "one" / "x", "kind", ABOUT, write, tmp_path / "share")
    two = make_shared(tmp_path / "two" / "x", "kind", ABOUT, never, tmp_path / "share")
    place = tmp_path / "share" / "kind" / one.fingerprint
    assert inodes(one.path) == inodes(two.path) == inodes(place)
    assert [str(name) for name in sorted(inodes(two.path))] == [f"{OWN}/below/b.txt", MANIFEST, "a.txt"]
    assert one.manifest == two.manifest == open_artifact(two.path, "kind").manifest


def test_a_run_is_whole_when_the_shared_folder_is_gone_or_the_run_is_moved(tmp_path):
    make_shared(tmp_path / "run" / "x", "kind", ABOUT, write, tmp_path / "share")
    subprocess.run(["rm", "-r", tmp_path / "share"], check=True)
    (tmp_path / "run").rename(tmp_path / "moved")
    assert open_artifact(tmp_path / "moved" / "x", "kind").path.joinpath("a.txt").read_text() == "ours"


def test_without_a_shared_folder_and_for_other_wishes_nothing_is_shared(tmp_path):
    one = make_shared(tmp_path / "one" / "x", "kind", ABOUT, write, None)
    other = make_shared(tmp_path / "two" / "x", "kind", {"of": "that"}, write, tmp_path / "share")
    assert not set(inodes(one.path).values()) & set(inodes(other.path).values())
    with pytest.raises(Contradiction, match="of: "):
        make_shared(other.path, "kind", ABOUT, never, tmp_path / "share")
    assert [place.name for place in (tmp_path / "share" / "kind").iterdir()] == [other.fingerprint]


def test_across_file_systems_it_is_copied(tmp_path, monkeypatch, heard):
    def refuse(*_):
        raise OSError(18, "Invalid cross-device link")

    one = make_shared(tmp_path / "one" / "x", "kind", ABOUT, write, tmp_path / "share")
    monkeypatch.setattr(os, "link", refuse)
    heard.set_level("INFO", "dana")
    two = make_shared(tmp_path / "two" / "x", "kind", ABOUT, never, tmp_path / "share")
    assert two.manifest == one.manifest
    assert not set(inodes(one.path).values()) & set(inodes(two.path).values())
    files = len(one.manifest["files"]) + 1
    assert f"copied   {two.path}, as {files} of its files cannot be linked," in heard.messages[-1]


def test_a_link_that_fails_otherwise_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(OSError, match="Input/output"):
        make_shared(tmp_path / "one" / "x", "kind", ABOUT, write, tmp_path / "share")
    assert not (tmp_path / "one").exists()


def test_damage_is_named_and_mended_only_when_the_folder_is_removed(tmp_path):
    one = make_shared(tmp_path / "one" / "x", "kind", ABOUT, write, tmp_path / "share")
    place = tmp_path / "share" / "kind" / one.fingerprint
    (place / "a.txt").unlink()
    with pytest.raises(ArtifactError, match=f"{place}/a.txt: is missing.* remove the folder and make it again"):
        make_shared(tmp_path / "two" / "x", "kind", ABOUT, never, tmp_path / "share")
    assert not (tmp_path / "two").exists()
    subprocess.run(["rm", "-r", place], check=True)
    make_shared(tmp_path / "two" / "x", "kind", ABOUT, write, tmp_path / "share")
    assert (tmp_path / "one" / "x" / "a.txt").read_text() == "ours"


def test_two_at_one_time_make_one(tmp_path, monkeypatch):
    """However long it takes: here a minute goes by with every look at the clock."""
    other = start(tmp_path)
    assert other.stdout.readline() == "begun\n"
    clock = itertools.count(0, 60)

    def now():
        if (seconds := next(clock)) == 600:
            other.stdin.write("go on\n")
            other.stdin.close()
        return seconds

    monkeypatch.setattr("dana.core.files.time.monotonic", now)
    mine = make_shared(tmp_path / "ours" / "x", "kind", ABOUT, never, tmp_path / "share")
    assert other.wait(60) == 0
    assert (mine.path / "a.txt").read_text() == "theirs"
    assert inodes(mine.path) == inodes(tmp_path / "theirs" / "x")


def test_when_the_one_that_makes_it_dies_the_one_that_waits_makes_it(tmp_path):
    other = start(tmp_path)
    assert other.stdout.readline() == "begun\n"
    other.kill()
    other.wait(60)
    mine = make_shared(tmp_path / "ours" / "x", "kind", ABOUT, write, tmp_path / "share")
    assert (mine.path / "a.txt").read_text() == "ours"
    assert [place.name for place in (tmp_path / "share" / "kind").iterdir()] == [mine.fingerprint]


def test_killed_between_two_links_a_rerun_ends_with_the_same(tmp_path):
    once = "link, left = os.link, [1]"
    dies = f"{once}\nos.link = lambda *both: link(*both) if left and not left.clear() else os._exit(9)"
    other = start(tmp_path, dies)
    assert (other.communicate("go on\n", timeout=60)[0], other.returncode) == ("begun\n", 9)
    [left] = (tmp_path / "theirs").glob(".x.tmp-*")
    assert (left / "a.txt").exists()
    assert not (left / MANIFEST).exists()
    mine = make_shared(tmp_path / "theirs" / "x", "kind", ABOUT, never, tmp_path / "share")
    assert (mine.path / "a.txt").read_text() == "theirs"
    assert [place.name for place in (tmp_path / "theirs").iterdir()] == ["x"]
