"""The counted experiment keeps test texts out of what is selected, and answers from its committed rows."""

import importlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks" / "evidence"
MODULES = (
    *("plan", "rows", "texts", "steps", "eight_bits", "packing"),
    *("verdicts", "figure", "pages", "figures", "few_labels"),
)


@pytest.fixture(scope="module")
def evidence():
    """Import the modules of the experiment by their names, and forget them again."""
    before = list(sys.path)
    sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]
    modules = {name: importlib.import_module(name) for name in MODULES}
    yield modules
    sys.path[:] = before
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


def test_the_worth_of_a_gain_is_written_only_where_the_base_was_measured_with_more(
    evidence, results
):
    worth_text = evidence["verdicts"].worth_text
    assert worth_text(results, "rct_sample", 0.7, 100) == "", "nothing beyond 100 labels"
    better = [number < 60 for number in range(100)]
    results.add("rct_sample", [base_row(better, size=200)])
    assert worth_text(results, "rct_sample", 0.55, 100) == "41"
    assert worth_text(results, "rct_sample", 0.7, 100) == "more than 100"
    assert worth_text(results, "rct_sample", 0.5, 100) == ""


def test_the_summary_has_the_scores_of_every_task_and_the_mean(evidence, results):
    lines = evidence["pages"].summary(results).splitlines()
    assert lines[0].startswith("| task | base | random text | chosen text | chosen - base |")
    assert lines[2].startswith("| rct_sample | 0.500 | 0.500 | **0.710** | +0.210 (")
    assert lines[3].startswith("| sst2 | 0.500 | not adapted: the pilot expects no gain |")
    assert lines[4].startswith("| mean of 2 |")
    assert "+0.105 (" in lines[4]


def test_only_what_stands_between_the_marks_of_a_page_is_written(evidence):
    pages = evidence["pages"]
    page = f"before\n{pages.BEGIN}\nold\n{pages.END}\nafter\n"
    written = pages.between_marks(page, "new")
    assert written == f"before\n{pages.BEGIN}\nnew\n{pages.END}\nafter\n"
    assert pages.between_marks(written, "new") == written
    with pytest.raises(ValueError, match="substring not found"):
        pages.between_marks("no marks", "new")


def test_the_pages_say_what_the_committed_rows_say(evidence):
    pages = evidence["pages"]
    results = evidence["rows"].Results()
    for name, text in (
        ("README.md", pages.summary(results)),
        ("docs/results/adaptation.md", pages.all_tables(results)),
        ("docs/results/few-labels.md", pages.own_tables(results)),
    ):
        page = (pages.ROOT / name).read_text(encoding="utf-8")
        assert page == pages.between_marks(page, text), (
            f"{name}: python benchmarks evidence WORK --tables --write"
        )


def test_the_page_of_few_labels_says_what_its_rows_say(evidence):
    few_labels = evidence["few_labels"]
    page = few_labels.PAGE.read_text(encoding="utf-8")
    assert page == few_labels.page_text(), "python benchmarks few_labels WORK --tables --write"


def few_labels_row(classifier, draw, score, task="sst2", size=8, base="minilm"):
    """Return a row of the benchmark of few labels, of ten seconds a point."""
    keys = {"classifier": classifier, "task": task, "size": size, "draw": draw, "base": base}
    return {**keys, "macro_f1": score, "accuracy": score, "seconds": 10 * score}


