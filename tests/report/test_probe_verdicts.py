"""What a report says of a run that has probed its models and fine-tuned none, and of the model it ends in."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dana.cli.main import main
from dana.core.artifacts import read_json, write_json
from dana.core.statistics import holm, two_level
from dana.report.analysis import analyse
from dana.report.choice import choice_note
from dana.report.headline import headline, highlights, next_step, notes
from dana.report.run import read_run
from dana.report.sections import build_report
from dana.stages.report import report_stage, search_lines
from dana.tasks.kinds import within_range

TEXTS = 400
LABELS = np.arange(TEXTS) % 2
LUCK = np.random.default_rng(3).random(TEXTS)


def predicted(share):
    """Predictions that are right on that share of the texts, the same texts whatever the share."""
    return np.where(share > LUCK, LABELS, 1 - LABELS)


def write_probe(run, arm, share, index=0):
    """Write a probe of one size, and its neighbours, that is right on that share of the texts."""
    folder = run / "probe" / "toy" / arm / str(index)
    folder.mkdir(parents=True)
    head = {
        "task": "toy",
        "metric": "accuracy",
        "direction": "higher",
        "kind": "single_label",
        "labels": ["a", "b"],
        "fold": None,
        "train": 100,
    }
    sizes = [{"size": "all", "labels": 100, "draws": 1}]
    write_json(folder / "probe.json", {**head, "sizes": sizes})
    columns = {
        "draw": [0] * TEXTS,
        "id": [f"t{number:03d}" for number in range(TEXTS)],
        "label": LABELS,
        "prediction": predicted(share),
    }
    tables = [
        pa.table({"method": [method] * TEXTS, "size": ["all"] * TEXTS, **columns})
        for method in ("linear", "neighbours")
    ]
    pq.write_table(pa.concat_tables(tables), folder / "predictions.parquet")


def write_fold(run, arm, share, fold):
    """Write the probe of one of four folds."""
    write_probe(run, arm, share, fold)
    folder = run / "probe" / "toy" / arm / str(fold)
    probe = read_json(folder / "probe.json")
    write_json(folder / "probe.json", {**probe, "fold": fold})
    table = pq.read_table(folder / "predictions.parquet")
    rows = np.tile(np.arange(TEXTS) % 4 == fold, 2)
    pq.write_table(table.filter(pa.array(rows)), folder / "predictions.parquet")


def write_baseline(run, share):
    folder = run / "baselines" / "toy" / "tfidf"
    folder.mkdir(parents=True)
    columns = {
        "adaptation": [0] * TEXTS,
        "id": [f"t{number:03d}" for number in range(TEXTS)],
        "label": LABELS,
        "prediction": predicted(share),
    }
    pq.write_table(pa.table(columns), folder / "predictions.parquet")
    head = {"task": "toy", "metric": "accuracy", "direction": "higher", "folds": None}
    write_json(folder / "metrics.json", {**head, "kind": "single_label", "labels": ["a", "b"]})


def write_run(run, baseline=None, **arms):
    for arm, share in arms.items():
        write_probe(run, arm, share)
    if baseline is not None:
        write_baseline(run, baseline)
    return analyse(read_run(run))


@pytest.mark.parametrize(
    ("shares", "words", "advice"),
    [
        (
            (0.5, 0.52, 0.7, 0.5),
            "is better than not adapted",
            "use the adapted model, or go on",
        ),
        ((0.7, 0.7, 0.5, 0.5), "is worse than not adapted", "keep the model without"),
        ((0.5, 0.5, 0.502, 0.5), "cannot be told apart yet from not", "nothing is decided yet"),
        ((0.5, 0.5, 0.6, 0.8), "is worse than TF-IDF 0.", "use TF-IDF, which is better"),
    ],
)
def test_before_any_fine_tuning_the_first_words_are_of_the_vectors(tmp_path, shares, words, advice):
    base, random, dana, baseline = shares
    analysis = write_run(tmp_path, baseline, base=base, random=random, dana=dana)
    text = headline(analysis)
    assert words in text
    assert "by a linear model on its vectors; one adaptation" in text
    assert next_step(analysis).startswith(advice)
    assert highlights(analysis)[0].meaning.startswith("accuracy, adapted − not adapted")
    assert any(
        "accuracy (the share of texts that are answered right)" in note for note in notes(analysis)
    )
    assert build_report(analysis.run).sections[0].question.startswith("What do the models' vectors")
    assert report_stage(tmp_path).is_file()


def test_where_the_pilot_kept_the_base_the_page_says_that_nothing_was_adapted(tmp_path):
    run = write_run(tmp_path, 0.5, base=0.6, random=0.6, dana=0.6).run
    trials = [
        {"objective": "none", "score": 0.6, "gain": 0.0, "bar": 0.01, "left_out": ""},
        {"objective": "masked", "score": 0.5, "gain": -0.1, "bar": 0.01, "left_out": ""},
    ]
    pilot = {"kind": "pilot", "trials": trials, "choice": "none", "steps": 25, "metric": "accuracy"}
    kept = analyse(replace(run, stages={"pilot": {**pilot, "task": "toy"}}))
    assert headline(kept).startswith("Nothing was adapted, as the pilot expects no gain: the model")
    assert next_step(kept).startswith("adapting is not worth it here")
    # Another fold had an objective that pays.
    other = {**pilot, "choice": "masked"}
    some = analyse(replace(run, stages={"pilot": pilot, "nested/1/pilot": other}))
    assert "cannot be told apart yet" in headline(some)


def test_the_verdict_of_vectors_is_two_level_and_adjusted_for_every_question(tmp_path):
    analysis = write_run(tmp_path, 0.55, base=0.5, random=0.56, dana=0.6)
    rows = analysis.first_questions
    assert [row.other for row in rows] == ["base", "random", "TF-IDF"]
    rights = [np.equal(predicted(share), LABELS).astype(float) for share in (0.6, 0.5, 0.56, 0.55)]
    expected = [two_level((rights[0] - other)[None]) for other in rights[1:]]
    assert [row.mean for row in rows] == pytest.approx([one.mean for one in expected])
    assert [row.p for row in rows] == pytest.approx([one.p for one in expected])
    assert [row.p_holm for row in rows] == pytest.approx(holm([one.p for one in expected]))
    assert not analysis.questions, "fine-tuned models have none"


def test_a_simple_model_of_other_texts_is_not_compared(tmp_path):
    analysis = write_run(tmp_path, 0.55, base=0.5, dana=0.6)
    assert [row.other for row in analysis.first_questions] == ["base", "TF-IDF"]
    file = tmp_path / "baselines" / "toy" / "tfidf" / "predictions.parquet"
    pq.write_table(pq.read_table(file).slice(1), file)
    again = analyse(read_run(tmp_path))
    assert [row.other for row in again.first_questions] == ["base"]


def test_of_some_folds_a_simple_model_counts_on_their_texts_alone(tmp_path):
    """A quick run probes the first folds, while TF-IDF was tested on all of them."""
    for fold in (0, 1, 2):
        write_fold(tmp_path, "base", 0.5, fold)
        write_fold(tmp_path, "dana", 0.7, fold)
    analysis = write_run(tmp_path, 0.6)
    rows = analysis.first_questions
    assert [(row.other, row.texts, row.basis) for row in rows] == [
        ("base", 300, "3 folds"),
        ("TF-IDF", 300, "3 folds"),
    ]
    of_folds = np.arange(TEXTS) % 4 < 3
    expected = (predicted(0.6) == LABELS)[of_folds].mean()
    assert rows[1].other_score == pytest.approx(expected)
    assert "one adaptation" not in headline(analysis)


def write_choice(run, name, waiting, choice):
    folder = run / "final" / f"choice-{name}"
    folder.mkdir(parents=True)
    scores = {"tfidf": 0.55, "vectors-base": 0.5, "finetuned-dana": 0.6}
    candidates = [{"kind": kind, "score": score} for kind, score in scores.items()]
    candidates = candidates[: len(candidates) - waiting]
    content = {"choice": choice, "waiting": waiting, "metric": "accuracy", "texts": TEXTS}
    content |= {"expected": 0.58, "low": 0.53, "high": 0.63, "candidates": candidates}
    write_json(folder / "choice.json", content)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"low": None}, "expect 0.580 accuracy, uncorrected for the choice: too few texts"),
        (
            {"metric": "mae"},
            "the best of 3 candidates (of those within a small margin the cheapest)",
        ),
        (
            {"candidates": [{}]},
            "is the adapted model, fine-tuned, the only candidate. On new texts",
        ),
    ],
)
def test_what_is_said_of_the_choice_is_what_was_done(tmp_path, changes, words):
    write_choice(tmp_path, "finetuned-dana", 0, "finetuned-dana")
    choice = read_json(tmp_path / "final" / "choice-finetuned-dana" / "choice.json")
    assert words in choice_note({**choice, **changes}, "tickets")


def test_a_program_reads_scores_verdicts_and_the_model_of_a_quick_run(tmp_path, capsys):
    analysis = write_run(tmp_path, 0.55, base=0.5, dana=0.7)
    write_choice(tmp_path, "tfidf", 2, "tfidf")
    assert main(["report", str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["headline"] == headline(analysis)
    scores = {row["arm"]: row["mean"] for row in answer["probe"]}
    assert scores == pytest.approx(
        {arm: (predicted(share) == LABELS).mean() for arm, share in (("base", 0.5), ("dana", 0.7))}
    )
    assert {row["labels"] for row in answer["probe"]} == {100}
    verdicts = [(row["a"], row["b"], row["decision"]) for row in answer["probe_verdicts"]]
    assert verdicts == [("dana", "base", "better"), ("dana", "tfidf", "better")]
    assert answer["model"]["choice"] == "tfidf"
    assert (answer["model"]["low"], answer["model"]["waiting"]) == (0.53, 2)


def write_retrieval(run, arm, **scores):
    folder = run / "retrieval" / arm
    folder.mkdir(parents=True)
    texts = {
        text: None if score is None else {"documents": 40, "mrr_10": score, "ndcg_10": score}
        for text, score in scores.items()
    }
    write_json(folder / "retrieval.json", {"texts": texts})


@pytest.mark.parametrize(
    ("base", "dana", "text"),
    [
        ({"target": 0.765, "pool": 0.7}, {"target": 0.5, "pool": 0.7}, "target"),
        ({"target": 0.765, "pool": 0.7}, {"target": 0.75, "pool": 0.1}, None),
        ({"target": None, "pool": 0.765}, {"target": None, "pool": 0.5}, "pool"),
        ({"target": 0.765, "pool": 0.7}, {"target": 0.8, "pool": 0.7}, None),
    ],
)
def test_page_and_command_warn_of_vectors_that_search_worse_after_adaptation(
    tmp_path, base, dana, text
):
    run = tmp_path / "tickets"
    write_run(run, base=0.5, dana=0.7)
    write_retrieval(run, "base", **base)
    write_retrieval(run, "dana", **dana)
    write_retrieval(run, "random", target=0.1, pool=0.1)  # nobody searches by its vectors
    said = [line for line in build_report(read_run(run)).notes if line.startswith("For search")]
    assert search_lines(run) == [], "no encoder, no advice"
    (run / "encoder").mkdir()
    assert search_lines(run) == [f"  {line}" for line in said]
    if text is None:
        assert said == []
    else:
        [line] = said
        assert "keep the model without adaptation" in line
        assert "MRR@10 of 0.500 after adaptation (adapted), 0.765 before" in line
        assert f"on {text} text" in line


def test_before_all_candidates_are_tested_the_next_step_is_to_go_on(tmp_path):
    run = tmp_path / "tickets"
    write_run(run, base=0.5, dana=0.7)
    write_choice(run, "tfidf", 2, "tfidf")
    notes = build_report(read_run(run)).notes
    assert notes[0].endswith("2 candidates are not tested yet; the best of all replaces it then.")
    assert notes[1].startswith("Next: go on: dana run tickets tests the candidates")


def test_an_interval_ends_where_the_scores_do(tmp_path):
    assert within_range("macro_f1", (0.844, 1.029), 50) == (0.844, 1)
    assert within_range("accuracy", (-0.1, 0.4), 50) == (0, 0.4)
    assert within_range("spearman", (-1.2, 0.4), 50) == (-1, 0.4)
    assert within_range("mae", (-0.1, 7.0), 50) == (0, 7)
    assert all(np.isnan(within_range("accuracy", (np.nan, np.nan), 50)))


def test_the_interval_of_a_perfect_score_is_that_of_so_many_texts(tmp_path):
    # The exact interval of 18 of 18 right, as scipy.stats.binomtest(18, 18) has it.
    assert within_range("macro_f1", (1.0, 1.0), 18) == (pytest.approx(0.8147, abs=1e-4), 1)
    assert within_range("accuracy", (0.0, 0.0), 18) == (0, pytest.approx(0.1853, abs=1e-4))
    assert within_range("accuracy", (0.5, 0.5), 18) == (0.5, 0.5)
    assert within_range("mae", (0.0, 0.0), 18) == (0, 0)
    analysis = write_run(tmp_path, 1.0, base=0.5, dana=0.6)
    low, high = analysis.run.baselines[0].interval
    assert (low, high) == (pytest.approx(0.025 ** (1 / TEXTS)), 1)


def test_a_program_reads_the_interval_of_a_probe_that_the_page_shows(tmp_path, capsys):
    analysis = write_run(tmp_path, base=0.5, dana=1.0)
    assert main(["report", str(tmp_path), "--json"]) == 0
    intervals = {
        row["arm"]: row["interval"] for row in json.loads(capsys.readouterr().out)["probe"]
    }
    shown = {probe.arm: list(probe.interval) for probe in analysis.run.probes}
    assert intervals == shown
    assert intervals["dana"] == [pytest.approx(0.025 ** (1 / TEXTS)), 1]


def test_the_model_at_the_end_and_why_are_on_the_first_screen(tmp_path):
    run = tmp_path / "tickets"
    write_run(run, base=0.5, dana=0.7)
    write_choice(run, "tfidf", 2, "tfidf")
    write_choice(run, "finetuned-dana", 0, "finetuned-dana")
    write_choice(run, "vectors-base", 1, "vectors-base")  # of a quick run: among fewer
    report = build_report(read_run(run))
    assert report.notes[0] == (
        "The model in tickets/model is the adapted model, fine-tuned, the best of 3 candidates (of those within .005 "
        "the cheapest). On new texts expect 0.580 accuracy (95 % interval 0.530 to 0.630), corrected for having chosen."
    )
    assert report.notes[1].startswith("Next: label new texts: dana predict tickets NEW.csv")
    [table] = report.sections[0].tables
    assert [(cells[0], look) for cells, look in table.rows()] == [
        ("TF-IDF with a linear model", ""),
        ("sentence vectors of the model as it was with a linear model", ""),
        ("the adapted model, fine-tuned", "marked"),
    ]
