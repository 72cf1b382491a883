"""What is pushed to a URL is whole or opens with nothing; killed half-way, a rerun goes on; pulled, it is equal."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import fsspec
import pandas as pd
import pyarrow as pa
import pytest

from dana.cli.main import main
from dana.core import storage, urls
from dana.core.artifacts import MANIFEST, make
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.schemas import WEIGHTS, read_table, write_parts
from dana.stages import transfer
from dana.stages.transfer import JOURNAL, pull, push
from dana.stages.verify import verified

ROWS = 4000


def _weights(folder: Path, seed: int = 0) -> Path:
    """A weights artifact of eight parts."""
    rows = [
        {"doc_id": f"{row}", "source": f"s{row * (seed + 7919) % 97}", "unit": row, "start": 0, "end": row}
        | {"segment": row, "weight": 0.5}
        for row in range(ROWS)
    ]
    table = pa.Table.from_pylist(rows, schema=WEIGHTS)
    make(folder, "weights", {"seed": seed}, lambda draft: write_parts([table], draft.path, WEIGHTS, ROWS // 8) and None)
    return folder


@pytest.fixture
def run(tmp_path):
    """A run's folder with two artifacts, settings, and what is not pushed."""
    _weights(tmp_path / "run" / "weights")
    _weights(tmp_path / "run" / "arms" / "other" / "weights", seed=1)
    (tmp_path / "run" / "settings.yaml").write_text("out: run\n")
    (tmp_path / "run" / ".weights.tmp-x" / "__dana__").mkdir(parents=True)
    (tmp_path / "run" / ".weights.tmp-x" / "__dana__" / "manifest.json").write_text("{}")
    return tmp_path / "run"


def _files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _there(fs, root: str) -> dict[str, bytes]:
    fs.invalidate_cache()
    root = fs._strip_protocol(root)
    return {path.removeprefix(root).strip("/"): fs.cat_file(path) for path in fs.find(root)}


