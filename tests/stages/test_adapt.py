import json
import math
import os
import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, BertForPreTraining

from dana.errors import ArtifactError, ConfigError
from dana.stages.adapt import AdaptSettings, adapt_stage
from dana.stages.head import head_stage
from dana.stages.pretrain import PretrainSettings, pretrain_stage
from dana.stages.training import TrainingData
from dana.train.head_warmup import HeadWarmup
from tests.conftest import write_documents

REPOSITORY = Path(__file__).parent.parent.parent
PRETRAIN = PretrainSettings(
    steps=30,
    batch_size=16,
    max_tokens=48,
    max_positions=64,
    vocabulary=800,
    learning_rate=2e-3,
    evaluations=1,
)
# So low a rate that Adam, which makes a step of any gradient, cannot blow the rounding of a sum up to 1e-6.
ADAPT = AdaptSettings(
    steps=4,
    batch_size=16,
    max_tokens=48,
    evaluations=1,
    learning_rate=2e-5,
    head_warmup=HeadWarmup(steps=3, batch_size=8),
)
PAIRS = replace(ADAPT, next_sentence=True)


@pytest.fixture
def inputs(write_corpus, repository_texts):
    """A corpus and held-out texts; the first held-out document is in the corpus as well."""
    corpus = write_corpus("corpus", repository_texts[20:])
    return (
        corpus,
        write_corpus("task", repository_texts[:10]),
        write_corpus("general", repository_texts[10:20]),
    )


@pytest.fixture(scope="session")
def base(tmp_path_factory, repository_texts):
    folder = tmp_path_factory.mktemp("pretrained")
    names = {"corpus": repository_texts[20:], "task": repository_texts[:10], "general": repository_texts[10:20]}
    inputs = [write_documents(folder / name, texts) for name, texts in names.items()]
    pretrain_stage("tiny", *inputs, PRETRAIN, folder / "base")
    return folder / "base"