def test_a_mean_is_over_the_draws_that_all_classifiers_have(evidence, monkeypatch):
    few_labels = evidence["few_labels"]
    rows = [few_labels_row("contrastive", draw, 0.6 + 0.1 * draw) for draw in range(3)]
    rows += [few_labels_row("setfit", draw, 0.5) for draw in range(2)]
    rows += [few_labels_row("setfit-20", 1, 0.55)]
    monkeypatch.setattr(few_labels, "read_results", lambda: rows)
    [row] = few_labels.table("macro_f1", 2)
    assert (row["draws"], row["contrastive"], row["setfit"]) == ("2", "0.65", "0.50")
    [scores] = few_labels.pairs_table()
    assert scores["draws"] == "1", "of the only draw that setfit with more pairs has"
    assert (scores["contrastive"], scores["setfit"], scores["setfit-20"]) == (
        "0.700",
        "0.500",
        "0.550",
    )
    assert few_labels.adapted_table() == []
    rows.append(few_labels_row("setfit", 1, 0.6, base="adapted"))
    [row] = few_labels.adapted_table()
    assert (row["MiniLM"], row["adapted"], row["gain"]) == ("0.500", "0.600", "+0.100")


def test_the_figure_has_a_row_for_each_task_and_size(evidence, results, tmp_path):
    figure = evidence["figure"]
    rows = figure.rows_of(results)
    assert [row.name for row in rows] == ["rct_sample, 100", "sst2, 100"]
    assert rows[0].note == "0.500 → 0.710"
    assert rows[1].note == "0.500, the pilot chose to keep the base"
    assert rows[0].gains["chosen"].mean == pytest.approx(0.21)
    figure.draw(results, tmp_path / "figure.svg")
    image = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert 'style="background: white' in image
    assert "rct_sample, 100: 0.500 → 0.710" in image, "its text alternative"


def test_the_figures_of_the_docs_are_of_the_committed_results(evidence):
    figures = evidence["figures"]
    drawn = {
        "learning-curves": figures.learning_curves(evidence["rows"].Results()),
        "throughput": figures.throughput(),
    }
    for name, figure in drawn.items():
        committed = (figures.IMAGES / f"{name}.svg").read_text(encoding="utf-8")
        assert words_of(committed) == words_of(figure.svg), f"{name}: python benchmarks figures"
    assert words_of(drawn["learning-curves"].svg) > {"rct_sample", "2,000", "labels"}
    better_turn = "0.23"  # million tokens a second of the plain loop with BERT-base, short texts
    assert better_turn in words_of(drawn["throughput"].svg)


def words_of(image):
    """Return the texts of an SVG."""
    return set(re.findall(r"<text[^>]*>([^<]+)</text>", image))


def test_predictions_of_pilots_are_compared_with_what_came(evidence, results):
    verdicts = evidence["verdicts"]
    assert verdicts.prediction_agreement(results, 100) is None
    gains_of_tasks = {"csabstruct": (0.1, 0.02), "acl_arc": (0.05, -0.01), "agnews": (0.2, 0.01)}
    for task, gains in gains_of_tasks.items():
        trials = [
            {"objective": objective, "gain": gain, "error": 0.01}
            for objective, gain in zip(("position", "crops"), gains, strict=True)
        ]
        rows = [{"arm": "pilot", "choice": "position", "trials": trials}]
        rows.append(base_row([number < 50 for number in range(100)]))
        for objective, gain in zip(("position", "crops"), gains, strict=True):
            right = [number < 50 + 100 * gain for number in range(100)]
            rows.append(probe_row(right, "chosen", objective=objective))
        results.add(task, rows)
    assert verdicts.prediction_agreement(results, 100) == (pytest.approx(1.0), 6)
    assert verdicts.agreement_text(results).endswith("1.00 with 100 labels (6 pairs).")


def test_a_second_pilot_counts_only_with_what_it_alone_tried(evidence, results):
    def trial(objective, gain):
        return {"objective": objective, "gain": gain, "error": 0.01}

    verdicts = evidence["verdicts"]
    first = [trial("none", 0.0), trial("position", 0.02), trial("crops", None)]
    results.add("agnews", [{"arm": "pilot", "choice": "none", "trials": first}])
    second = [trial("none", 0.0), trial("position", 0.5), trial("masked", 0.04)]
    results.add("agnews", [{"arm": "pilot with masked", "choice": "masked", "trials": second}])
    found = verdicts.trials_of(results, "agnews")
    assert [(one["objective"], one["gain"]) for one, _ in found] == [
        ("position", 0.02),
        ("masked", 0.04),
    ]
    assert [taken for _, taken in found] == ["", "yes, by the second pilot"]
    right = [number < 60 for number in range(100)]
    results.add("agnews", [base_row(right), probe_row(right, "chosen", objective="masked")])
    [_, row] = [one for one in verdicts.prediction_table(results) if one["task"] == "agnews"]
    assert (row["objective"], row["gain at 100"]) == ("masked", "+0.000")


