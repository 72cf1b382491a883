"""``dana run`` that ends in a model: what it chooses from, what it is fitted to, and that stopping leaves one."""

import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import dana
from dana.cli.main import main
from dana.core.artifacts import read_json, read_manifest
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.schemas import iterate_documents
from dana.core.settings import load
from dana.finetuning.result_card import result_lines
from dana.finetuning.result_model import Description, open_result
from dana.finetuning.settings import FinetuneSettings
from dana.stages import final
from dana.stages.baselines import baselines_stage
from dana.stages.final import encoder_stage, final_stage
from dana.stages.join import join_run
from dana.stages.predict import NewText, predict_stage
from dana.stages.recipe import write_recipe
from dana.stages.report import report_stage
from dana.stages.run import plan_run, run_recipe
from dana.stages.settings import RunSettings
from dana.stages.steps.runner import execute
from dana.tasks.card import load_card
from dana.tasks.examples import read_folds
from tests.stages.steps.test_run import SETTINGS
from tests.toy_task import SIGNS, rows, write_checkpoint, write_folds, write_split, write_task

FOLDS = 2
KINDS = ["tfidf", "vectors-base", "vectors-dana", "finetuned-base", "finetuned-dana"]
TRIED = {"candidates": ["contrastive"]}  # what recipes do by default; here few do, as it takes time


def write_pool(folder):
    write_split(folder, "pool", [{"id": row["id"], "text": row["text"]} for row in rows(150, 9)])
    model = write_checkpoint(folder / "checkpoint")
    return {"pool": [str(folder / "pool.jsonl")], "model": str(model)}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    return {"task": str(write_folds(folder, count=60, folds=FOLDS)), **write_pool(folder)}


def recipe(inputs, out, **settings):
    values = {**SETTINGS, "selector": "lexical", "arms": ["random", "dana"], "final": True}
    values |= {"candidates": []}
    values |= {"seeds": {"finetunings": 1}, "baselines": ["majority", "tfidf"]}
    values |= {"probe": {"enabled": True, "sizes": [10], "draws": 2, "documents": 0}}
    return load(RunSettings, {**inputs, **values, "out": str(out), **settings})


