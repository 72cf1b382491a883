"""``dana probe``: its files, draws that all models share, kinds of tasks, groups, what is refused, and kills."""

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import toy_task

import dana
from dana.cli.main import main
from dana.core.artifacts import run_manifests
from dana.core.errors import ConfigError
from dana.finetuning.settings import FinetuneSettings, ProbeSettings
from dana.stages.probe import joined_texts, probe_stage, retrieval_stage
from dana.tasks.examples import Example
from tests.conftest import write_documents

FEW = ProbeSettings(sizes=[12, 30, 500], draws=3, max_tokens=24)


def probed(checkpoint, card, out, settings=FEW, **texts):
    artifact = probe_stage(str(checkpoint), str(card), settings, out, FinetuneSettings(**texts))
    metrics = json.loads((artifact.path / "probe.json").read_text())
    return metrics, pq.read_table(artifact.path / "predictions.parquet").to_pandas()


def test_sizes_draws_and_neighbours_of_a_task(checkpoint, tmp_path):
    card = toy_task.write_task(tmp_path)
    metrics, table = probed(checkpoint, card, tmp_path / "probe")
    assert [(row["size"], row["labels"], row["draws"]) for row in metrics["sizes"]] == [
        ("12", 12, 3),
        ("30", 30, 3),
        ("all", 120, 1),
    ]
    assert metrics["left_out"] == [500]
    assert metrics["neighbours"]["number"] in (1, 3, 5, 9, 15, 25)
    for (method, size, draw), part in table.groupby(["method", "size", "draw"], observed=True):
        assert sorted(part["id"]) == sorted(row["id"] for row in toy_task.rows(60, 3))
        if method == "linear":
            row = next(row for row in metrics["sizes"] if row["size"] == size)
            right = [part[part["label"] == label] for label in range(3)]
            f1 = []
            for label, of_label in enumerate(right):
                hits = (of_label["prediction"] == label).sum()
                f1.append(2 * hits / (len(of_label) + (part["prediction"] == label).sum()))
            assert row["scores"][draw] == pytest.approx(np.mean(f1))
    assert metrics["sizes"][-1]["mean"] > metrics["sizes"][0]["mean"]


def test_the_order_of_the_files_does_not_matter(checkpoint, tmp_path):
    card = toy_task.write_task(tmp_path / "one")
    other = toy_task.write_task(tmp_path / "two")
    for seed, (split, count) in enumerate({"train": 120, "dev": 30, "test": 60}.items(), 1):
        rows = toy_task.rows(count, seed)
        toy_task.write_split(tmp_path / "two" / "toy", split, rows[::-1])
    first = probed(checkpoint, card, tmp_path / "first")
    again = probed(checkpoint, card, tmp_path / "again")
    turned = probed(checkpoint, other, tmp_path / "turned")
    for others in (again, turned):
        assert others[0] == first[0]
        assert others[1].equals(first[1])
    bytes_of = [
        (tmp_path / name / "predictions.parquet").read_bytes() for name in ("first", "again")
    ]
    assert bytes_of[0] == bytes_of[1]


def test_two_models_are_fitted_to_the_same_labels(checkpoint, tmp_path, monkeypatch):
    drawn = []
    from dana.stages import probe

    def remember(vectors, labels, kind, train, test, *settings):
        drawn.append(train.tolist())
        return original(vectors, labels, kind, train, test, *settings)

    original = probe.probe_scores
    monkeypatch.setattr(probe, "probe_scores", remember)
    card = toy_task.write_task(tmp_path)
    probed(checkpoint, card, tmp_path / "one")
    probed("dana-mini", card, tmp_path / "two")
    assert len(drawn) == 14
    assert drawn[:7] == drawn[7:]


@pytest.mark.parametrize(
    ("kind", "metric", "label", "labels"),
    [
        ("multi_label", "micro_f1", lambda row: [row["label"]], list(toy_task.SIGNS)),
        ("regression", "pearson", lambda row: float(len(row["text"].split())), []),
    ],
)
def test_other_kinds_of_labels(checkpoint, tmp_path, kind, metric, label, labels):
    card = toy_task.write_task(tmp_path, kind=kind, metric=metric, labels=labels)
    for seed, (split, count) in enumerate({"train": 120, "dev": 30, "test": 60}.items(), 1):
        rows = [{**row, "label": label(row)} for row in toy_task.rows(count, seed)]
        toy_task.write_split(tmp_path / "toy", split, rows)
    metrics, _ = probed(checkpoint, card, tmp_path / "probe")
    assert metrics["kind"] == kind
    assert len(metrics["sizes"]) == 3
    assert all(np.isfinite(row["mean"]) for row in metrics["sizes"])


