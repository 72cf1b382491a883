"""A run: order, failures, interruptions, worker processes, the time left and the table of results."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor
from copy import copy
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from dana.core.artifacts import MANIFEST, read_json, read_manifest
from dana.core.errors import ArtifactError, ConfigError, Contradiction, DanaError, Preemption
from dana.core.logging import format_duration, progress, progress_label
from dana.core.workers import Worker
from dana.stages.steps import runner
from dana.stages.steps.run import Run, write_metrics
from dana.stages.steps.runner import Clock, StepError, execute
from dana.stages.steps.step import OutputOf, Step, call_stage
from tests.stages.steps.toy_stages import STAGES, Seeds


def draw(folder, name, after=None, seconds=0.0, **settings):
    arguments = {"folder": folder / name, "settings": Seeds(**settings), "seconds": seconds}
    arguments |= {"after": OutputOf(after)} if after else {}
    return Step(name, f"{STAGES}:draw", arguments, labels={"task": "toy", "arm": name})


def note(folder, name, notes, **labels):
    return Step(name, f"{STAGES}:note", {"folder": folder / name, "notes": notes}, labels=labels)


def weigh(folder):
    notes = {"losses": {"task": 2.5}, "in_domain": {"selected": 0.25, "rule": "half"}}
    return replace(note(folder, "weights", notes), after=("other",))


def run_of(folder):
    """Make two chains and a step without seeds, listed against their order."""
    steps = (
        draw(folder, "last", "first", scale=0.5),
        draw(folder, "first", seeds=3),
        draw(folder, "other"),
    )
    return Run(folder, (*steps, weigh(folder)))


def calls(folder):
    return (folder / "calls.txt").read_text().split()


def test_a_run_in_the_folder_of_another_result_is_refused_before_its_steps(tmp_path):
    execute(run_of(tmp_path))
    with pytest.raises(ArtifactError, match="which would be damaged; choose another folder"):
        execute(run_of(tmp_path / "first"))
    assert not (tmp_path / "first" / "calls.txt").exists()


def test_steps_run_in_the_order_of_their_dependencies_and_are_reused(tmp_path, heard):
    run = run_of(tmp_path)
    assert set(run.states().values()) == {"missing"}
    with heard.at_level("INFO", logger="dana"):
        assert execute(run)["last"] == str(tmp_path / "last")
    assert calls(tmp_path) in (["first", "other", "last"], ["first", "last", "other"])
    messages = [record.getMessage() for record in heard.records if " of 4 " in record.getMessage()]
    assert messages[0].split() == ["1", "of", "4", "first", "0", "s", "so", "far"]
    assert [line.split()[0:4:3] for line in messages[1:4]] == [
        ["2", "last"],
        ["3", "other"],
        ["4", "weights"],
    ]
    assert messages[4].startswith("steps     4 of 4 done")
    results, record = (tmp_path / "results.csv").read_bytes(), run.record("last")
    assert time.time() - 60 < record["ended"] <= time.time()
    execute(run)
    assert run.record("last") == record, "when it was made, not when it was reused"
    assert len(calls(tmp_path)) == 3
    assert (tmp_path / "results.csv").read_bytes() == results
    assert set(run.states().values()) == {"done"}
    other = Run(
        tmp_path, (draw(tmp_path, "first", seeds=4), draw(tmp_path, "last", "first", scale=0.5))
    )
    assert other.states() == {"first": "changed", "last": "changed"}, (
        "what it depends on would change it"
    )
    assert (
        Run(tmp_path, (draw(tmp_path, "other", seeds=1), weigh(tmp_path))).states()["weights"]
        == "changed"
    )
    with pytest.raises(Contradiction, match="seeds: 3 there, 4 now"):
        execute(other)


def test_results_have_a_row_for_each_step_metric_and_seed(tmp_path):
    execute(run_of(tmp_path))
    table = pd.read_csv(tmp_path / "results.csv")
    rows = [("last", "score")] * 2 + [("first", "score")] * 3 + [("other", "score")] * 2
    rows += [("weights", "losses.task"), ("weights", "in_domain.selected")]
    assert list(zip(table["step"], table["metric"], strict=True)) == rows
    first = table[table["step"] == "first"]
    assert first["seed"].tolist() == [0, 1, 2]
    assert first["value"].tolist() == [0.1, 1.1, 2.1]
    manifest = read_manifest(tmp_path / "first")
    assert set(first["fingerprint"]) == {manifest["fingerprint"]}
    assert set(first["version"]) == {manifest["versions"]["dana"]}
    assert set(first["artifact"]) == {"first"}
    assert table["value"].iloc[-1] == 0.25
    assert pd.isna(table["seed"].iloc[-1])


def test_in_the_working_directory_too_an_output_that_is_gone_is_made_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run(Path(), (note(Path(), "one", {"metrics": {"score": 0.5}}, arm="x"),))
    execute(run)
    assert run.states() == {"one": "done"}
    Path("one").rename("gone")
    assert run.states() == {"one": "changed"}
    monkeypatch.chdir("gone")
    assert len(pd.read_csv(write_metrics(Run(tmp_path, run.steps), {"one": ""}))) == 0, (
        "a step without an output"
    )


def test_finished_steps_are_known_by_another_path_and_after_a_move(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = execute(run_of(Path("run")))
    assert made["last"] == "run/last"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    for folder in (tmp_path / "run", Path("../run")):
        assert set(run_of(folder).states().values()) == {"done"}
        assert run_of(folder).output("last") == str(folder / "last")
    (tmp_path / "run").rename(tmp_path / "moved")
    run = run_of(tmp_path / "moved")
    assert set(run.states().values()) == {"done"}
    (tmp_path / "moved" / "last").rename(tmp_path / "gone")
    assert run.states()["last"] == "changed"


def test_results_of_an_artifact_elsewhere(tmp_path):
    folder = tmp_path / "run-before"  # begins like the experiment's own folder
    steps = [
        note(folder, f"c{number}", {"metrics": {"score": number / 10}}, arm="x")
        for number in (5, 6)
    ]
    run = Run(tmp_path / "run", tuple(steps))
    execute(run)
    table = pd.read_csv(tmp_path / "run" / "results.csv")
    assert table["artifact"].tolist() == [str(folder / "c5"), str(folder / "c6")]
    assert table["seed"].isna().all()
    (folder / "c5").rename(folder / "gone")
    assert run.states() == {"c5": "done", "c6": "done"}, (
        "of what lies elsewhere only the record is looked at"
    )


@pytest.mark.slow
def test_two_jobs_give_the_same_bytes_as_one(tmp_path):
    for name, jobs in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        execute(run_of(tmp_path / name), jobs)
    one, two = ((tmp_path / name / "results.csv").read_bytes() for name in ("one", "two"))
    assert one == two
    assert one.count(b"\n") == 10


def refuse(name, reason="line 3: no text", after=()):
    return Step(name, f"{STAGES}:refuse", {"reason": reason}, after=after)


def test_a_failing_step_stops_only_what_needs_it_and_what_needs_no_step_is_refused(tmp_path):
    bad = (refuse("bad"), refuse("worse", "line 4: no text"), refuse("needs-bad", after=("bad",)))
    with pytest.raises(DanaError) as error:
        execute(Run(tmp_path, (*bad, draw(tmp_path, "good"))))
    failures = "2 of 4 steps failed: bad, worse; 1 that depend on them were not started. bad: line 3: no text"
    assert str(error.value) == failures
    assert error.value.exit_code == 2
    assert calls(tmp_path) == ["good"]
    assert pd.read_csv(tmp_path / "results.csv")["step"].unique().tolist() == ["good"]
    with pytest.raises(ConfigError, match=r"step ab: .*'abc'; did you mean 'ab'"):
        Run(tmp_path, (Step("ab", f"{STAGES}:die", {}, after=("abc",)),))
    with pytest.raises(ConfigError, match="jobs=0: must be at least 1"):
        execute(Run(tmp_path, bad), jobs=0)


def test_a_look_that_cannot_begin_keeps_no_other_step_waiting(tmp_path):
    look = replace(note(tmp_path, "look", {}), after=("bad",), stops=True)
    with pytest.raises(DanaError, match="line 3: no text"):
        execute(Run(tmp_path, (refuse("bad"), look, draw(tmp_path, "good"))))
    assert calls(tmp_path) == ["good"]


def test_a_concluding_step_behind_a_look_for_which_no_time_is_left_is_made(tmp_path):
    first = draw(tmp_path, "first")
    finished = Run(tmp_path, (first,))
    made = execute(finished)
    finished.write_record("first", made["first"], 4_000.0)
    look = replace(note(tmp_path, "look", {}), after=("first", "second"), stops=True)
    end = replace(note(tmp_path, "end", {}), after=("first",), concludes=True)
    run = Run(tmp_path, (first, draw(tmp_path, "second"), look, end))
    assert list(execute(run, minutes=60)) == ["first", "end"]


def test_a_rerun_that_ends_early_keeps_the_results_of_what_is_done(tmp_path):
    steps = (draw(tmp_path, "a"), draw(tmp_path, "b"))
    execute(Run(tmp_path, steps))
    before = (tmp_path / "results.csv").read_text()
    with pytest.raises(DanaError):
        execute(Run(tmp_path, (refuse("bad"), *steps[:1], draw(tmp_path, "b", seeds=5))))
    after = pd.read_csv(tmp_path / "results.csv")
    assert "a" in after["step"].tolist()
    execute(Run(tmp_path, steps))
    assert (tmp_path / "results.csv").read_text() == before


def test_an_error_that_is_its_own_cause_ends_the_step(tmp_path):
    stage = f"{STAGES}:blame_itself"
    with pytest.raises(ValueError, match="by itself"):
        execute(Run(tmp_path, (Step("a", stage, {}),)))


def test_what_a_failed_step_had_in_memory_is_gone_before_the_next_begins(tmp_path):
    alive = []
    stage = f"{STAGES}:run_out_of_memory"
    outcome = runner._call_here(runner.Call(stage, {"alive": alive}, tmp_path, remake=False))
    assert "give it less" in str(outcome.exception())
    assert [model() for model in alive] == [None]


def test_a_step_that_is_told_to_stop_ends_the_run_at_once(tmp_path):
    with pytest.raises(Preemption):
        execute(Run(tmp_path, (Step("stopped", f"{STAGES}:stop", {}), draw(tmp_path, "never"))))
    assert not (tmp_path / "calls.txt").exists()


def test_a_step_whose_outcome_is_gone_or_whose_stage_is_another_is_not_done(tmp_path):
    step = draw(tmp_path, "a", seconds=0.3)
    run = Run(tmp_path, (step,))
    for _ in range(2):
        run.file("first", ".json").unlink(missing_ok=True)
        execute(run)
        assert run.record("a")["seconds"] >= 0.3, (
            "if it is reused it took as long as when it was made"
        )
    assert Run(tmp_path, (Step("a", f"{STAGES}:another", step.settings),)).states() == {
        "a": "changed"
    }
    (tmp_path / "a").rename(tmp_path / "moved")
    assert run.states() == {"a": "changed"}


def test_words_that_a_step_returns_are_recorded_in_the_folder_of_the_run_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run(Path(), (Step("look", "m:f", {}),))
    words = "all questions are decided; " * 20
    run.write_record("look", words, 1.0)
    assert run.output("look") == words


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", '{"fing', "[]", '{"made": 3}', '{"made": "x"}'])
def test_a_damaged_record_is_written_again_and_its_step_reused(content, tmp_path, heard):
    run = run_of(tmp_path)
    execute(run)
    file = run.file("first", ".json")
    whole = read_json(file)
    file.write_text(content)
    assert run.states()["first"] == "missing"
    execute(run)
    assert read_json(file)["fingerprint"] == whole["fingerprint"]
    assert str(file) in heard.text
    assert len(calls(tmp_path)) == 3, "nothing was drawn again"


def test_a_worker_that_fails_or_dies_leaves_a_log_and_the_others_alone(tmp_path):
    steps = (Step("dies", f"{STAGES}:die", {}), refuse("bad"))
    with pytest.raises(StepError) as caught:
        execute(
            Run(tmp_path, (*steps, draw(tmp_path, "good"), draw(tmp_path, "after-good", "good"))),
            2,
        )
    assert "2 of 4 steps failed: dies, bad. dies: its process was killed" in str(caught.value)
    assert caught.value.exit_code == 2
    assert "line 3" in (tmp_path / "steps" / "bad.log").read_text()
    assert calls(tmp_path) == ["good", "after-good"]


def test_an_error_keeps_its_exit_code_between_processes():
    assert copy(StepError("told to stop", 75)).exit_code == 75, "it is rebuilt as pickle would"


@pytest.mark.slow
def test_each_worker_has_its_gpu_and_its_threads(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    steps = [Step(f"c{n}", f"{STAGES}:where", {"folder": tmp_path / f"c{n}"}) for n in range(6)]
    execute(Run(tmp_path, tuple(steps)), 3)
    outputs = [json.loads((tmp_path / f"c{n}" / "where.json").read_text()) for n in range(6)]
    by_process = {one["pid"]: one for one in outputs}
    assert sorted(one["CUDA_VISIBLE_DEVICES"] for one in by_process.values()) in (
        ["4", "4", "7"],
        ["4", "7"],
    )
    assert {one["OMP_NUM_THREADS"] for one in outputs} == {"2"}


@pytest.mark.slow
def test_a_process_whose_memory_grew_is_replaced_and_can_still_be_interrupted():
    worker = Worker({})
    for megabytes in (1, 500):
        worker.submit(call_stage, f"{STAGES}:leak", {"megabytes": megabytes}).result(60)
    call = worker.submit(time.sleep, 30)
    wait_until(call.running)
    time.sleep(2)  # the process begins
    worker.interrupt()
    with pytest.raises((KeyboardInterrupt, BrokenExecutor)):
        call.result(20)
    worker.stop(5)


def test_a_process_that_was_killed_between_two_calls_is_replaced():
    worker = Worker({})
    process = worker.submit(os.getpid).result(60)
    os.kill(process, signal.SIGKILL)
    time.sleep(2)  # its pool notices
    assert worker.submit(os.getpid).result(60) != process
    worker.stop(5)


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


PROGRAM = """
import sys
from pathlib import Path
from dana.stages.steps.run import Run
from dana.stages.steps.runner import execute
from tests.stages.steps.test_runner import draw
folder, seconds, jobs = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
execute(Run(folder, tuple(draw(folder, name, seconds=seconds if name != "a" else 0) for name in "abc")), jobs)
"""


def begun(folder, jobs, seconds=30.0):
    """Start a process; it has made the first step, and is in the second and, with two jobs, in the third."""
    # A shell's background job ignores Ctrl-C, and so does what it starts.
    command = [sys.executable, "-c", PROGRAM, str(folder), str(seconds), str(jobs)]
    process = subprocess.Popen(
        command, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
    )
    wait_until(lambda: (folder / "a" / MANIFEST).exists() and len(calls(folder)) >= 1 + jobs)
    return process


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_after_kill_9_only_what_is_missing_is_made(jobs, tmp_path):
    process = begun(tmp_path, jobs)
    process.kill()
    process.wait()
    before = (tmp_path / "a" / MANIFEST).stat().st_mtime_ns
    assert not (tmp_path / "b").exists()
    (tmp_path / "calls.txt").unlink()
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), "0", str(jobs)], check=True, timeout=120
    )
    assert sorted(calls(tmp_path)) == ["b", "c"]
    assert (tmp_path / "a" / MANIFEST).stat().st_mtime_ns == before
    assert not list(tmp_path.glob(".*")), "nothing of the killed process is left"


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_stops_all_and_leaves_nothing_half_written(jobs, tmp_path):
    process = begun(tmp_path, jobs)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert not list(tmp_path.glob(".*"))
    assert (tmp_path / "a" / MANIFEST).exists()
    assert not (tmp_path / "b").exists()


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock by one that moves when told."""
    now = [0.0]
    monkeypatch.setattr(runner.time, "monotonic", lambda: now[0])
    return now


