import json
import math
import os
import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, BertForPreTraining

from dana.core.artifacts import MANIFEST
from dana.core.errors import ArtifactError, ConfigError
from dana.stages.training import TrainingData, adapt_stage, head_stage, pretrain_stage
from dana.train.settings import AdaptSettings, Execution, HeadWarmup, PretrainSettings
from tests.conftest import write_documents

REPOSITORY = Path(__file__).parent.parent.parent
PRETRAIN = PretrainSettings(
    architecture="bert",
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
PAIRS = replace(ADAPT, objective="next_sentence")


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


def test_a_modernbert_from_scratch_is_opened_by_transformers_and_adapts(repository_texts, tmp_path):
    names = {"corpus": repository_texts[20:], "task": repository_texts[:10], "general": repository_texts[10:20]}
    inputs = [write_documents(tmp_path / name, texts) for name, texts in names.items()]
    artifact = pretrain_stage("tiny", *inputs, replace(PRETRAIN, architecture="modernbert"), tmp_path / "base")
    before, *_, after = records(artifact.path, "evaluation")
    assert after["task_loss"] < before["task_loss"] - 0.3
    model, about = AutoModelForMaskedLM.from_pretrained(artifact.path, output_loading_info=True)
    assert model.config.model_type == "modernbert"
    assert not about["missing_keys"]
    settings = replace(PRETRAIN, architecture="modernbert", objective="next_sentence")
    with pytest.raises(ConfigError, match="only bert has the head"):
        pretrain_stage("tiny", *inputs, settings, tmp_path / "pairs")


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
    assert {"tokens_per_second"} <= artifact.manifest["speed"].keys()
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
    known = [one.manifest["depends_on"]["settings"]["objective"]["code"] for one in (plain, pairs)]
    assert [code["class"] for code in known] == ["MaskedTokens", "NextSentence"]
    assert [code["version"] for code in known] == [1, 1]
    assert all("next_sentence_loss" not in line for line in records(plain.path, "step"))
    losses = [line["next_sentence_loss"] for line in records(pairs.path, "step")]
    assert losses == pytest.approx([math.log(2)] * 4, abs=0.1), "four small steps of a new head"
    assert pairs.manifest["losses"]["before"] == plain.manifest["losses"]["before"]
    assert pairs.manifest["execution"]["shape"]["layout"] == "padded"
    assert "| objective | masked tokens and next sentence, mask rate 0.15 |" in (pairs.path / "README.md").read_text()
    assert "| objective | masked tokens, mask rate 0.15 |" in (plain.path / "README.md").read_text()
    again = replace(PRETRAIN, steps=1, evaluations=0, objective="next_sentence")
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
    changed = (one / MANIFEST).stat().st_mtime_ns
    adapt_stage(str(base), corpus, None, task, general, ADAPT, one)
    assert (one / MANIFEST).stat().st_mtime_ns == changed


def test_held_out_documents_in_the_corpus_are_not_trained_on(inputs, base, tmp_path):
    corpus, task, _ = inputs
    held_out = tmp_path / "held_out"
    held_out.mkdir()
    (held_out / "part-00000.parquet").write_bytes((corpus / "part-00000.parquet").read_bytes())
    with pytest.raises(Exception, match="no text to train on"):
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


def test_a_head_warmed_up_at_another_mask_rate_is_another(inputs, base, tmp_path):
    AutoModel.from_pretrained(base, add_pooling_layer=False).save_pretrained(tmp_path / "backbone")
    AutoTokenizer.from_pretrained(base).save_pretrained(tmp_path / "backbone")
    data = TrainingData(inputs[0], None, *inputs[1:])
    head_stage(str(tmp_path / "backbone"), data, ADAPT, tmp_path / "headed")
    other = replace(ADAPT, objective="masked:mask_rate=0.3")
    with pytest.raises(ArtifactError, match=r"mask_rate: 0\.15 there, 0\.3 now"):
        head_stage(str(tmp_path / "backbone"), data, other, tmp_path / "headed")


def test_bad_inputs_are_refused_before_any_work(inputs, base, tmp_path):
    corpus, task, general = inputs
    long = AdaptSettings(**{**vars(ADAPT), "max_tokens": 65})
    with pytest.raises(ConfigError, match="max_tokens=65: must be at most 64"):
        adapt_stage(str(base), corpus, None, task, general, long, tmp_path / "long")
    with pytest.raises(ArtifactError, match="no such folder"):
        adapt_stage(str(tmp_path / "none"), corpus, None, task, general, ADAPT, tmp_path / "out")
    with pytest.raises(ArtifactError, match="no table"):
        adapt_stage(str(base), tmp_path / "none", None, task, general, ADAPT, tmp_path / "out")
    with pytest.raises(ConfigError, match="size='huge'"):
        pretrain_stage("huge", *inputs, PRETRAIN, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "long").exists()


def launch(launcher, recipe, base, inputs, out, training=ADAPT, **execution):
    """Run a recipe on a run's folder, OUT-run, that holds the inputs where the commands look for them."""
    run = out.with_name(f"{out.name}-run")
    for name, folder in zip(("corpus", "task/held_out", "held_out"), inputs, strict=True):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        if not (run / name).exists():
            (run / name).symlink_to(folder)
    execution = {"micro_batch_tokens": 256, "trackers": [], **execution}
    adapt = {**asdict(training), "head_warmup": {"steps": 3}, "execution": execution}
    settings = run / "recipe.yaml"
    settings.write_text(yaml.safe_dump({"adapt": adapt}))
    flags = ["--config", settings, "--model", base, "--unweighted", "--to", out]
    command = [sys.executable, "-m", *launcher, REPOSITORY / recipe, run, *flags]
    environment = {**os.environ, "STOP_AFTER": "2"}
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, cwd=run, timeout=400, env=environment
    )


