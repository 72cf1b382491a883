"""A run's folder remembers its settings: hints are whole commands, a contradiction names the flag."""

import shlex

import pytest
import yaml

from dana.cli.main import build_parser, main
from dana.cli.settings import settings_from
from dana.core.config import SETTINGS
from dana.core.errors import ConfigError
from dana.scoring.settings import Selection
from dana.stages.remember import differences, read_settings, remember
from dana.stages.settings import RunSettings, with_store


def ranked(texts, out, *flags):
    names = ["--task", str(texts / "cells.txt"), "--general", str(texts / "pool.jsonl")]
    return main(
        ["rank", *names, "--encoder", "hashing", "--detectors", "knn,pca", "--seeds", "2", "--out", out, *flags]
    )


def next_command(capsys):
    """The words behind next: of what was said last."""
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next:")]
    return shlex.split(line.removeprefix("next:"), comments=True)


def test_hints_work_when_pasted_and_need_no_flag_again(texts, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    out = "runs/my run"
    assert ranked(texts, out) == 0
    program, *score = next_command(capsys)
    assert (program, score) == ("dana", ["score", "--out", out, "--selector", "detector"])
    assert main(score) == 0
    program, *weigh = next_command(capsys)
    assert weigh == ["weigh", out]
    assert main([*weigh, "--gamma", "5", "--beta", "0.3"]) == 0
    assert next_command(capsys) == ["dana", "adapt", out, "--model", "bert-base-uncased", "--steps", "1000"]
    assert main(weigh) == 0, "the same weights are reused without their flags"
    assert read_settings(tmp_path / out)["weigh"] == {"gamma": 5, "beta": 0.3}


def test_scoring_in_parts_is_pasted_from_hint_to_hint_and_refuses_other_texts(texts, tmp_path, capsys):
    out = ["--out", str(tmp_path / "my run")]
    names = ["--task", str(texts / "cells.txt"), "--general", str(texts / "pool.jsonl")]
    assert main(["score", *names, *out, "--encoder", "hashing", "--detector", "knn", "--prepare"]) == 0
    shard = next_command(capsys)[1:]
    assert shard == ["score", *out, "--shard", "1/1"]
    for part in (shard, ["score", *out, "--merge"]):
        assert main([*part, "--general", str(texts / "cells.txt")]) == 2
        assert "--general" in capsys.readouterr().err
        assert main([*part, "--set", "hygiene.ngram=9", "hygiene.decontaminate=[chemprot]"]) == 2
        assert "--decontaminate ['chemprot']" in capsys.readouterr().err
    assert main([*shard, *names]) == 0, "what was prepared may be named again"
    merge = next_command(capsys)[1:]
    assert merge == ["score", *out, "--merge"]
    assert main(merge) == 0
    assert next_command(capsys) == ["dana", "weigh", out[1]]


def test_weights_in_another_folder_are_carried_and_not_remembered(texts, tmp_path, capsys):
    out = tmp_path / "run"
    assert ranked(texts, str(out)) == 0
    assert main(["score", "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["weigh", str(out), "--gamma", "3", "--to", str(out / "short")]) == 0
    said = next_command(capsys)
    assert said[said.index("--weights") + 1] == str(out / "short")
    assert said[said.index("--to") + 1] == str(out / "adapted-short")
    assert "weigh" not in read_settings(out)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--geometry", "l2"], 'selection.geometry: "center+l2" there, "l2" now'),
        (["--seeds", "3"], "seeds: 2 there, 3 now"),
        (["--seed", "7"], "seed: 0 there, 7 now"),
        (["--set", "selection.max_task_units=50"], "selection.max_task_units: 4000 there, 50 now"),
    ],
)
def test_a_contradiction_names_the_setting_and_both_values(flags, says, texts, tmp_path, capsys):
    assert ranked(texts, str(tmp_path / "run")) == 0
    capsys.readouterr()
    assert main(["rank", "--out", str(tmp_path / "run"), *flags]) == 2
    assert says in capsys.readouterr().err.splitlines()[-1]


def test_a_contradiction_of_weights_names_each_setting(texts, tmp_path, capsys):
    out = str(tmp_path / "run")
    assert ranked(texts, out) == 0
    assert main(["score", "--out", out]) == 0
    assert main(["weigh", out, "--gamma", "5"]) == 0
    assert main(["weigh", out, "--gamma", "4", "--beta", "0.1"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "(settings.beta: 0.2 there, 0.1 now; settings.gamma: 5 there, 4 now)" in said


def settings_of(*words):
    return settings_from(build_parser().parse_args([str(word) for word in words]))


def test_defaults_then_memory_then_config_then_flags_then_set(tmp_path):
    run, recipe = tmp_path / "run", tmp_path / "mine.yaml"
    memory = {"weigh": {"beta": 0.3, "gamma": 7, "sharpness": 2.0, "min_tail": 3}}
    recipe.write_text("weigh: {policy: sampled, gamma: 8, sharpness: 3, min_tail: 4}\n")
    run.mkdir()
    (run / SETTINGS).write_text(yaml.safe_dump(memory))
    words = ["weigh", run, "--config", recipe, "--sharpness", "5", "--set", "weigh.min_tail=6"]
    weigh = settings_of(*words).weigh
    assert (weigh.seed, weigh.beta, weigh.gamma, weigh.sharpness, weigh.min_tail) == (0, 0.3, 8, 5, 6)


def test_what_is_given_makes_the_folder_forget_its_rivals(tmp_path):
    (tmp_path / SETTINGS).write_text("adapt: {steps: 9, batch_size: 8}\nweigh: {budget: 50 units}\n")
    assert settings_of("adapt", tmp_path).adapt.steps == 9
    asked = settings_of("adapt", tmp_path, "--tokens", "100").adapt
    assert (asked.steps, asked.tokens, asked.batch_size) == (None, 100, 8)
    assert settings_of("weigh", tmp_path, "--beta", "0.1").weigh.budget is None


def test_fine_tuning_takes_up_the_run_s_card_but_not_its_model(tmp_path):
    (tmp_path / SETTINGS).write_text("model: some/base\ncards: [sst2]\nfinetune: {epochs: 2}\ndata: there\n")
    settings = settings_of("finetune", "--model", "m", "--out", tmp_path / "finetune" / "sst2" / "dana")
    assert (settings.model, settings.cards, settings.finetune.epochs, settings.data) == ("m", ["sst2"], 2, "there")
    assert settings_of("finetune", "--out", tmp_path / "finetune" / "sst2" / "dana").model is None
    assert settings_of("adapt", tmp_path).model == "some/base"


def test_only_what_differs_is_written_and_comes_back(tmp_path):
    settings = RunSettings(out=str(tmp_path), task="a b.txt", selection=Selection(seed=3), harvest=None)
    remember(with_store(settings), tmp_path)
    assert read_settings(tmp_path) == {"task": "a b.txt", "selection": {"seed": 3}}
    assert "adapt.execution.resume" not in (tmp_path / SETTINGS).read_text()
    again = settings_of("rank", "--out", tmp_path)
    assert differences(again, with_store(settings)) == {}


@pytest.mark.parametrize("flags", [("--beta", "0.5"), ("--budget", "9 units"), ("--below", "0.1")])
def test_what_says_how_much_takes_the_place_of_what_said_so_before(tmp_path, flags):
    for before in ({"beta": 0.3}, {"budget": "40 units"}, {"below": 0.7}):
        (tmp_path / SETTINGS).write_text(yaml.safe_dump({"weigh": before}))
        weigh = settings_of("weigh", tmp_path, *flags).weigh
        given = {"beta": weigh.beta, "budget": weigh.budget, "below": weigh.below}
        usual = {"beta": 0.2, "budget": None, "below": None}
        name = flags[0].removeprefix("--")
        assert {one: value for one, value in given.items() if value != usual[one]}.keys() == {name}


@pytest.mark.parametrize("store", ["somewhere", "none"])
def test_a_store_elsewhere_or_none_is_remembered(tmp_path, store):
    given = settings_of("rank", "--out", tmp_path, "--task", "a.txt", "--store", store)
    remember(given, tmp_path)
    assert read_settings(tmp_path)["selection"] == {"store": store}
    assert settings_of("score", "--out", tmp_path).selection.store == given.selection.store


def test_how_a_training_began_is_not_remembered(tmp_path):
    remember(settings_of("adapt", tmp_path, "--resume", "never", "--steps", "3"), tmp_path)
    assert read_settings(tmp_path) == {"adapt": {"steps": 3}}


@pytest.mark.parametrize("content", ["", "[1]", "weigh: {beata: 1}", "weigh: {beta: 9}", "\xff", "a: [", "weigh: 3"])
def test_a_broken_memory_is_named(content, tmp_path, capsys):
    (tmp_path / SETTINGS).write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match=SETTINGS):
        read_settings(tmp_path)
    assert main(["weigh", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_the_run_s_own_store_is_filled_by_rank_and_used_by_score(texts, tmp_path, monkeypatch):
    from dana.encoders.hashing import HashingEncoder

    encoded = []
    original = HashingEncoder.encode
    monkeypatch.setattr(HashingEncoder, "encode", lambda self, some: (encoded.extend(some), original(self, some))[1])
    out = tmp_path / "run"
    assert ranked(texts, str(out)) == 0
    ranking, encoded[:] = set(encoded), []
    assert (out / "embeddings").is_dir()
    assert main(["score", "--out", str(out)]) == 0
    assert encoded
    assert not ranking & set(encoded), "what was ranked with is looked up"
    assert ranked(texts, str(tmp_path / "none"), "--store", "none") == 0
    assert not (tmp_path / "none" / "embeddings").exists()
    assert read_settings(tmp_path / "none")["selection"]["store"] == "none"
