"""Arms are data: ready-made ones by name, any selector with any weights, shared scores, errors that name the arm."""

from dataclasses import replace

import pytest

from dana.core.artifacts import make
from dana.core.errors import ConfigError, PluginError
from dana.core.settings import load
from dana.stages.arms import Arm, parse_arms
from dana.stages.finetune_steps import refuse_mixed_precision
from dana.stages.run import plan_run
from dana.stages.settings import RunSettings
from dana.stages.steps.run import Run
from dana.stages.steps.step import OutputOf
from dana.stages.weigh import WeighSettings
from dana.train.settings import AdaptSettings
from tests.toy_task import write_decoder, write_task

ARMS = {
    "pool": "pool",
    "random": {"selector": "random"},
    "dana": {},
    "tight": {"weigh": {"policy": "sigmoid", "beta": 0.1}},
    "lof": {"detector": "lof:k=7", "adapt": {"tokens": 600}},
    "task": "task",
    "task+lof": {"mix": {"task": 0.3, "selected": 0.7}, "detector": "lof:k=7"},
    "then": {"after": "lof", "mix": {"task": 1}, "adapt": {"tokens": 1000, "learning_rate": 1e-5}},
}


def plan(arms, tmp_path, **settings):
    values = {
        "out": str(tmp_path / "run"),
        "task": str(write_task(tmp_path)),
        "pool": ["x"],
        "arms": arms,
    }
    values |= {"selection": {"encoder": "hashing"}, "seeds": {"adaptations": 1}}
    return plan_run(load(RunSettings, {**values, **settings}))


def steps(arms, tmp_path, **settings):
    return {step.name: step for step in plan(arms, tmp_path, **settings).steps}


def test_a_list_names_ready_made_arms_and_a_mapping_any():
    usual, adapt = WeighSettings(gamma=7), AdaptSettings(tokens=900, learning_rate=1e-3)

    def arm(name, mix, *selection, after="", **changes):
        return Arm(name, mix, after, replace(adapt, mix=mix, **changes), *selection)

    def parse(spec, selector="random", weigh=usual):
        return {one.name: one for one in parse_arms(spec, selector, weigh, adapt)}

    mixed = {"task": 0.3, "selected": 0.7}
    assert [
        *parse(["base", "pool", "random", "dana", "task", "task+dana"], "cascade").values()
    ] == [
        arm("base", {}),
        arm("pool", {"pool": 1}),
        arm("random", {"selected": 1}, "random", None, usual),
        arm("dana", {"selected": 1}, "cascade", None, usual),
        arm("task", {"task": 1}),
        arm("task+dana", mixed, "cascade", None, usual),
    ]
    by_name = parse(ARMS, "detector")
    assert by_name["dana"] == arm("dana", {"selected": 1}, "detector", None, usual)
    assert by_name["lof"] == arm("lof", {"selected": 1}, "detector", "lof:k=7", usual, tokens=600)
    assert by_name["task+lof"] == arm("task+lof", mixed, "detector", "lof:k=7", usual)
    assert by_name["then"] == arm(
        "then", {"task": 1}, after="lof", tokens=1000 - 600, learning_rate=1e-5
    )
    chain = {
        "a": {"adapt": {"tokens": 100}},
        "b": {"after": "a", "adapt": {"tokens": 300}},
        "c": {"after": "b"},
    }
    assert [one.adapt.tokens for one in parse(chain).values()] == [100, 200, 600], "900 in all"
    assert by_name["tight"].weigh == WeighSettings(gamma=7, policy="sigmoid", beta=0.1)
    in_units = WeighSettings(budget="50 units")
    below = WeighSettings(below=0.0, gamma=7)
    for run, change in (
        (in_units, {"beta": 0.1}),
        (in_units, {"below": 0.0}),
        (below, {"budget": 0.1}),
    ):
        weigh = parse({"a": {"weigh": change}}, weigh=run)["a"].weigh
        assert weigh == WeighSettings(**change, gamma=run.gamma)
    assert parse({"a": {"adapt": {"steps": 5}}})["a"].adapt == replace(
        adapt, steps=5, tokens=None, mix={"selected": 1}
    )


