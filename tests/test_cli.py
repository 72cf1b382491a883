"""The command line: exit codes and one-line errors, nothing left behind."""

import pytest

from dana.cli import main


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rank", "--task", "chemport", "--general", "x"], "did you mean 'chemprot'?"),
        (["rank", "--task", "chemprot", "--general", "x", "--detectors", "ifrest"], "did you mean 'iforest'?"),
        (["rank", "--general", "x"], "task='': must be a task card or a text file"),
        (["weigh", "nowhere", "--beta", "1.4"], "beta=1.4: must be in (0, 1]"),
        (["weigh", "nowhere"], "no scores here"),
        (["run", "missing.yaml"], "missing.yaml: no such file"),
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
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("weigh:\n  beata: 0.2\n")
    assert main(["run", str(recipe)]) == 2
    assert "unknown key 'weigh.beata'; did you mean 'beta'?" in capsys.readouterr().err


def test_a_step_for_one_process_refuses_to_run_in_two(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["rank", "--task", "chemprot", "--general", "x"]) == 2
    assert "2 processes were launched" in capsys.readouterr().err


def test_flags_override_the_recipe_and_key_value_overrides_both(tmp_path):
    from dana.cli import build_parser
    from dana.commands import settings_from

    recipe = tmp_path / "mine.yaml"
    recipe.write_text("weigh: {beta: 0.3, gamma: 7, sharpness: 2}\n")
    line = ["weigh", "DIR", "--config", str(recipe), "--beta", "0.4", "--set", "weigh.gamma=9"]
    weigh = settings_from(build_parser().parse_args(line)).weigh
    assert (weigh.beta, weigh.gamma, weigh.sharpness) == (0.4, 9, 2)


@pytest.mark.parametrize("command", ["rank", "score", "weigh", "adapt", "pretrain", "finetune", "report", "run"])
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) > 10
