"""Arms are data: ready-made ones by name, any selector with any weights, shared scores, errors that name the arm."""

import pytest

from dana.core.artifacts import make
from dana.core.config import load
from dana.core.errors import ConfigError, PluginError
from dana.stages.arms import Arm, parse_arms
from dana.stages.finetune_cells import refuse_mixed_precision
from dana.stages.grid.cell import OutputOf
from dana.stages.grid.grid import Grid
from dana.stages.run import plan_run
from dana.stages.settings import RunSettings
from dana.stages.weigh import WeighSettings
from tests.toy_task import write_task

ARMS = {
    "general": "general",
    "random": {"selector": "random"},
    "dana": {},
    "tight": {"weigh": {"policy": "sigmoid", "beta": 0.1}},
    "lof": {"detector": "lof:k=7"},
    "tapt": "task",
}


def cells(arms, tmp_path, **settings):
    values = {"out": str(tmp_path / "run"), "task": str(write_task(tmp_path)), "general": ["x"], "arms": arms}
    return {cell.name: cell for cell in plan_run(load(RunSettings, {**values, **settings})).cells}


def test_a_list_names_ready_made_arms_and_a_mapping_any():
    usual = WeighSettings(gamma=7)
    listed = parse_arms(["base", "general", "random", "dana", "tapt"], "cascade", usual)
    assert listed == (
        Arm("base", "base"),
        Arm("general", "general"),
        Arm("random", "selected", "random", None, usual),
        Arm("dana", "selected", "cascade", None, usual),
        Arm("tapt", "task"),
    )
    by_name = {arm.name: arm for arm in parse_arms(ARMS, "detector", usual)}
    assert by_name["dana"] == Arm("dana", "selected", "detector", None, usual)
    assert by_name["lof"] == Arm("lof", "selected", "detector", "lof:k=7", usual)
    assert by_name["tight"].weigh == WeighSettings(gamma=7, policy="sigmoid", beta=0.1)
    counted = WeighSettings(budget="50 units")
    assert parse_arms({"a": {"weigh": {"beta": 0.1}}}, "random", counted)[0].weigh == WeighSettings(beta=0.1)
    assert parse_arms({"a": {"weigh": {"below": 0.0}}}, "random", counted)[0].weigh == WeighSettings(below=0.0)
    below = WeighSettings(below=0.0, gamma=7)
    assert parse_arms({"a": {"weigh": {"budget": 0.1}}}, "random", below)[0].weigh == WeighSettings(budget=0.1, gamma=7)


@pytest.mark.parametrize(
    ("arms", "says"),
    [
        (["dane"], "arms='dane': must be among base, general, random, dana, tapt, or be described in a mapping"),
        (["dana", "dana"], "must be distinct"),
        ({"a/b": "general"}, "arms='a/b': must be named by letters"),
        ({"..": "general"}, "must be named by letters"),
        ({"mine": "random"}, "arms.mine='random': must be base, general, task, or a mapping with any of selector"),
        ({"base": "general"}, "arms.base='general': must be base"),
        ({"base": {}}, "arms.base={}: must be base"),
        ({"mine": {"detectr": "knn"}}, "arms.mine: unknown key 'detectr'; did you mean 'detector'"),
        ({"mine": {"weigh": {"beata": 0.1}}}, "arms.mine.weigh: unknown key 'beata'; did you mean 'beta'"),
        ({"mine": {"weigh": {"beta": 9}}}, "arms.mine.weigh: beta=9.*in .0, 1."),
        ({"mine": {"selector": ""}}, "arms.mine.selector='': must be a selector's spec"),
        (None, "arms=null: must be list or dict"),
        ({"a": {}, "a-seeds": "task"}, "arms='a-seeds': must be another name"),
        ({"base-model": "task"}, "arms='base-model': must be another name"),
    ],
)
def test_an_arm_that_is_none_is_named(arms, says):
    with pytest.raises(ConfigError, match=says):
        load(RunSettings, {"arms": arms})


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({"selector": "randm"}, "arms.mine: unknown selector 'randm'; did you mean 'random'"),
        ({"detector": "knm"}, "arms.mine: unknown detector 'knm'"),
        ({"selector": "random:q=1"}, "arms.mine: 'random:q=1'"),
        ({"selector": "random", "detector": "knn"}, "arms.mine: detector='knn' has no effect with selector random"),
        ({"weigh": {"beta": 0.1, "budget": "50 units"}}, "arms.mine: weigh.beta has no effect with budget=50 units"),
        ({"weigh": {"policy": "sigmoid", "gamma": 3}}, "arms.mine: weigh.gamma has no effect with policy=sigmoid"),
    ],
)
def test_unknown_components_are_found_before_anything_is_read(about, says, tmp_path):
    with pytest.raises((PluginError, ConfigError), match=says):
        cells({"mine": about}, tmp_path)
    assert not (tmp_path / "run").exists()