def test_phases_of_the_run_hold_for_every_arm_and_those_of_an_arm_for_it(tmp_path):
    phases = [
        {"tokens": 300, "mix": {"selected": 1}},
        {"tokens": 100, "mix": {"task": 1}, "learning_rate": 1e-5},
    ]
    own = {"phases": [{"tokens": 200, "mix": {"pool": 1}}, {"tokens": 200}]}
    arms = {
        **{name: ARMS[name] for name in ("pool", "dana", "task")},
        "mixed": {"mix": {"task": 0.3, "selected": 0.7}},
        "own": {"mix": {"task": 1}, "adapt": own},
        "plain": {"adapt": {"tokens": 350}},
        "flat": {"adapt": {"phases": []}},
        "after": {"after": "plain"},
        "second": {"after": "short"},
        "short": {"adapt": {"tokens": 200}},
    }
    by_name = steps(arms, tmp_path, adapt={"phases": phases})
    of = {
        name.split("/")[1]: step.settings["settings"]
        for name, step in by_name.items()
        if name.startswith("adapt/")
    }
    mixes = {
        name: [(phase.tokens, phase.mix) for phase in one.by_phase()] for name, one in of.items()
    }
    assert mixes == {
        "pool": [(300, {"pool": 1}), (100, {"pool": 1})],
        "dana": [(300, {"selected": 1}), (100, {"task": 1})],
        "task": [(300, {"task": 1}), (100, {"task": 1})],
        "mixed": [(300, arms["mixed"]["mix"]), (100, arms["mixed"]["mix"])],
        "own": [(200, {"pool": 1}), (200, {"task": 1})],
        "plain": [(350, {"selected": 1})],
        "flat": [(400, {"selected": 1})],
        "after": [(50, {"task": 1})],
        "second": [(100, {"selected": 1}), (100, {"task": 1})],
        "short": [(200, {"selected": 1})],
    }
    assert [phase.learning_rate for phase in of["task"].by_phase()] == [None, 1e-5], (
        "all but the text is the run's"
    )
    weighted = {name for name in of if by_name[f"adapt/{name}"].settings["weights"]}
    assert weighted == {"dana", "mixed", "plain", "flat", "second", "short"}


@pytest.mark.parametrize(
    ("arms", "says"),
    [
        (
            ["dane"],
            "arms='dane': must be among base, pool, random, dana, task, unlabelled, task.random, task.dana, or be",
        ),
        (["dana", "dana"], "must be distinct"),
        ({"a/b": "pool"}, "arms='a/b': must be named by letters"),
        ({"..": "pool"}, "must be named by letters"),
        (
            {"mine": "random"},
            "arms.mine='random': must be base, pool, task, unlabelled, or a mapping with any of mix",
        ),
        ({"base": "pool"}, "arms.base='pool': must be base"),
        ({"base": {}}, "arms.base={}: must be base"),
        ({"mine": {"detectr": "knn"}}, "arms.mine: unknown key 'detectr'; did you mean 'detector'"),
        (
            {"mine": {"weigh": {"beata": 0.1}}},
            "arms.mine.weigh: unknown key 'beata'; did you mean 'beta'",
        ),
        ({"mine": {"weigh": {"beta": 9}}}, "arms.mine.weigh: beta=9.*in .0, 1."),
        ({"mine": {"selector": ""}}, "arms.mine.selector='': must be a selector's spec"),
        (
            {"mine": {"mix": {"task": 0.3}}},
            "arms.mine.mix=.*must be shares above 0 of .*, task, unlabelled, pool that sum",
        ),
        (
            {"mine": {"mix": {"taks": 1}}},
            "arms.mine.mix=.*must be shares above 0 of selected, task, unlabelled, pool",
        ),
        ({"mine": {"mix": 1}}, "arms.mine.mix=1: must be a mapping"),
        (
            {"mine": {"mix": {"task": 1}, "selector": "random"}},
            "arms.mine.selector='random': must be absent",
        ),
        ({"mine": {"adapt": {"seed": 1}}}, "arms.mine.adapt.seed=1: must be that of the run"),
        (
            {"mine": {"adapt": {"mix": {"selected": 1}}}},
            "arms.mine.adapt.mix=.*: must be arms.mine.mix",
        ),
        ({"mine": {"adapt": {"rate": 1}}}, "arms.mine.adapt: unknown key 'rate'"),
        (
            {"mine": {"after": "dana"}, "task": "task"},
            "arms.mine.after='dana': must be another arm with text: task",
        ),
        (
            {"mine": {"after": "a"}, "a": {"after": "mine"}},
            "arms.a.after='mine': must be another arm .*: there is",
        ),
        (
            {"a": {}, "b": {"after": "a"}},
            "arms.a.adapt.tokens=None: must be set, as b comes after a",
        ),
        (
            {"a": {"adapt": {"tokens": 9}}, "b": {"after": "a", "adapt": {"tokens": 9}}},
            "more than the 9 of a",
        ),
        (
            {"a": {"adapt": {"phases": [{"tokens": 9, "mix": {"taks": 1}}]}}},
            r"arms.a.adapt: phases\[0\].mix=.*shares",
        ),
        (
            {"a": {"mix": {"task": 1}, "adapt": {"phases": [{"tokens": 9}]}, "weigh": {}}},
            "arms.a.weigh={}: must be abs",
        ),
        (None, "arms=null: must be a list, each text or a mapping"),
        ({"a": {}, "a-seeds": "task"}, "arms='a-seeds': must be another name"),
        ({"base-model": "task"}, "arms='base-model': must be another name"),
    ],
)
def test_an_arm_that_is_none_is_named(arms, says):
    with pytest.raises(ConfigError, match=says):
        load(RunSettings, {"arms": arms})