def test_time_left_goes_by_finished_steps_of_the_same_stage(clock, tmp_path):
    steps = [Step(name, "m:f", {}) for name in ("adapt/pool", "adapt/dana", "adapt/more")]
    others = (Step("finetune/toy/base", "m:g", {}), Step("weigh/dana", "m:h", {}))
    run = Run(tmp_path, (*steps, *others))
    for jobs, left in ((1, 80), (2, 40)):
        clock[0] = 0.0
        time_left = Clock(run, jobs)
        assert time_left.text() == "0 s so far", "before the first step nothing is known"
        time_left.count(steps[0], 40.0)
        assert time_left.text() == f"0 s so far, more than {left} s left", "others are not known"
    clock[0] = 100.0
    time_left.count(steps[1], 20.0)
    assert time_left.text() == "2 min so far, more than 15 s left", (
        "the mean of both, two at a time"
    )
    time_left.count(others[0], 900.0)
    time_left.count(others[1], 1.0)
    assert time_left.text() == "2 min so far, about 15 s left", "each was the only one of its stage"
    time_left.count(steps[2], 30.0)
    assert time_left.text() == "2 min so far"


def test_steps_that_are_done_before_tell_the_time_of_the_others_and_take_none(clock, tmp_path):
    steps = [Step(name, "m:f", {}) for name in ("adapt/pool", "adapt/dana", "adapt/more")]
    run = Run(tmp_path, tuple(steps))
    run.write_record("adapt/pool", "elsewhere", 40.0)
    time_left = Clock(run, 1)
    assert time_left.text() == "0 s so far, about 80 s left"


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_step_that_prints_nothing_is_said_to_be_at_work(tmp_path, monkeypatch, heard, jobs):
    monkeypatch.setattr("dana.core.logging.QUIET", 0.4)
    execute(Run(tmp_path, (draw(tmp_path, "slow", seconds=2.0),)), jobs)
    beats = [line for line in heard.messages if line.startswith("at work")]
    assert beats
    assert beats[0].startswith("at work   slow (")
    assert "so far" in beats[0]
    count = len(beats)
    time.sleep(1.0)
    assert sum(line.startswith("at work") for line in heard.messages) == count, (
        "it ends with the run"
    )


