"""Every command that the README launches, in two CPU processes, on a fresh folder and with the YAML of its recipe."""

import json

import pytest

from tests.launch.processes import ACCELERATE, REPOSITORY, TORCHRUN, ended, launch, pair

pytestmark = pytest.mark.slow

RECIPES = REPOSITORY / "recipes"
DANA = ("-m", "dana")
SMALL = ("--encoder", "hashing", "--geometry", "l2", "--store", "none")
TRAINING = {
    "steps": 2,
    "batch_size": 8,
    "max_tokens": 24,
    "evaluations": 0,
    "evaluation_tokens": 200,
}


def in_section(name, **more):
    return [f"{name}.{key}={value}" for key, value in {**TRAINING, **more}.items()]


def test_the_steps_of_the_readme_on_a_fresh_folder(inputs):
    """Rank, score, weigh, adapt, finetune, predict and report, each launched in two processes."""
    run = inputs.folder / "steps"
    texts = ("--task", inputs.card, "--pool", inputs.pool, "--out", run, *SMALL)
    results = run / "finetune" / "toy" / "dana"
    table = inputs.folder / "labels.jsonl"

    def step(launcher, command, *arguments, yaml=True):
        config = ("--config", RECIPES / f"{command}.yaml") if yaml else ()
        program = (command,) if launcher[-1] == "dana" else (RECIPES / f"{command}.py",)
        code, output = launch(launcher, *program, *arguments, *config)
        assert code == 0, output
        return output

    ranking = ("--set", "ranking.detectors=[knn,pca]", "ranking.folds=2")
    output = step((*TORCHRUN, *DANA), "score", "--rank-only", *texts, *ranking)
    assert output.count("ranking   written") == 1
    output = step(ACCELERATE, "score", *texts, "--selector", "detector", *ranking)
    assert output.count("scores    written") == output.count("selector  written") == 1
    assert "ranking   reused" in output
    assert "launch    this command needs one process of 2" in step((*TORCHRUN, *DANA), "weigh", run)
    adapt = (run, "--model", inputs.model, "--set", *in_section("adapt"))
    output = step((*TORCHRUN, *DANA), "adapt", *adapt)
    assert "launch    2 process(es) on cpu, MULTI_CPU" in output
    for kind in ("held_out", "tokens", "model"):
        assert output.count(f"{kind:<9} written") == 1, output
    assert (
        json.loads((run / "adapted" / "__dana__" / "manifest.json").read_text())["execution"][
            "processes"
        ]
        == 2
    )
    assert "model     reused" in step(ACCELERATE, "adapt", *adapt), "the recipe is the command"
    finetune = ("--model", run / "adapted", "--task", inputs.card, "--seeds", "2", "--out", results)
    quick = ("finetune.preset=quick", "finetune.epochs=1", "finetune.save=true")
    output = step(TORCHRUN, "finetune", *finetune, "--set", *quick)
    assert output.count(f"finetune  written  {results} ") == 1
    assert len(json.loads((results / "metrics.json").read_text())["seeds"]) == 2
    step((*TORCHRUN, *DANA), "predict", f"{results}-model", inputs.pool, "--out", table, yaml=False)
    assert len(table.read_text().splitlines()) == 240
    step((*TORCHRUN, *DANA), "report", run, yaml=False)
    assert (run / "report.html").is_file()
    assert not [path for path in inputs.folder.rglob(".*") if path.name != ".dana"], (
        "no lock, nothing half-written"
    )


def test_a_whole_recipe_and_a_model_from_scratch(inputs):
    run, recipe = inputs.folder / "recipe", inputs.folder / "recipe.yaml"
    values = {
        "task": inputs.card,
        "pool": [inputs.pool],
        "selection": {"encoder": "hashing", "geometry": "l2", "store": "none"},
        "ranking": {"detectors": ["knn"], "folds": 2},
        "arms": ["random", "dana"],
        "model": inputs.model,
        "adapt": TRAINING,
        "finetune": {"preset": "quick", "epochs": 1},
        "seeds": {"adaptations": 1, "finetunings": 2},
        "final": True,
        "jobs": 2,  # has no effect in a launch
    }
    recipe.write_text(json.dumps(values))
    code, output = launch((*TORCHRUN, *DANA), "run", recipe, "--out", run)
    assert code == 0, output
    assert output.count("model     written") == 2
    assert (run / "report.html").is_file()
    assert (run / "model" / "result.json").is_file()
    assert len((run / "results.csv").read_text().splitlines()) > 6
    scratch = in_section("pretrain", vocabulary=200, tokens="null", max_positions=32)
    pretrain = (
        RECIPES / "adapt.py",
        run,
        "--from-scratch",
        "tiny",
        "--config",
        RECIPES / "pretrain.yaml",
        "--set",
        *scratch,
    )
    code, output = launch(TORCHRUN, *pretrain)
    assert code == 0, output
    assert output.count("model     written") == 1


def test_an_error_of_the_first_process_ends_both_with_one_line(inputs):
    broken = inputs.folder / "broken.jsonl"
    broken.write_text('{"text": "one"}\n{"text": \n')
    run = inputs.folder / "broken"
    codes, output = ended(
        pair("-m", "dana", "score", "--task", inputs.card, "--pool", broken, "--out", run, *SMALL)
    )
    assert codes == [2, 2], output
    assert [text.count("dana: error") for text in output] == [1, 0]
    assert "broken.jsonl:2" in output[0]
    assert "Traceback" not in "".join(output)
    assert not (run / "pool").exists()


@pytest.mark.parametrize(
    ("flag", "message"), [("", "dana: error"), ("--no-such-flag", "--no-such-flag")]
)
def test_an_error_of_all_processes_is_reported_once(inputs, flag, message):
    adapt = ("adapt", inputs.folder / "nowhere", "--model", inputs.model, *flag.split())
    code, output = launch((*TORCHRUN, *DANA), *adapt)
    assert code == 1, "torchrun's code for a worker that failed"
    assert output.count(message) == 1
    assert "exitcode  : 2" in output


STOPS = """
import sys, time
from pathlib import Path
from dana.core.errors import DanaError
from dana.core.launch import on_rank_0, stop_on_signal

def slow():
    Path(sys.argv[1]).touch()
    time.sleep(100)

try:
    with stop_on_signal():
        on_rank_0(slow)
except DanaError as error:
    sys.exit(error.exit_code)
"""


def test_told_to_stop_the_first_process_and_the_one_that_waits_end_with_75(tmp_path):
    both = pair("-c", STOPS, tmp_path / "began")
    while not (tmp_path / "began").exists():
        assert both[0].poll() is None
    for process in reversed(both):
        process.terminate()
    codes, output = ended(both)
    assert codes == [75, 75], output