@pytest.mark.parametrize(
    ("arm", "says"),
    [
        ({"selector": "randm"}, "arms.mine: unknown selector 'randm'; did you mean 'random'"),
        ({"detector": "knm"}, "arms.mine: unknown detector 'knm'"),
        ({"selector": "random:q=1"}, "arms.mine: 'random:q=1'"),
        (
            {"selector": "random", "detector": "knn"},
            "arms.mine: detector='knn' has no effect with selector random",
        ),
    ],
)
def test_unknown_components_are_found_before_anything_is_read(arm, says, tmp_path):
    with pytest.raises((PluginError, ConfigError), match=says):
        steps({"mine": arm}, tmp_path)
    assert not (tmp_path / "run").exists()


def test_a_setting_of_an_arm_that_does_not_fit_is_named(tmp_path):
    decoder = write_decoder(tmp_path / "decoder", ["a", "b"])
    arm = {"adapt": {"objective": f"distill:teacher={decoder}"}}
    with pytest.raises(ConfigError, match=r"^arms\.mine: teacher=.* not a decoder"):
        steps({"mine": arm}, tmp_path)


def test_the_base_is_tested_on_each_selection_once_before_it_is_adapted_on_it(tmp_path):
    plain = {
        "dana": {},
        "task+dana": {"mix": {"task": 0.5, "selected": 0.5}},
        "tight": ARMS["tight"],
    }
    by_name = steps({"pool": "pool", "random": ARMS["random"], **plain, "task": "task"}, tmp_path)
    assert [name for name in by_name if name.startswith("gate/")] == ["gate/dana", "gate/tight"]
    names = list(by_name)
    assert names.index("gate/dana") < names.index("adapt/dana")
    gate, adapt = by_name["gate/dana"].settings, by_name["adapt/dana"].settings
    assert gate == adapt | {"model": OutputOf("base"), "out": adapt["out"].with_name("gate")}
    chain = {
        "first": {"adapt": {"tokens": 9}},
        "then": {"after": "first", "weigh": {"beta": 0.3}, "adapt": {"tokens": 19}},
    }
    assert steps(chain, tmp_path)["gate/then"].settings["model"] == OutputOf("base"), (
        "not the arm before"
    )