def test_a_model_that_cannot_be_opened_is_refused_once_before_any_work(
    checkpoint, tmp_path, capsys
):
    card = toy_task.write_folds(tmp_path)
    broken = shutil.copytree(checkpoint, tmp_path / "broken")
    for file in broken.glob("*token*"):
        file.unlink()
    (broken / "vocab.txt").unlink(missing_ok=True)
    out = tmp_path / "run"
    words = ["probe", "--model", str(broken), "--task", str(card), "--out", str(out)]
    assert main(words) == 2
    assert capsys.readouterr().err.count("broken: ") == 1
    assert not out.exists()


def test_a_task_of_tags_is_refused_in_words(checkpoint, tmp_path, capsys):
    tags = ["O", "B-x"]
    card = toy_task.write_task(tmp_path, kind="token_labels", metric="span_f1", labels=tags)
    with pytest.raises(ConfigError, match=r"toy each word has a label.*dana finetune"):
        probe_stage(str(checkpoint), str(card), FEW, tmp_path / "probe")
    words = ["probe", "--model", str(checkpoint), "--task", str(card)]
    assert main([*words, "--out", str(tmp_path / "run")]) == 2
    assert "each word has a label" in capsys.readouterr().err
    assert not (tmp_path / "probe").exists()
    assert not (tmp_path / "run").exists()


def test_pairs_and_marked_entities_are_read_as_they_are():
    marked = Example("1", "<< aspirin >> inhibits [[ COX ]]", 0)
    pair = Example("2", "a premise", 0, pair="a hypothesis")
    assert joined_texts([marked, pair]) == [
        "<< aspirin >> inhibits [[ COX ]]",
        "a premise\na hypothesis",
    ]


def test_texts_of_a_tested_group_are_not_fitted_to(checkpoint, tmp_path):
    card = toy_task.write_task(tmp_path, group="author")
    for seed, (split, count) in enumerate({"train": 120, "dev": 30, "test": 60}.items(), 1):
        rows = [
            {**row, "author": f"{split} {number // 6}"}
            for number, row in enumerate(toy_task.rows(count, seed))
        ]
        if split == "test":
            rows[0]["author"] = "train 3"
            rows[1]["author"] = None
        toy_task.write_split(tmp_path / "toy", split, rows)
    metrics, _ = probed(checkpoint, card, tmp_path / "probe")
    assert metrics["groups_in_test"] == 6
    assert metrics["train"] == 114


def test_too_few_texts_and_one_class(checkpoint, tmp_path):
    card = toy_task.write_task(tmp_path)
    metrics, _ = probed(checkpoint, card, tmp_path / "three", max_train=3)
    assert [row["size"] for row in metrics["sizes"]] == ["all"]
    assert metrics["left_out"] == [12, 30, 500]
    rows = [{**row, "label": "bird"} for row in toy_task.rows(120, 1)]
    toy_task.write_split(tmp_path / "toy", "train", rows)
    metrics, table = probed(checkpoint, card, tmp_path / "one")
    assert set(table["prediction"]) == {2}
    assert metrics["sizes"][0]["mean"] == pytest.approx(1 / 6)


