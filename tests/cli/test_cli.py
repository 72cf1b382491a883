"""The command line: where settings come from, launches, recipes, misspelt words."""

import argparse
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from dana.cli.main import _run, build_parser, main
from dana.cli.settings import settings_from
from dana.core.launch import processes
from dana.core.shipped import find_recipe

RECIPES = Path(__file__).parents[2] / "recipes"


def test_of_a_launch_the_first_process_runs_a_command_for_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    for rank, code in (("1", 0), ("0", 2)):
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.setenv("RANK", rank)
        assert main(["report", str(tmp_path / "missing")]) == code
    assert capsys.readouterr().err.count("missing") == 1
    assert not {"RANK", "LOCAL_RANK", "MASTER_PORT"} & os.environ.keys(), "as if started alone"
    assert processes() == 1


def test_too_little_memory_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr("dana.cli.main._run", lambda args: np.empty(10**15))
    assert main(["plugins", "list"]) == 2
    assert "dana: error: out of memory: Unable to allocate 7.11 PiB" in capsys.readouterr().err


def test_flags_override_the_recipe_and_key_value_overrides_both(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("weigh: {beta: 0.3, gamma: 7, sharpness: 2}\n")
    line = ["weigh", "DIR", "--config", str(path), "--beta", "0.4", "--set", "weigh.gamma=9"]
    weigh = settings_from(build_parser().parse_args(line)).weigh
    assert (weigh.beta, weigh.gamma, weigh.sharpness) == (0.4, 9, 2)
    line = ["quickstart", "--config", str(path), "--set", "weigh.beta=0.4"]
    settings = settings_from(build_parser().parse_args(line), "quickstart")
    assert (settings.weigh.beta, settings.weigh.sharpness, settings.weigh.gamma) == (0.4, 2, 7)
    assert settings.selector == "lexical", "the other settings of the quickstart stay"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("report x --config /nope.yaml", "--config /nope.yaml"),
        ("plugins check detector", "name"),
        ("plugins list x", "x"),
        ("wiegh x", "did you mean 'weigh'?"),
        ("weigh x --bta 2", "did you mean '--beta'?"),
        ("adapt x --learning_rate=1", "did you mean '--learning-rate'?"),
        ("plugins lst", "did you mean 'list'?"),
    ],
)
def test_unknown_words_are_one_line_with_the_nearest(line, word, capsys):
    with pytest.raises(SystemExit) as error:
        main(line.split())
    assert error.value.code == 2
    (message,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert word in message


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("score --task notes.tx --pool pool.jsonl", "notes.txt"),
        ("score --task notes.txt --pool pool.json", "pool.jsonl"),
        ("score --task notes.txt --pool pool.jsonl --config ./mime.yaml", "mine.yaml"),
        ("weigh runs/mne", "runs/mine"),
        ("weigh rums/mine", "runs"),
        ("adapt runs/mine --model ./runs/mime", "runs/mine"),
        ("run papers/dana/tabel2", "papers/dana/table2"),
    ],
)
def test_a_misspelt_path_is_answered_with_the_nearest(line, near, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("runs/mine").mkdir(parents=True)
    for name in ("notes.txt", "pool.jsonl", "mine.py", "mine.yaml"):
        Path(name).write_text('{"text": "a"}\n')
    assert main(line.split()) == 2
    *_, message = capsys.readouterr().err.strip().splitlines()
    assert f"did you mean '{near}'?" in message


def test_recipes_are_found_by_name_anywhere_and_their_scripts_are_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("quickstart", "quickstart.yaml", "recipes/quickstart.yaml"):
        assert find_recipe(name).read_text(encoding="utf-8").startswith("# dana quickstart")
    Path("quickstart").write_text("weigh: {}\n")
    assert find_recipe("quickstart") == Path("quickstart"), "a file of this name comes first"
    for name in ("score", "adapt", "finetune"):
        code = (RECIPES / f"{name}.py").read_text(encoding="utf-8")
        assert f'sys.exit(main(["{name}", *sys.argv[1:]]))' in code
        assert "torch" not in code.replace("torchrun", ""), (
            "main must set the threads before torch is imported"
        )


def test_one_process_where_accelerate_was_asked_for_several_is_refused(monkeypatch, capsys):
    """accelerate launch --cpu --num_processes 2 sets these variables in the one process that it starts."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "NO")
    assert processes() == 1
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert main(["weigh", "nowhere"]) == 2
    assert "torchrun --standalone --nproc_per_node N" in capsys.readouterr().err
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert processes() == 2


def test_a_second_ctrl_c_while_python_ends_shows_no_traceback(monkeypatch, capfd):
    def interrupt(args):
        raise KeyboardInterrupt

    calls_at_exit = []
    monkeypatch.setattr("dana.cli.main._run", interrupt)
    monkeypatch.setattr("atexit.register", lambda *call: calls_at_exit.append(call))
    assert main(["files", "env"]) == 130
    assert "interrupted; finished work is saved" in capfd.readouterr().err
    assert calls_at_exit == [(signal.signal, signal.SIGINT, signal.SIG_IGN)]


def test_json_has_null_for_what_is_no_number(monkeypatch, capsys):
    def command(args):
        return {"results": [{"std": float("nan"), "mean": 0.5}]}

    args = argparse.Namespace(json=True, processes=True, run=command, beats="")
    _run(args)
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "results": [{"std": None, "mean": 0.5}]
    }