def test_a_step_says_in_words_what_it_does():
    names = (
        "texts",
        "adapt/random",
        "finetune/toy/dana/2/seed-4",
        "score/dana/1",
        "baselines/2024",
        "probe/2024/base",
        "pilot/final",
        "plant/3",
        "cluster/a/b",
    )
    assert [Step(name, "m:f", {}).words for name in names] == [
        "reading texts",
        "adapting: random",
        "fine-tuning: toy, dana (3, seed 4)",
        "scoring text: dana (2)",
        "computing baselines: 2024",
        "probing vectors: 2024, base",
        "trying objectives (all texts)",
        "plant/3",
        "cluster/a/b",
    ]


def test_a_bar_carries_the_step_s_number_and_name(capsys):
    with progress_label("3/9 dana"), progress(what="train", unit="tokens", total=1) as bar:
        bar.update(1)
    with progress(what="train", unit="tokens", total=1) as bar:
        bar.update(1)
    first, second = [
        line for line in capsys.readouterr().err.replace("\r", "\n").splitlines() if "100%" in line
    ]
    assert first.startswith("3/9 dana: train")
    assert second.startswith("train ")
    assert [format_duration(value) for value in (0, 89, 300, 5399, 9000)] == [
        "0 s",
        "89 s",
        "5 min",
        "90 min",
        "2.5 h",
    ]


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("reason", ["", None, "enough"])
def test_later_steps_wait_for_one_that_stops_and_are_left_out_if_it_has_a_reason(
    tmp_path, reason, jobs
):
    look = Step("look/2", f"{STAGES}:answer", {"text": reason}, after=("a",), stops=True)
    steps = (
        draw(tmp_path, "a"),
        draw(tmp_path, "slow", seconds=0.5),
        look,
        draw(tmp_path, "b"),
        draw(tmp_path, "c", "b"),
    )
    made = list(execute(Run(tmp_path, steps), jobs))
    assert sorted(made[:2]) == ["a", "slow"]
    assert made[2:] == ["look/2", *(["b", "c"] if not reason else [])]
    assert set(pd.read_csv(tmp_path / "results.csv")["step"]) == {
        "a",
        "slow",
        *("bc" if not reason else ""),
    }


