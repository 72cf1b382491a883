"""More than forty families of models: adapted, opened by transformers alone, fine-tuned, used; float32 and bfloat16."""

import json
from pathlib import Path

import pytest
import transformers

import dana.train.execution
from dana.cli.main import main
from dana.models.folder import quiet_transformers
from tests.families import FAMILIES, labelled_texts, other_texts

pytestmark = pytest.mark.slow

FAIL_IN_BF16 = {"deberta", "xmod"}
CARD = """name: case
title: made-up cases
version: 1
data: {local: case}
labels: [printer, billing, login]
metric: macro_f1
splits: {}
kind: single_label
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A run's folder with weights, a task, and new texts."""
    folder = tmp_path_factory.mktemp("families")
    patch = pytest.MonkeyPatch()
    patch.chdir(folder)
    patch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    rows = labelled_texts(12)
    pool = [json.dumps({"text": text}) for text in other_texts(80)]
    (folder / "pool.jsonl").write_text("\n".join(pool))
    (folder / "task.txt").write_text("\n".join(text for text, _ in rows))
    (folder / "new.txt").write_text("\n".join(text for text, _ in rows[:3]))
    (folder / "case").mkdir()
    for split, part in (("train", rows[:24]), ("dev", rows[24:30]), ("test", rows[30:])):
        lines = [
            json.dumps({"id": f"{split}-{number}", "text": text, "label": label})
            for number, (text, label) in enumerate(part)
        ]
        (folder / "case" / f"{split}.jsonl").write_text("\n".join(lines))
    (folder / "case.yaml").write_text(CARD)
    score = ["score", "--task", "task.txt", "--pool", "pool.jsonl", "--selector", "random"]
    assert main([*score, "--out", "base"]) == 0
    assert main(["weigh", "base", "--beta", "0.9"]) == 0
    yield folder
    patch.undo()


@pytest.fixture(params=["float32", "bfloat16"])
def precision(request, monkeypatch):
    """The precision that the device is said to be fast in."""
    is_bf16 = request.param == "bfloat16"
    monkeypatch.setattr(dana.train.execution, "has_bf16", lambda device: is_bf16)
    return request.param


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_adapted_opened_fine_tuned_and_used(name, workspace, precision, capsys):
    family = FAMILIES[name]
    place = Path(name) / precision
    model = place / "model"
    adapted = place / "adapted"
    tuned = place / "tuned"
    with quiet_transformers():
        family.save(model)
    objective = family.objective or "masked"
    steps = ["--steps", "2", "--batch-size", "4", "--max-tokens", "32"]
    adapt = ["adapt", "base", "--model", str(model), *steps, "--objective", objective]
    adapt += ["--out", str(adapted), "--set", "adapt.evaluation_tokens=200"]
    code = main(adapt)
    said = capsys.readouterr().err
    assert code == (0 if family.objective else 2), said
    falls_back = "precision float32, as" in said
    assert falls_back == (precision == "bfloat16" and name in FAIL_IN_BF16)
    if family.objective:
        auto_class = getattr(transformers, family.auto_class)
        _, report = auto_class.from_pretrained(adapted, output_loading_info=True)
        assert not any(report.values()), report
    tune = ["finetune", "--model", str(adapted if family.objective else model), "--save"]
    tune += ["--task", "case.yaml", "--seeds", "1", "--preset", "quick", "--out", str(tuned)]
    tune += ["--set", "finetune.epochs=1", "finetune.max_tokens=32"]
    if not family.finetunes:
        assert main(tune) == 2
        assert "finetune.pooling=mean" in capsys.readouterr().err
        tune.append("finetune.pooling=mean")
    assert main(tune) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert main(["predict", f"{tuned}-model", "new.txt"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(answers) == 3
    assert all(answer["label"] in ("printer", "billing", "login") for answer in answers)


def test_what_is_said_of_models_that_no_objective_trains_is_true(workspace, capsys):
    for name in ("t5", "xlnet"):
        model = Path(name) / "said"
        FAMILIES[name].save(model)
        for objective in ("masked", "causal", "crops", "next_sentence"):
            adapt = ["adapt", "base", "--model", str(model), "--objective", objective]
            assert main([*adapt, "--steps", "2", "--out", f"{name}-no"]) == 2
            line = capsys.readouterr().err.strip().splitlines()[-1]
            assert "no objective of dana for plain text adapts it" in line
            assert "dana finetune --model MODEL" in line
            assert "dana-mini" in line
            assert not Path(f"{name}-no").exists()