def test_a_run_pushed_and_pulled_has_equal_bytes(run, memory, tmp_path, capsys):
    assert main(["push", str(run), "memory://bucket/run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "pushed memory://bucket/run/arms/other/weights",
        "pushed memory://bucket/run/weights",
    ]
    expected = {name: raw for name, raw in _files(run).items() if not name.startswith(".")}
    assert _there(memory, "memory://bucket/run") == expected
    assert main(["push", str(run), "memory://bucket/run/"]) == 0
    assert capsys.readouterr().out.startswith("was there ")
    assert main(["pull", "memory://bucket/run", str(tmp_path / "back")]) == 0
    assert _files(tmp_path / "back") == expected
    assert main(["pull", "memory://bucket/run", str(tmp_path / "back")]) == 0
    assert "was there" in capsys.readouterr().out.splitlines()[-1]
    assert not any(found.problems for found in verified(tmp_path / "back"))


def test_an_artifact_may_lie_above_others(run, memory, tmp_path):
    (run / "settings.yaml").unlink()
    list(push(run, "memory://bucket"))
    assert list(push(_weights(tmp_path / "top", seed=2), "memory://bucket")) == ["pushed memory://bucket"]
    assert len(list(push(tmp_path / "top", "memory://bucket"))) == 1
    assert [line.split()[0] for line in pull("memory://bucket", tmp_path / "back")] == ["pulled"] * 3
    assert _files(tmp_path / "back") == {**_there(memory, "memory://bucket")}


def test_pandas_opens_a_pushed_table_and_nothing_else(run, s3, store, monkeypatch):
    options = {"endpoint_url": store.options["endpoint_url"], "key": "testing", "secret": "testing"}
    seen = []

    def write(url, content, after):
        seen.append(url)
        if len(seen) > 2:  # from the journal and the first table file on
            with pytest.raises((OSError, ValueError)):  # pyarrow's error of a broken Parquet file is both
                pd.read_parquet("s3://pool/w", storage_options=options)
        if seen[-1].endswith("part-00000.parquet") and isinstance(content, Path):
            monkeypatch.setattr(transfer, "write_remote", storage.write_remote)
        storage.write_remote(url, content, after)

    monkeypatch.setattr(transfer, "write_remote", write)
    assert list(push(run / "weights", "s3://pool/w")) == ["pushed s3://pool/w"]
    assert len(seen) >= 16  # eight parts, the journal after each
    s3.invalidate_cache()
    there = pd.read_parquet("s3://pool/w", storage_options=options)
    pd.testing.assert_frame_equal(there, read_table(run / "weights").to_pandas())


def test_dropped_connections_while_pushing_and_pulling_change_no_byte(run, s3, store, tmp_path):
    store.cut(6, -5000)  # while a part is sent
    list(push(run / "weights", "s3://pool/w"))
    assert store.cuts >= 2
    assert _there(s3, "s3://pool/w") == _files(run / "weights")
    store.cut(6, 5000)
    list(pull("s3://pool/w", tmp_path / "back"))
    assert store.cuts >= 2
    assert _files(tmp_path / "back") == _files(run / "weights")


KILLED = """
import os, signal, sys
from dana.core import storage
from dana.stages import transfer
from pathlib import Path
name, left = sys.argv[1], int(sys.argv[2])
real = getattr(transfer, name)
def count(*given):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given)
setattr(transfer, name, count)
act = transfer.push if name == "write_remote" else transfer.pull
first, second = sys.argv[3:]
print(list(act(Path(first), second) if act is transfer.push else act(first, Path(second))))
"""


def _killed_after(store, name: str, many: int, first: object, second: object) -> int:
    options = {"FSSPEC_S3_ENDPOINT_URL": store.options["endpoint_url"], "FSSPEC_S3_KEY": "testing"}
    environment = {**os.environ, **options, "FSSPEC_S3_SECRET": "testing"}
    words = [sys.executable, "-c", KILLED, name, str(many), str(first), str(second)]
    return subprocess.run(words, env=environment, capture_output=True, timeout=120, check=False).returncode


@pytest.mark.parametrize("many", [1, 2, 7, 18])
def test_a_push_killed_in_the_middle_never_looks_finished_and_goes_on(many, run, s3, store, tmp_path, monkeypatch):
    assert _killed_after(store, "write_remote", many, run / "weights", "s3://pool/w") == -signal.SIGKILL
    there = _there(s3, "s3://pool/w")
    assert MANIFEST not in there
    with pytest.raises(ArtifactError, match=r"s3://pool/w: was pushed in part; run dana push again"):
        list(pull("s3://pool/w", tmp_path / "back"))
    sent = []
    monkeypatch.setattr(
        transfer, "write_remote", lambda url, *rest: sent.append(url) or storage.write_remote(url, *rest)
    )
    list(push(run / "weights", "s3://pool/w"))
    noted = json.loads(there[JOURNAL])["files"] if JOURNAL in there else {}
    assert not [url for url in sent if url.removeprefix("s3://pool/w/") in noted]  # none is sent twice
    assert _there(s3, "s3://pool/w") == _files(run / "weights")


def test_a_push_killed_before_its_last_step_is_whole_and_cleared_up(run, memory, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "remove_remote", lambda _: None)
    list(push(run / "weights", "memory://w"))
    monkeypatch.undo()
    assert JOURNAL in _there(memory, "memory://w")
    list(pull("memory://w", tmp_path / "back"))
    assert list(push(run / "weights", "memory://w")) == ["was there memory://w"]
    assert _there(memory, "memory://w") == _files(tmp_path / "back") == _files(run / "weights")


@pytest.mark.parametrize("torn", [b"", b'{"files": {"part-000', b"[]"])
@pytest.mark.parametrize("name", [JOURNAL, MANIFEST])
def test_a_push_killed_while_it_writes_of_itself_goes_on(run, memory, tmp_path, monkeypatch, name, torn):
    monkeypatch.setattr(transfer, "remove_remote", lambda _: None)
    list(push(run / "weights", "memory://w"))
    monkeypatch.undo()
    if name == JOURNAL:
        memory.rm_file(f"/w/{MANIFEST}")
    memory.pipe_file(f"/w/{name}", torn)  # a disk holds so much of a file that was being written
    with pytest.raises(ArtifactError, match=r"was pushed in part|not a manifest|not those that were written"):
        list(pull("memory://w", tmp_path / "back"))
    assert list(push(run / "weights", "memory://w")) == ["pushed memory://w"]
    assert _there(memory, "memory://w") == _files(run / "weights")


def test_a_run_is_not_pushed_into_itself(run):
    for place in (run, run / "weights" / "copy"):
        with pytest.raises(ConfigError, match=f"URL='file://{place}': must be a place outside {run}"):
            list(push(run, f"file://{place}"))
    assert list(push(run, f"file://{run}-copy"))


def test_a_file_system_that_lists_no_folder_is_named(monkeypatch, memory):
    monkeypatch.setattr(type(memory), "find", lambda *_, **__: {"http://host/w/link": {}})
    with pytest.raises(DataError, match=r"^memory://w: its file system cannot list what is in a folder$"):
        list(pull("memory://w", Path("back")))


def test_a_table_that_lost_a_part_does_not_open_while_it_is_sent_again(run, memory, monkeypatch):
    monkeypatch.setattr(transfer, "remove_remote", lambda _: None)
    list(push(run / "weights", "memory://w"))
    for name in (MANIFEST, "part-00003.parquet"):
        memory.rm_file(f"/w/{name}")
    first = []

    def write(url, content, after):
        if url.endswith("part-00003.parquet"):
            first.append(memory.cat_file("/w/part-00000.parquet"))
        storage.write_remote(url, content, after)

    monkeypatch.setattr(transfer, "write_remote", write)
    list(push(run / "weights", "memory://w"))
    assert first == [transfer.UNFINISHED]
    assert memory.cat_file("/w/part-00000.parquet") == (run / "weights" / "part-00000.parquet").read_bytes()


@pytest.mark.parametrize("many", [1, 5, 8])
def test_a_pull_killed_in_the_middle_goes_on(many, run, s3, store, tmp_path, monkeypatch):
    list(push(run / "weights", "s3://pool/w"))
    assert _killed_after(store, "_fetch", many, "s3://pool/w", tmp_path / "back") == -signal.SIGKILL
    assert not (tmp_path / "back").exists()
    fetched = []
    real = transfer._fetch
    monkeypatch.setattr(transfer, "_fetch", lambda file, path: fetched.append(file.name) or real(file, path))
    list(pull("s3://pool/w", tmp_path / "back"))
    assert len(fetched) == 9 - many
    assert _files(tmp_path / "back") == _files(run / "weights")
    assert not list(tmp_path.glob(".back*"))


def test_other_things_at_the_place_are_refused_and_stay(run, memory, tmp_path):
    memory.pipe_file("/a/notes.txt", b"mine")
    with pytest.raises(ArtifactError, match=r"memory://a: not empty, and not what a push of .*weights has left"):
        list(push(run / "weights", "memory://a"))
    assert _there(memory, "memory://a") == {"notes.txt": b"mine"}
    list(push(run / "weights", "memory://b"))
    with pytest.raises(ArtifactError, match="memory://b: holds other weights; remove it, or choose another place"):
        list(push(run / "arms" / "other" / "weights", "memory://b"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    with pytest.raises(ArtifactError, match="not empty, and not made by dana"):
        list(pull("memory://b", tmp_path / "full"))
    with pytest.raises(ArtifactError, match="holds other weights"):
        list(pull("memory://b", run / "arms" / "other" / "weights"))
    with pytest.raises(ArtifactError, match="nothing that dana push wrote there"):
        list(pull("memory://none", tmp_path / "none"))


@pytest.mark.parametrize("place", [".", "..", "../here"])
def test_an_artifact_does_not_take_the_place_of_the_working_directory(run, memory, tmp_path, monkeypatch, place):
    list(push(run / "weights", "memory://w"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ArtifactError, match="is the working directory or around it; name a folder"):
        list(pull("memory://w", Path(place)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "run"]
    assert not any((tmp_path / "here").iterdir())


def test_two_pushes_of_different_tables_to_one_place_do_not_mix(run, memory, monkeypatch):
    def write(url, content, after):
        storage.write_remote(url, content, after)
        if url.endswith("part-00003.parquet"):  # while this one goes on, another writes
            memory.pipe_file("/w/part-00002.parquet", b"another's")

    monkeypatch.setattr(transfer, "write_remote", write)
    with pytest.raises(ArtifactError, match=r"part-00002\.parquet: was written by somebody else meanwhile"):
        list(push(run / "weights", "memory://w"))
    assert MANIFEST not in _there(memory, "memory://w")
    monkeypatch.undo()
    list(push(run / "weights", "memory://w"))
    assert _there(memory, "memory://w") == _files(run / "weights")


def test_damage_is_named_on_either_side(run, memory, tmp_path):
    list(push(run / "weights", "memory://w"))
    raw = bytearray(memory.cat_file("/w/part-00005.parquet"))
    raw[100] ^= 1
    memory.pipe_file("/w/part-00005.parquet", bytes(raw))
    with pytest.raises(ArtifactError, match=r"part-00005\.parquet: is not what was pushed"):
        list(pull("memory://w", tmp_path / "back"))
    assert not (tmp_path / "back").exists()
    memory.rm_file("/w/part-00005.parquet")
    with pytest.raises(ArtifactError, match=r"part-00005\.parquet: is missing; remove .* and push again"):
        list(pull("memory://w", tmp_path / "back"))
    with pytest.raises(ArtifactError, match=r"part-00005\.parquet: is not what was pushed; remove memory://w"):
        list(push(run / "weights", "memory://w"))
    part = run / "weights" / "part-00001.parquet"
    flipped = bytearray(part.read_bytes())
    flipped[100] ^= 1
    part.write_bytes(bytes(flipped))
    with pytest.raises(ArtifactError, match=r"part-00001\.parquet: its bytes .*; it is not pushed"):
        list(push(run / "weights", "memory://new"))
    assert MANIFEST not in _there(memory, "memory://new")


def test_a_manifest_that_leads_out_of_its_folder_is_refused(run, memory, tmp_path):
    from dana.core.artifacts import sealed

    list(push(run / "weights", "memory://w"))
    manifest = json.loads(memory.cat_file("/w/" + MANIFEST))
    del manifest["digest"]
    manifest["files"]["../../evil"] = {"bytes": 4, "digest": "0"}
    memory.pipe_file("/w/" + MANIFEST, json.dumps(sealed(manifest)).encode())
    with pytest.raises(ArtifactError, match="must lie below its folder"):
        list(pull("memory://w", tmp_path / "in" / "back"))
    memory.pipe_file("/w/" + MANIFEST, b'{"files": {}')
    with pytest.raises(ArtifactError, match="not a manifest"):
        list(pull("memory://w", tmp_path / "in" / "back"))


def test_a_server_that_refuses_is_one_line(run, s3, monkeypatch, capsys):
    assert main(["push", str(run / "weights"), "s3://nobucket/w"]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("dana: error: s3://nobucket/w")
    assert "bucket" in said
    monkeypatch.setattr(urls, "WAITS", ())
    monkeypatch.setattr(
        type(fsspec.filesystem("memory")), "pipe_file", lambda *_: (_ for _ in ()).throw(OSError("down"))
    )
    with pytest.raises(DataError, match=r"cannot be written: down \(1 attempts\); run it again: it goes on"):
        list(push(run / "weights", "memory://w"))


def test_urls_and_folders_are_told_apart(run, capsys):
    with pytest.raises(ConfigError, match="URL='local': must be a URL"):
        list(push(run, "local"))
    with pytest.raises(ConfigError, match="holds credentials"):
        list(push(run, "s3://me:hush@bucket/run"))
    for words in (["weigh", "s3://b/run"], ["adapt", str(run), "--model", "m", "--weights", "s3://b/w"]):
        with pytest.raises(SystemExit, match="2"):
            main(words)
        assert "is a URL, and runs need a local folder; dana pull URL DIR" in capsys.readouterr().err
    shutil.rmtree(run / "weights")
    shutil.rmtree(run / "arms")
    with pytest.raises(ArtifactError, match="nothing made by dana there"):
        list(push(run, "memory://x"))