def records(folder, kind):
    lines = [json.loads(line) for line in (folder / "training.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def test_pretraining_from_scratch_lowers_the_loss_on_both_held_out_texts(base):
    before, _, after = records(base, "evaluation")
    assert after["task_loss"] < before["task_loss"] - 0.3
    assert after["general_loss"] < before["general_loss"] - 0.3
    assert len(records(base, "step")) == 30


def test_adapting_writes_a_folder_that_loads_without_dana(inputs, base, tmp_path, write_weights):
    corpus, task, general = inputs
    weights = write_weights([(f"corpus-{place}", 0, 0, 60, 0, 0.5) for place in range(40)])
    artifact = adapt_stage(str(base), corpus, weights, task, general, ADAPT, tmp_path / "adapted")
    model = AutoModelForMaskedLM.from_pretrained(artifact.path)
    assert AutoModel.from_pretrained(artifact.path).config == model.config
    assert AutoTokenizer.from_pretrained(artifact.path)("weights")["input_ids"]
    counts = artifact.manifest["counts"]
    assert counts["documents_kept"] == 40
    assert counts["steps"] == 4
    assert (
        counts["documents_in"] == counts["documents_kept"] + counts["documents_left_out"] + counts["documents_excluded"]
    )
    assert artifact.manifest["losses"]["after"] == records(artifact.path, "evaluation")[-1]
    card = (artifact.path / "README.md").read_text()
    assert "| tokens seen |" in card
    assert f"effective sample size {artifact.manifest['effective_sample_size']:,.0f}" in card
    assert records(artifact.path, "step")[0]["loss"] == pytest.approx(
        records(artifact.path, "step")[0]["plain_loss"] / 2, rel=0.1
    ), "every weight is one half, and under `batch` that halves the loss"


def test_next_sentence_is_one_more_objective_and_all_else_is_as_it_was(inputs, base, tmp_path):
    corpus, task, general = inputs
    plain, pairs = (
        adapt_stage(str(base), corpus, None, task, general, settings, tmp_path / name)
        for name, settings in (("plain", ADAPT), ("pairs", PAIRS))
    )
    for kind in (AutoModelForMaskedLM, AutoModel, BertForPreTraining):
        assert not kind.from_pretrained(pairs.path, output_loading_info=True)[1]["missing_keys"], kind
    assert "next_sentence" not in plain.manifest["depends_on"]["settings"], "the fingerprint it had before"
    assert pairs.manifest["depends_on"]["settings"]["next_sentence"] is True
    assert all("next_sentence_loss" not in line for line in records(plain.path, "step"))
    losses = [line["next_sentence_loss"] for line in records(pairs.path, "step")]
    assert losses == pytest.approx([math.log(2)] * 4, abs=0.1), "four small steps of a new head"
    assert pairs.manifest["losses"]["before"] == plain.manifest["losses"]["before"]
    assert pairs.manifest["execution"]["shape"]["layout"] == "padded"
    assert "| objective | masked tokens and next sentence, mask rate 0.15 |" in (pairs.path / "README.md").read_text()
    assert "| objective | masked tokens, mask rate 0.15 |" in (plain.path / "README.md").read_text()
    again = replace(PRETRAIN, steps=1, evaluations=0, next_sentence=True)
    scratch = pretrain_stage("tiny", corpus, task, general, again, tmp_path / "scratch")
    assert not BertForPreTraining.from_pretrained(scratch.path, output_loading_info=True)[1]["missing_keys"]


def test_the_same_seed_gives_the_same_bytes_and_a_second_call_reuses_them(inputs, base, tmp_path):
    corpus, task, general = inputs
    one, two, other = (
        adapt_stage(str(base), corpus, None, task, general, settings, tmp_path / name).path
        for name, settings in (
            ("one", ADAPT),
            ("two", ADAPT),
            ("other", AdaptSettings(**{**vars(ADAPT), "seed": 1})),
        )
    )
    content = (one / "model.safetensors").read_bytes()
    assert (two / "model.safetensors").read_bytes() == content
    assert (other / "model.safetensors").read_bytes() != content
    changed = (one / "manifest.json").stat().st_mtime_ns
    adapt_stage(str(base), corpus, None, task, general, ADAPT, one)
    assert (one / "manifest.json").stat().st_mtime_ns == changed


def test_an_adapted_folder_of_other_settings_is_not_overwritten(inputs, base, tmp_path):
    corpus, task, general = inputs
    adapt_stage(str(base), corpus, None, task, general, ADAPT, tmp_path / "adapted")
    other = AdaptSettings(**{**vars(ADAPT), "learning_rate": 5e-4})
    with pytest.raises(ArtifactError, match=r"settings\.learning_rate: 2e-05 there, 0\.0005 now"):
        adapt_stage(str(base), corpus, None, task, general, other, tmp_path / "adapted")


def test_held_out_documents_in_the_corpus_are_not_trained_on(inputs, base, tmp_path):
    corpus, task, _ = inputs
    held_out = tmp_path / "held_out"
    held_out.mkdir()
    (held_out / "part-00000.parquet").write_bytes((corpus / "part-00000.parquet").read_bytes())
    with pytest.raises(Exception, match="no text to train on is left"):
        adapt_stage(str(base), corpus, None, task, held_out, ADAPT, tmp_path / "adapted")
    assert not (tmp_path / "adapted").exists(), "nothing half-written"


def test_a_backbone_without_a_head_gets_one_and_the_manifest_says_so(inputs, base, tmp_path):
    corpus, task, general = inputs
    AutoModel.from_pretrained(base, add_pooling_layer=False).save_pretrained(tmp_path / "backbone")
    AutoTokenizer.from_pretrained(base).save_pretrained(tmp_path / "backbone")
    artifact = adapt_stage(str(tmp_path / "backbone"), corpus, None, task, general, ADAPT, tmp_path / "adapted")
    head = artifact.manifest["new_head"]
    assert head["steps"] == 3
    assert any("transform.dense.weight" in name for name in head["parameters"])
    assert not AutoModelForMaskedLM.from_pretrained(artifact.path, output_loading_info=True)[1]["missing_keys"]


def test_arms_share_the_new_head_of_a_base_without_one(inputs, base, tmp_path):
    AutoModel.from_pretrained(base, add_pooling_layer=False).save_pretrained(tmp_path / "backbone")
    AutoTokenizer.from_pretrained(base).save_pretrained(tmp_path / "backbone")
    data = TrainingData(inputs[0], None, *inputs[1:])
    assert head_stage(str(base), data, ADAPT, tmp_path / "none") == str(base), "it has a head"
    assert not (tmp_path / "none").exists()
    headed = head_stage(str(tmp_path / "backbone"), data, ADAPT, tmp_path / "headed")
    model, about = AutoModelForMaskedLM.from_pretrained(headed, output_loading_info=True)
    assert not about["missing_keys"]
    expected = AutoModel.from_pretrained(tmp_path / "backbone", add_pooling_layer=False).state_dict()
    assert all(value.equal(expected[name]) for name, value in model.bert.state_dict().items()), "the rest is untouched"


def test_bad_inputs_are_refused_before_any_work(inputs, base, tmp_path):
    corpus, task, general = inputs
    long = AdaptSettings(**{**vars(ADAPT), "max_tokens": 65})
    with pytest.raises(ConfigError, match="max_tokens=65: must be at most 64"):
        adapt_stage(str(base), corpus, None, task, general, long, tmp_path / "long")
    with pytest.raises(ArtifactError, match="no such folder"):
        adapt_stage(str(tmp_path / "none"), corpus, None, task, general, ADAPT, tmp_path / "out")
    with pytest.raises(ArtifactError, match=r"holds no part-\*\.parquet"):
        adapt_stage(str(base), tmp_path / "none", None, task, general, ADAPT, tmp_path / "out")
    with pytest.raises(ConfigError, match="size='huge'"):
        pretrain_stage("huge", *inputs, PRETRAIN, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "long").exists()


def launch(launcher, recipe, tmp_path, base, inputs, out, training=ADAPT):
    corpus, task, general = inputs
    values = {
        "model": str(base),
        "corpus": str(corpus),
        "task_heldout": str(task),
        "general_heldout": str(general),
        "out": str(out),
        "training": {
            **asdict(training),
            "head_warmup": {"steps": 3},
            "execution": {"micro_batch_tokens": 256, "trackers": []},
        },
    }
    settings = tmp_path / f"{out.name}.yaml"
    settings.write_text(yaml.safe_dump(values))
    command = [sys.executable, "-m", *launcher, str(REPOSITORY / recipe), str(settings)]
    environment = {**os.environ, "STOP_AFTER": "2"}
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, env=environment)


def assert_same_weights(one, other):
    expected, found = (load_file(folder / "model.safetensors") for folder in (one, other))
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert (found[name] - value).abs().max() < 1e-6, name


@pytest.mark.parametrize("settings", [ADAPT, PAIRS], ids=["masked tokens", "next sentence"])
def test_two_processes_give_the_weights_of_one(inputs, base, tmp_path, settings):
    corpus, task, general = inputs
    one = adapt_stage(str(base), corpus, None, task, general, settings, tmp_path / "one").path
    launcher = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = launch(launcher, "recipes/adapt.py", tmp_path, base, inputs, tmp_path / "two", settings)
    assert done.returncode == 0, done.stderr
    assert "2 process(es) on cpu, MULTI_CPU" in done.stderr
    assert_same_weights(one, tmp_path / "two")
    for first, second in zip(records(one, "step"), records(tmp_path / "two", "step"), strict=True):
        assert second["loss"] == pytest.approx(first["loss"], abs=1e-6)
        assert second.get("next_sentence_loss") == pytest.approx(first.get("next_sentence_loss"), abs=1e-6)
        assert second["grad_norm"] == pytest.approx(first["grad_norm"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "settings"), [(1, ADAPT), (2, ADAPT), (3, ADAPT), (2, PAIRS), (3, PAIRS)])
def test_zero_gives_the_weights_of_one_process(inputs, base, tmp_path, stage, settings):
    pytest.importorskip("deepspeed", reason="the deepspeed extra is not installed")
    corpus, task, general = inputs
    one = adapt_stage(str(base), corpus, None, task, general, settings, tmp_path / "one").path
    config = REPOSITORY / "accelerate_configs" / f"zero{stage}.yaml"
    launcher = ["accelerate.commands.launch", "--config_file", str(config)]
    done = launch(launcher, "recipes/adapt.py", tmp_path, base, inputs, tmp_path / "zero", settings)
    assert done.returncode == 0, done.stderr
    assert_same_weights(one, tmp_path / "zero")


TWO = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
ONE = ["torch.distributed.run", "--standalone", "--nproc_per_node", "1"]


def zero(stage):
    return ["accelerate.commands.launch", "--config_file", str(REPOSITORY / "accelerate_configs" / f"zero{stage}.yaml")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stopped", "resumed"),
    [(TWO, TWO), (TWO, ONE), (ONE, TWO), (TWO, zero(2)), (zero(1), zero(3)), (zero(3), TWO), (zero(2), zero(2))],
    ids=["2-2", "2-1", "1-2", "2-zero2", "zero1-zero3", "zero3-2", "zero2-zero2"],
)
def test_a_run_stopped_on_any_launch_goes_on_under_any_other(inputs, base, tmp_path, stopped, resumed):
    if any("accelerate" in part for part in (stopped[0], resumed[0])):
        pytest.importorskip("deepspeed", reason="the deepspeed extra is not installed")
    corpus, task, general = inputs
    one = adapt_stage(str(base), corpus, None, task, general, ADAPT, tmp_path / "one").path
    done = launch(stopped, "tests/stages/stopping_recipe.py", tmp_path, base, inputs, tmp_path / "out")
    assert done.returncode != 0
    assert re.search("told to stop .*after step 2.*; saved", done.stderr), done.stderr
    manifest = tmp_path / "out-checkpoints" / "step-00000002" / "manifest.json"
    assert json.loads(manifest.read_text())["files"].keys() == {"state.safetensors", "training.jsonl"}
    done = launch(resumed, "recipes/adapt.py", tmp_path, base, inputs, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "resumed at step 2" in done.stderr
    assert_same_weights(one, tmp_path / "out")
    assert [line["step"] for line in records(tmp_path / "out", "step")] == [1, 2, 3, 4]
    assert not (tmp_path / "out-checkpoints").exists()


def test_the_recipe_ends_with_one_line_and_code_2_on_an_error(tmp_path):
    (tmp_path / "bad.yaml").write_text("modle: x\n")
    command = [sys.executable, str(REPOSITORY / "recipes" / "adapt.py"), str(tmp_path / "bad.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "unknown key 'modle'; did you mean 'model'?" in done.stderr


@pytest.mark.parametrize("name", ["adapt", "pretrain"])
def test_the_recipes_yaml_says_what_the_defaults_of_the_paper_are(name):
    sys.path.insert(0, str(REPOSITORY / "recipes"))
    try:
        module = __import__(name)
    finally:
        sys.path.pop(0)
    from dana.config import load, read_yaml

    path = REPOSITORY / "recipes" / f"{name}.yaml"
    recipe = load(module.Recipe, read_yaml(path), origin=str(path))
    assert module.__doc__.startswith(f"accelerate launch --config_file accelerate_configs/cpu.yaml recipes/{name}.py")
    explained = set(read_yaml(path)["training"])
    assert explained >= set(vars(recipe.training)) - {"steps", "tokens", "batch_tokens"}, "every setting is in the YAML"
