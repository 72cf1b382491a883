"""A data set of the Hub is pinned when it is first read, and reading goes on where it was interrupted."""

from types import SimpleNamespace

import datasets
import huggingface_hub
import pytest
from huggingface_hub.errors import OfflineModeIsEnabled

from dana.core import storage
from dana.core.artifacts import read_json
from dana.core.errors import ConfigError, DataError
from dana.corpus import hub
from dana.corpus.hub import HubSet, forget_rows, is_hub, pin, pin_url, read_hub
from dana.corpus.sources import find_files
from dana.stages.texts import pool_stage
from tests.corpus.files import write_rows

OLD, NEW = "a" * 40, "b" * 40
ROWS = [{"id": f"{number}", "text": f"row number {number}"} for number in range(95)]


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A Hub with one data set of two shards, which says what it was asked and can drop its connection."""
    files = [
        write_rows(tmp_path / "a.jsonl", ROWS[:50]),
        write_rows(tmp_path / "b.jsonl", ROWS[50:]),
    ]
    state = SimpleNamespace(sha=OLD, requests=[], revisions=[], drops=[], streamed=[], files=files)

    class Dropping:
        def __init__(self):
            self.rows = load_dataset("json", data_files=state.files, split="train", streaming=True)
            self.load_state_dict, self.state_dict = self.rows.load_state_dict, self.rows.state_dict

        def __iter__(self):
            for row in self.rows:
                if state.drops and row["id"] == state.drops[0]:
                    state.drops.pop(0)
                    raise ConnectionError("reset by peer")
                state.streamed.append(row["id"])
                yield row

    def load(name, config, split, streaming, revision):
        assert (name, config, split, streaming) == ("org/name", None, "train", True)
        state.revisions.append(revision)
        return Dropping()

    def info(_, name, repo_type, revision):
        state.requests.append((name, repo_type, revision))
        return SimpleNamespace(sha=state.sha)

    load_dataset = datasets.load_dataset
    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", info)
    monkeypatch.setattr(hub, "ROWS_AT_ONCE", 10)
    monkeypatch.setattr(storage, "WAITS", (0.0, 0.0, 0.0))
    return state


def _fields(records):
    return [record.fields for record in records]


def test_a_name_is_pinned_once_and_remembered(server, tmp_path, monkeypatch):
    run = tmp_path / "run"
    (source,) = find_files(["hf:org/name"], run)
    assert source == HubSet("hf:org/name", OLD, source.rows)
    assert is_hub(source)
    server.sha = NEW
    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", None)  # nobody is asked again
    assert pin("hf:org/name", run).commit == OLD
    assert pin("hf:org/name::test", run).commit == OLD
    assert pin(f"hf:org/name@{NEW}", run).commit == NEW
    assert server.requests == [("org/name", "dataset", None)]
    assert read_json(run / "revisions.json") == {"datasets/org/name@main": OLD}
    list(read_hub(source))
    assert server.revisions == [OLD]


@pytest.mark.parametrize("parts", [":cfg:test:oops", "::train[:10%]", "@:cfg", "@ "])
def test_a_name_of_another_form_is_refused(parts, tmp_path):
    with pytest.raises(ConfigError, match=r"must be hf:org/name\[@revision\]\[:config\]\[:split\]"):
        pin(f"hf:org/name{parts}", tmp_path)


def test_files_on_the_hub_are_pinned_too(server, tmp_path):
    assert (
        pin_url("hf://datasets/org/name/in/a.parquet", tmp_path)
        == f"hf://datasets/org/name@{OLD}/in/a.parquet"
    )
    assert pin_url("hf://org/name@v1/a.txt", tmp_path) == f"hf://org/name@{OLD}/a.txt"
    url = "hf://datasets/org/name@refs%2Fconvert%2Fparquet/*.parquet"
    assert pin_url(url, tmp_path) == f"hf://datasets/org/name@{OLD}/*.parquet"
    assert server.requests == [
        ("org/name", "dataset", None), ("org/name", "model", "v1"), ("org/name", "dataset", "refs/convert/parquet"),
    ]  # fmt: skip
    for same in (
        "s3://bucket/a@b/c",
        "hf://datasets/org/name@~parquet/a",
        f"hf://datasets/org/name@{NEW}/a",
    ):
        assert pin_url(same, tmp_path) == same
    assert len(server.requests) == 3


def test_offline_the_hub_is_not_asked(server, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OfflineModeIsEnabled("cannot reach")

    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", refuse)
    monkeypatch.setattr(storage, "WAITS", (100.0,))  # it is not tried again
    with pytest.raises(DataError, match=r"^hf:org/name: cannot be read: HF_HUB_OFFLINE is set"):
        pin("hf:org/name", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_dropped_connection_is_told_and_a_rerun_loses_and_repeats_no_row(server, tmp_path):
    server.drops = ["17", "61"]
    source = pin("hf:org/name", tmp_path / "run")
    for _ in range(2):
        with pytest.raises(DataError, match=r"hf:org/name: cannot be read: reset by peer"):
            list(read_hub(source))
    records = list(read_hub(source))
    assert _fields(records) == ROWS
    assert [record.line for record in records] == list(range(1, 96))
    assert (
        len(server.streamed) == 95 + 7 + 1
    )  # what came after the last tenth row was asked for again


def test_reading_that_was_killed_goes_on(server, tmp_path):
    source = pin("hf:org/name", tmp_path / "run")
    reading = read_hub(source)
    for _ in range(68):
        next(reading)
    del reading  # as good as dead: what it left are whole files
    for numbers in (
        range(60, 95),
        (),
    ):  # then it is whole, and the table was not: nothing is streamed
        server.streamed.clear()
        assert _fields(read_hub(source)) == ROWS
        assert server.streamed == [f"{number}" for number in numbers]
    forget_rows([source])
    assert not (tmp_path / "run" / "hub-rows").exists()


def test_as_many_rows_as_files_hold_are_read_again_whole(server, tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "ROWS_AT_ONCE", 19)
    source = pin("hf:org/name", tmp_path / "run")
    assert _fields(read_hub(source)) == _fields(read_hub(source)) == ROWS


def test_rows_that_json_would_change_are_not_kept(server, tmp_path):
    rows = [{"id": f"{number}", "at": f"2026-11-{number + 1:02d}T00:00:00"} for number in range(24)]
    server.files[:] = [write_rows(tmp_path / "dates.jsonl", rows)]
    records = list(read_hub(pin("hf:org/name", tmp_path / "run")))
    assert [record.fields["at"].day for record in records] == list(range(1, 25))
    assert not list((tmp_path / "run").rglob("*.json.gz"))


def test_a_pool_depends_on_the_commit_and_clears_up(server, tmp_path):
    pool = pool_stage(["hf:org/name"], tmp_path / "run" / "pool")
    assert pool.manifest["depends_on"]["files"] == {"hf:org/name": OLD}
    assert pool.manifest["counts"]["kept"] == 95
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "pool",
        "revisions.json",
    ]
    server.sha = NEW  # the branch has moved on; the run has not
    assert pool_stage(["hf:org/name"], tmp_path / "run" / "pool").fingerprint == pool.fingerprint
    other = pool_stage(["hf:org/name"], tmp_path / "other" / "pool")
    assert other.manifest["depends_on"]["files"] == {"hf:org/name": NEW}
