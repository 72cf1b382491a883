"""What ranks target text below chance is used nowhere without a permission; the table of detectors shows it, marked."""

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from two_topics import SELECTION, claims

import dana
from dana.cli.main import main
from dana.core import registry
from dana.core.errors import DataError
from dana.stages.run import plan_run, rank_texts, read_texts
from dana.stages.settings import RunSettings
from dana.stages.steps.step import call_stage

REFUSED = "held-out target text scores as more foreign than pool text"
ALLOW = "--allow-below-chance"


class Upside:
    """Distance to the nearest target unit, with the sign turned over."""

    def fit(self, X, y=None):
        self.rows = X
        return self

    def decision_function(self, X):
        return -cdist(X, self.rows).min(1)


@pytest.fixture(autouse=True)
def planted(monkeypatch):
    monkeypatch.setattr(registry, "entry_points", claims(("upside", f"{__name__}:Upside")))


@pytest.fixture
def command(texts, tmp_path):
    """Arguments of ``dana score``."""
    files = [
        "--task",
        f"{texts}/cells.txt",
        "--pool",
        f"{texts}/pool.jsonl",
        "--encoder",
        SELECTION.encoder,
    ]
    return ["score", *files, "--out", str(tmp_path / "run"), "--selector"]


def test_score_and_weigh_refuse_it_and_take_it_with_the_flag_of_that_call(
    command, tmp_path, capsys
):
    run = str(tmp_path / "run")
    assert main([*command, "detector:upside"]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert REFUSED in message
    assert ALLOW in message
    assert "allow_below_chance=True" in message
    assert not (tmp_path / "run" / "scores").exists()
    assert main([*command, "detector:upside", ALLOW]) == 0
    for words in (["score", "--out", run], ["weigh", run]):
        capsys.readouterr()
        assert main(words) == 2, "the permission of another call does not hold"
        assert REFUSED in capsys.readouterr().err
    assert not (tmp_path / "run" / "weights").exists()
    assert main(["weigh", run, "--gamma", "3", ALLOW]) == 0
    assert "length    rank correlation of score and length" in capsys.readouterr().err


@pytest.mark.parametrize("protocol", ["grouped", "paper"])
def test_a_ranking_prints_it_marked_and_no_scores_follow(command, tmp_path, protocol, capsys):
    ranked = ["detector", "--set", "ranking.detectors=[upside]", f"ranking.protocol={protocol}"]
    assert main([*command, *ranked, "--rank-only"]) == 0
    text = capsys.readouterr().out
    assert " ! upside" in " ".join(text.split())
    assert f"{ALLOW}" in text
    assert "chosen: none" in text
    assert pd.read_csv(tmp_path / "run" / "ranking" / "ranking.csv")["auroc_high"][0] < 0.5
    assert main([*command, *ranked]) == 2
    assert "detector upside: " + REFUSED in capsys.readouterr().err
    assert not (tmp_path / "run" / "scores-shards").exists(), "nothing is fitted"
    assert (
        main(
            [
                *command,
                *ranked[:1],
                "--set",
                "ranking.detectors=[upside,knn]",
                "--out",
                f"{tmp_path}/two",
            ]
        )
        == 0
    )


@pytest.mark.parametrize("detector", ["upside", "auto"])
def test_a_run_refuses_it_in_its_steps(texts, tmp_path, detector):
    settings = {
        "out": str(tmp_path),
        "task": f"{texts}/cells.txt",
        "pool": [f"{texts}/pool.jsonl"],
    }
    settings |= {
        "arms": {"mine": {"selector": "detector", "detector": detector}},
        "cards": ["chemprot"],
    }
    settings |= {"selection": SELECTION, "ranking": RunSettings().ranking.__class__(["upside"])}
    for allowed in (False, True):
        run = RunSettings(**settings, allow_below_chance=allowed)
        steps = {step.name: step for step in plan_run(run).steps}
        read_texts(run)
        if detector == "auto":
            rank_texts(run, tmp_path)
        score, weigh = steps["score/mine"], steps["weigh/mine"]
        if not allowed:
            with pytest.raises(DataError, match=REFUSED):
                call_stage(score.stage, score.arguments({}))
            continue
        outputs = {"score/mine": call_stage(score.stage, score.arguments({}))[0]}
        assert call_stage(weigh.stage, weigh.arguments(outputs))[0]
        with pytest.raises(DataError, match=REFUSED):
            call_stage(weigh.stage, weigh.arguments(outputs) | {"allowed": False})


def test_python_refuses_it_and_takes_it_with_the_keyword(texts, tmp_path):
    out, fast = tmp_path / "run", {"encoder": SELECTION.encoder, "detector": "upside"}
    both = f"{texts}/cells.txt", f"{texts}/pool.jsonl"
    with pytest.raises(DataError, match=REFUSED):
        dana.score(*both, out=out, **fast)
    table = dana.score(*both, out=out, allow_below_chance=True, **fast)
    assert np.isfinite(table["score"]).all()
    with pytest.raises(DataError, match=REFUSED):
        dana.weigh(out)
    assert len(dana.weigh(out, allow_below_chance=True, gamma=3)) == len(table)
    ranking = dana.rank(*both, detectors=["upside", "knn"], encoder=SELECTION.encoder)
    assert ranking.set_index("name")["chosen"].to_dict() == {"knn": True, "upside": False}
    assert (ranking.set_index("name")["auroc_high"] < 0.5).to_dict() == {
        "knn": False,
        "upside": True,
    }