def test_what_is_forgotten_is_told_by_other_tasks_and_by_documents_found(evidence, results):
    base = [number < 50 for number in range(100)]
    worse = [number < 40 for number in range(100)]
    results.add("agnews", [base_row(base), probe_row(worse, "chosen for rct_sample")])
    found = {"measure": "retrieval", "size": 1000, "model": "minilm"}
    before = {"arm": "base", "index": 0, "steps": 0, "objective": "none", "mrr_10": 0.8}
    after = {"arm": "chosen", "steps": 50, "objective": "position"}
    rows = [{**after, "index": number, "mrr_10": 0.6 + number / 10} for number in (0, 1)]
    results.add("rct_sample", [{**found, **row} for row in (before, *rows)])
    [row] = evidence["verdicts"].forgetting_table(results)
    assert row["agnews, 100"] == "-0.100"
    assert row["finds documents of the pool, MRR@10"] == "0.800 → 0.650"


def test_averages_stand_between_the_adapted_model_and_the_base(evidence, results):
    middle = [number < 60 for number in range(100)]
    for arm in evidence["plan"].AVERAGED:
        results.add("rct_sample", [probe_row(middle, arm, index) for index in (0, 1)])
    found = {"measure": "retrieval", "size": 499, "model": "minilm", "mrr_10": 0.5}
    names = {"arm": "averaged-0.5", "steps": 50, "objective": "position", "index": 0}
    results.add("rct_sample", [{**found, **names}])
    rows = evidence["verdicts"].average_table(results)
    assert [row["share of the base"] for row in rows] == ["0", "0.5", "0.75", "1"]
    assert [row["100 labels"] for row in rows] == ["0.710", "0.600", "0.600", "0.500"]
    searched = [row["finds documents of the pool, MRR@10"] for row in rows]
    assert searched == ["", "0.500", "", ""]


def test_few_own_documents_stand_beside_all_of_them(evidence, results):
    right = {"own-50": [60, 64], "own-200": [65, 67], "own": [70, 72, 99]}
    for arm, counts in right.items():
        for index, count in enumerate(counts):
            row = probe_row([number < count for number in range(100)], arm, index)
            results.add("rct_sample", [row])
    table = evidence["verdicts"].own_parts_table(results)
    assert table == [
        {
            "task": "rct_sample",
            "labels": "100",
            "adaptations": "2",
            "base": "0.500",
            "50 documents": "0.620 (+0.120)",
            "200 documents": "0.660 (+0.160)",
            "all": "0.710 (+0.210)",
        }
    ]
    assert "**Few of them**" in evidence["pages"].own_tables(results)


def test_few_own_documents_are_among_many(evidence, monkeypatch, tmp_path):
    steps = evidence["steps"]
    documents = [f"document {number}" for number in range(300)]
    monkeypatch.setattr(steps, "own_documents", lambda task: list(documents))
    few, many = (
        [row["text"] for row in steps.read_rows(steps.own_pool(tmp_path, "rct_sample", arm))]
        for arm in ("own-50", "own-200")
    )
    assert (len(few), len(many)) == (50, 200)
    assert set(few) < set(many) < set(documents)


def test_few_own_documents_are_asked_where_ids_tell_documents(evidence, experiment):
    planned = experiment.planned_of(evidence["rows"].Results(), ["own_parts"])
    assert {one.task for one in planned} == {"rct_sample", "csabstruct"}
    assert len(planned) == 8


