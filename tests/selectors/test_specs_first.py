"""A misspelt component is refused before the task or the general text is read."""

from pathlib import Path

import pytest

from dana.cli.main import main

BAD = [
    ("selector=casade", "unknown selector 'casade'; did you mean 'cascade'?"),
    ("selector=cascade:keep=2", "keep=2: must be in (0, 1)"),
    ("selector=cascade:first=hasing", "unknown encoder 'hasing'; did you mean 'hashing'?"),
    ("selector=detector:knn,geometry=l3", "geometry='l3': must be one of none, l2"),
    ("detector=knm", "unknown detector 'knm'; did you mean 'knn'?"),
    ("selection.encoder=hasing", "unknown encoder 'hasing'; did you mean 'hashing'?"),
    ("selection.encoder=hashing:dims=0", "dims=0: must be at least 1"),
    ("selection.geometry=whiten:0", "geometry='whiten:0': must be one of"),
    ("ranking.detectors=[knn,lov]", "unknown detector 'lov'; did you mean 'lof'?"),
]


CASES = [(command, *case) for case in BAD for command in (("rank",) if case[0].startswith("ranking") else ("score",))]


@pytest.mark.parametrize(("command", "setting", "says"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_a_bad_spec_is_told_before_text_is_read(command, setting, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("task.jsonl", "general.jsonl"):
        Path(name).write_text("this is no JSON\n")
    recipe = "task: task.jsonl\ngeneral: [general.jsonl]\nout: out\nmodel: nowhere\nselection: {encoder: hashing}\n"
    if setting.startswith("ranking"):
        recipe += "selector: detector\n"
    Path("recipe.yaml").write_text(recipe)
    named = ["run", "recipe.yaml"] if command == "run" else [command, "--config", "recipe.yaml"]
    assert main([*named, *(["--set"] if command != "run" else []), setting]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert says in line
    assert not Path("out").exists()
