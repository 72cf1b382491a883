"""Benchmarks are listed; those of detectors and of a GPU run, and their numbers are of what they name."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "detectors.py"


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/status").is_file(), reason="peak memory is read from /proc"
)
def test_a_quick_run_compares_every_library_with_ours(tmp_path):
    out = tmp_path / "results.json"
    specs = ["knn", "pyod:PCA"]
    command = [sys.executable, str(SCRIPT), "--quick", "--detectors", *specs, "--out", str(out)]
    output = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=SCRIPT.parents[1]
    ).stdout
    content = json.loads(out.read_text())
    pairs = [
        ("knn", "dana"),
        ("knn", "scikit-learn"),
        ("knn", "PyOD"),
        ("pyod:PCA", "dana"),
        ("pyod:PCA", "PyOD"),
    ]
    assert [(result["detector"], result["by"]) for result in content["results"]] == pairs
    for result in content["results"]:
        assert result["rows_per_s"] > 0
        assert result["peak_mb"] >= result["base_mb"] > 10
        assert f"{result['rows_per_s']:.0f}" in output
        if result["by"] != "dana":
            assert result["difference"] < 1e-5
            assert result["spearman"] > 0.9999
    assert content["settings"]["rows"] == 100


def test_every_benchmark_is_listed_and_an_unknown_one_is_refused():
    folder = SCRIPT.parent
    lines = subprocess.run(
        [sys.executable, folder], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    files = {path.stem for path in folder.glob("*.py")} - {"__main__", "contestants"}
    assert {line.split()[0] for line in lines} == files | {"evidence", "gpu"}
    assert subprocess.run([sys.executable, folder, "nothing"], capture_output=True).returncode == 2


@pytest.mark.slow
def test_every_stage_of_the_gpu_benchmark_runs_in_small_without_one(tmp_path):
    pytest.importorskip("sentence_transformers")
    environment = os.environ | {"OUT": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(SCRIPT.parent), "gpu"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout
    lines = (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()
    results = [json.loads(line) for line in lines]
    assert not [result for result in results if "error" in result]
    checks = [result for result in results if "ok" in result]
    assert {check["what"] for check in checks} == {"path", "kernel", "trainer", "resume"}
    assert all(check["ok"] for check in checks)
    speeds = [result["tokens_per_second"] for result in results if result["what"] == "train"]
    assert len(speeds) == 16, "dana and the stock loop at two widths, of four architectures"
    assert min(speeds) > 0
    table = (tmp_path / "table.txt").read_text(encoding="utf-8")
    assert "encoding" in table
    assert "fine-tuning" in table