def test_the_commands_of_all_arms_are_commands_of_dana(evidence):
    from dana.cli.main import build_parser
    from dana.core.config import read_yaml
    from dana.stages.settings import load_settings

    plan = evidence["plan"]
    assert plan.SELECTION.keys() == plan.WEIGHTS.keys()
    recipe = read_yaml(FOLDER.parents[1] / "recipes" / "papers" / "dana" / "table1.yaml")
    assert list(plan.PAPER_DETECTORS) == recipe["ranking"]["detectors"]
    parser = build_parser()
    for arm, arguments in plan.SELECTION.items():
        score = parser.parse_args(["score", "--task", "T", "--pool", "P", *arguments])
        settings = load_settings({"selector": score.selector}, score.overrides, arm)
        is_paper = arm in (plan.PAPER_SEGMENTS, plan.PAPER_SIGMOID)
        assert (settings.ranking.protocol == "paper") == is_paper
        if is_paper:
            assert settings.selector_spec == "detector"
            assert settings.ranking.detectors == list(plan.PAPER_DETECTORS)
        parser.parse_args(["weigh", "RUN", *plan.WEIGHTS[arm]])


def test_an_average_reads_the_chosen_text(evidence, experiment, tmp_path):
    planned = experiment.planned_of(evidence["rows"].Results(), ["averages"])
    assert {one.arm for one in planned} == set(evidence["plan"].AVERAGED)
    steps = dict(experiment.selections(tmp_path, planned))
    assert steps["selection of acl_arc-chosen"].args[1:4] == ("acl_arc", "chosen", 0)
    assert len(steps) == 4


def test_masked_tokens_are_counted_where_the_first_pilot_chose_none(evidence, results):
    right = [number < 60 for number in range(100)]
    for index in range(2):
        chosen = probe_row(right, "chosen", index, objective="masked")
        random = probe_row(
            [number < 55 for number in range(100)], "random", index, objective="masked"
        )
        results.add("sst2", [chosen, random])
        results.add("rct_sample", [{**chosen, "index": 7}, {**random, "index": 7}])
    trial = {"objective": "masked", "gain": 0.04, "error": 0.01}
    results.add("sst2", [{"arm": "pilot with masked", "choice": "masked", "trials": [trial]}])
    [row] = evidence["verdicts"].masked_table(results)
    assert (row["task"], row["adaptations"]) == ("sst2", "2")
    assert row["chosen - base"].startswith("+0.100")
    assert row["chosen - random"].startswith("+0.050")
    assert row["pilot"] == "+0.040 ± 0.010, taken"
    assert evidence["verdicts"].choice_of(results, "sst2") == "none", "the first pilot counts"


def test_masked_tokens_are_trained_on_text_of_tasks_without_an_objective(evidence):
    plan = evidence["plan"]
    choices = dict.fromkeys(("rct_sample", "csabstruct", "agnews", "acl_arc"), "position")
    planned = list(plan.masked(choices))
    assert {(one.task, *tasks) for one, tasks in planned} == {("chemprot",) * 2, ("sst2",) * 2}
    assert {(one.arm, one.objective) for one, _ in planned} == {("chosen", "masked")}
    assert len(planned) == 2 * plan.MASKED


