"""A run's folder remembers its settings: hints are whole commands, a contradiction names the flag."""

import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from dana.cli.main import build_parser, main
from dana.cli.settings import settings_from
from dana.core.config import SETTINGS
from dana.core.errors import ConfigError
from dana.scoring.settings import Selection
from dana.stages.remember import differences, read_settings, remember
from dana.stages.settings import RunSettings, with_store
from dana.weighting.settings import WeighSettings


def rank(texts, out, *flags):
    names = ["--task", str(texts / "cells.txt"), "--general", str(texts / "pool.jsonl")]
    settings = ["--encoder", "hashing", "--set", "ranking.detectors=[knn,pca]", "ranking.seeds=2"]
    return main(["score", "--rank-only", *names, *settings, "--out", str(out), *flags])


@pytest.fixture(scope="module")
def scores_run(texts, tmp_path_factory):
    """Rank and score by the commands."""
    run = tmp_path_factory.mktemp("remember") / "run"
    assert rank(texts, run) == 0
    assert main(["score", "--out", str(run)]) == 0
    return run


@pytest.fixture
def run(scores_run, tmp_path, capsys):
    """Copy the run, which a test may change."""
    return Path(shutil.copytree(scores_run, tmp_path / "run"))


def next_command(capsys):
    """Return the words behind next: of what was printed last."""
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next:")]
    return shlex.split(line.removeprefix("next:"), comments=True)


