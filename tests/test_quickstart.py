"""The quickstart: the text that ships for it, its plan, and a run with its smallest budget by the command line."""

import csv
import gzip
import json
import re
import runpy
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from dana.cli.main import main
from dana.cli.runs import prediction_lines
from dana.core.artifacts import MANIFEST, read_manifest
from dana.core.shipped import package_folder
from dana.corpus.overlap import OverlapIndex
from dana.corpus.text import wording
from dana.corpus.units import sentences
from dana.finetuning.result_model import Description, pipeline_targets, save_tfidf
from dana.report.probes import ALL, read_probes
from dana.tasks.card import load_card
from dana.tasks.examples import read_folds

TEXT = package_folder() / "quickstart"
SMALLEST = ("adapt.steps=4", "weigh.budget=100 documents", "probe.sizes=[100]", "probe.draws=2")


def content(path):
    """The bytes of a file, decompressed: compressed ones differ between versions of zlib."""
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def quickstart(*arguments):
    command = [sys.executable, "-m", "dana", "quickstart", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_no_abstract_and_no_sentence_is_on_both_sides_of_the_split():
    examples = read_folds(load_card(str(TEXT / "card.yaml")))
    labelled = [example for example in examples if example.fold == -1]
    tested = [example for example in examples if example.fold == 0]
    assert (len(labelled), len(tested)) == (500, 1500)
    assert all(example.group for example in examples)
    assert not {example.group for example in labelled} & {example.group for example in tested}
    assert max(Counter(wording(example.text) for example in examples).values()) == 1
    labels = {example.label for example in examples}
    assert labels == {example.label for example in labelled} == set(range(5))


def test_the_pool_is_small_and_holds_documents_of_four_sources_but_no_labelled_sentence():
    rows = [json.loads(line) for line in content(TEXT / "pool.jsonl.gz").splitlines()]
    assert set(Counter(row["source"] for row in rows).values()) == {300}
    assert len({row["source"] for row in rows}) == 4
    assert len({row["id"] for row in rows}) == len({row["text"] for row in rows}) == 1200
    assert min(len(sentences(row["text"], "en")) for row in rows) >= 4
    examples = read_folds(load_card(str(TEXT / "card.yaml")))
    index = OverlapIndex.build({"texts": [example.text for example in examples]}, 13, 8)
    assert not list(index.find([row["text"] for row in rows]))


def test_the_text_is_less_than_a_megabyte_and_every_file_of_it_has_its_licence_beside_it():
    files = [path for path in TEXT.iterdir() if path.suffix in (".gz", ".csv")]
    assert sum(path.stat().st_size for path in files) < 2**20
    notes = (TEXT / "README.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in notes.splitlines() if line.startswith("|")][2:]
    assert {cells[1].strip(" `") for cells in rows} >= {path.name for path in files}
    assert all(re.search("Apache|CC0|public domain", cells[4]) for cells in rows)
    assert set(pd.read_csv(TEXT / "new.csv").columns) == {"text"}


def test_the_text_is_made_again_from_its_sources(tmp_path, dana_data, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["quickstart_text.py", "--out", str(tmp_path)])
    script = Path(__file__).parent.parent / "recipes" / "quickstart_text.py"
    runpy.run_path(str(script), run_name="__main__")
    made = {path.name: content(path) for path in tmp_path.iterdir()}
    assert set(made) == {"texts.jsonl.gz", "pool.jsonl.gz", "new.csv"}
    assert made == {name: content(TEXT / name) for name in made}


def test_a_dry_run_plans_the_whole_job_in_any_folder_and_writes_nothing(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "quickstart").mkdir()
    (tmp_path / "quickstart" / "card.yaml").write_text("name: of_the_user\n")
    monkeypatch.chdir(tmp_path)
    assert main(["--verbose", "quickstart", "--dry-run"]) == 0
    plan = capsys.readouterr().out
    for step in ("baselines/abstract_roles", "adapt/dana", "probe/abstract_roles/random"):
        assert step in plan
    assert [path.name for path in tmp_path.iterdir()] == ["quickstart"]


def test_the_model_of_a_run_labels_the_new_sentences(tmp_path):
    assert prediction_lines(tmp_path) == [], "no model, no prediction"
    card = load_card(str(TEXT / "card.yaml"))
    examples = [example for example in read_folds(card) if example.fold == -1]
    targets = pipeline_targets([example.label for example in examples], card.label_kind)
    pipeline = make_pipeline(TfidfVectorizer(), LogisticRegression())
    pipeline.fit([example.text for example in examples], targets)
    (tmp_path / "model").mkdir()
    save_tfidf(tmp_path / "model", pipeline, Description.of_card("tfidf", card))
    _, *lines = prediction_lines(tmp_path)
    with (TEXT / "new.csv").open(encoding="utf-8", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    assert [line.split()[0] for line in lines] == pipeline.predict(texts).tolist()
    assert all(text[:40] in line for text, line in zip(texts, lines, strict=True))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quickstart") / "run"
    process = quickstart("--out", folder, "--set", *SMALLEST)
    assert process.returncode == 0, process.stderr[-3000:]
    return folder, process


@pytest.mark.slow
def test_it_writes_a_page_without_links_and_says_what_to_do_next(run):
    folder, process = run
    assert str(folder / "report.html") in process.stdout
    assert "dana init YOUR_TABLE.csv" in process.stdout
    assert "new sentences: dana predict" in process.stdout, "of the model that the run ends in"
    assert (folder / "encoder" / "config.json").is_file()
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "arXiv abstracts" in page
    assert not re.search('(src|href)="http', page)


@pytest.mark.slow
def test_abstracts_are_found_and_arms_are_equal(run):
    folder, _ = run
    weights = pd.read_parquet(folder / "arms" / "dana" / "weights")
    chosen = weights[weights["weight"] > 0]
    of_abstracts = (chosen["source"] == "arXiv abstracts").mean()
    assert of_abstracts > 2 * (weights["source"] == "arXiv abstracts").mean()
    read = [
        read_manifest(folder / "arms" / arm / "adapted")["counts"]["steps"]
        for arm in ("random", "dana")
    ]
    assert read == [4, 4]


@pytest.mark.slow
def test_base_and_both_arms_are_probed_on_all_test_sentences(run):
    folder, _ = run
    probes = [probe for probe in read_probes(folder) if probe.size == ALL]
    assert {probe.arm for probe in probes} == {"base", "random", "dana"}
    assert all(probe.ids.size == 1500 for probe in probes)


@pytest.mark.slow
def test_a_second_run_reuses_everything_and_another_setting_is_refused(run):
    folder, _ = run
    manifest = folder / "arms" / "dana" / "adapted" / MANIFEST
    before, start = manifest.stat().st_mtime_ns, time.monotonic()
    again = quickstart("--out", folder, "--set", *SMALLEST)
    assert again.returncode == 0, again.stderr[-2000:]
    assert manifest.stat().st_mtime_ns == before
    assert time.monotonic() - start < 60
    other = quickstart("--out", folder, "--set", *SMALLEST, "weigh.gamma=3")
    assert other.returncode == 2
    assert "gamma: 15 there, 3 now" in other.stderr