def test_arms_that_select_alike_share_their_scores(tmp_path):
    found = cells(ARMS, tmp_path, selector="detector")
    assert [name for name in found if name.startswith("score/")] == ["score/random", "score/dana", "score/lof"]
    assert found["weigh/dana"].settings["scores"] == found["weigh/tight"].settings["scores"] == OutputOf("score/dana")
    assert found["score/dana"].settings["folder"] == tmp_path / "run" / "scores", "where dana score writes them"
    assert found["score/dana"].needs == ("rank",)
    assert found["score/lof"].needs == ("texts",)
    assert found["score/lof"].settings["selector"] == "detector"
    assert found["adapt/tapt"].settings["corpus"] == OutputOf("text/tapt")
    assert found["adapt/general"].settings["weights"] is None
    cascades = cells({"plain": {"selector": "cascade"}, "knn": {"selector": "cascade", "detector": "knn"}}, tmp_path)
    assert cascades["score/plain"].needs == ("rank",)
    assert cascades["score/knn"].settings["detector"] == "knn"
    assert [name for name in found if name.startswith("finetune/")] == [
        f"finetune/toy/{arm}" for arm in ("base", *ARMS)
    ]


def test_arms_select_by_auto_unless_something_is_named(tmp_path):
    found = cells(ARMS, tmp_path)
    assert "rank" not in found
    chosen = {name: found[name].settings["selector"] for name in found if name.startswith("score/")}
    assert chosen == {"score/random": "random", "score/dana": "auto", "score/lof": "detector"}
    assert found["score/dana"].settings["folder"] == tmp_path / "run" / "scores", "where dana score writes them"
    one = cells(["dana"], tmp_path, detector="knn")
    assert one["score/dana"].settings["selector"] == "detector"


def test_nothing_is_ranked_or_scored_for_arms_that_select_nothing(tmp_path):
    assert [*cells(["general", "tapt"], tmp_path)] == [
        *("texts", "base", "text/tapt", "adapt/general", "adapt/tapt"),
        *(f"finetune/toy/{arm}" for arm in ("base", "general", "tapt")),
    ]
    assert cells({"raw": "base"}, tmp_path)["finetune/toy/raw"].settings["model"] == OutputOf("base")


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({"jobs": 2}, ""),
        ({"arms": ["dana"]}, ""),
        ({"detector": "knn"}, "score/dana weigh/dana adapt/dana finetune/toy/dana"),
        ({"finetune": {"seeds": 3}}, "finetune/toy/base finetune/toy/general finetune/toy/dana"),
        ({"adapt": {"steps": 3}}, "adapt/general adapt/dana finetune/toy/general finetune/toy/dana"),
        ({"weigh": {"gamma": 3}}, "weigh/dana adapt/dana finetune/toy/dana"),
        ({"weigh": {"beta": 0.1}}, "weigh/dana adapt/dana finetune/toy/dana"),
        ({"on_bad_record": "skip"}, None),
    ],
)
def test_a_setting_changes_the_cells_that_look_at_it_and_what_needs_them(settings, changed, tmp_path):
    def prints(**changes):
        values = {"out": str(tmp_path / "run"), "task": str(write_task(tmp_path)), "general": ["x"], "model": "a/b"}
        return plan_run(load(RunSettings, {**values, "arms": ["general", "dana"], **changes})).fingerprints

    before, after = prints(), prints(**settings)
    differing = [name for name in after if before[name] != after[name]]
    assert sorted(differing) == sorted(before if changed is None else changed.split())


def test_a_harvested_run_is_planned_before_its_card_is_there(tmp_path):
    found = cells(["general"], tmp_path, harvest={}, task="", general=[])
    assert [*found][:2] == ["harvest", "texts"]
    assert found["texts"].settings["settings"].task == str(tmp_path / "run" / "data" / "card.yaml")
    assert "finetune/scipy_docs/base" in found


