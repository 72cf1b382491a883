"""A flag or key=value without effect is refused, and accepted where it has an effect; of `dana score` it is said.

A row is a command line, what has no effect in it, and an addition with which the line is accepted.
"""

import shlex
from pathlib import Path

import pytest

from dana.cli.main import build_parser
from dana.cli.settings import settings_from
from dana.core.errors import ConfigError

CASES = [
    ("weigh x --gamma 9 --policy sigmoid", "--gamma", "--policy sampled"),
    ("weigh x --budget '9 units' --policy sigmoid", "--budget", "--policy segments"),
    ("weigh x --set weigh.min_tail=2 --policy sigmoid", "weigh.min_tail", "--policy segments"),
    ("weigh x --sharpness 2", "--sharpness", "--policy sampled"),
    ("weigh x --midpoint 0", "--midpoint", "--policy sigmoid"),
    ("weigh x --set weigh.seed=3", "weigh.seed", "--policy sampled"),
    ("weigh x --set weigh.seed=4", "weigh.seed", "--beta auto"),
    ("weigh x --beta 0.2 --budget '9 units'", "--beta", "--policy sampled"),
    (
        "weigh x --beta 0.3 --budget '9 units' --policy sampled --midpoint 0",
        "--beta",
        "weigh.midpoint=null",
    ),
    ("weigh x --beta 0.1 --budget '9 units'", "--beta", "weigh.budget=null"),
    ("weigh x --beta 0.1 --policy sigmoid --midpoint 0", "--beta", "--policy sampled"),
    ("weigh x --set weigh.tokenizer=folder", "weigh.tokenizer", "--budget '9 tokens'"),
    ("weigh x --set out=elsewhere", "out", None),
    ("adapt x --set weigh.beta=0.1", "weigh.beta", None),
    ("finetune --set adapt.steps=9", "adapt.steps", None),
]
# What the selector does not use, and an addition with which it does.
SCORE = [
    ("--selector random --encoder hashing", "--encoder", "--units window:64"),
    ("--selector random --store folder", "--store", "--selector cascade"),
    ("--selector random --geometry l2", "--geometry", "--selector detector"),
    (
        "--selector random --set selection.general_share=0.1",
        "selection.general_share",
        "--selector detector",
    ),
    ("--selector random --set detector=knn", "detector", "--selector detector"),
    ("--set ranking.seeds=2", "ranking.seeds", "--selector detector"),
    ("--selector detector:knn --set ranking.seeds=2", "ranking.seeds", "--rank-only"),
    ("--selector random --set weigh.beta=0.1", "weigh.beta", "--selector detector"),
]


def settings(line):
    return settings_from(build_parser().parse_args(shlex.split(line)))


@pytest.fixture(autouse=True)
def texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("notes.txt", "pool.txt", "pool.jsonl"):
        Path(name).write_text("{}")


def with_cure(line, cure):
    return f"{line} {cure}" if cure.startswith("--") or "--set" in line else f"{line} --set {cure}"


@pytest.mark.parametrize(("line", "word", "cure"), CASES, ids=[line for line, _, _ in CASES])
def test_a_setting_without_effect_is_refused(line, word, cure):
    with pytest.raises(ConfigError, match=f"^{word} "):
        settings(line)
    if cure:
        settings(with_cure(line, cure))


@pytest.mark.parametrize(("line", "word", "cure"), SCORE, ids=[line for line, _, _ in SCORE])
def test_a_setting_that_the_selector_does_not_use_is_said_once(line, word, cure, heard):
    settings(f"score {line}")
    (said,) = [message for message in heard.messages if "does not use" in message]
    assert said.endswith(f"does not use {word}")
    heard.clear()
    settings(f"score {line} {cure}")
    assert not [message for message in heard.messages if message.endswith(word)]


def test_a_recipe_may_hold_settings_of_other_commands():
    Path("mine.yaml").write_text(
        "weigh: {policy: sigmoid, gamma: 9, budget: 9 units}\nadapt: {cooldown: 0.1}\n"
    )
    assert settings("weigh x --config mine.yaml").weigh.gamma == 9
    assert settings("adapt x --config mine.yaml").adapt.cooldown == 0.1
