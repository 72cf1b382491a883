"""The command line: exit codes and one-line errors, nothing left behind."""

import os
from pathlib import Path

import pytest

from dana.cli.main import build_parser, main
from dana.cli.settings import settings_from
from dana.core.config import find_recipe, load, read_yaml
from dana.core.launch import processes
from dana.core.studies import missing_studies
from dana.stages.settings import RunSettings

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rank", "--task", "chemport", "--general", "x"], "did you mean 'chemprot'?"),
        (["rank", "--task", "chemprot", "--general", "x", "--detectors", "ifrest"], "did you mean 'iforest'?"),
        (["rank", "--general", "x"], "task='': must be a task card or a text file"),
        (["weigh", "nowhere", "--beta", "1.4"], "beta=1.4: must be in (0, 1]"),
        (["weigh", "nowhere"], "no scores here"),
        (["run", "missing.yaml"], "missing.yaml: no such file"),
        (["run", "quikstart"], "nor a recipe that ships with dana; did you mean 'quickstart'?"),
        (["quickstart", "--config", "/nope.yaml"], "/nope.yaml: no such file"),
        (["rank", "--config", "papers/dana/tabel2"], "did you mean 'papers/dana/table2'?"),
        (
            ["weigh", "x", "--policy", "segments", "--midpoint", "0"],
            "--midpoint is not looked at with policy=segments",
        ),
        (["weigh", "x", "--policy", "sigmoid", "--gamma", "9"], "--gamma is not looked at with policy=sigmoid"),
        (["weigh", "x", "--beta", "0.1", "--budget", "9 units"], "--beta is not looked at with budget=9 units"),
        (["adapt", "x", "--model", "m", "--unweighted", "--weights", "w"], "leave out --weights or --unweighted"),
        (["score", "--selector", "random", "--detector", "knn"], "--detector is not looked at with selector=random"),
        (
            ["score", "--selector", "cascade:encoder=static", "--encoder", "static"],
            "--encoder is not looked at with selector=cascade:encoder=static",
        ),
        (
            ["score", "--selector", "detector:lof", "--detector", "knn"],
            "--detector is not looked at with selector=detector:lof",
        ),
        (["score", "--selector", "random", "--geometry", "l2"], "--geometry is not looked at with selector=random"),
        (["finetune", "--task-card", "chemprot"], "--model=None"),
        (["detectors", "check", "nope"], "unknown detector 'nope'"),
    ],
)
def test_what_a_user_can_mend_is_one_line_and_exit_code_2(arguments, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert says in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_key_in_a_recipe_is_named_with_the_nearest(tmp_path, monkeypatch, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text("weigh:\n  beata: 0.2\n")
    assert main(["run", str(path)]) == 2
    assert "unknown key 'weigh.beata'; did you mean 'beta'?" in capsys.readouterr().err


def test_of_a_step_for_one_process_the_first_of_two_does_it_and_the_other_ends(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    for rank, code in (("1", 0), ("0", 2)):
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.setenv("RANK", rank)
        assert main(["report", str(tmp_path / "missing")]) == code
    assert capsys.readouterr().err.count("missing") == 1
    assert not {"RANK", "LOCAL_RANK", "MASTER_PORT"} & os.environ.keys(), "from then on it was started by itself"
    assert processes() == 1


def test_flags_override_the_recipe_and_key_value_overrides_both(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("weigh: {beta: 0.3, gamma: 7, sharpness: 2}\n")
    line = ["weigh", "DIR", "--config", str(path), "--beta", "0.4", "--set", "weigh.gamma=9"]
    weigh = settings_from(build_parser().parse_args(line)).weigh
    assert (weigh.beta, weigh.gamma, weigh.sharpness) == (0.4, 9, 2)


@pytest.mark.parametrize("command", ["score", "adapt", "pretrain", "finetune"])
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) > 10


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["rank", "--encoder", "hashin"], "unknown encoder 'hashin'; did you mean 'hashing'?"),
        (["rank", "--encoder", "transformer:./none"], "none: no such folder"),
        (["rank", "--encoder", "hashing", "--detectors", "knn,lofe"], "did you mean 'lof'?"),
        (["rank", "--encoder", "hashing", "--geometry", "center+l3"], "geometry='center+l3'"),
        (["rank", "--encoder", "hashing", "--units", "words"], "units='words'"),
        (["score", "--encoder", "hashing", "--detector", "knm"], "did you mean 'knn'?"),
        (["score", "--encoder", "hashing", "--detector", "knn:kk=3"], "unexpected keyword argument 'kk'"),
        (["score", "--selector", "casade"], "did you mean 'cascade'?"),
        (["score", "--selector", "cascade:detector=knm,encoder=hashing,first=hashing"], "did you mean 'knn'?"),
    ],
)
def test_a_mistyped_component_fails_before_any_text_is_read(flags, says, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("A cell divides.\n\nA court decides.\n")
    assert main([*flags, "--task", str(text), "--general", str(text), "--out", str(tmp_path / "run")]) == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert says in said
    assert not (tmp_path / "run").exists()


def test_the_report_takes_no_settings(tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        main(["report", str(tmp_path), "--config", "/nope.yaml"])
    assert left.value.code == 2
    assert "unrecognized arguments: --config /nope.yaml" in capsys.readouterr().err


def test_the_quickstart_takes_the_settings_of_a_recipe_over_its_own(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("weigh: {beta: 0.3, sharpness: 2}\nadapt: {tokens: 9000}\n")
    line = ["quickstart", "--config", str(mine), "--set", "weigh.beta=0.4"]
    settings = settings_from(build_parser().parse_args(line), "quickstart")
    assert (settings.weigh.beta, settings.weigh.sharpness, settings.adapt.tokens) == (0.4, 2, 9000)
    assert settings.harvest is not None, "what the recipe of the quickstart says stays"


def test_recipes_that_ship_with_dana_are_found_by_name_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("quickstart", "quickstart.yaml", "recipes/quickstart.yaml"):
        assert find_recipe(name).read_text(encoding="utf-8").startswith("# dana quickstart")
    Path("quickstart").write_text("weigh: {}\n")
    assert find_recipe("quickstart") == Path("quickstart"), "a file of this name comes first"


@pytest.mark.parametrize("size", ["abc", "0", "-1", "1.5"])
def test_a_world_size_that_is_no_number_of_processes_is_refused(size, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", size)
    assert main(["weigh", "nowhere"]) == 2
    assert f"WORLD_SIZE={size!r}" in capsys.readouterr().err


def test_one_process_where_accelerate_was_asked_for_several_is_refused(monkeypatch, capsys):
    """What accelerate launch --cpu --num_processes 2 leaves in the environment of the one process that it starts."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "NO")
    assert processes() == 1
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert main(["weigh", "nowhere"]) == 2
    assert "torchrun --standalone --nproc_per_node N" in capsys.readouterr().err
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert processes() == 2


@pytest.mark.parametrize("name", ["score", "adapt", "pretrain", "finetune"])
def test_a_recipe_is_its_command_with_its_thread_settings(name):
    lines = (RECIPES / f"{name}.py").read_text(encoding="utf-8")
    assert f'sys.exit(main(["{name}", *sys.argv[1:]]))' in lines
    assert "torch" not in lines.replace("torchrun", ""), "main must set the threads before torch is imported"


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_is_a_recipe(path):
    if path.stem in missing_studies():
        pytest.skip(f"missing study: {path.stem}")
    load(RunSettings, read_yaml(path), origin=str(path))