def test_nested_seeds_have_a_selection_and_an_adaptation_each(tmp_path):
    plain = cells(ARMS, tmp_path, selector="detector", finetune={"seeds": [3, 5]})
    found = cells(ARMS, tmp_path, selector="detector", finetune={"seeds": [3, 5]}, nested=True)
    for name, cell in plain.items():
        if not name.startswith("finetune/") or name.endswith("/base"):
            assert found[name] == cell, "the first seed's are those of a run that is not nested"
    again = {name for name in found if name not in plain and not name.startswith("finetune/")}
    assert again == {
        *(f"score/{arm}/1" for arm in ("random", "dana", "lof")),
        *(f"weigh/{arm}/1" for arm in ("random", "dana", "tight", "lof")),
        *(f"adapt/{arm}/1" for arm in ARMS),
    }
    assert found["score/dana/1"].settings["selection"].seed == found["score/dana"].settings["selection"].seed + 1
    assert found["score/dana/1"].settings["folder"] == tmp_path / "run" / "nested" / "1" / "scores"
    assert found["score/lof/1"].settings["folder"] == tmp_path / "run" / "nested" / "1" / "arms" / "lof" / "scores"
    assert found["weigh/tight/1"].settings["scores"] == OutputOf("score/dana/1")
    adapted = found["adapt/dana/1"].settings
    assert adapted["settings"].seed == found["adapt/dana"].settings["settings"].seed + 1
    assert (adapted["weights"], adapted["model"]) == (OutputOf("weigh/dana/1"), OutputOf("base"))
    assert found["adapt/tapt/1"].settings["corpus"] == OutputOf("text/tapt")
    one, other = found["finetune/toy/dana/0"], found["finetune/toy/dana/1"]
    assert (one.settings["model"], other.settings["model"]) == (OutputOf("adapt/dana"), OutputOf("adapt/dana/1"))
    assert (one.settings["settings"].seeds, other.settings["settings"].seeds) == ([3], [5])
    joined = found["finetune/toy/dana"]
    assert joined.settings["parts"] == [one.settings["out"], other.settings["out"]]
    assert joined.needs == ("finetune/toy/dana/0", "finetune/toy/dana/1")
    assert found["finetune/toy/base"] == plain["finetune/toy/base"]


@pytest.mark.parametrize("finetune", [{}, {"seeds": 3, "save": True}])
def test_nested_seeds_are_counted_and_keep_no_model(finetune, tmp_path):
    with pytest.raises(ConfigError, match="nested=True: must be false with"):
        cells(["dana"], tmp_path, finetune=finetune, nested=True)


def test_one_nested_seed_is_nested_so_that_more_may_follow(tmp_path):
    found = cells(["dana"], tmp_path, finetune={"seeds": 1}, nested=True)
    assert found["finetune/toy/dana"].stage == "dana.stages.finetune_cells:join_seeds_stage"
    assert found["finetune/toy/dana"].needs == ("finetune/toy/dana/0",)


@pytest.mark.parametrize("nested", [True, False])
def test_finished_arms_of_another_nesting_are_refused_before_any_work(nested, tmp_path):
    folder = tmp_path / "run" / "finetune" / "toy"
    for arm in ("dana", "base"):
        make(folder / arm, "finetune", {}, lambda draft: draft.notes.update(nested=not nested))
    made = "without" if nested else "with"
    with pytest.raises(ConfigError, match=f"nested={nested}: .*dana was made {made} nested seeds"):
        cells(["dana"], tmp_path, finetune={"seeds": 2}, nested=nested)


def test_cells_that_are_left_are_not_run_in_another_precision(tmp_path, monkeypatch):
    values = {"out": str(tmp_path / "run"), "task": str(write_task(tmp_path)), "general": ["x"], "arms": ["dana"]}
    grid = plan_run(load(RunSettings, values))
    make(
        tmp_path / "run" / "finetune" / "toy" / "base", "finetune", {}, lambda draft: draft.notes.update(precision="no")
    )
    states = dict.fromkeys((cell.name for cell in grid.cells), "missing")
    monkeypatch.setattr(Grid, "states", lambda self: states)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    refuse_mixed_precision(grid)
    states["finetune/toy/base"] = "done"
    with pytest.raises(ConfigError, match=r"base: .*mixed_precision=no.*PRECISION=no"):
        refuse_mixed_precision(grid)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    refuse_mixed_precision(grid)
    states |= dict.fromkeys(states, "done")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    refuse_mixed_precision(grid)
