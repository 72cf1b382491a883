"""Shards scored by Ray's workers have the bytes of those of one process, whatever dies; errors name shard and cause."""

import json
import os
import shutil
import signal
import socket
import sys
from dataclasses import replace

import pytest

from dana.cli.main import main
from dana.core.artifacts import OWN
from dana.core.errors import ArtifactError, ConfigError, DanaError, Preempted
from dana.core.schemas import SCORES, iterate_documents
from dana.scoring import sharded
from dana.scoring.engines import ray_cluster, ray_shards
from dana.scoring.engines.parcel import Parcel
from dana.scoring.engines.ray_cluster import RayCluster
from dana.scoring.engines.ray_shards import score_on_ray
from dana.scoring.inputs import GeneralCorpus, TaskText
from dana.scoring.saved_selector import LEARNED, SAVED, load_selector
from dana.scoring.scoring import Scoring, build_selector
from dana.scoring.shards import ShardFolder, shards_of
from dana.stages.corpus import corpus_stage
from dana.stages.task import task_stage
from tests.scoring.test_saved_selector import change
from tests.stages.two_topics import SELECTION

MEMORY = 150_000_000  # bytes of a node's object store


@pytest.fixture
def scoring(texts, tmp_path, monkeypatch):
    """Eight shards of a small pool, not scored yet."""
    for module in (sharded, ray_shards):
        monkeypatch.setattr(module, "shards_of", lambda corpus: shards_of(corpus, 17))
    task = TaskText(task_stage(str(texts / "cells.txt"), tmp_path / "task"))
    general = GeneralCorpus(corpus_stage([str(texts / "pool.jsonl")], tmp_path / "corpus"))
    selection = replace(SELECTION, store=str(tmp_path / "store"))
    selector = build_selector("detector", "knn", selection)

    def make(name="scores"):
        return Scoring(task, general, selection, selector, tmp_path / name, "detector")

    return make