def test_weights_at_8_bits_are_half_a_step_from_their_own_at_most(evidence, tmp_path):
    from safetensors.numpy import load_file, save_file

    eight_bits = evidence["eight_bits"]
    generator = np.random.default_rng(0)
    matrix = generator.normal(0, [[0.01], [1], [30], [0]], (4, 64)).astype(np.float32)
    weights = {"layer.weight": matrix, "layer.bias": matrix[1], "numbers": np.arange(5)[None]}
    (tmp_path / "model").mkdir()
    save_file(weights, tmp_path / "model" / "model.safetensors")
    (tmp_path / "model" / "config.json").write_text("{}")
    eight_bits.pack_model(tmp_path / "model", tmp_path / "packed")
    rounded = load_file(tmp_path / "packed" / "rounded.safetensors")
    assert rounded["layer.weight"].dtype == np.int8
    eight_bits.unpack_model(tmp_path / "packed")
    assert {path.name for path in (tmp_path / "packed").iterdir()} == {
        "config.json",
        "model.safetensors",
    }
    restored = load_file(tmp_path / "packed" / "model.safetensors")
    assert restored.keys() == weights.keys()
    assert np.array_equal(restored["layer.bias"], weights["layer.bias"])
    assert np.array_equal(restored["numbers"], weights["numbers"])
    assert restored["layer.weight"].dtype == np.float32
    errors = np.abs(restored["layer.weight"] - matrix).max(1)
    half_steps = np.abs(matrix).max(1) / 127 / 2
    assert (errors <= half_steps * 1.001).all()
    assert errors[2] > half_steps[2] / 2, "it was rounded"
    again = eight_bits.restore_weights(eight_bits.round_weights(restored))
    np.testing.assert_allclose(again["layer.weight"], restored["layer.weight"], rtol=1e-6)


@pytest.fixture
def work(evidence, tmp_path, monkeypatch):
    """A pool of 60 documents, of which two arms read some sentences; six tasks of two texts."""
    import pyarrow as pa

    from dana.core.artifacts import make
    from dana.core.schemas import DOCUMENTS, WEIGHTS, Document, write_parts
    from dana.corpus.documents import document_tables

    documents = [Document(f"d{number}", "s", f"First {number}. Second. ü") for number in range(60)]

    def write_pool(draft):
        write_parts(document_tables(documents), draft.path, DOCUMENTS)

    for run, seed in (("random-0", 0), ("rct_sample-chosen", 1)):
        folder = tmp_path / "work" / "runs" / run
        make(folder / "pool", "pool", {"of": "test"}, write_pool)
        target = [Document(f"t{seed}", "target", f"Held out {seed}")]
        write_parts(document_tables(target), folder / "target" / "held_out", DOCUMENTS)
        generator = np.random.default_rng(seed)
        rows = []
        for document in documents:
            ends = [document.text.index(".") + 1, document.text.rindex(".") + 1]
            for unit, (start, end) in enumerate(
                [(0, ends[0]), (ends[0] + 1, ends[1]), (ends[1] + 1, ends[1] + 2)]
            ):
                weight = float(generator.random() < 0.2)
                place = {"doc_id": document.doc_id, "source": "s", "unit": unit}
                rows.append({**place, "start": start, "end": end, "segment": 0, "weight": weight})
        write_parts([pa.Table.from_pylist(rows, WEIGHTS)], folder / "weights", WEIGHTS)
    for task in evidence["plan"].TASKS:
        for split in ("train", "test"):
            texts = [{"id": split, "text": f"{task.name} {number}"} for number in range(2)]
            folder = tmp_path / "work" / "tasks" / task.name
            evidence["texts"].write_rows(folder / f"{split}.jsonl", texts)
    model = tmp_path / "model"
    model.mkdir()
    from safetensors.numpy import save_file

    save_file({"weight": np.eye(3, dtype=np.float32)}, model / "model.safetensors")
    monkeypatch.setattr(evidence["packing"], "resolve_model", lambda name: str(model))
    return tmp_path / "work"


def arms_there(evidence, work):
    """Return the arms of the plan whose text is selected."""
    arms = evidence["packing"].arms_of(["primary", "dsir"])
    return [one for one in arms if evidence["steps"].has_text(work, one)]


