"""A run's folder is its recipe: hints are whole commands, a contradiction names the setting, --remake replaces."""

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from dana.api import keywords
from dana.cli.main import build_parser, main
from dana.cli.settings import settings_from
from dana.core.artifacts import read_manifest
from dana.core.config import RECIPE
from dana.core.errors import ConfigError
from dana.scoring.settings import Selection
from dana.stages.recipe import differences, read_recipe, read_run_recipe, write_recipe
from dana.stages.settings import RunSettings, with_store
from dana.train.settings import AdaptSettings, Execution
from dana.weighting.settings import WeighSettings


def rank(texts, out, *flags):
    names = ["--task", str(texts / "cells.txt"), "--pool", str(texts / "pool.jsonl")]
    settings = ["--encoder", "hashing", "--set", "ranking.detectors=[knn,pca]", "ranking.seeds=2"]
    return main(["score", "--rank-only", *names, *settings, "--out", str(out), *flags])


@pytest.fixture(scope="module")
def scores_run(texts, tmp_path_factory):
    """Rank and score by the commands."""
    run = tmp_path_factory.mktemp("recipe") / "run"
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


def test_hints_work_when_pasted_and_later_steps_take_up_the_recipe(
    texts, tmp_path, monkeypatch, capsys
):
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
    assert read_manifest(tmp_path / out / "weights")["given"] == {
        "weigh.beta": 0.3,
        "weigh.gamma": 5,
    }
    assert "weigh" not in read_run_recipe(tmp_path / out), "flags of a later step are its own"
    assert main(weigh) == 2, "without its flags the step is another"