def test_arms_that_select_alike_share_their_scores(tmp_path):
    by_name = steps(ARMS, tmp_path, selector="detector")
    assert [name for name in by_name if name.startswith("score/")] == [
        "score/random",
        "score/dana",
        "score/lof",
    ]
    assert {by_name[f"weigh/{arm}"].settings["scores"] for arm in ("dana", "tight")} == {
        OutputOf("score/dana")
    }
    assert by_name["score/dana"].settings["folder"] == tmp_path / "run" / "scores", (
        "where dana score writes them"
    )
    assert by_name["score/dana"].needs == ("rank",)
    assert by_name["score/lof"].needs == ("texts",)
    assert by_name["score/lof"].settings["selector"] == "detector"
    assert by_name["weigh/task+lof"].settings["scores"] == OutputOf("score/lof")
    assert by_name["adapt/then"].settings["model"] == OutputOf("adapt/lof")
    assert by_name["adapt/then"].settings["settings"].tokens == 400
    assert by_name["adapt/task+lof"].settings["settings"].mix == {"task": 0.3, "selected": 0.7}
    assert by_name["adapt/pool"].settings["weights"] is None
    cascades = steps(
        {"plain": {"selector": "cascade"}, "knn": {"selector": "cascade", "detector": "knn"}},
        tmp_path,
    )
    assert cascades["score/plain"].needs == ("rank",)
    assert cascades["score/knn"].settings["detector"] == "knn"
    tuned = [name.split("/")[2:] for name in by_name if name.startswith("finetune/toy/")]
    assert tuned == [[arm, "0", f"seed-{seed}"] for arm in ("base", *ARMS) for seed in (0, 1)]


def test_arms_select_by_auto_unless_something_is_named(tmp_path):
    by_name = steps(ARMS, tmp_path)
    assert "rank" not in by_name
    selectors = {
        name: by_name[name].settings["selector"] for name in by_name if name.startswith("score/")
    }
    assert selectors == {"score/random": "random", "score/dana": "auto", "score/lof": "detector"}
    assert by_name["score/dana"].settings["folder"] == tmp_path / "run" / "scores", (
        "where dana score writes them"
    )
    assert (
        steps(["dana"], tmp_path, detector="knn")["score/dana"].settings["selector"] == "detector"
    )


def test_nothing_is_ranked_or_scored_for_arms_that_select_nothing(tmp_path):
    names = ["baselines/toy", "texts", "base", "adapt/pool", "adapt/task"]
    names += [
        f"finetune/toy/{arm}/0/seed-{seed}" for arm in ("base", "pool", "task") for seed in (0, 1)
    ]
    assert [*steps(["pool", "task"], tmp_path)] == names
    raw = steps({"raw": "base"}, tmp_path)["finetune/toy/raw/0/seed-0"]
    assert raw.settings["model"] == OutputOf("base")


def tuned(*arms):
    """Name the steps that fine-tune the first adaptation of some arms."""
    return " ".join(f"finetune/toy/{arm}/0/seed-{seed}" for arm in arms for seed in (0, 1))


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({"jobs": 2}, ""),
        ({"arms": ["dana"]}, ""),
        ({"seeds": {"adaptations": 1, "finetunings": 2}}, ""),
        ({"detector": "knn"}, f"score/dana weigh/dana gate/dana adapt/dana {tuned('dana')}"),
        ({"finetune": {"epochs": 3}}, tuned("base", "pool", "dana")),
        (
            {"adapt": {"steps": 3}},
            f"gate/dana adapt/pool adapt/dana {tuned('pool', 'dana')}",
        ),
        ({"weigh": {"gamma": 3}}, f"weigh/dana gate/dana adapt/dana {tuned('dana')}"),
        ({"weigh": {"beta": 0.1}}, f"weigh/dana gate/dana adapt/dana {tuned('dana')}"),
        ({"on_bad_record": "skip"}, None),
    ],
)
def test_a_setting_changes_the_steps_that_look_at_it_and_what_needs_them(
    settings, changes, tmp_path
):
    before = plan(["pool", "dana"], tmp_path, model="dana-mini").fingerprints
    after = plan(
        **{"arms": ["pool", "dana"], "tmp_path": tmp_path, "model": "dana-mini", **settings}
    ).fingerprints
    names = [name for name in after if before[name] != after[name]]
    reads_text = [name for name in before if not name.startswith("baselines/")]
    assert sorted(names) == sorted(reads_text if changes is None else changes.split())


