"""The model of dana init --model auto: the strongest installed base that is fast enough here, by its name."""

import pytest
import torch

from dana.core.errors import ConfigError
from dana.stages import base
from dana.stages.settings import RunSettings

ALL = ["all-mpnet-base-v2", "minilm", "dana-mini"]


@pytest.mark.parametrize(
    ("seconds", "choice", "timed"),
    [
        ({"all-mpnet-base-v2": 12.0}, "all-mpnet-base-v2", 1),
        ({"all-mpnet-base-v2": 12.1, "minilm": 1.0}, "minilm", 2),
        ({"all-mpnet-base-v2": 50.0, "minilm": 14.0, "dana-mini": 1.0}, "dana-mini", 3),
        ({"all-mpnet-base-v2": 50.0, "minilm": 50.0, "dana-mini": 50.0}, "dana-mini", 3),
    ],
)
def test_the_strongest_that_ends_in_five_minutes_is_chosen(seconds, choice, timed, monkeypatch):
    monkeypatch.setattr(base, "installed_bases", lambda: ALL)
    name, measured = base.choose_base(seconds.__getitem__)
    assert name == choice
    assert list(measured) == ALL[:timed], "what is weaker than the choice is not timed"


def test_only_installed_bases_are_timed(monkeypatch):
    monkeypatch.setattr(base.mpnet, "is_installed", lambda: False)
    monkeypatch.setattr(base, "find_spec", lambda name: None)
    assert base.choose_base(lambda name: 1.0) == ("dana-mini", {"dana-mini": 50.0})


@pytest.mark.parametrize(
    ("device", "width", "steps"),
    [("cpu", 256, 50), ("cpu", 257, 25), ("cpu", 768, 25), ("cuda", 256, 150), ("mps", 768, 150)],
)
def test_a_narrow_base_and_an_accelerator_train_longer(device, width, steps, monkeypatch):
    monkeypatch.setattr(base, "find_device", lambda: torch.device(device))
    assert base.default_steps(width) == steps


def test_a_step_of_the_smallest_base_is_timed():
    assert 0 < base.seconds_of_step("dana-mini") < 60


def test_a_recipe_never_holds_auto():
    with pytest.raises(ConfigError, match=r"model='auto'.*dana init --model auto"):
        RunSettings(model="auto")


def test_a_base_that_is_slow_on_a_busy_machine_is_named_with_what_takes_it(monkeypatch, heard):
    monkeypatch.setattr(base, "installed_bases", lambda: ALL)
    monkeypatch.setattr("os.getloadavg", lambda: (1000.0, 0.0, 0.0))
    name, _ = base.choose_base(lambda model: 1e6)
    assert name == base.SMALLEST
    assert "this machine is busy (load 1000.0 on" in heard.text
    assert f"--model {next(iter(ALL))} takes it all the same" in heard.text