def test_text_that_was_packed_is_unpacked_in_its_order(evidence, work, tmp_path):
    from dana.core.schemas import iterate_documents, read_table

    packing = evidence["packing"]
    arms = arms_there(evidence, work)
    assert [one.arm for one in arms] == ["random", "chosen"]
    packing.pack(work, arms, tmp_path / "packed.tar.xz")
    there = tmp_path / "there"
    packing.unpack(tmp_path / "packed.tar.xz", there)
    for run in ("random-0", "rct_sample-chosen"):
        own, other = work / "runs" / run, there / "runs" / run
        places = ["doc_id", "unit", "start", "end", "weight"]
        rows = [read_table(folder / "weights", places).to_pylist() for folder in (own, other)]
        read, unpacked = [[row for row in table if row["weight"]] for table in rows]
        assert unpacked == read
        assert {row["weight"] for row in rows[1]} == {0, 1}, "sentences that are not read, too"
        ids = {row["doc_id"] for row in read}
        pool = [one for one in iterate_documents(own / "pool") if one.doc_id in ids]
        assert list(iterate_documents(other / "pool")) == pool
        targets = [list(iterate_documents(one / "target" / "held_out")) for one in (own, other)]
        assert targets[0] == targets[1]
    expected = packing.held_out_ids(work / "runs" / "random-0" / "pool")
    held_out = iterate_documents(there / "runs" / "random-0" / "held_out")
    assert [one.doc_id for one in held_out] == expected
    assert (there / "bases" / "minilm" / "model.safetensors").is_file()
    assert evidence["steps"].base_of(there, "minilm") == str(there / "bases" / "minilm")
    assert evidence["steps"].base_of(work, "minilm") == "minilm"
    for name in ("train", "test"):
        path = Path("tasks", "sst2", f"{name}.jsonl")
        assert (there / path).read_bytes() == (work / path).read_bytes()


def test_a_dry_run_unpacks_a_part_of_the_texts_of_tasks(evidence, work, tmp_path):
    packing = evidence["packing"]
    packing.pack(work, arms_there(evidence, work), tmp_path / "packed.tar.xz")
    packing.unpack(tmp_path / "packed.tar.xz", tmp_path / "there", texts=1)
    rows = evidence["texts"].read_rows(tmp_path / "there" / "tasks" / "sst2" / "test.jsonl")
    assert [row["text"] for row in rows] == ["sst2 0"]


def test_only_weights_of_0_and_1_are_packed(evidence, work, tmp_path):
    import pyarrow as pa

    from dana.core.schemas import WEIGHTS, read_table, write_parts

    weights = work / "runs" / "random-0" / "weights"
    rows = read_table(weights).to_pylist()
    rows[0]["weight"] = 0.5
    write_parts([pa.Table.from_pylist(rows, WEIGHTS)], weights, WEIGHTS)
    with pytest.raises(ValueError, match="only weights of 0 and 1"):
        evidence["packing"].pack(work, arms_there(evidence, work), tmp_path / "packed.tar.xz")


def test_every_arm_of_the_plan_is_packed_once(evidence):
    arms = evidence["packing"].arms_of(["primary", "dsir"])
    names = [(one.arm, one.task or one.index) for one in arms]
    tasks = ["rct_sample", "csabstruct", "agnews", "acl_arc"]
    shared = [("random", index) for index in range(8)]
    assert set(names) == {
        *shared,
        *(("chosen", task) for task in tasks),
        *(("dsir", task) for task in tasks),
    }
    assert len(names) == 16


def test_rows_of_another_device_or_base_need_a_folder_of_their_own(evidence, tmp_path):
    rows = evidence["rows"]
    setting = {"device": "NVIDIA H200", "base": "weights at 8 bits"}
    found = rows.Results(tmp_path, setting)
    pilot = {"arm": "pilot", "choice": "position", "trials": []}
    found.add("sst2", [pilot, base_row([True] * 100)])
    [first, second] = rows.Results(tmp_path, setting).of("sst2")
    assert first == pilot, "a choice is of no device"
    assert second == {**base_row([True] * 100), **setting}
    with pytest.raises(
        ValueError, match=r"rows of NVIDIA H200 with the base weights at 8 bits.*of a CPU"
    ):
        rows.Results(tmp_path, {}).of("sst2")