NO_TIME = 1e-9  # minutes


def test_without_time_left_a_finished_step_is_read_and_a_conclusion_begins(tmp_path):
    first = draw(tmp_path, "first")
    execute(Run(tmp_path, (first,)))
    end = replace(draw(tmp_path, "end", "first"), concludes=True)
    run = Run(tmp_path, (first, draw(tmp_path, "late", "first"), end))
    assert list(execute(run, minutes=NO_TIME)) == ["first", "end"]
    assert not (tmp_path / "late").exists()
    assert list(execute(run, minutes=60)) == ["first", "late", "end"]


def test_a_step_that_will_take_longer_than_what_is_left_does_not_begin(tmp_path):
    first = draw(tmp_path, "first")
    finished = Run(tmp_path, (first,))
    made = execute(finished)
    finished.write_record("first", made["first"], 4_000.0)
    run = Run(tmp_path, (first, draw(tmp_path, "alike"), note(tmp_path, "other", {})))
    assert list(execute(run, minutes=60)) == ["first", "other"]
    assert list(execute(run, minutes=70)) == ["first", "alike", "other"]


@pytest.mark.parametrize("minutes", [0, -1])
def test_a_run_without_time_is_refused(tmp_path, minutes):
    with pytest.raises(ConfigError, match="minutes"):
        execute(run_of(tmp_path), minutes=minutes)
    assert not (tmp_path / "calls.txt").exists()
