"""Which classes a model knows, which texts adaptation turned, and what of the labels is said on the first screen."""

import json
import re

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, f1_score, precision_score, recall_score

from dana.core.artifacts import MANIFEST, write_json
from dana.report import classes
from dana.report.analysis import analyse
from dana.report.classes import class_tables, turned_texts
from dana.report.label_notes import label_notes
from dana.report.neighbours import filled_texts, nearest_texts
from dana.report.run import read_run
from dana.report.sections import build_report
from dana.stages.report import report_stage
from dana.tasks.kinds.multi_label import MultiLabel
from tests.report.conftest import edit_json, predictions_of, write_results
from tests.report.test_verdicts import arm_result
from tests.toy_task import write_split, write_task

NAMES = ["cat", "dog", "owl"]
MEANS = {"base": 0.5, "random": 0.55, "dana": 0.8}


def write_named(run, **arms):
    """Write results with the names of the classes that a card has in the run's folder."""
    write_results(run, arms=arms or MEANS)
    for metrics in run.glob("finetune/toy/*/metrics.json"):
        edit_json(metrics, labels=NAMES)


def write_texts(run, folds):
    """Write the card of the folder and its texts, divided by folds or by splits."""
    labels = predictions_of(0.5, 1)[0]
    rows = [
        {
            "id": f"t{number:03d}",
            "text": f"text number {number} of a {NAMES[label]}",
            "label": NAMES[label],
            "fold": number % 3,
        }
        for number, label in enumerate(labels)
    ]
    if folds:
        write_split(run, "texts", rows)
        card = write_task(run, labels=NAMES, data={"file": "texts"}, folds="fold", splits={})
    else:
        card = write_task(run, labels=NAMES, splits={})
        write_split(run / "toy", "test", rows)
    card.rename(run / "card.yaml")


def test_classes_agree_with_scikit_learn(tmp_path):
    write_named(tmp_path)
    by_class, confusions = class_tables(analyse(read_run(tmp_path)))
    frame = by_class.frame.set_index("label")
    assert sorted(frame.index) == NAMES
    options = {"average": None, "zero_division": 0}
    for column, arm, measure in (
        ("before", "base", f1_score),
        ("after", "dana", f1_score),
        ("precision", "dana", precision_score),
        ("recall", "dana", recall_score),
    ):
        labels, predicted = predictions_of(MEANS[arm], 8)
        expected = np.mean([measure(labels, row, **options) for row in predicted], axis=0)
        assert frame.loc[NAMES, column].tolist() == pytest.approx(expected.tolist()), column
    labels, predicted = predictions_of(MEANS["dana"], 8)
    expected = np.mean([confusion_matrix(labels, row) for row in predicted], axis=0)
    numbers = confusions.frame[["predicted_0", "predicted_1", "predicted_2"]].to_numpy()
    np.testing.assert_allclose(numbers, expected)
    assert [column.header for column in confusions.columns] == ["label", *NAMES]


def test_of_many_classes_the_commonest_confusions_are_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(classes, "WIDEST_MATRIX", 2)
    write_named(tmp_path)
    _, confusions = class_tables(analyse(read_run(tmp_path)))
    labels, predicted = predictions_of(MEANS["dana"], 8)
    expected = np.mean([confusion_matrix(labels, row) for row in predicted], axis=0)
    np.fill_diagonal(expected, 0)
    first = confusions.frame.iloc[0]
    actual, taken_for = np.unravel_index(expected.argmax(), expected.shape)
    assert (first["label"], first["taken_for"]) == (NAMES[actual], NAMES[taken_for])
    assert first["texts"] == pytest.approx(expected.max())
    assert confusions.frame["texts"].is_monotonic_decreasing


def test_of_several_labels_a_text_each_class_is_a_yes_or_no():
    kind = MultiLabel(("a", "b"))
    labels = kind.gather([(0,), (0, 1), (), (1,)])
    predicted = np.stack([kind.gather([(0,), (1,), (1,), (1,)]), labels])
    result = arm_result("dana", np.ones((2, 4), bool))
    parts = result.predictions.__class__(result.predictions.ids, labels, predicted, kind)
    expected = np.mean([[2 / 3, 0.8], [1, 1]], axis=0)
    scores = classes._f1(result.__class__(**{**vars(result), "predictions": parts}))
    assert scores.tolist() == pytest.approx(expected.tolist())


def turned(run):
    """Texts that turned right and wrong, by heading."""
    [group] = turned_texts(analyse(read_run(run)))
    return {part.source: part.units for part in group.examples}


@pytest.mark.parametrize("folds", [False, True])
def test_turned_texts_are_those_that_most_models_answer_otherwise(tmp_path, folds):
    write_named(tmp_path)
    assert turned_texts(analyse(read_run(tmp_path))) == (), "without the texts none is shown"
    write_texts(tmp_path, folds)
    found = turned(tmp_path)
    labels, before = predictions_of(MEANS["base"], 8)
    _, after = predictions_of(MEANS["dana"], 8)

    def answers(predicted):
        return np.array([np.bincount(column, minlength=3).argmax() for column in predicted.T])

    is_right = (answers(before) != labels) & (answers(after) == labels)
    assert list(found) == [f"turned right: {is_right.sum()}"], "more skill turns nothing wrong"
    for unit in next(iter(found.values())):
        number = int(unit.text.split()[2])
        assert is_right[number]
        assert unit.note.startswith(f"{NAMES[labels[number]]}; before: ")
        assert unit.note.endswith(f"after: {NAMES[labels[number]]}")


