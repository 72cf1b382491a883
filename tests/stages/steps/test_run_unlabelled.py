"""``dana run`` with the task's texts without labels: what is read, who is adapted on it, and what that may become."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from dana.core.artifacts import open_artifact, read_manifest, write_json
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.schemas import iterate_documents
from dana.core.settings import load
from dana.finetuning.pilot import NONE
from dana.models.folder import model_identity
from dana.report.pilot import is_base_kept
from dana.stages import pilot
from dana.stages.final import _best_encoder, _other_texts, encoder_stage
from dana.stages.join import join_run
from dana.stages.report import report_stage
from dana.stages.run import _log_choice, check_pool, plan_run
from dana.stages.settings import RunSettings
from dana.stages.steps.runner import execute
from dana.stages.steps.step import OutputOf, Step
from dana.stages.texts import open_texts
from dana.stages.training import TrainingData
from tests.stages.steps.test_run import SETTINGS
from tests.toy_task import rows, write_checkpoint, write_folds, write_split

FOLDS = 2
ARMS = ["random", "dana", "unlabelled"]
LABELLED = 7  # texts of the task that stand among those without labels, too
SHORT = "owl owl"  # a labelled text of two words


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A card with folds, a pool of documents, a model without a head, and texts without labels."""
    folder = tmp_path_factory.mktemp("inputs")
    examples = [{**row, "fold": number // 3 % FOLDS} for number, row in enumerate(rows(60, 1))]
    examples[2]["text"] = SHORT
    card = write_folds(folder, folds=FOLDS, examples=examples)
    texts = [row["text"] for row in rows(300, 9)]
    documents = [
        {"id": f"d{at}", "text": " ".join(f"{text.capitalize()}." for text in texts[at::60])}
        for at in range(60)
    ]
    write_split(folder, "pool", documents)
    # The ids are those of the pool, although the texts are others.
    own = [{"id": f"d{at}", "message": row["text"]} for at, row in enumerate(rows(90, 5))]
    own += [{"id": f"x{at}", "message": row["text"]} for at, row in enumerate(examples[:LABELLED])]
    write_split(folder, "more", own)
    return {
        "task": str(card),
        "pool": [str(folder / "pool.jsonl")],
        "unlabelled": [str(folder / "more.jsonl")],
        "inputs": {"text_field": ["text", "message"]},
        "model": str(headless(folder / "model")),
    }


def headless(folder):
    """A model without a language-model head."""
    from transformers import BertModel

    write_checkpoint(folder)
    BertModel.from_pretrained(folder).save_pretrained(folder)
    return folder


def recipe(inputs, out, **settings):
    adapt = {**SETTINGS["adapt"], "tokens": None, "steps": 2, "objective": "auto", "batch_size": 4}
    adapt["head_warmup"] = {"steps": 2, "margin": -9}
    values = {**SETTINGS, "selector": "random", "seeds": {"finetunings": 1}, "arms": ARMS}
    values |= {"adapt": adapt, "baselines": "none", "weigh": {"gamma": 5, "beta": 0.5}}
    values |= {"final": True, "candidates": []}
    values |= {"probe": {"enabled": True, "sizes": [10], "draws": 2, "documents": 0}}
    return load(RunSettings, {**inputs, **values, "out": str(out), **settings})


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(pilot, "PILOT_STEPS", 2)


def by_text(position, masked):
    """A choice of objectives that differs between the pilots: documents have one that single texts have not."""

    def choose(trials):
        names = {trial.objective for trial in trials}
        return position if "position" in names else masked

    return choose


@pytest.fixture(scope="module")
def run(inputs, tmp_path_factory):
    """A quick run: position for the arms that select text, masked for the arm of the texts without labels."""
    folder = tmp_path_factory.mktemp("run") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pilot, "PILOT_STEPS", 2)
        patch.setattr(pilot, "choose_objective", by_text("position", "masked"))
        execute(plan_run(recipe(inputs, folder), quick=True))
    join_run(folder)
    report_stage(folder)
    return folder


def texts_of(folder):
    return [document.text for document in iterate_documents(folder)]


def test_labelled_texts_are_left_out_and_counted(inputs, run):
    own = texts_of(run / "unlabelled")
    labelled = {row["text"] for row in rows(60, 1)} | {SHORT}
    assert len(own) == 90
    assert labelled.isdisjoint(own)
    overlap = read_manifest(run / "unlabelled")["counts"]["overlap"]
    assert overlap == {"toy": {"shared": LABELLED, "dropped": LABELLED}}


def test_the_arm_is_adapted_on_nothing_but_these_texts(run):
    for folder in (run, run / "nested/1"):
        manifest = read_manifest(folder / "arms/unlabelled/adapted")
        assert manifest["depends_on"]["mix"] == {"unlabelled": 1.0}
        own = open_artifact(run / "unlabelled", "pool")
        assert manifest["depends_on"]["unlabelled"] == own.fingerprint
        assert manifest["depends_on"]["weights"] is None
        assert manifest["counts"]["documents_in"] == 90


def test_it_has_a_pilot_of_its_own_and_the_others_share_theirs(run):
    shared = read_manifest(run / "pilot")
    assert shared["choice"] == "position"
    assert shared["new_heads"] == ["masked"]
    trials = {row["objective"]: row for row in read_manifest(run / "pilot-unlabelled")["trials"]}
    assert trials["masked"]["gain"] is not None
    reason = trials["position"]["left_out"]
    assert "enough neighbouring sentences" in reason
    assert f"unlabelled ({run / 'unlabelled'})" in reason
    objectives = {
        arm: read_manifest(run / "arms" / arm / "adapted")["depends_on"]["settings"]["objective"]
        for arm in ARMS
    }
    assert "mask_rate" in objectives["unlabelled"]
    assert objectives["random"] == objectives["dana"]
    assert objectives["dana"]["sentences"] == 2


def test_the_head_is_warmed_up_once_for_the_pilot_and_all_folds(run):
    head = read_manifest(run / "pilot-unlabelled-head")
    assert head["new_head"]["steps"] == 2
    for folder in (run, run / "nested/1"):
        adapted = read_manifest(folder / "arms/unlabelled/adapted")
        assert adapted["depends_on"]["model"] == model_identity(str(run / "pilot-unlabelled-head"))
        assert "head_warmup" not in adapted["depends_on"]["settings"]


def test_its_model_is_a_candidate_that_needs_no_steps_of_its_own(inputs, run, tmp_path):
    names = [step.name for step in plan_run(recipe(inputs, tmp_path)).steps]
    assert {"adapt/dana/final", "pilot/final"} <= {*names}
    assert not {"adapt/unlabelled/final", "pilot/unlabelled/final"} & {*names}
    assert names.index("final/vectors-unlabelled") < names.index("encoder")
    assert "final/finetuned-unlabelled" in names
    choice = json.loads((run / "final/choice-vectors-unlabelled/choice.json").read_text())
    kinds = [row["kind"] for row in choice["candidates"]]
    assert kinds == ["vectors-base", "vectors-dana", "vectors-unlabelled"]


def test_an_arm_that_is_the_only_one_is_one_model(inputs, tmp_path):
    settings = recipe(inputs, tmp_path, arms=["unlabelled"], candidates=["contrastive"])
    steps = plan_run(settings).steps
    names = [step.name for step in steps]
    assert len(names) == len({*names})
    encoder = next(step for step in steps if step.name == "encoder")
    assert [row["arm"] for row in encoder.settings["models"]] == ["unlabelled"]
    assert [name for name in names if name.startswith("pilot")] == ["pilot/unlabelled"]


def test_the_encoder_of_two_models_is_chosen_by_the_scores_of_both(inputs, tmp_path):
    steps = {step.name: step for step in plan_run(recipe(inputs, tmp_path)).steps}
    assert steps["encoder"].settings["choice"] == OutputOf("final/vectors-unlabelled")


@pytest.mark.parametrize(
    ("selected", "unlabelled", "is_kept"),
    [
        (NONE, "masked", True),
        ("position", NONE, False),
        (None, NONE, True),
        (None, "masked", False),
    ],
)
def test_the_headline_is_about_the_pilot_of_selected_text_where_there_is_one(
    selected, unlabelled, is_kept
):
    choices = {"pilot": (selected, "selected"), "pilot-unlabelled": (unlabelled, "unlabelled")}
    stages = {
        folder: {"kind": "pilot", "choice": choice, "depends_on": {"mix": {text: 1.0}}}
        for folder, (choice, text) in choices.items()
        if choice
    }
    assert is_base_kept(SimpleNamespace(stages=stages)) == is_kept


def test_an_arm_that_goes_on_from_selected_text_is_adapted_again_with_all_texts(inputs, tmp_path):
    adapt = {
        **recipe_values(inputs, tmp_path),
        "objective": "position",
        "steps": None,
        "tokens": 40,
    }
    mine = {"mix": {"unlabelled": 1.0}, "after": "dana", "adapt": {"tokens": 90}}
    arms = {"dana": {}, "unlabelled": mine}
    plan = plan_run(recipe(inputs, tmp_path, arms=arms, adapt=adapt))
    names = [step.name for step in plan.steps]
    own = [name for name in names if name.startswith("adapt/") and name.endswith("/final")]
    assert own == ["adapt/dana/final", "adapt/unlabelled/final"]
    assert len(names) == len({*names})


def recipe_values(inputs, out):
    """The settings of adapting that a recipe of this file has."""
    return {
        name: value
        for name, value in SETTINGS["adapt"].items()
        if name not in ("tokens", "steps", "epochs")
    }


@pytest.mark.parametrize(("scores", "best"), [((0.7, 0.8), "own"), ((0.8, 0.8), "first")])
@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_of_two_adapted_models_that_with_the_better_vectors_becomes_the_encoder(
    tmp_path, scores, best, direction
):
    sign = 1 if direction == "higher" else -1
    kinds = ("vectors-dana", "vectors-unlabelled")
    candidates = [
        {"kind": kind, "score": sign * score} for kind, score in zip(kinds, scores, strict=True)
    ]
    candidates.append({"kind": "finetuned-dana", "score": sign * 0.99})
    write_json(tmp_path / "choice.json", {"direction": direction, "candidates": candidates})
    models = [{"arm": "dana", "model": "first"}, {"arm": "unlabelled", "model": "own"}]
    assert _best_encoder(models, tmp_path)["model"] == best
    assert _best_encoder(models, None) == models[0]


def test_the_readme_of_the_encoder_says_what_the_arm_read_whatever_its_name(inputs, run, tmp_path):
    arms = {
        "mine": {"mix": {"unlabelled": 1.0}},
        "unlabelled": {"mix": {"unlabelled": 0.5, "selected": 0.5}},
    }
    plan = plan_run(recipe(inputs, tmp_path, arms=arms))
    encoder = next(step for step in plan.steps if step.name == "encoder")
    described = encoder.settings["models"]
    assert [(row["arm"], row["is_unlabelled"]) for row in described] == [
        ("mine", True),
        ("unlabelled", False),
    ]
    model = str(run / "arms/unlabelled/adapted")
    for row, words in zip(described, ("without labels", "that is like the labelled"), strict=True):
        out = tmp_path / row["arm"]
        models = [{**row, "model": model}]
        encoder_stage(models, None, "base", out, 24, "toy", "base", FOLDS)
        assert words in (out / "README.md").read_text(encoding="utf-8")


def test_where_the_base_is_the_better_of_two_models_the_log_does_not_say_that_nothing_was_adapted(
    inputs, run, tmp_path, caplog
):
    kinds = {"vectors-dana": 0.7, "vectors-unlabelled": 0.8}
    candidates = [{"kind": kind, "score": score} for kind, score in kinds.items()]
    write_json(tmp_path / "choice.json", {"direction": "higher", "candidates": candidates})
    base = inputs["model"]
    models = [
        {"arm": "dana", "model": str(run / "arms/dana/adapted"), "is_unlabelled": False},
        {"arm": "unlabelled", "model": base, "is_unlabelled": True},
    ]
    arguments = (base, tmp_path / "encoder", 24, "toy", "base", FOLDS)
    with caplog.at_level("INFO"):
        assert encoder_stage(models, tmp_path, *arguments) == ""
        assert encoder_stage(models[1:], None, *arguments) == ""
    of_two, of_one = [line for line in caplog.messages if line.startswith("encoder ")]
    assert (
        "the vectors of unlabelled, which is the base as it was, label better than those of dana"
        in of_two
    )
    assert "no objective was worth it" not in of_two
    assert "no objective was worth it" in of_one


def test_an_arm_that_continues_from_another_does_not_start_from_the_base_of_the_pilot(
    inputs, run, tmp_path
):
    former = str(run / "arms/dana/adapted")
    settings = replace(recipe(inputs, tmp_path).adapt, mix={"unlabelled": 1.0})
    held_out = (run / "target/held_out", run / "held_out")
    arguments = (run / "pilot-unlabelled", former, run / "pool", None, *held_out)
    pilot.adapt_chosen(*arguments, settings, tmp_path / "adapted")
    manifest = read_manifest(tmp_path / "adapted")
    assert manifest["depends_on"]["model"] == model_identity(former)
    assert manifest["depends_on"]["mix"] == {"unlabelled": 1.0}


def test_a_head_that_was_removed_is_named_with_what_to_do(inputs, run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run / "pilot-unlabelled", copy / "pilot-unlabelled")
    held_out = (run / "target/held_out", run / "held_out")
    settings = recipe(inputs, copy).adapt
    arguments = (copy / "pilot-unlabelled", inputs["model"], run / "pool", None, *held_out)
    with pytest.raises(ArtifactError, match=r"pilot-unlabelled-head: is missing.*remove .*, too"):
        pilot.adapt_chosen(*arguments, settings, copy / "adapted")


def test_the_log_tells_the_choices_of_two_pilots_apart(run, caplog):
    folders = {"pilot": "pilot"}
    folders |= dict.fromkeys(("pilot/unlabelled", "pilot/unlabelled/1"), "pilot-unlabelled")
    with caplog.at_level("INFO"):
        for name, folder in folders.items():
            _log_choice(Step(name, "", {}), str(run / folder))
    lines = [line for line in caplog.messages if line.startswith("pilot ")]
    starts = [line.startswith("pilot     On texts without labels: Objective") for line in lines]
    assert starts == [False, True, True]


def test_the_report_tells_the_pilots_and_the_models_apart(run):
    page = (run / "report.md").read_text(encoding="utf-8")
    assert "On texts without labels: Objective masked" in page
    assert "sentence vectors of the model adapted on unlabelled texts" in page
    assert "unlabelled text" in page


def test_where_only_the_pilot_of_selected_text_keeps_the_base_the_arm_is_adapted(
    inputs, tmp_path, monkeypatch
):
    monkeypatch.setattr(pilot, "choose_objective", by_text(NONE, "masked"))
    execute(plan_run(recipe(inputs, tmp_path / "run"), quick=True))
    adapted = [path.parent.name for path in (tmp_path / "run").rglob("adapted")]
    assert {*adapted} == {"unlabelled"}
    assert read_manifest(tmp_path / "run/arms/unlabelled/adapted")["counts"]["steps"] == 2
    assert (tmp_path / "run/encoder/config.json").is_file() == (
        _best_scores(tmp_path / "run")["unlabelled"] > _best_scores(tmp_path / "run")["dana"]
    )


def _best_scores(run):
    choice = json.loads((run / "final/choice-vectors-unlabelled/choice.json").read_text())
    return {row["kind"].removeprefix("vectors-"): row["score"] for row in choice["candidates"]}


def test_without_a_pool_the_texts_are_the_pool_and_held_out_ones_are_not_trained_on(
    inputs, tmp_path
):
    settings = recipe(
        inputs, tmp_path / "run", pool=inputs["unlabelled"], arms=["unlabelled"], final=False
    )
    adapt = replace(settings.adapt, objective="masked")
    steps = plan_run(replace(settings, adapt=adapt), quick=True)
    execute(steps)
    run = tmp_path / "run"
    held_out = texts_of(run / "held_out")
    assert held_out
    counts = read_manifest(run / "arms/unlabelled/adapted")["counts"]
    assert counts["documents_in"] == 90
    assert counts["documents_excluded"] == len(held_out)
    # They are no text that is unlike the task's.
    assert _other_texts(run / "pool") == []


def test_other_text_than_the_task_s_is_what_a_model_learns_to_tell_apart(run):
    assert len(_other_texts(run / "pool")) == 60


def test_a_held_out_document_is_left_out_by_its_text_and_not_by_its_number(inputs, tmp_path):
    settings = recipe(inputs, tmp_path / "run")
    open_texts(settings, selects=False)
    run = tmp_path / "run"
    own = texts_of(run / "unlabelled")
    heldout = tmp_path / "heldout"
    shutil.copytree(run / "pool", heldout)
    data = TrainingData(run / "pool", None, run / "target/held_out", heldout, {"unlabelled": 1.0})
    assert data._heldout_unlabelled_ids() == set(), "all ids are those of held-out documents"
    data = replace(data, pool_heldout=run / "unlabelled")
    assert len(data._heldout_unlabelled_ids()) == len(own)


def test_the_documents_that_training_reads_are_these_texts_without_held_out_ones(run):
    heldout = (run / "target/held_out", run / "held_out")
    mix = {"unlabelled": 1.0}
    data = TrainingData(run / "pool", None, *heldout, mix)
    own = texts_of(run / "unlabelled")
    assert [document.text for document in data.documents()] == own
    # Without a pool the held-out documents are some of these texts.
    beside = replace(data, pool_heldout=run / "unlabelled")
    assert not list(beside.documents())


def test_texts_and_arm_need_each_other(inputs, tmp_path):
    with pytest.raises(ConfigError, match=r"arms.unlabelled: .* name their files by unlabelled"):
        plan_run(recipe(inputs, tmp_path, unlabelled=[]))
    with pytest.raises(ConfigError, match=r"unlabelled=.*more.jsonl.*: has no effect"):
        plan_run(recipe(inputs, tmp_path, arms=["random", "dana"]))
    with pytest.raises(ConfigError, match=r"unlabelled=\[' '\]: must be files"):
        recipe(inputs, tmp_path, unlabelled=[" "])


def test_a_missing_file_is_named_before_any_work(inputs, tmp_path):
    missing = recipe(inputs, tmp_path / "run", unlabelled=[str(tmp_path / "none.csv")])
    with pytest.raises(DataError, match=r"none\.csv"):
        check_pool(missing)
    assert not (tmp_path / "run").exists()


def test_nothing_but_labelled_texts_is_refused(inputs, tmp_path):
    same = tmp_path / "same.jsonl"
    same.write_text(json.dumps({"text": SHORT}) + "\n")
    with pytest.raises(DataError, match=r"no document left.*name other text by unlabelled"):
        open_texts(recipe(inputs, tmp_path / "run", unlabelled=[str(same)]), selects=False)


def test_a_training_without_the_texts_says_what_is_missing(inputs, run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "unlabelled")
    data = TrainingData(
        copy / "pool", None, copy / "target/held_out", copy / "held_out", {"unlabelled": 1.0}
    )
    with pytest.raises(ArtifactError, match="unlabelled"):
        data.input_fingerprints()


def test_published_test_texts_are_left_out_although_the_pool_keeps_them(inputs, tmp_path):
    """A card with a test split of its own: for the pool the user names it, here it is always left out."""
    from tests.toy_task import write_task

    card = write_task(tmp_path)
    tested = rows(60, 3)[:4]
    mixed = [{"text": row["text"]} for row in (*tested, *rows(50, 5))]
    write_split(tmp_path, "mixed", mixed)
    source = [str(tmp_path / "mixed.jsonl")]
    settings = recipe(inputs, tmp_path / "run", task=str(card), pool=source, unlabelled=source)
    open_texts(settings, selects=False)
    own = texts_of(tmp_path / "run/unlabelled")
    long = [row["text"] for row in tested if len(row["text"].split()) >= 8]
    assert long
    assert not {*long} & {*own}
    assert {*long} <= {*texts_of(tmp_path / "run/pool")}


def test_neither_sampling_nor_near_duplicates_thin_them_out(inputs, tmp_path):
    settings = recipe(inputs, tmp_path / "run", hygiene={"sample": 0.5, "near_duplicates": 0.8})
    open_texts(settings, selects=False)
    assert len(texts_of(tmp_path / "run/unlabelled")) == 90
    assert len(texts_of(tmp_path / "run/pool")) < 60