def test_hints_work_when_pasted_and_need_no_flag_again(texts, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    out = "runs/my run"
    assert rank(texts, out) == 0
    program, *score = next_command(capsys)
    assert (program, score) == ("dana", ["score", "--out", out, "--selector", "detector"])
    assert main(score) == 0
    program, *weigh = next_command(capsys)
    assert weigh == ["weigh", out]
    assert main([*weigh, "--gamma", "5", "--beta", "0.3"]) == 0
    assert next_command(capsys) == [
        "dana",
        "adapt",
        out,
        "--model",
        "bert-base-uncased",
        "--steps",
        "1000",
    ]
    assert main(weigh) == 0, "the same weights are reused without their flags"
    assert read_settings(tmp_path / out)["weigh"] == {"gamma": 5, "beta": 0.3}


def test_scoring_in_parts_is_pasted_from_hint_to_hint_and_refuses_other_texts(
    texts, tmp_path, capsys
):
    out = ["--out", str(tmp_path / "my run")]
    names = ["--task", str(texts / "cells.txt"), "--general", str(texts / "pool.jsonl")]
    assert (
        main(
            [
                "score",
                *names,
                *out,
                "--encoder",
                "hashing",
                "--selector",
                "detector:knn",
                "--prepare",
            ]
        )
        == 0
    )
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


def test_weights_in_another_folder_are_carried_and_not_remembered(run, capsys):
    assert main(["weigh", str(run), "--gamma", "3", "--out", str(run / "short")]) == 0
    words = next_command(capsys)
    assert words[words.index("--weights") + 1] == str(run / "short")
    assert words[words.index("--out") + 1] == str(run / "adapted-short")
    assert "weigh" not in read_settings(run)


def test_a_contradiction_names_each_setting_and_both_values(run, capsys):
    assert main(["weigh", str(run), "--gamma", "5"]) == 0
    capsys.readouterr()
    rank, weigh = ["score", "--rank-only", "--out", str(run)], ["weigh", str(run)]
    for line, message in (
        ([*rank, "--geometry", "l2"], 'selection.geometry: "center+l2" there, "l2" now'),
        ([*rank, "--set", "ranking.seeds=3"], "seeds: 2 there, 3 now"),
        ([*rank, "--seed", "7"], "seed: 0 there, 7 now"),
        (
            [*rank, "--set", "selection.max_task_units=50"],
            "selection.max_task_units: 4000 there, 50 now",
        ),
        (
            [*weigh, "--gamma", "4", "--beta", "0.1"],
            "(settings.beta: 0.2 there, 0.1 now; settings.gamma: 5 there, 4",
        ),
    ):
        assert main(line) == 2
        assert message in capsys.readouterr().err.splitlines()[-1]


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
    assert (weigh.seed, weigh.beta, weigh.gamma, weigh.sharpness, weigh.min_tail) == (
        0,
        0.3,
        8,
        5,
        6,
    )


def test_what_is_given_makes_the_folder_forget_its_rivals(tmp_path):
    (tmp_path / SETTINGS).write_text("adapt: {steps: 9, batch_size: 8}\n")
    assert settings_of("adapt", tmp_path).adapt.steps == 9
    adapt = settings_of("adapt", tmp_path, "--tokens", "100").adapt
    assert (adapt.steps, adapt.tokens, adapt.batch_size) == (None, 100, 8)


def test_fine_tuning_takes_up_the_run_s_card_but_not_its_model(tmp_path):
    (tmp_path / SETTINGS).write_text(
        "model: some/base\ncards: [sst2]\nfinetune: {epochs: 2}\ndata: there\n"
    )
    settings = settings_of(
        "finetune", "--model", "m", "--out", tmp_path / "finetune" / "sst2" / "dana"
    )
    assert (settings.model, settings.cards, settings.finetune.epochs, settings.data) == (
        None,
        ["sst2"],
        2,
        "there",
    )
    assert settings_of("finetune", "--out", tmp_path / "finetune" / "sst2" / "dana").model is None
    assert settings_of("adapt", tmp_path).model == "some/base"


def test_only_what_differs_is_written_and_comes_back(tmp_path):
    settings = RunSettings(
        out=str(tmp_path), task="a b.txt", selection=Selection(seed=3), harvest=None
    )
    remember(with_store(settings), tmp_path)
    assert read_settings(tmp_path) == {"task": "a b.txt", "selection": {"seed": 3}}
    assert (
        differences(settings_of("score", "--rank-only", "--out", tmp_path), with_store(settings))
        == {}
    )
    adapt = settings_of("adapt", tmp_path / "other", "--resume", "never", "--steps", "3")
    remember(adapt, tmp_path / "other")
    assert read_settings(tmp_path / "other") == {"adapt": {"steps": 3}}, (
        "how a training began is not remembered"
    )


@pytest.mark.parametrize("flags", [("--beta", "0.5"), ("--budget", "9 units"), ("--below", "0.1")])
def test_what_says_how_much_takes_the_place_of_what_said_so_before(tmp_path, flags):
    for before in ({"beta": 0.3}, {"budget": "40 units"}, {"below": 0.7}):
        (tmp_path / SETTINGS).write_text(yaml.safe_dump({"weigh": before}))
        weigh, usual = settings_of("weigh", tmp_path, *flags).weigh, WeighSettings()
        changes = [
            name
            for name in ("beta", "budget", "below")
            if getattr(weigh, name) != getattr(usual, name)
        ]
        assert changes == [flags[0].removeprefix("--")]


@pytest.mark.parametrize("store", ["somewhere", "none"])
def test_a_store_elsewhere_or_none_is_remembered(tmp_path, store):
    settings = settings_of(
        "score", "--rank-only", "--out", tmp_path, "--task", "a.txt", "--store", store
    )
    remember(settings, tmp_path)
    assert read_settings(tmp_path)["selection"] == {"store": store}
    assert settings_of("score", "--out", tmp_path).selection.store == settings.selection.store


@pytest.mark.parametrize(
    "content", ["", "[1]", "weigh: {beata: 1}", "weigh: {beta: 9}", "\xff", "a: [", "weigh: 3"]
)
def test_a_broken_memory_is_named(content, tmp_path, capsys):
    (tmp_path / SETTINGS).write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match=SETTINGS):
        read_settings(tmp_path)
    assert main(["weigh", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_the_run_s_own_store_is_filled_by_rank_and_used_by_score(texts, tmp_path, encoder_texts):
    assert rank(texts, tmp_path / "run") == 0
    texts_of_rank = set(encoder_texts)
    encoder_texts.clear()
    assert (tmp_path / "run" / "embeddings").is_dir()
    assert main(["score", "--out", str(tmp_path / "run")]) == 0
    assert encoder_texts
    assert not texts_of_rank & set(encoder_texts), "what was ranked with is looked up"
    assert rank(texts, tmp_path / "none", "--store", "none") == 0
    assert not (tmp_path / "none" / "embeddings").exists()
    assert read_settings(tmp_path / "none")["selection"]["store"] == "none"