def test_each_adaptation_has_a_selection_and_seeds_of_its_own_and_comes_after_the_last(tmp_path):
    one = steps(ARMS, tmp_path, selector="detector")
    two = steps(ARMS, tmp_path, selector="detector", seeds={"adaptations": 2, "finetunings": 3})
    first = [name for name in two if name in one]
    assert first == [*one], "so a run that is stopped has the same adaptations of all arms"
    assert not [name for name in one if two[name] != one[name]]
    assert {*two} - {*one} == {
        *(f"finetune/toy/{arm}/0/seed-2" for arm in ("base", *ARMS)),
        *(f"score/{arm}/1" for arm in ("random", "dana", "lof")),
        *(f"weigh/{arm}/1" for arm in ("random", "dana", "tight", "lof", "task+lof")),
        *(f"gate/{arm}/1" for arm in ("dana", "tight", "lof")),
        *(f"adapt/{arm}/1" for arm in ARMS),
        *(f"finetune/toy/{arm}/1/seed-{seed}" for arm in ("base", *ARMS) for seed in (3, 4, 5)),
    }
    of = {name: step.settings for name, step in two.items()}
    folder = tmp_path / "run" / "nested" / "1"
    assert of["score/dana/1"]["selection"].seed == of["score/dana"]["selection"].seed + 1
    assert of["adapt/dana/1"]["settings"].seed == of["adapt/dana"]["settings"].seed + 1
    assert of["score/dana/1"]["folder"] == folder / "scores"
    assert of["score/lof/1"]["folder"] == folder / "arms" / "lof" / "scores"
    assert of["weigh/tight/1"]["scores"] == OutputOf("score/dana/1")
    assert of["adapt/dana/1"]["weights"] == OutputOf("weigh/dana/1")
    assert of["adapt/dana/1"]["model"] == OutputOf("base")
    assert of["adapt/then/1"]["model"] == OutputOf("adapt/lof/1")
    for arm, models in (("dana", ("adapt/dana", "adapt/dana/1")), ("base", ("base", "base"))):
        for index, seeds in enumerate(([0, 1, 2], [3, 4, 5])):
            for seed in seeds:
                part = of[f"finetune/toy/{arm}/{index}/seed-{seed}"]
                assert (part["model"], part["seed"]) == (OutputOf(models[index]), seed)
                unit = tmp_path / "run" / "nested" / str(index) / "finetune" / "toy" / arm
                assert part["out"] == unit / f"seed-{seed}"


def test_seeds_of_a_fine_tuning_are_refused_before_any_work(tmp_path):
    with pytest.raises(
        ConfigError, match=r"finetune.seeds=3: must be left out: set seeds.finetunings"
    ):
        steps(["dana"], tmp_path, finetune={"seeds": 3})
    for number in (0, 100_001):
        with pytest.raises(ConfigError, match=f"adaptations={number}: must be from 1 to 100000"):
            steps(["dana"], tmp_path, seeds={"adaptations": number})


def test_steps_that_are_left_are_not_run_in_another_precision(tmp_path, monkeypatch):
    run, folder = (
        plan(["dana"], tmp_path),
        tmp_path / "run" / "nested" / "0" / "finetune" / "toy" / "base" / "seed-0",
    )
    make(folder, "finetune", {}, lambda draft: draft.notes.update(precision="no"))
    states = dict.fromkeys((step.name for step in run.steps), "missing")
    monkeypatch.setattr(Run, "states", lambda self: states)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    refuse_mixed_precision(run)
    states["finetune/toy/base/0/seed-0"] = "done"
    with pytest.raises(ConfigError, match=r"seed-0: .*mixed_precision=no.*PRECISION=no"):
        refuse_mixed_precision(run)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    refuse_mixed_precision(run)
    states |= dict.fromkeys(states, "done")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    refuse_mixed_precision(run)