def test_scoring_in_parts_is_pasted_from_hint_to_hint_and_refuses_other_texts(
    texts, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    out = ["--out", str(tmp_path / "my run")]
    names = ["--task", os.path.relpath(texts / "cells.txt"), "--pool"]
    names.append(os.path.relpath(texts / "pool.jsonl"))
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
        assert main([*part, "--pool", str(texts / "cells.txt")]) == 2
        assert "--pool" in capsys.readouterr().err
        assert main([*part, "--set", "hygiene.ngram=9", "hygiene.decontaminate=[chemprot]"]) == 2
        assert "--decontaminate ['chemprot']" in capsys.readouterr().err
    assert main([*shard, *names]) == 0, "what was prepared may be named again"
    merge = next_command(capsys)[1:]
    assert merge == ["score", *out, "--merge"]
    assert main(merge) == 0
    assert next_command(capsys) == ["dana", "weigh", out[1]]


def test_weights_in_another_folder_are_carried_to_the_next_step(run, capsys):
    assert main(["weigh", str(run), "--gamma", "3", "--out", str(run / "short")]) == 0
    words = next_command(capsys)
    assert words[words.index("--weights") + 1] == str(run / "short")
    assert words[words.index("--out") + 1] == str(run / "adapted-short")


def test_a_contradiction_names_each_setting_and_both_values(run, capsys):
    assert main(["weigh", str(run), "--gamma", "5"]) == 0
    capsys.readouterr()
    rank, weigh = ["score", "--rank-only", "--out", str(run)], ["weigh", str(run)]
    for line, message in (
        ([*rank, "--geometry", "l2"], 'selection.geometry: "center+l2" there, "l2" now'),
        ([*rank, "--set", "ranking.seeds=3"], "seeds: 2 there, 3 now"),
        ([*rank, "--seed", "7"], "seed: 0 there, 7 now"),
        (
            [*rank, "--set", "selection.max_target_units=50"],
            "selection.max_target_units: 4000 there, 50 now",
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


@pytest.mark.parametrize("part", ["pool", "task", "unlabelled"])
def test_a_mixture_without_selected_text_is_no_fault_of_arms_that_adapt_does_not_read(
    tmp_path, part
):
    mix = {part: 1.0}
    words = ["adapt", tmp_path, "--model", "dana-mini", "--mix", str(mix)]
    assert settings_of(*words).adapt.mix == mix
    (tmp_path / RECIPE).write_text("arms: {mine: {weigh: {beta: 0.3}}}\n")
    assert settings_of(*words).adapt.mix == mix
    assert keywords.settings_of("adapt", tmp_path, {"mix": mix}, ("adapt",)).adapt.mix == mix


def test_defaults_then_the_folder_s_recipe_then_config_then_flags_then_set(tmp_path):
    run, recipe = tmp_path / "run", tmp_path / "mine.yaml"
    of_folder = {"weigh": {"beta": 0.3, "gamma": 7, "sharpness": 2.0, "min_tail": 3}}
    recipe.write_text("weigh: {policy: sampled, gamma: 8, sharpness: 3, min_tail: 4}\n")
    run.mkdir()
    (run / RECIPE).write_text(yaml.safe_dump(of_folder))
    words = ["weigh", run, "--config", recipe, "--sharpness", "5", "--set", "weigh.min_tail=6"]
    weigh = settings_of(*words).weigh
    assert (weigh.seed, weigh.beta, weigh.gamma, weigh.sharpness, weigh.min_tail) == (
        0,
        0.3,
        8,
        5,
        6,
    )


def test_what_is_given_takes_the_place_of_its_rivals_in_the_recipe(tmp_path):
    (tmp_path / RECIPE).write_text("adapt: {steps: 9, batch_size: 8}\n")
    assert settings_of("adapt", tmp_path).adapt.steps == 9
    adapt = settings_of("adapt", tmp_path, "--tokens", "100").adapt
    assert (adapt.steps, adapt.tokens, adapt.batch_size) == (None, 100, 8)


def test_fine_tuning_takes_up_the_run_s_card_but_not_its_model(tmp_path):
    (tmp_path / RECIPE).write_text(
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


def test_only_what_differs_is_written_and_comes_back(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "one"
    run.mkdir(parents=True)
    (tmp_path / "a b.txt").write_text("a")
    (run / "inputs").mkdir()
    (run / "inputs" / "pool.jsonl").write_text("{}")
    settings = RunSettings(
        out="runs/one",
        task="a b.txt",
        pool=["pool/*.gz", str(run / "inputs" / "pool.jsonl"), "s3://bucket/x.txt"],
        selection=Selection(seed=3),
        adapt=AdaptSettings(steps=3, execution=Execution(resume="never")),
    )
    write_recipe(with_store(settings), Path("runs/one"))
    assert yaml.safe_load((run / RECIPE).read_text()) == {
        "out": ".",
        "task": "../../a b.txt",
        "pool": ["../../pool/*.gz", "inputs/pool.jsonl", "s3://bucket/x.txt"],
        "selection": {"seed": 3},
        "adapt": {"steps": 3},
    }, "how a training began is of one call"
    values, path = read_recipe("runs/one")
    assert read_recipe("runs/one/recipe.yaml") == (values, path)
    assert values["out"] == "runs/one"
    assert (values["task"], values["pool"][0]) == ("a b.txt", "pool/*.gz")
    again = settings_of("score", "--rank-only", "--out", "runs/one")
    assert set(differences(again, with_store(settings))) == {"pool"}  # inputs/, not absolute
    shutil.move(tmp_path / "runs", tmp_path / "moved")
    pool = read_recipe(tmp_path / "moved" / "one")[0]["pool"]
    assert pool[1] == str(tmp_path / "moved" / "one" / "inputs" / "pool.jsonl")


def test_the_name_of_a_card_stays_where_a_folder_has_it_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chemprot").mkdir()
    write_recipe(with_store(RunSettings(out="run", task="chemprot")), Path("run"))
    assert read_recipe("run")[0]["task"] == "chemprot"


def test_a_recipe_of_a_person_is_not_overwritten(tmp_path):
    (tmp_path / RECIPE).write_text("# Mine.\nselection: {seed: 4}\n")
    settings = settings_of("score", "--out", tmp_path, "--task", "a.txt")
    assert settings.selection.seed == 4
    write_recipe(settings, tmp_path)
    assert (tmp_path / RECIPE).read_text() == "# Mine.\nselection: {seed: 4}\n"


@pytest.mark.parametrize("flags", [("--beta", "0.5"), ("--budget", "9 units"), ("--below", "0.1")])
def test_what_says_how_much_takes_the_place_of_what_said_so_before(tmp_path, flags):
    for before in ({"beta": 0.3}, {"budget": "40 units"}, {"below": 0.7}):
        (tmp_path / RECIPE).write_text(yaml.safe_dump({"weigh": before}))
        weigh, usual = settings_of("weigh", tmp_path, *flags).weigh, WeighSettings()
        changes = [
            name
            for name in ("beta", "budget", "below")
            if getattr(weigh, name) != getattr(usual, name)
        ]
        assert changes == [flags[0].removeprefix("--")]


@pytest.mark.parametrize("store", ["somewhere", "none"])
def test_a_store_elsewhere_or_none_is_in_the_recipe(tmp_path, store, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "somewhere").mkdir()
    settings = settings_of("score", "--out", "run", "--task", "a.txt", "--store", store)
    write_recipe(settings, Path("run"))
    expected = None if store == "none" else tmp_path / store
    found = settings_of("score", "--out", "run").selection.store
    assert (None if found is None else Path(found).resolve()) == expected


@pytest.mark.parametrize(
    "content", ["", "[1]", "weigh: {beata: 1}", "weigh: {beta: 9}", "\xff", "a: [", "weigh: 3"]
)
def test_a_broken_recipe_is_named(content, tmp_path, capsys):
    (tmp_path / RECIPE).write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match=RECIPE):
        read_run_recipe(tmp_path)
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


def times(run, *names):
    return [(run / name / "__dana__" / "manifest.json").stat().st_mtime_ns for name in names]


def test_remake_replaces_what_differs_and_nothing_equal(run, capsys):
    assert main(["score", "--out", str(run), "--selector", "lexical", "--remake"]) == 0
    assert main(["weigh", str(run)]) == 0
    texts = times(run, "target", "pool", "ranking")
    scores, weights = times(run, "scores", "weights")
    capsys.readouterr()
    other = ["score", "--out", str(run), "--selector", "moore_lewis"]
    assert main(other) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert re.search("there, .* now.*; add --remake to replace it", message)
    assert times(run, "scores") == [scores]
    assert main([*other, "--remake"]) == 0
    assert times(run, "target", "pool", "ranking") == texts
    assert times(run, "scores")[0] > scores
    assert times(run, "weights") == [weights]
    assert main(["weigh", str(run)]) == 2, "the weights are of other scores"
    assert main(["weigh", str(run), "--remake"]) == 0
    made = times(run, "scores", "weights")
    assert main([*other, "--remake"]) == 0
    assert main(["weigh", str(run), "--remake"]) == 0
    assert times(run, "scores", "weights") == made, "what is equal is reused"
    assert sorted(path.name for path in run.glob(".*")) == []


def test_a_remake_that_fails_puts_the_old_folder_back(run, monkeypatch):
    assert main(["weigh", str(run)]) == 0
    before = times(run, "weights")
    monkeypatch.setattr("dana.stages.weigh._weigh", fail)
    with pytest.raises(ZeroDivisionError):
        main(["weigh", str(run), "--gamma", "5", "--remake"])
    assert times(run, "weights") == before
    assert sorted(path.name for path in run.glob(".*")) == []


def fail(*arguments):
    raise ZeroDivisionError


def test_a_folder_that_was_scored_is_run_from_its_recipe(run, capsys):
    before = times(run, "target", "pool", "scores")
    assert main(["run", str(run), "--dry-run", "--set", "arms=[dana]", "model=dana-mini"]) == 0
    assert f"into {run}" in capsys.readouterr().out
    assert times(run, "target", "pool", "scores") == before
