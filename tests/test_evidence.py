"""The counted experiment keeps test texts out of what is selected, and answers from its committed rows."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks" / "evidence"
MODULES = ("plan", "rows", "texts", "verdicts")


@pytest.fixture(scope="module")
def evidence():
    """Import the modules of the experiment by their names, and forget them again."""
    sys.path.insert(0, str(FOLDER))
    modules = {name: importlib.import_module(name) for name in MODULES}
    yield modules
    sys.path.remove(str(FOLDER))
    for name in MODULES:
        del sys.modules[name]


def probe_row(right, arm="chosen", index=0, size=100, objective="position", steps=50):
    """Return a row of a probe, of draws that are all alike."""
    digits = "".join("A" if one else "0" for one in right)
    accuracy = float(np.mean(right))
    names = {"arm": arm, "objective": objective, "index": index, "model": "minilm", "steps": steps}
    measured = {"measure": "probe", "size": size, "draws": 10, "correct": digits}
    return {**names, **measured, "accuracy": accuracy, "macro_f1": accuracy}


def base_row(right, size=100):
    return probe_row(right, "base", 0, size, "none", 0)


@pytest.fixture
def results(evidence, tmp_path):
    """Two tasks of 100 texts: the first gains 20 of them in every adaptation, the second's pilot chose none."""
    found = evidence["rows"].Results(tmp_path)
    base = [number < 50 for number in range(100)]
    better = [number < 70 for number in range(100)]
    rows = [{"arm": "pilot", "choice": "position", "trials": []}, base_row(base)]
    for index in range(3):
        chosen = list(better)
        chosen[99 - index] = True  # one text more, another in each adaptation
        rows.append(probe_row(chosen, "chosen", index))
        rows.append(probe_row(base, "random", index))
    found.add("rct_sample", rows)
    found.add("sst2", [{"arm": "pilot", "choice": "none", "trials": []}, base_row(base)])
    return found


def test_repeats_are_seen_through_numbers_and_marks(evidence):
    one = "A total of 212 patients ( 106 in each arm ) were followed for @ weeks ."
    other = "a total of @ patients (@ in each arm) were followed for 12 weeks"
    tested = evidence["texts"].TestedTexts([one, "Too few words"])
    texts = [other, "too few words .", "Too few words, but more than a test text has", "another"]
    assert tested.without_repeats(texts) == [2, 3]


def test_a_document_that_repeats_a_test_text_is_left_out(evidence, tmp_path, monkeypatch):
    import gzip

    texts = evidence["texts"]
    repeated = "We followed 20 patients with acute renal failure for ten weeks"
    documents = ["Nothing of it is here.", f"Before. {repeated.replace('20', '@')}. After."]
    (tmp_path / "general").mkdir()
    for source in texts.SOURCES:
        with gzip.open(tmp_path / "general" / f"{source}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in documents)
    monkeypatch.setenv("DANA_DATA", str(tmp_path))
    texts.write_rows(tmp_path / "task" / "test.jsonl", [{"text": repeated}])
    texts.prepare_pool([tmp_path / "task"], tmp_path / "pool.jsonl")
    kept = texts.read_rows(tmp_path / "pool.jsonl")
    assert [row["text"] for row in kept] == documents[:1] * len(texts.SOURCES)
    dropped = json.loads((tmp_path / "pool.dropped.json").read_text())
    assert dropped == dict.fromkeys(texts.SOURCES, 1)


def test_counts_of_right_draws_are_read_as_they_were_written(evidence):
    rows = evidence["rows"]
    counts = np.arange(11)
    assert rows.encode_counts(counts) == "0123456789A"
    assert np.array_equal(rows.decode_counts("0123456789A"), counts)


def test_a_row_is_written_once(evidence, results):
    again = evidence["rows"].Results(results.folder)
    again.add("sst2", [base_row([True] * 100), base_row([True] * 100, size=500)])
    lines = (results.folder / "sst2.jsonl").read_text().splitlines()
    sizes = [json.loads(line).get("size") for line in lines]
    assert sizes == [None, 100, 500]


def test_a_gain_is_compared_adaptation_by_adaptation(evidence, results):
    [(task, row)] = evidence["verdicts"].differences(results, 100, "chosen", "random").items()
    assert task == "rct_sample"
    assert row.mean == pytest.approx(0.21)
    assert row.by_unit == pytest.approx(0.0), "every adaptation gains as many texts"
    assert (row.units, row.texts) == (3, 100)
    of_base = evidence["verdicts"].differences(results, 100, "chosen", "base")["rct_sample"]
    assert of_base.mean == pytest.approx(0.21)


def test_tasks_that_stay_the_base_count_in_the_mean_and_in_holm(evidence, results):
    verdicts = evidence["verdicts"]
    mean = verdicts.pooled(results, 100, "chosen", "random")
    assert mean.mean == pytest.approx(0.105)
    alone = verdicts.differences(results, 100, "chosen", "random")["rct_sample"].p
    first = verdicts.question_table(results, 100)[0]
    assert float(first["p (Holm)"]) == pytest.approx(2 * alone, rel=0.05)
    assert first["verdict"] == "better"


@pytest.mark.parametrize(
    ("score", "labels"), [(0.4, 0.0), (0.5, 0.0), (0.6, 100.0), (0.55, 41.42), (0.9, np.inf)]
)
def test_a_gain_is_worth_the_labels_that_bring_the_base_as_far(evidence, results, score, labels):
    better = [number < 60 for number in range(100)]
    results.add("rct_sample", [base_row(better, size=200)])
    found = evidence["verdicts"].worth_in_labels(results, "rct_sample", score, 100)
    assert found == pytest.approx(labels, abs=0.01)


def test_models_of_variants_are_no_adaptations_of_the_primary_question(evidence, results):
    wrong = [False] * 100
    other_steps = probe_row(wrong, index=7, steps=150)
    other_objective = probe_row(wrong, index=7, objective="crops")
    of_another_task = probe_row(wrong, "chosen for sst2", 7)
    results.add("rct_sample", [other_steps, other_objective, of_another_task])
    scores = evidence["verdicts"].scores_of(results, "rct_sample", "chosen", 100)
    assert scores.indices == [0, 1, 2]


def test_the_plan_finishes_each_adaptation_before_the_next(evidence):
    plan = evidence["plan"]
    choices = {"rct_sample": "position", "agnews": "crops", "csabstruct": "position"}
    planned = list(plan.primary(choices))
    assert [one.index for one, _ in planned] == sorted(one.index for one, _ in planned)
    shared = {one.objective: tasks for one, tasks in planned if one.arm == plan.RANDOM}
    assert shared == {"position": ["rct_sample", "csabstruct"], "crops": ["agnews"]}
    assert len(planned) == plan.ADAPTATIONS * 5