def content(folder):
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "manifest.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def nodes():
    """A cluster of two nodes with a CPU each; this process is connected to it."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'dana[ray]'")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    ray_cluster.import_ray()
    node = {"num_cpus": 1, "object_store_memory": MEMORY, "include_dashboard": False}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=node)
    try:
        cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.mark.slow
def test_a_worker_that_dies_thrice_is_named_with_its_shard_and_a_rerun_goes_on(
    nodes, scoring, tmp_path, monkeypatch, heard
):
    expected = content(scoring("alone").whole().path)
    from tests.scoring.engines.ray_workers import DyingWorker

    monkeypatch.setattr(ray_shards, "ShardWorker", DyingWorker)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "poison").write_text("3", encoding="utf-8")
    made = scoring()
    with pytest.raises(DanaError, match=r"^shard 3 \(.*part-00000.parquet, 17 documents from row 51\).* died 3 times"):
        made.whole(lambda: score_on_ray(made, RayCluster()))
    assert not made.folder.exists()
    left = made.shards.missing(shards_of(made.general.artifact.path, 17))
    assert 3 in [shard.number for shard in left]
    assert len(left) < 8
    assert [line for line in heard.messages if "a worker died (2 of 3)" in line]

    (tmp_path / "poison").unlink()
    ShardFolder(made.shards.path, "of another scoring").write(0, SCORES.empty_table(), 0)
    written = []
    write = ShardFolder.write
    monkeypatch.setattr(ShardFolder, "write", lambda *given: written.append(given[1]) or write(*given))
    assert content(made.whole(lambda: score_on_ray(made, RayCluster())).path) == expected
    assert sorted(written) == sorted({0, *(shard.number for shard in left)})


@pytest.mark.slow
def test_a_node_killed_in_the_middle_changes_no_byte(nodes, scoring, tmp_path, monkeypatch, heard):
    from tests.scoring.engines.ray_workers import DoomedWorker

    monkeypatch.setattr(ray_shards, "ShardWorker", DoomedWorker)
    monkeypatch.chdir(tmp_path)
    made, expected = scoring(), content(scoring("alone").whole().path)
    doomed, write, written = nodes.add_node(num_cpus=2, object_store_memory=MEMORY), ShardFolder.write, []
    (tmp_path / "doomed").write_text(doomed.node_id, encoding="utf-8")

    def kill_at_second(folder, number, table, seconds):
        written.append(number)
        if len(written) == 2:
            nodes.remove_node(doomed, allow_graceful=False)
        write(folder, number, table, seconds)

    monkeypatch.setattr(ShardFolder, "write", kill_at_second)
    assert content(made.whole(lambda: score_on_ray(made, RayCluster())).path) == expected
    assert sorted(written) == list(range(8))
    assert any("a worker died (1 of 3)" in line for line in heard.messages)


@pytest.mark.slow
def test_told_to_stop_it_keeps_what_was_scored(nodes, scoring, monkeypatch):
    made, write, before = scoring(), ShardFolder.write, signal.getsignal(signal.SIGTERM)

    def stop_at_second(folder, number, table, seconds):
        write(folder, number, table, seconds)
        if number == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(ShardFolder, "write", stop_at_second)
    made.prepare()
    with pytest.raises(Preempted, match="told to stop"):
        score_on_ray(made, RayCluster(actors=1))
    left = [shard.number for shard in made.shards.missing(shards_of(made.general.artifact.path, 17))]
    assert not {0, 1} & {*left}
    assert len(left) >= 4
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.slow
def test_what_a_worker_refuses_is_told_once_with_its_cause(nodes, scoring):
    made = scoring()
    made.prepare()
    learned = made.shards.path / made.learned / OWN / made.learned
    change(learned, selection={**json.loads((learned / SAVED).read_text())["selection"], "encoder": "hashing:dims=8"})
    with pytest.raises(DanaError, match=r"^opening the selector: .*dims was 64 .* here it is 8; .* \(a Ray worker on "):
        score_on_ray(made, RayCluster(actors=1))
    with pytest.raises(ConfigError, match=r"1 CPU and 1 GPU for a worker; there are: .*1 CPU, 0 GPU"):
        score_on_ray(made, RayCluster(num_gpus=1))
    assert len(made.shards.missing(shards_of(made.general.artifact.path, 17))) == 8


def test_a_parcel_opens_without_the_folder_it_was_made_of(scoring, tmp_path):
    made = scoring().whole()
    parcel, documents = Parcel.of(made.path, str(tmp_path / "nowhere")), list(iterate_documents(tmp_path / "corpus"))
    expected = list(load_selector(made.path).tables(documents))
    shutil.rmtree(made.path)
    assert list(parcel.open().tables(documents)) == expected
    assert not (tmp_path / "nowhere").exists()


def test_a_parcel_encodes_through_the_store_where_it_is_seen(scoring, tmp_path):
    made = scoring().whole()
    (tmp_path / "empty").mkdir()
    Parcel.of(made.path, str(tmp_path / "empty")).open().score(["The gene binds."])
    assert list((tmp_path / "empty").rglob("*"))


def test_a_parcel_of_other_code_is_refused(scoring):
    made = scoring().whole()
    identity = json.loads((made.path / LEARNED / SAVED).read_text())["identity"]
    change(made.path / LEARNED, identity={**identity, "code": {**identity["code"], "version": "another"}})
    with pytest.raises(ArtifactError, match=r"fitted by other code \(code.version\); all machines need the same"):
        Parcel.of(made.path).open()


def run_score(texts, out, *flags):
    pair = ["--task", str(texts / "cells.txt"), "--general", str(texts / "pool.jsonl")]
    return main(["score", *pair, "--encoder", SELECTION.encoder, "--detector", "knn", "--out", str(out), *flags])


def test_without_ray_the_package_to_install_is_named_before_anything_is_read(texts, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run_score(texts, tmp_path / "run", "--engine", "ray") == 2
    assert "Ray is not installed: pip install 'dana[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


WRONG = {
    "ray://127.0.0.1:10001": "must be HOST:PORT of a head node",
    "127.0.0.1": "must be HOST:PORT",
    "127.0.0.1:many": "must be HOST:PORT",
    "127.0.0.1:99999": "no Ray cluster answers there",
}


@pytest.mark.parametrize("address", [None, *WRONG])
def test_a_wrong_address_is_one_line_before_anything_is_read(texts, tmp_path, capsys, address):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'dana[ray]'")
    named = address or f"127.0.0.1:{free_port()}"
    assert run_score(texts, tmp_path / "run", "--engine", "ray", "--address", named) == 2
    said = capsys.readouterr().err
    assert f"--address {named!r}" in said or f"--address={named!r}" in said
    assert WRONG.get(address, "no Ray cluster answers there") in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--address", "auto"], "--address='auto': must be with --engine ray"),
        (["--num-gpus", "0"], "--num-gpus=0.0: must be with --engine ray"),
        (["--engine", "ray", "--num-gpus", "1.5"], "--num-gpus=1.5: must be in [0, 1] or a whole number"),
        (["--engine", "ray", "--num-gpus", "nan"], "--num-gpus=nan: must be"),
        (["--engine", "ray", "--actors", "0"], "--actors=0: must be at least 1"),
    ],
)
def test_flags_of_the_engine_are_checked(texts, tmp_path, capsys, flags, says):
    assert run_score(texts, tmp_path / "run", *flags) == 2
    assert says in capsys.readouterr().err


def test_one_process_drives_the_engine(texts, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run_score(texts, tmp_path / "run", "--engine", "ray") == 2
    assert "--engine='ray': must be without a launcher" in capsys.readouterr().err


class Nodes:
    """What is asked of Ray about its nodes."""

    def __init__(self, *resources):
        self.resources = resources

    def nodes(self):
        dead = {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}
        return [dead, *({"Alive": True, "Resources": resources} for resources in self.resources)]


@pytest.mark.parametrize(
    ("cluster", "nodes", "expected"),
    [
        (RayCluster(), [{"CPU": 2.0}, {"CPU": 3.0}], (5, 0)),
        (RayCluster(), [{"CPU": 16.0, "GPU": 2.0}, {"CPU": 3.0}], (2, 1)),
        (RayCluster(num_gpus=0), [{"CPU": 16.0, "GPU": 2.0}, {"CPU": 3.0}], (19, 0)),
        (RayCluster(num_gpus=0.6), [{"CPU": 16.0, "GPU": 2.0}], (2, 0.6)),
        (RayCluster(num_gpus=0.25), [{"CPU": 6.0, "GPU": 2.0}], (6, 0.25)),
        (RayCluster(num_gpus=2), [{"CPU": 6.0, "GPU": 3.0}, {"CPU": 6.0, "GPU": 1.0}], (1, 2)),
        (RayCluster(actors=3), [{"CPU": 1.0}], (3, 0)),
    ],
)
def test_there_are_as_many_workers_as_the_nodes_hold(cluster, nodes, expected):
    assert cluster.workers(Nodes(*nodes)) == expected


def test_nodes_without_room_for_a_worker_are_told():
    nodes = Nodes({"CPU": 2.0}, {"CPU": 0.5, "GPU": 1.0})
    message = "has 1 CPU and 1 GPU for a worker; there are: 2 CPU, 0 GPU; 0.5 CPU, 1 GPU"
    with pytest.raises(ConfigError, match=rf"^no node of the Ray cluster {message}$"):
        RayCluster(num_gpus=1).workers(nodes)
