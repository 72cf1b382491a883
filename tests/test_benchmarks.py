"""The benchmark of detectors runs, and its numbers are those of the detectors it names."""

import json
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
    assert {line.split()[0] for line in lines} == files
    assert subprocess.run([sys.executable, folder, "nothing"], capture_output=True).returncode == 2