def test_a_damaged_card_or_table_only_leaves_the_texts_out(tmp_path):
    write_named(tmp_path)
    write_texts(tmp_path, folds=True)
    (tmp_path / "texts.jsonl").write_bytes(b"garbage")
    assert read_run(tmp_path).texts == {}
    (tmp_path / "card.yaml").write_text("labels: [")
    assert read_run(tmp_path).texts == {}
    assert report_stage(tmp_path).is_file()


def test_rare_and_unbalanced_classes_are_said(tmp_path):
    result = arm_result("dana", np.ones((2, 40), bool))
    assert label_notes(result) == [], "twenty and twenty"
    labels = np.array([0] * 36 + [1] * 4)
    parts = result.predictions
    parts = parts.__class__(parts.ids, labels, np.stack([labels, labels]), parts.kind)
    rare, unbalanced = label_notes(result.__class__(**{**vars(result), "predictions": parts}))
    assert rare.startswith("Rare classes, with fewer than 10 of the 40 test texts: 1 (4).")
    assert "macro-F1" not in rare, "accuracy counts texts"
    assert unbalanced == (
        "Unbalanced: 90% of the test texts are 0; always answering it scores 0.900."
    )


def test_cut_texts_are_said_on_the_first_screen(tmp_path):
    write_named(tmp_path)
    for file in tmp_path.glob("finetune/toy/*/metrics.json"):
        full = {"count": 30, "of": 300, "max_tokens": 64}
        write_json(file, {**json.loads(file.read_text()), "full_texts": full})
    words = "Beware: 30 of 300 test texts have 64 tokens or more, and text beyond is cut"
    assert [words in note for note in build_report(read_run(tmp_path)).notes].count(True) == 1
    for file in tmp_path.glob("finetune/toy/*/metrics.json"):
        full = {"count": 3, "of": 300, "max_tokens": 64}
        write_json(file, {**json.loads(file.read_text()), "full_texts": full})
    assert not any("tokens or more" in note for note in build_report(read_run(tmp_path)).notes)


def write_neighbours(run, arm, nearest):
    rows = [
        {
            "text": f"query {number}",
            "label": "cat",
            "neighbours": [{"text": text, "label": "dog", "cosine": 0.5}],
        }
        for number, text in enumerate(nearest)
    ]
    folder = run / "probe" / "toy" / arm / "0"
    folder.mkdir(parents=True)
    write_json(folder / "neighbours.json", {"texts": rows})


def test_neighbours_are_of_the_first_texts_whose_nearest_text_changed(tmp_path):
    write_named(tmp_path)
    write_neighbours(tmp_path, "base", ["a", "b", "c", "d", "e", "f"])
    assert nearest_texts(read_run(tmp_path)) == (), "one model alone"
    write_neighbours(tmp_path, "dana", ["a", "x", "c", "y", "z", "v"])
    [group] = nearest_texts(read_run(tmp_path))
    assert group.title.endswith("another one for 4 of the first 6 test texts")
    assert [part.source for part in group.examples] == [
        "query 1 (cat)",
        "query 3 (cat)",
        "query 4 (cat)",
    ]
    assert [(unit.text, unit.note) for unit in group.examples[0].units] == [
        ("b", "not adapted; dog, cosine 0.50"),
        ("x", "adapted; dog, cosine 0.50"),
    ]


def write_filled(run, arm, probabilities):
    write_neighbours(run, arm, ["a"] * len(probabilities))
    file = run / "probe" / "toy" / arm / "0" / "neighbours.json"
    rows = json.loads(file.read_text())["texts"]
    for row, probability in zip(rows, probabilities, strict=True):
        row["filled"] = None
        if probability is not None:
            parts = {"before": "The ", "word": "patient", "after": " left.", "fills": [arm, "man"]}
            row["filled"] = parts | {"probability": probability}
    write_json(file, {"texts": rows})


def test_a_hidden_word_is_shown_where_both_models_fill_it(tmp_path):
    write_named(tmp_path)
    write_filled(tmp_path, "base", [0.1, 0.2, None, 0.3])
    assert filled_texts(read_run(tmp_path)) == (), "one model alone"
    write_filled(tmp_path, "dana", [0.4, 0.1, 0.5, 0.6])
    [group] = filled_texts(read_run(tmp_path))
    assert group.title.endswith("likelier after it in 2 of the first 3 test texts")
    [first, *_] = group.examples
    assert first.source == "The [patient] left."
    assert [(unit.text, unit.note.replace("\N{NO-BREAK SPACE}", " ")) for unit in first.units] == [
        ("base, man", "not adapted; 10.0 % for patient"),
        ("dana, man", "adapted; 40.0 % for patient"),
    ]


def test_the_page_holds_no_dictionary_and_no_list_as_python_writes_them(tmp_path):
    write_named(tmp_path)
    for manifest in tmp_path.glob(f"finetune/toy/dana/{MANIFEST}"):
        content = json.loads(manifest.read_text())
        phases = [{"text": "pool", "steps": 1000}, {"text": "selected", "steps": None}]
        content["depends_on"] |= {"phases": phases, "parts": ["a", "b"], "none": []}
        content["counts"] = {"rows": [{"in": 1}], "kept": 2000}
        write_json(manifest, content)
    html = report_stage(tmp_path).read_text(encoding="utf-8")
    assert "text pool, steps 1,000; text selected, steps none" in html
    assert "rows in 1; kept 2,000" in html
    body = re.sub("<style.*?</style>|<[^>]*>", "", html.split("<body>")[1], flags=re.S)
    found = re.search(r"\{|\[|&#39;[^s]|None", body)
    assert not found, body[found.start() - 100 : found.end() + 100]