def test_an_empty_text_is_refused_with_its_line(checkpoint, tmp_path, capsys):
    card = toy_task.write_task(tmp_path)
    rows = toy_task.rows(120, 1)
    rows[4]["text"] = " "
    toy_task.write_split(tmp_path / "toy", "train", rows)
    words = ["probe", "--model", str(checkpoint), "--task", str(card)]
    assert main([*words, "--out", str(tmp_path / "run")]) == 2
    assert "train.jsonl:5: the text is empty" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_command_compares_models_with_the_base(checkpoint, tmp_path, capsys):
    card = toy_task.write_task(tmp_path)
    out = tmp_path / "run"
    models = ["--model", f"base={checkpoint}", "mini=dana-mini"]
    words = ["probe", *models, "--task", str(card), "--out", str(out), "--sizes", "12", "30"]
    assert main([*words, "--dry-run"]) == 0
    assert "missing  probe/toy/base" in capsys.readouterr().out
    assert not out.exists()
    assert main([*words, "--draws", "3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["results"]
    assert {(row["arm"], row["measure"]) for row in rows} >= {
        ("base", "12 labels"),
        ("mini", "30 labels"),
        ("mini", "all 120 labels"),
        ("base", "neighbours"),
    }
    differences = (out / "tables" / "probe_differences.csv").read_text()
    assert "12 labels,12,mini,base" in differences
    means = {(row["arm"], row["measure"]): row["mean"] for row in rows}
    line = next(line for line in differences.splitlines() if "30 labels" in line).split(",")
    header = differences.splitlines()[0].split(",")
    difference = float(line[header.index("mean")])
    assert difference == pytest.approx(means["mini", "30 labels"] - means["base", "30 labels"])
    assert "What do the models' vectors say" in (out / "report.md").read_text()
    before = {path: path.stat().st_mtime_ns for path in run_manifests(out)}
    assert main([*words, "--draws", "3"]) == 0
    assert "mini - base" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in run_manifests(out)} == before
    assert main([*words, "--draws", "2"]) == 2
    assert "draws" in capsys.readouterr().err
    assert main([*words, "--draws", "2", "--remake"]) == 0


def test_each_fold_is_tested_by_texts_of_the_others(checkpoint, tmp_path, capsys):
    rows = [
        {**row, "fold": number % 3, "id": f"t{number:03d}"}
        for number, row in enumerate(toy_task.rows(90, 4))
    ]
    changes = {"data": {"file": "texts"}, "folds": "fold", "splits": {}}
    card = toy_task.write_task(tmp_path, **changes)
    toy_task.write_split(tmp_path, "texts", rows)
    out = tmp_path / "run"
    models = ["--model", f"base={checkpoint}", "mini=dana-mini"]
    words = ["probe", *models, "--task", str(card), "--out", str(out), "--sizes", "12"]
    assert main([*words, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    [row] = [row for row in results if (row["arm"], row["measure"]) == ("base", "12 labels")]
    assert (row["n"], row["texts"]) == (3, 90)
    assert sorted(path.name for path in (out / "probe" / "toy" / "base").iterdir()) == [
        "0",
        "1",
        "2",
    ]


def test_a_sentence_finds_the_rest_of_its_document(checkpoint, tmp_path):
    animals = ["owl wren crow", "iron zinc lead", "apple pear plum"]
    texts = [
        f"The {animals[number % 3]} of {number} is here. It is the {animals[number % 3]} {number}. End."
        for number in range(30)
    ]
    folders = {
        "target": write_documents(tmp_path / "target", ["One sentence only."] * 2),
        "pool": write_documents(tmp_path / "pool", texts),
    }
    folders = {name: str(folder) for name, folder in folders.items()}
    settings = ProbeSettings(documents=25, max_tokens=24)
    artifact = retrieval_stage("dana-mini", folders, settings, tmp_path / "retrieval")
    found = json.loads((artifact.path / "retrieval.json").read_text())["texts"]
    assert found["target"] is None
    assert found["pool"]["documents"] == 25
    assert 0.1 < found["pool"]["mrr_10"] <= found["pool"]["ndcg_10"] <= 1


@pytest.mark.slow
def test_killed_it_leaves_nothing_half_written_and_goes_on(checkpoint, tmp_path):
    card = toy_task.write_task(tmp_path)
    out = tmp_path / "run"
    words = [
        sys.executable,
        "-m",
        "dana",
        "probe",
        "--model",
        "base=dana-mini",
        f"toy={checkpoint}",
    ]
    words += ["--task", str(card), "--out", str(out), "--sizes", "12"]
    process = subprocess.Popen(words)
    while process.poll() is None and not list(out.glob("probe/toy/*/0")):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for folder in out.glob("probe/toy/*/[0-9]*"):
        assert {"probe.json", "predictions.parquet"} <= {path.name for path in folder.iterdir()}
    subprocess.run(words, check=True)
    assert len(list(out.glob("probe/toy/*/0/probe.json"))) == 2


def test_the_python_function_gives_the_rows_of_the_command(checkpoint, tmp_path):
    card = toy_task.write_task(tmp_path)
    table = dana.probe({"base": checkpoint}, card, sizes=[12], draws=2, max_tokens=24, quiet=True)
    assert list(table["measure"]) == ["12 labels", "all 120 labels", "neighbours"]
    with pytest.raises(ConfigError, match=r"dana.probe: unknown keyword 'drawz'"):
        dana.probe({"base": checkpoint}, card, drawz=2)


def test_balanced_classes_by_setting_of_the_probe_or_card_and_none_turns_them_off(
    checkpoint, tmp_path
):
    card = toy_task.write_task(tmp_path)
    other = toy_task.write_task(tmp_path / "other", class_weight="balanced")
    for folder in (tmp_path, tmp_path / "other"):
        rows = [row for row in toy_task.rows(150, 1) if row["label"] != "bird"]
        rare = [row for row in toy_task.rows(150, 1) if row["label"] == "bird"][:8]
        toy_task.write_split(folder / "toy", "train", [*rows, *rare])
    balanced = replace(FEW, class_weight="balanced")
    runs = {
        "plain": (card, FEW, None),
        "by the probe": (card, balanced, None),
        "by fine-tuning": (card, FEW, "balanced"),
        "by the card": (other, FEW, None),
        "turned off": (other, replace(FEW, class_weight="none"), None),
        "the probe wins": (card, balanced, "none"),
    }
    means = {}
    for name, (path, settings, weight) in runs.items():
        metrics, _ = probed(checkpoint, path, tmp_path / name, settings, class_weight=weight)
        means[name] = [row["scores"] for row in metrics["sizes"]]
    assert means["plain"] == means["turned off"]
    same = ("by the probe", "by fine-tuning", "by the card", "the probe wins")
    assert all(means[name] == means["by the probe"] for name in same)
    assert means["by the probe"] != means["plain"]