@pytest.fixture(scope="module")
def run(inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    execute(plan_run(recipe(inputs, folder)))
    join_run(folder)
    report_stage(folder)
    return folder


def copy_of(run, folder, *missing):
    """Copy a run, without some of its results, to a folder of the same name, which results do not depend on."""
    copy = folder / "run"
    shutil.copytree(run, copy)
    for name in missing:
        shutil.rmtree(copy / name)
    return copy


def forms(run):
    description = Description.read(run / "model")
    return description.form, description.notes["name"]


def test_the_model_is_chosen_after_each_kind_of_candidate(inputs, run, tmp_path):
    names = [step.name for step in plan_run(recipe(inputs, tmp_path)).steps]
    finals = [name for name in names if name.startswith("final/")]
    assert finals == [f"final/{kind}" for kind in KINDS]
    assert names.index("final/tfidf") == names.index("baselines/toy") + 1
    assert names.index("final/vectors-base") < names.index("final/vectors-dana")
    assert (
        names.index("adapt/dana/final") < names.index("final/vectors-dana") < names.index("encoder")
    )
    assert names[-1] == "final/finetuned-dana"
    for number, kind in enumerate(KINDS, 1):
        choice = read_json(run / "final" / f"choice-{kind}" / "choice.json")
        assert [row["kind"] for row in choice["candidates"]] == KINDS[:number]
        assert choice["waiting"] == len(KINDS) - number
        assert choice["texts"] == 60


def test_choices_follow_one_another_as_they_write_one_folder(inputs, tmp_path):
    steps = plan_run(recipe(inputs, tmp_path, **TRIED)).steps
    finals = [step for step in steps if step.name.startswith("final/")]
    assert finals[0].after == ()
    for former, step in pairwise(finals):
        assert step.after == (former.name,)


def test_a_quick_run_chooses_among_what_is_not_fine_tuned(inputs, tmp_path):
    names = [step.name for step in plan_run(recipe(inputs, tmp_path), quick=True).steps]
    finals = [name for name in names if name.startswith("final/")]
    assert finals == ["final/tfidf", "final/vectors-base", "final/vectors-dana"]
    assert "encoder" in names


def test_a_quick_run_without_a_probe_chooses_among_what_it_fine_tunes(inputs, tmp_path):
    settings = recipe(inputs, tmp_path, baselines=[], probe={"enabled": False})
    names = [step.name for step in plan_run(settings, quick=True).steps]
    finals = [name for name in names if name.startswith("final/")]
    assert finals == ["final/finetuned-base", "final/finetuned-dana"]


def test_without_the_key_a_run_has_no_such_step(inputs, tmp_path):
    names = [step.name for step in plan_run(recipe(inputs, tmp_path, final=False)).steps]
    assert not [name for name in names if "final" in name or name == "encoder"]


def test_scores_of_the_choice_are_those_of_the_runs_own_predictions(run):
    choice = read_json(run / "final/choice-finetuned-dana/choice.json")
    scores = {row["kind"]: row["score"] for row in choice["candidates"]}
    assert scores["tfidf"] == pytest.approx(
        read_json(run / "baselines/toy/tfidf/metrics.json")["mean"]
    )
    for arm in ("base", "dana"):
        metrics = read_json(run / "finetune/toy" / arm / "metrics.json")
        assert scores[f"finetuned-{arm}"] == pytest.approx(metrics["mean"])
    assert choice["choice"] == "tfidf"
    assert scores["tfidf"] == max(scores.values())
    assert choice["low"] < choice["expected"] < choice["high"]


def test_the_model_reads_all_labelled_texts_and_answers_to_its_words(inputs, run):
    assert forms(run) == ("tfidf", "tfidf")
    pipeline = open_result(run / "model").pipeline
    new = [row["text"] for row in rows(30, 99)]
    labels = [row["label"] for row in rows(30, 99)]
    assert np.mean(pipeline.predict(new) == labels) > 0.9
    words = {
        word for example in read_folds(load_card(inputs["task"])) for word in example.text.split()
    }
    known = {term for term in pipeline[0].vocabulary_ if " " not in term}
    assert known == words


@pytest.mark.parametrize("content", ["", '{"made_from": "12', "[]"])
def test_an_encoder_with_a_damaged_note_is_made_again(run, tmp_path, content):
    model = str(run / "final/arms/dana/adapted")
    out = tmp_path / "encoder"
    arguments = (None, "base", out, 24, "toy", "base", FOLDS)
    models = [{"arm": "dana", "model": model, "is_unlabelled": False}]
    encoder_stage(models, *arguments)
    before = {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()}
    (out / "dana.json").write_text(content)
    encoder_stage(models, *arguments)
    assert {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()} == before


def test_the_remedy_for_a_damaged_model_mends_the_run(inputs, run, tmp_path, capsys):
    """The run leaves a model that it finds, so running it again alone would change nothing."""
    copy = copy_of(run, tmp_path)
    model = copy / "model"
    for name in ("result.json", "model.skops", "likeness.json", "likeness.safetensors"):
        content = (model / name).read_bytes()
        (model / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(ArtifactError) as error:
            dana.load(copy)
        assert str(error.value).startswith(f"{model / name}")
        assert f"copy {model} again, or remove it and run its command again" in str(error.value)
        (model / name).write_bytes(content)
    shutil.rmtree(model)
    execute(plan_run(recipe(inputs, copy)))
    assert len(dana.load(copy).predict(["apple word1 plum"])) == 1


def test_the_text_of_the_encoder_was_chosen_by_all_labelled_texts(inputs, run):
    examples = read_folds(load_card(inputs["task"]))
    target = run / "final/target"
    read = [
        document.text
        for part in ("fit", "held_out")
        for document in iterate_documents(target / part)
    ]
    assert sorted(read) == sorted(example.text for example in examples)
    fold = [
        document.text
        for part in ("fit", "held_out")
        for document in iterate_documents(run / "target" / part)
    ]
    assert len(fold) < len(read)
    assert read_manifest(run / "final/arms/dana/adapted")["counts"]["steps"] == 2


def test_the_encoder_is_the_adapted_model_and_opens_by_its_three_lines(run, capsys):
    from transformers import AutoModel

    saved = AutoModel.from_pretrained(run / "encoder").state_dict()
    adapted = AutoModel.from_pretrained(run / "final/arms/dana/adapted").state_dict()
    name = "encoder.layer.0.attention.self.query.weight"
    assert np.array_equal(saved[name].numpy(), adapted[name].numpy())
    lines = [line.strip() for line in result_lines(run)]
    code = [line for line in lines if line.startswith(("from ", "encoder = ", "vectors = "))]
    assert len(code) == 3
    pytest.importorskip("sentence_transformers")
    found = {}
    exec("\n".join(code), found)
    assert found["vectors"].shape == (2, 32)


def test_the_readme_says_score_interval_labels_terms_and_how_it_is_opened(run):
    text = (run / "model/README.md").read_text(encoding="utf-8")
    choice = read_json(run / "model/choice.json")
    assert (
        f"macro-F1 {choice['expected']:.3f} (95 %: {choice['low']:.3f} to {choice['high']:.3f})"
        in text
    )
    assert "fitted to 60 labelled texts" in text
    assert "Of 5 candidates it has the best score." in text
    for label in SIGNS:
        assert f"| {label} | 20 |" in text
    for part in ("dana predict", "dana.load(", "skops", "## Terms"):
        assert part in text
    assert "names no licence" in (run / "encoder/README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_vectors_or_a_fine_tuned_model_can_win(inputs, run, tmp_path):
    """Without the better candidates the next ones win; what they need was made before."""
    copy = copy_of(run, tmp_path, "model")
    execute(plan_run(recipe(inputs, copy, baselines="none")))
    assert forms(copy) == ("vectors", "vectors-base")
    model = open_result(copy / "model")
    texts = [example.text for example in read_folds(load_card(inputs["task"]))]
    vectors = model.encoder.encode(texts).cpu().numpy()
    assert set(model.pipeline.predict(vectors)) == set(SIGNS)
    assert "no more than .005 better" not in (copy / "model/README.md").read_text()
    shutil.rmtree(copy / "model")
    execute(plan_run(recipe(inputs, copy, baselines="none", probe={"enabled": False})))
    assert forms(copy) == ("fine-tuned", "finetuned-base")
    from transformers import pipeline

    [answer] = pipeline("text-classification", str(copy / "model"))(["apple pear"])
    assert answer["label"] in SIGNS


@pytest.mark.slow
def test_a_second_run_leaves_the_model_and_a_lost_one_comes_back(inputs, run, tmp_path):
    copy = copy_of(run, tmp_path)
    before = (copy / "model/model.skops").stat().st_mtime_ns
    execute(plan_run(recipe(inputs, copy)))
    execute(plan_run(recipe(inputs, copy), quick=True))
    assert (copy / "model/model.skops").stat().st_mtime_ns == before
    assert len(read_json(copy / "model/choice.json")["candidates"]) == len(KINDS)
    (copy / "model").rename(copy / ".model.old")  # killed between the renames
    execute(plan_run(recipe(inputs, copy)))
    assert (copy / "model/model.skops").stat().st_mtime_ns == before
    assert not (copy / ".model.old").exists()
    shutil.rmtree(copy / "model")
    shutil.rmtree(copy / "encoder")
    execute(plan_run(recipe(inputs, copy)))
    assert forms(copy) == ("tfidf", "tfidf")
    assert (copy / "encoder/config.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["save_tfidf", "model_card", "replace_folder"])
def test_killed_while_it_makes_a_model_the_run_keeps_the_one_before(
    inputs, run, tmp_path, monkeypatch, name
):
    copy = copy_of(run, tmp_path)
    description = Description.read(copy / "model")
    notes = {**description.notes, "candidates": 1, "made_from": "", "choice": ""}
    replace(description, notes=notes).write(copy / "model")

    def kill(*arguments, **keywords):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(final, name, kill)
        with pytest.raises(KeyboardInterrupt):
            execute(plan_run(recipe(inputs, copy)))
    assert Description.read(copy / "model").notes["candidates"] == 1
    execute(plan_run(recipe(inputs, copy)))
    assert Description.read(copy / "model").notes["candidates"] == len(KINDS)
    assert not [path.name for path in copy.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({}, []),
        (TRIED, ["contrastive-base", "contrastive-dana"]),
        ({**TRIED, "finetune": {"method": "contrastive"}}, []),
        ({**TRIED, "arms": ["pool", "random"]}, ["contrastive-base"]),
    ],
)
def test_the_recipe_says_what_is_tried_beside_the_arms(inputs, tmp_path, settings, kinds):
    names = [step.name for step in plan_run(recipe(inputs, tmp_path, **settings)).steps]
    assert [name for name in names if name.startswith("final/contrastive")] == [
        f"final/{kind}" for kind in kinds
    ]


def test_the_arms_name_the_seeds_of_the_base_as_their_twins(inputs, tmp_path):
    steps = {step.name: step.settings for step in plan_run(recipe(inputs, tmp_path, **TRIED)).steps}
    for first, name in (("finetune", "toy"), ("candidate", "contrastive")):
        base = steps[f"{first}/{name}/base/1/seed-1"]
        arm = steps[f"{first}/{name}/dana/1/seed-1"]
        assert arm["twin"] == base["out"]
        assert "twin" not in base


def test_of_texts_with_several_labels_each_nothing_else_is_tried(inputs, tmp_path):
    card = write_folds(tmp_path / "several", count=60, folds=FOLDS, kind="multi_label")
    steps = plan_run(recipe({**inputs, "task": str(card)}, tmp_path / "run", **TRIED)).steps
    assert not [step.name for step in steps if "contrastive" in step.name]


@pytest.mark.parametrize("each", [1, 2])
def test_what_lacks_pairs_in_a_fold_is_not_tried_and_said(inputs, tmp_path, heard, each):
    """Classes of two texts, one in each fold: no fold trains on two of one class."""
    labels = [f"class {number}" for number in range(30)]
    examples = [
        {
            "id": f"{label}-{fold}-{one}",
            "text": f"{label} {one} word{fold}",
            "label": label,
            "fold": fold,
        }
        for fold in range(FOLDS)
        for label in labels
        for one in range(each)
    ]
    card = write_folds(tmp_path / "pairs", folds=FOLDS, examples=examples, labels=labels)
    steps = plan_run(recipe({**inputs, "task": str(card)}, tmp_path / "run", **TRIED)).steps
    tried = [step.name for step in steps if step.name.startswith("candidate/")]
    assert bool(tried) == (each == 2)
    said = [
        line for line in heard.messages if line.startswith("candidate contrastive is not tried")
    ]
    assert bool(said) == (each == 1)
    assert all("have no pair of one class and another of two" in line for line in said)


def test_a_way_that_is_named_twice_is_refused(inputs, tmp_path):
    with pytest.raises(ConfigError, match="each once"):
        recipe(inputs, tmp_path, candidates=["contrastive", "contrastive"])


def test_a_run_whose_time_suffices_for_no_comparison_says_so(inputs, tmp_path, heard):
    settings = recipe(inputs, tmp_path / "run", baselines=["majority"])
    assert not run_recipe(settings, minutes=1e-6).exists()
    assert "report    none yet: the time was over before there was anything to compare" in (
        heard.messages
    )


def test_a_run_whose_time_is_over_has_the_model_of_what_was_tested_and_says_the_rest(
    inputs, tmp_path, caplog
):
    settings = recipe(inputs, tmp_path / "run", **TRIED)
    plan = plan_run(settings)
    first = ("baselines/", "probe/toy/base")
    early = tuple(step for step in plan.steps if step.name.startswith(first))
    execute(replace(plan, steps=early))
    caplog.set_level("INFO", "dana")
    run_recipe(settings, minutes=1e-9)
    [line] = [text for text in caplog.messages if text.startswith("minutes ")]
    assert "4 × fine-tuning in other ways, 6 × fine-tuning; the same command" in line
    assert "baselines" not in line
    assert len(read_json(tmp_path / "run/model/choice.json")["candidates"]) == 2
    assert (tmp_path / "run/report.html").is_file()


@pytest.mark.slow
def test_another_way_of_fine_tuning_can_win_and_is_fitted_with_its_own_settings(
    inputs, run, tmp_path
):
    """Without TF-IDF and vectors; the settings of the arms train for one epoch, and learn nothing."""
    new = rows(30, 99)
    labels = [row["label"] for row in new]
    pd.DataFrame({"text": [row["text"] for row in new]}).to_csv(tmp_path / "new.csv", index=False)
    assert RunSettings().candidates == TRIED["candidates"]
    copy = copy_of(run, tmp_path, "model")
    settings = recipe(inputs, copy, baselines="none", probe={"enabled": False}, **TRIED)
    execute(plan_run(settings))
    for arm in ("base", "dana"):
        seeds = sorted((copy / "candidate/contrastive" / f"{arm}-seeds").glob("*/seed-*"))
        assert [path.parent.name + path.name for path in seeds] == ["0seed-0", "1seed-1"]
    choice = read_json(copy / "model/choice.json")
    scores = {row["kind"]: row["score"] for row in choice["candidates"]}
    assert min(scores["contrastive-base"], scores["contrastive-dana"]) > 0.5
    assert forms(copy)[0] == "fine-tuned"
    assert forms(copy)[1].startswith("contrastive-")
    text = (copy / "model/README.md").read_text(encoding="utf-8")
    assert "fine-tuned (contrastive)" in text
    assert "It labels in dana alone" in text
    assert "pipeline(" not in text
    [table] = predict_stage(str(copy), NewText([str(tmp_path / "new.csv")]))
    right = [row["label"] == label for row, label in zip(table.to_pylist(), labels, strict=True)]
    assert np.mean(right) > 0.5, "a guess has a third"


def test_with_a_fixed_split_the_test_texts_stay_out(inputs, tmp_path):
    card = write_task(tmp_path / "task")
    settings = recipe(
        {**inputs, "task": str(card)}, tmp_path / "run", seeds={"adaptations": 1, "finetunings": 1}
    )
    run = plan_run(settings)
    names = [step.name for step in run.steps]
    assert not [name for name in names if name.endswith("/final")]
    wanted = ("texts", "base", "baselines/toy", "final/tfidf")
    execute(replace(run, steps=tuple(step for step in run.steps if step.name in wanted)))
    assert "fitted to 150 labelled texts" in (tmp_path / "run/model/README.md").read_text()
    assert read_json(tmp_path / "run/model/choice.json")["texts"] == 60


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cards": ["sst2", "agnews"]}, "one task card, and this run has 2"),
        ({"seeds": {"adaptations": 4, "stop_early": True}}, "beside seeds.stop_early"),
        ({"task": "conll"}, "each word of words has a label"),
    ],
)
def test_a_run_that_cannot_end_in_a_model_is_refused_before_any_work(
    inputs, tmp_path, changes, words
):
    if changes.get("task"):
        changes = {"task": str(write_words(tmp_path))}
    with pytest.raises(ConfigError, match=words):
        plan_run(recipe(inputs, tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()


def write_words(folder):
    lines = [{"id": str(at), "text": ["a", "b"], "label": ["O", "B-X"]} for at in range(6)]
    for split in ("train", "dev", "test"):
        write_split(folder / "toy", split, lines)
    return write_task(
        folder,
        name="words",
        kind="token_labels",
        labels=["O", "B-X", "I-X"],
        metric="span_f1",
        presets={},
    )


def write_texts(folder, texts):
    """A card with two folds of texts, each a text and its label."""
    lines = [
        {"id": str(at), "text": text, "label": label, "fold": at % 2}
        for at, (text, label) in enumerate(texts)
    ]
    write_split(folder, "texts", lines)
    return write_task(folder, data={"file": "texts"}, folds="fold", splits={})


ODD_TEXTS = {
    "two texts": [("an apple", "fruit"), ("some iron", "metal")],
    "one class": [(f"an apple {at}", "fruit") for at in range(12)],
    "all equal": [("an apple", list(SIGNS)[at // 2 % 3]) for at in range(24)],
    "a fold without a class": [
        (f"word{at} {SIGNS[label][0]}", label)
        for at, label in enumerate(["fruit", "metal"] * 8 + ["bird", "fruit"] * 2)
    ],
}


def end_in_a_model(card, folder, **values):
    """Test TF-IDF on a card with two folds, and make the model of it."""
    settings = FinetuneSettings(**values)
    baselines = baselines_stage(str(card), folder / "tested", settings, ["tfidf"], "", folds=2)
    outputs = [[0, str(baselines.path)]]
    candidate = {"kind": "tfidf", "form": "tfidf", "model": None, "outputs": outputs}
    out = folder / "run"
    final_stage(str(card), [candidate], 0, settings, 64, out, "tfidf", "none", folds=2)
    return out / "model"


@pytest.mark.parametrize("name", ["one class", "a fold without a class"])
def test_odd_texts_end_in_a_model_that_says_so(tmp_path, name):
    model = end_in_a_model(write_texts(tmp_path, ODD_TEXTS[name]), tmp_path)
    answers = open_result(model).pipeline.predict(["an apple", "of iron"])
    assert set(answers) <= set(SIGNS)
    text = (model / "README.md").read_text()
    assert ("no better than the same answer" in text) == (name == "one class")


def test_the_readme_predicts_several_labels_as_dana_does(tmp_path, monkeypatch):
    """Each text has the first label, for which ``predict`` of scikit-learn has another threshold."""
    texts = [
        (f"{SIGNS[label][at % 2]} {at}", ["all", label])
        for at in range(12)
        for label in ("fruit", "metal", "metal")
    ]
    lines = [
        {"id": str(at), "text": text, "label": labels, "fold": at // 3 % 2}
        for at, (text, labels) in enumerate(texts)
    ]
    write_split(tmp_path, "texts", lines)
    names = ["all", "fruit", "metal"]
    several = {"kind": "multi_label", "labels": names, "metric": "macro_f1"}
    card = write_task(tmp_path, data={"file": "texts"}, folds="fold", splits={}, **several)
    model = end_in_a_model(card, tmp_path)
    _, _, code = (model / "README.md").read_text().partition("Without dana:")
    code = code.split("```")[1].removeprefix("python\n")
    *lines_before, last = code.strip().splitlines()
    monkeypatch.chdir(model)
    values = {}
    exec("\n".join([*lines_before, f"answer = {last}"]), values)
    table = dana.load(model).predict(["a text", "another text"])
    expected = [[names[at] for at in np.flatnonzero(row)] for row in values["answer"]]
    assert [[*row] for row in table["label"]] == expected
    assert all("all" in row for row in expected)


def test_the_model_at_the_end_weighs_classes_as_it_was_tested(tmp_path):
    texts = [(f"some {SIGNS['metal'][at % 2]} {at}", "metal") for at in range(40)]
    texts += [(f"an {SIGNS['fruit'][at % 2]} of it {at}", "fruit") for at in range(8)]
    card = write_texts(tmp_path, texts)
    likely = {}
    for weight in (None, "balanced"):
        model = end_in_a_model(card, tmp_path / str(weight), class_weight=weight)
        pipeline = open_result(model).pipeline
        place = [str(name) for name in pipeline.classes_].index("fruit")
        likely[weight] = pipeline.predict_proba(["unknown"])[0, place]
    assert likely["balanced"] > likely[None]


@pytest.mark.parametrize("name", ["two texts", "all equal"])
def test_texts_that_leave_none_to_train_on_are_refused_in_one_line(tmp_path, name):
    card = write_texts(tmp_path, ODD_TEXTS[name])
    with pytest.raises(DataError, match="no text is left to train on"):
        end_in_a_model(card, tmp_path)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["multi_label", "regression"])
def test_several_labels_and_numbers_end_in_a_model(tmp_path, kind):
    labels = list(SIGNS)
    values = (
        {label: [label] for label in labels}
        if kind == "multi_label"
        else dict(zip(labels, (0, 5, 9), strict=True))
    )
    lines = [
        {**row, "label": values[row["label"]], "fold": at // 3 % 2}
        for at, row in enumerate(rows(90, 1))
    ]
    write_split(tmp_path, "texts", lines)
    metric = "micro_f1" if kind == "multi_label" else "mse"
    changes = {"kind": kind, "metric": metric, "labels": labels if kind == "multi_label" else []}
    card = write_task(
        tmp_path, data={"file": "texts"}, folds="fold", splits={}, presets={}, **changes
    )
    model = end_in_a_model(card, tmp_path)
    choice = read_json(tmp_path / "run/model/choice.json")
    score = read_json(tmp_path / "tested/tfidf/metrics.json")["mean"]
    assert choice["candidates"][0]["score"] == pytest.approx(score)
    assert choice["low"] < choice["expected"] < choice["high"]
    [answer] = open_result(model).pipeline.predict(["apple pear plum apple"])
    if kind == "multi_label":
        assert answer.tolist() == [1, 0, 0]
    else:
        assert answer < 4


@pytest.mark.slow
def test_the_last_lines_name_the_model_and_how_it_is_used(inputs, run, tmp_path, capsys):
    copy = copy_of(run, tmp_path)
    write_recipe(recipe(inputs, copy), copy)
    assert main(["run", str(copy)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("report: ")
    assert lines[1].startswith(f"model: {copy / 'model'}: TF-IDF with logistic regression.")
    assert f"  dana predict {copy} NEW.csv" in lines
    assert lines[-1] == '  vectors = encoder.encode(["a text", "another text"])'