def test_all_committed_rows_of_a_folder_are_of_one_setting(evidence):
    rows = evidence["rows"]
    for folder in rows.FOLDER.parent.glob("evidence*"):
        results = rows.Results(folder)
        settings = [
            rows.setting_of(row)
            for task in evidence["plan"].TASKS
            for row in results.of(task.name)
            if row["arm"] != "pilot"
        ]
        assert settings
        assert all(one == settings[0] for one in settings)
        assert settings[0] == {} or folder != rows.FOLDER


def test_a_dry_run_takes_the_first_adaptation_of_each_arm(evidence):
    plan = evidence["plan"]
    planned = plan.primary({"rct_sample": "position", "csabstruct": "position", "agnews": "crops"})
    small = [(one.arm, one.index, one.steps, tasks) for one, tasks in plan.in_small(planned)]
    assert small == [("random", 0, 2, ["rct_sample"]), ("chosen", 0, 2, ["rct_sample"])]


@pytest.fixture
def experiment(evidence):
    """Import the main file of the experiment."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("evidence_main", FOLDER / "__main__.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rows_of_another_folder_take_the_objectives_that_were_committed(
    evidence, experiment, tmp_path
):
    rows = evidence["rows"]
    results = rows.Results(tmp_path, {"device": "NVIDIA H200"})
    results.add("sst2", [{"arm": "pilot", "choice": "crops", "trials": []}])
    experiment.take_choices(results)
    expected = {**rows.choices_of(rows.Results()), "sst2": "crops"}
    assert rows.choices_of(rows.Results(tmp_path)) == expected
    [pilot] = results.of("agnews")
    assert pilot == {"arm": "pilot", "choice": "crops", "trials": []}


def test_chosen_text_is_selected_with_the_seed_of_the_pilots(evidence, experiment, tmp_path):
    planned = experiment.planned_of(evidence["rows"].Results(), ["primary"])
    steps = dict(experiment.selections(tmp_path, planned))
    assert len(steps) == 12, "those whose rows are there, too"
    assert steps["selection of acl_arc-chosen"].args[1:4] == ("acl_arc", "chosen", 0)
    assert steps["selection of random-7"].args[1:4] == ("", "random", 7)


def test_a_step_that_fails_says_why_and_the_others_are_run(evidence, experiment, tmp_path, capsys):
    results = evidence["rows"].Results(tmp_path)

    def fail():
        raise SystemExit("dana adapt ended with 2")

    steps = [("first", fail), ("second", lambda: {"sst2": [{"arm": "pilot", "choice": "none"}]})]
    assert not experiment.run_steps(steps, results, 1, float("inf"))
    assert results.of("sst2") == [{"arm": "pilot", "choice": "none"}]
    assert "first failed: dana adapt ended with 2" in capsys.readouterr().out
    assert experiment.run_steps(steps[1:], results, 1, float("inf"))


def test_where_text_is_packed_the_base_comes_first_and_missing_text_is_left_out(
    evidence, experiment, work, tmp_path, monkeypatch, capsys
):
    from argparse import Namespace

    packing = evidence["packing"]
    packing.pack(work, arms_there(evidence, work), tmp_path / "packed.tar.xz")
    there = tmp_path / "there"
    packing.unpack(tmp_path / "packed.tar.xz", there)
    setting = experiment.setting_here(there)
    assert setting["base"] == evidence["eight_bits"].DESCRIPTION
    assert experiment.setting_here(work).keys() <= {"device"}
    results = evidence["rows"].Results(tmp_path / "rows", setting)
    choice = {"arm": "pilot", "choice": "position", "trials": []}
    for task in ("rct_sample", "acl_arc"):
        results.add(task, [choice])
    results.add("sst2", [base_row([True])])
    steps = []

    def run_steps(some, results, jobs, deadline):
        steps.extend(name for name, _ in some)
        return True

    monkeypatch.setattr(experiment, "run_steps", run_steps)
    args = Namespace(work=there, jobs=1, dry=False)
    assert not experiment.answer(args, results, "primary", 0)
    tasks = [task.name for task in evidence["plan"].TASKS]
    assert steps[:5] == [f"base {task}" for task in tasks if task != "sst2"]
    assert "primary  minilm-position-50-random-0" in steps
    assert "primary rct_sample minilm-position-50-chosen-7" in steps
    assert not [step for step in steps if "acl_arc minilm" in step]
    assert "its text is not packed: acl_arc minilm-position-50-chosen-0" in capsys.readouterr().out
    steps.clear()
    args.dry = True
    assert experiment.answer(args, results, "primary", 0)
    assert steps == [
        "base rct_sample",
        "primary  minilm-position-2-random-0",
        "primary rct_sample minilm-position-2-chosen-0",
    ]


@pytest.fixture
def gpu_pack(tmp_path, monkeypatch):
    """Import pack.py of the GPU benchmark, and make a project with a tracked file of 1,000 bytes."""
    import subprocess

    monkeypatch.syspath_prepend(FOLDER.parent / "gpu")
    module = importlib.import_module("pack")
    project = tmp_path / "project"
    (project / ".gpu").mkdir(parents=True)
    (project / "tracked.txt").write_text("x" * 1000)
    subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
    subprocess.run(["git", "add", "tracked.txt"], cwd=project, check=True)
    yield module, project / ".gpu"
    del sys.modules["pack"]


def test_what_is_too_large_to_travel_is_refused(gpu_pack, monkeypatch, capsys):
    pack, home = gpu_pack
    (home / "data").write_bytes(bytes(500))
    assert pack.sizes(home) == (500, 1000)
    monkeypatch.setattr(pack, "LIMIT", 1500)
    pack.report(home)
    assert "together" in capsys.readouterr().out
    monkeypatch.setattr(pack, "LIMIT", 1499)
    with pytest.raises(SystemExit, match="too large to travel"):
        pack.report(home)


@pytest.mark.parametrize(
    ("limit", "questions", "arms"), [(2600, "primary dsir", 16), (2599, "primary", 12)]
)
def test_text_of_dsir_is_packed_if_it_fits(
    evidence, gpu_pack, monkeypatch, capsys, limit, questions, arms
):
    module, home = gpu_pack
    packed = []

    def pack(work, arms, out):
        packed.append(len(arms))
        out.write_bytes(bytes(100 * len(arms) - len("primary dsir")))

    monkeypatch.setattr(evidence["packing"], "pack", pack)
    monkeypatch.setattr(evidence["steps"], "has_text", lambda work, one: True)
    monkeypatch.setattr(module, "LIMIT", limit)
    module.pack_evidence(Path("work"), home)
    assert (home / "questions.txt").read_text() == questions
    assert packed[-1] == arms
    assert "not packed" not in capsys.readouterr().out
    monkeypatch.setattr(evidence["steps"], "has_text", lambda work, one: one.task != "acl_arc")
    module.pack_evidence(Path("work"), home)
    said = capsys.readouterr().out
    assert "acl_arc-chosen" in said
    assert "python benchmarks evidence work --select --questions primary" in said


def test_variants_differ_from_the_primary_question_in_one_thing(evidence):
    plan = evidence["plan"]
    choices = {"rct_sample": "position", "agnews": "crops"}
    usual = {"arm": "chosen", "model": plan.MODEL, "steps": plan.STEPS}
    for planned, changed in (
        (plan.paper, "arm"),
        (plan.lengths, "steps"),
        (plan.small, "model"),
        (plan.objectives, "objective"),
    ):
        made = [(one, *tasks) for one, tasks in planned(choices) if one.arm != plan.RANDOM]
        assert {one.index for one, _ in made} == set(range(plan.VARIATIONS))
        for one, task in made:
            expected = {**usual, "objective": choices.get(task)}
            others = {key for key, value in expected.items() if getattr(one, key) != value}
            assert others == {changed}