def assert_same_weights(one, other):
    expected, found = (load_file(folder / "model.safetensors") for folder in (one, other))
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert (found[name] - value).abs().max() < 1e-6, name


@pytest.mark.slow
@pytest.mark.parametrize("settings", [ADAPT, PAIRS], ids=["masked tokens", "next sentence"])
def test_two_processes_give_the_weights_of_one(inputs, base, tmp_path, settings):
    corpus, task, general = inputs
    one = adapt_stage(str(base), corpus, None, task, general, settings, tmp_path / "one").path
    launcher = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = launch(launcher, "recipes/adapt.py", base, inputs, tmp_path / "two", settings)
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
    done = launch(launcher, "recipes/adapt.py", base, inputs, tmp_path / "zero", settings)
    assert done.returncode == 0, done.stderr
    assert_same_weights(one, tmp_path / "zero")


@pytest.mark.slow
@pytest.mark.parametrize("stage", [2, 3])
def test_zero_in_bf16_saves_the_weights_it_keeps_in_float32(inputs, base, tmp_path, stage):
    pytest.importorskip("deepspeed", reason="the deepspeed extra is not installed")
    config = yaml.safe_load((REPOSITORY / "accelerate_configs" / f"zero{stage}.yaml").read_text())
    (tmp_path / "bf16.yaml").write_text(yaml.safe_dump({**config, "mixed_precision": "bf16"}))
    launcher = ["accelerate.commands.launch", "--config_file", str(tmp_path / "bf16.yaml")]
    done = launch(launcher, "recipes/adapt.py", base, inputs, tmp_path / "zero")
    assert done.returncode == 0, done.stderr
    saved = load_file(tmp_path / "zero" / "model.safetensors")
    assert {value.dtype for value in saved.values()} == {torch.float32}
    kernel = saved["bert.encoder.layer.0.attention.self.query.weight"]
    assert (kernel != kernel.bfloat16().float()).float().mean() > 0.9, "rounded nowhere"
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path / "zero")
    assert loaded.dtype == torch.float32
    assert torch.equal(loaded.bert.encoder.layer[0].attention.self.query.weight, kernel)


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
    done = launch(stopped, "tests/stages/stopping_recipe.py", base, inputs, tmp_path / "out")
    assert done.returncode != 0
    assert re.search("stopped by a signal .*after step 2.*; saved", done.stderr), done.stderr
    manifest = tmp_path / "out-checkpoints" / "step-00000002" / "manifest.json"
    assert json.loads(manifest.read_text())["files"].keys() == {"state.safetensors", "training.jsonl"}
    done = launch(resumed, "recipes/adapt.py", base, inputs, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "resumed at step 2" in done.stderr
    assert_same_weights(one, tmp_path / "out")
    assert [line["step"] for line in records(tmp_path / "out", "step")] == [1, 2, 3, 4]
    assert not (tmp_path / "out-checkpoints").exists()


@pytest.mark.parametrize("name", ["adapt", "pretrain"])
def test_the_recipes_yaml_explains_every_setting_of_the_step(name):
    from dana.core.config import load, read_yaml
    from dana.stages.settings import RunSettings

    path = REPOSITORY / "recipes" / f"{name}.yaml"
    training = getattr(load(RunSettings, read_yaml(path), origin=str(path)), name)
    explained = set(read_yaml(path)[name])
    assert explained >= set(vars(training)) - {"steps", "tokens", "epochs", "batch_tokens"}, (
        "every setting is in the YAML"
    )


@pytest.mark.slow
def test_two_processes_on_a_fresh_folder_make_the_held_out_text_once(base, repository_texts, tmp_path):
    from dana.stages.texts import corpus_stage

    pool = tmp_path / "pool.jsonl"
    pool.write_text("".join(json.dumps({"text": text}) + "\n" for text in repository_texts))
    run = tmp_path / "run"
    corpus_stage([str(pool)], run / "corpus")
    write_documents(run / "task" / "held_out", repository_texts[:10])
    line = [run, "--model", base, "--unweighted", "--steps", "2", "--max-tokens", "48", "--batch-size", "8"]
    command = [sys.executable, "-m", *TWO, REPOSITORY / "recipes" / "adapt.py", *line]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("written:") == 1
    assert (run / "adapted" / "model.safetensors").is_file()
    assert (run / "held_out").is_dir()


@pytest.mark.slow
def test_accelerate_launch_that_starts_one_process_of_two_is_refused(base, tmp_path):
    launcher = ["accelerate.commands.launch", "--cpu", "--num_processes"]
    recipe = [str(REPOSITORY / "recipes" / "adapt.py"), str(tmp_path), "--model", str(base)]
    outcomes = [
        subprocess.run([sys.executable, "-m", *launcher, many, *recipe], capture_output=True, text=True, timeout=120)
        for many in ("1", "2")
    ]
    assert "no part-*.parquet" in outcomes[0].stderr, "one process was asked for, and gets to work"
    assert "instead of several" in outcomes[1].stderr
    assert outcomes[1].returncode != 0


@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_the_share_of_masked_tokens_is_the_mask_rate(inputs, base, tmp_path, monkeypatch, rate):
    from dana.train.objectives import masked as objective

    original, seen = objective.mask, []

    def spy(tokens, offsets, ids, epochs, masking):
        masked = original(tokens, offsets, ids, epochs, masking)
        if (masking.rate, masking.seed) == (rate, ADAPT.seed):  # held-out text has masks of its own
            seen.append((masked.is_masked.sum(), (~masking.special[tokens]).sum()))
        return masked

    monkeypatch.setattr(objective, "mask", spy)
    settings = replace(ADAPT, objective=f"masked:mask_rate={rate}")
    adapt_stage(str(base), inputs[0], None, *inputs[1:], settings, tmp_path / "out")
    found, ordinary = np.sum(seen, axis=0)
    assert found / ordinary == pytest.approx(rate, abs=0.05)


def test_no_tracker_writes_unless_it_is_named(inputs, base, tmp_path):
    adapt_stage(str(base), inputs[0], None, *inputs[1:], ADAPT, tmp_path / "out")
    assert not (tmp_path / "logs").exists()


def test_many_times_through_little_text_is_a_warning_in_the_log_the_manifest_and_the_card(
    inputs, base, tmp_path, write_weights, capfd
):
    weights = write_weights([(f"corpus-{place}", 0, 0, 60, 0, 1.0) for place in range(4)])
    settings = replace(ADAPT, epochs=30.0, steps=None, evaluations=0)
    little = adapt_stage(str(base), inputs[0], weights, *inputs[1:], settings, tmp_path / "little")
    says = "the run has 30 epochs over 4 examples"
    assert little.manifest["epochs"] == 30
    assert [warning for warning in little.manifest["warnings"] if says in warning]
    assert f"**Warning:** {says}" in (little.path / "README.md").read_text()
    plenty = adapt_stage(str(base), inputs[0], None, *inputs[1:], replace(settings, epochs=1.0), tmp_path / "plenty")
    assert plenty.manifest["warnings"] == []
    assert "Warning" not in (plenty.path / "README.md").read_text()


def test_replay_draws_that_share_from_the_whole_corpus_with_weight_1(
    inputs, base, tmp_path, write_weights, monkeypatch
):
    from dana.train.objectives import batch

    original, weights_of_steps = batch.loss_scale, []
    monkeypatch.setattr(
        batch, "loss_scale", lambda weights, *rest: weights_of_steps.append(weights) or original(weights, *rest)
    )
    weights = write_weights([(f"corpus-{place}", 0, 0, 60, 0, 0.5) for place in range(40)])
    settings = replace(ADAPT, replay=0.25, evaluations=0, steps=None, tokens=3000)
    mixed = adapt_stage(str(base), inputs[0], weights, *inputs[1:], settings, tmp_path / "mixed")
    steps = [one for one in weights_of_steps if one.size == 16 and 0.5 in one]
    assert steps
    assert all((one == 1).sum() == 4 for one in steps)
    counts = mixed.manifest["counts"]
    assert counts["windows_to_replay"] > 200 > 100 > counts["examples"]
    assert mixed.manifest["effective_sample_size"] == counts["examples"], "that of what was kept"
    plain = adapt_stage(str(base), inputs[0], weights, *inputs[1:], replace(settings, replay=0.0), tmp_path / "plain")
    assert abs(plain.manifest["counts"]["tokens_seen"] - counts["tokens_seen"]) <= 48, "equal tokens"
    assert plain.manifest["epochs"] > mixed.manifest["epochs"]
    assert "25% of the examples from the corpus as it is" in (mixed.path / "README.md").read_text()
    general = adapt_stage(str(base), inputs[0], None, *inputs[1:], settings, tmp_path / "unweighted")
    assert "windows_to_replay" not in general.manifest["counts"], "the general arm is the whole corpus as it is"


def test_models_on_the_way_are_those_of_their_step_and_change_nothing(inputs, base, tmp_path):
    execution = Execution(export_every=2, gradient_checkpointing=True)
    plain = adapt_stage(str(base), inputs[0], None, *inputs[1:], ADAPT, tmp_path / "plain")
    settings = replace(ADAPT, execution=execution)
    artifact = adapt_stage(str(base), inputs[0], None, *inputs[1:], settings, tmp_path / "out")
    assert artifact.fingerprint == plain.fingerprint
    exports = sorted((tmp_path / "out-exports").iterdir())
    assert [path.name for path in exports] == ["step-00000002", "step-00000004"]
    assert_same_weights(artifact.path, plain.path)
    assert_same_weights(exports[1], artifact.path)
    halfway = load_file(exports[0] / "model.safetensors")
    assert any(
        (value - halfway[name]).abs().max() > 1e-6
        for name, value in load_file(exports[1] / "model.safetensors").items()
    )
    assert AutoModelForMaskedLM.from_pretrained(exports[0]).config.vocab_size == 800


def test_a_dropout_of_the_run_decides_the_outcome_and_is_not_that_of_the_model(inputs, base, tmp_path):
    run = [
        adapt_stage(str(base), inputs[0], None, *inputs[1:], replace(ADAPT, dropout=dropout), tmp_path / name)
        for name, dropout in (("own", None), ("none", 0.0), ("half", 0.5))
    ]
    losses = [records(artifact.path, "step")[0]["loss"] for artifact in run]
    assert losses[0] == losses[1] != losses[2], "the base was made without"
    assert AutoModelForMaskedLM.from_pretrained(run[2].path).config.hidden_dropout_prob == 0


STABLE = replace(
    ADAPT, schedule="constant", warmup=0.0, steps=5, learning_rate=1e-3, execution=Execution(extendable=True)
)
WSD = replace(STABLE, schedule="wsd", cooldown=0.4, warmup_steps=2)
BY_TOKENS = replace(WSD, steps=None, tokens=2500, batch_tokens=500)


@pytest.mark.parametrize(
    ("first", "longer", "shared"),
    [
        (STABLE, replace(STABLE, steps=9), 4),
        (WSD, replace(WSD, steps=9), 3),
        (STABLE, replace(STABLE, steps=9, schedule="wsd", evaluations=0), 4),
        (BY_TOKENS, replace(BY_TOKENS, tokens=5000), 3),
        (replace(STABLE, warmup_steps=7), replace(STABLE, warmup_steps=7, steps=9), 4),
    ],
    ids=["constant", "wsd", "constant-wsd", "tokens", "nothing but warm-up"],
)
def test_an_extended_run_is_to_the_bit_the_longer_run(inputs, base, tmp_path, first, longer, shared):
    corpus, task, general = inputs
    once, whole = (
        adapt_stage(str(base), corpus, None, task, general, settings, tmp_path / name)
        for name, settings in (("once", first), ("whole", longer))
    )
    assert [path.name for path in (tmp_path / "once-extend").iterdir()] == [f"step-{shared:08d}"]
    onwards = replace(longer, execution=Execution(extend=str(once.path)))
    extended = adapt_stage(str(base), corpus, None, task, general, onwards, tmp_path / "extended")
    assert (extended.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()
    assert (extended.path / "model.safetensors").read_bytes() != (once.path / "model.safetensors").read_bytes()
    assert extended.fingerprint == whole.fingerprint
    assert extended.manifest["extended"] == {"from": str(once.path), "at": shared}
    assert extended.manifest["epochs"] == whole.manifest["epochs"] > once.manifest["epochs"]
    kept = ("step", "tokens", "loss", "lr", "grad_norm")
    one, two = (
        [{name: line[name] for name in kept} for line in records(run.path, "step")] for run in (extended, whole)
    )
    assert one == two


def test_a_run_that_was_extended_can_be_extended_again(inputs, base, tmp_path):
    def train(name, settings, extend=None, extendable=True):
        execution = Execution(extend=extend and str(tmp_path / extend), extendable=extendable)
        adapt_stage(str(base), inputs[0], None, *inputs[1:], replace(settings, execution=execution), tmp_path / name)
        return (tmp_path / name / "model.safetensors").read_bytes()

    train("once", STABLE)
    train("twice", replace(STABLE, schedule="wsd", steps=6, cooldown=0.4), "once")  # no further than the first
    longest = replace(STABLE, steps=9)
    assert train("thrice", longest, "twice") == train("whole", longest, extendable=False)


def test_a_run_that_shares_no_step_with_a_longer_one_cannot_promise_to_be_extended(inputs, base, tmp_path):
    with pytest.raises(ConfigError, match=r"extendable=True: must be false: the run has 1 step\(s\)"):
        adapt_stage(str(base), inputs[0], None, *inputs[1:], replace(STABLE, steps=1), tmp_path / "once")
    assert not (tmp_path / "once").exists()


def test_what_would_not_be_the_longer_run_is_refused(inputs, base, tmp_path):
    corpus, task, general = inputs
    adapt_stage(str(base), corpus, None, task, general, WSD, tmp_path / "once")

    def extend(folder="once", **changed):
        execution = Execution(extend=str(tmp_path / folder))
        settings = replace(WSD, **{"steps": 9, "execution": execution, **changed})
        adapt_stage(str(base), corpus, None, task, general, settings, tmp_path / "extended")

    with pytest.raises(ArtifactError, match=r"settings\.learning_rate: 0\.001 there, 0\.002 now"):
        extend(learning_rate=2e-3)
    with pytest.raises(ArtifactError, match=r"settings\.warmup_steps: 2 there, 3 now"):
        extend(warmup_steps=3)
    with pytest.raises(ArtifactError, match=r"none-extend: no state to extend from; the first run needs execution"):
        extend("none")
    with pytest.raises(ConfigError, match=r"steps=4: must be more: its rate is constant for 2 steps"):
        extend(steps=4)
    assert not (tmp_path / "extended").exists()
    for changed, message in (
        ({"schedule": "linear"}, "schedule='linear': must be constant or wsd with extend"),
        ({"warmup_steps": None, "warmup": 0.1}, r"warmup=0\.1: must be 0, or set as warmup_steps"),
        ({"final": "best"}, "final='best': must be last with extend"),
    ):
        with pytest.raises(ConfigError, match=message):
            extend(**changed)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [TWO, zero(3)], ids=["2", "zero3"])
def test_ranks_agree_on_what_is_done_on_the_way(inputs, base, tmp_path, launcher):
    if launcher is not TWO:
        pytest.importorskip("deepspeed", reason="the deepspeed extra is not installed")
    settings = replace(ADAPT, schedule="wsd", warmup=0.0, objective="masked:whole_word=true")
    one = adapt_stage(str(base), inputs[0], None, *inputs[1:], settings, tmp_path / "one").path
    on_the_way = {"gradient_checkpointing": True, "export_every": 2, "extendable": True}
    done = launch(launcher, "recipes/adapt.py", base, inputs, tmp_path / "two", settings, **on_the_way)
    assert done.returncode == 0, done.stderr
    assert_same_weights(one, tmp_path / "two")
    assert_same_weights(one, tmp_path / "two-exports" / "step-00000004")
    assert [path.name for path in (tmp_path / "two-extend").iterdir()] == ["step-00000003"]
