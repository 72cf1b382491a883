"""Average two models: the weights by hand, the alpha of the lowest held-out loss, models that are not alike."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from dana.cli.main import main
from dana.core.errors import ConfigError
from dana.stages import average
from dana.stages.average import average_stage
from tests.stages.tiny_training import ADAPT


def weights_of(folder):
    return load_file(folder / "model.safetensors")


@pytest.fixture
def pair(base, adapted_to):
    """The small model, and what became of it."""
    return str(base), str(adapted_to(replace(ADAPT, learning_rate=1e-3)).path)


@pytest.mark.parametrize("alpha", [0, 0.25, 1])
def test_every_weight_is_the_average_and_transformers_opens_it(pair, tmp_path, alpha):
    artifact = average_stage(*pair, alpha, [], tmp_path / "out")
    one, other = (AutoModelForMaskedLM.from_pretrained(model).state_dict() for model in pair)
    model, report = AutoModelForMaskedLM.from_pretrained(artifact.path, output_loading_info=True)
    assert not report["missing_keys"]
    for name, value in model.state_dict().items():
        assert torch.equal(value, alpha * one[name] + (1 - alpha) * other[name]), name
    assert (
        AutoTokenizer.from_pretrained(artifact.path).get_vocab()
        == AutoTokenizer.from_pretrained(pair[0]).get_vocab()
    )
    assert (artifact.manifest["kind"], artifact.manifest["alpha"]) == ("model", alpha)
    assert f"The first counts {alpha:g}." in (artifact.path / "README.md").read_text()
    assert average_stage(*pair, alpha, [], tmp_path / "out").fingerprint == artifact.fingerprint


def test_auto_takes_the_alpha_with_the_lowest_mean_loss(
    pair, inputs, tmp_path, monkeypatch, capsys
):
    run, out = tmp_path / "run", tmp_path / "out"
    for folder, source in ((run / "target" / "held_out", inputs[1]), (run / "held_out", inputs[2])):
        shutil.copytree(source, folder)
    monkeypatch.setattr(average, "open_artifact", lambda *arguments: None)
    assert (
        main(
            [
                "files",
                "average",
                *pair,
                "--alpha",
                "auto",
                "--on",
                str(run),
                "--out",
                str(out),
                "--json",
            ]
        )
        == 0
    )
    manifest = json.loads((out / "__dana__" / "manifest.json").read_text())
    losses = {
        float(alpha): sum(values.values()) for alpha, values in manifest["losses_by_alpha"].items()
    }
    assert sorted(losses) == average.GRID
    assert {len(values) for values in manifest["losses_by_alpha"].values()} == {2}
    assert losses[manifest["alpha"]] == min(losses.values()) < max(losses.values())
    assert json.loads(capsys.readouterr().out)["alpha"] == manifest["alpha"]
    fixed = average_stage(*pair, manifest["alpha"], [], tmp_path / "fixed")
    assert all(
        torch.equal(value, weights_of(out)[name]) for name, value in weights_of(fixed.path).items()
    )


def test_an_average_has_read_what_either_model_has_read(pair, tmp_path):
    models = [
        shutil.copytree(model, tmp_path / name) for model, name in zip(pair, "ab", strict=True)
    ]
    for model, keys in zip(models, ([1, 5], [2, 5]), strict=True):
        np.save(model / "documents.npy", np.array(keys, np.uint64))
    artifact = average_stage(*map(str, models), 0.5, [], tmp_path / "both")
    assert np.load(artifact.path / "documents.npy").tolist() == [1, 2, 5]
    (models[1] / "documents.npy").unlink()
    assert not (
        average_stage(*map(str, models), 0.5, [], tmp_path / "one").path / "documents.npy"
    ).exists()


@pytest.mark.parametrize(
    ("alpha", "runs", "says"),
    [
        (1.5, [], r"alpha=1\.5: must be auto, or a number from 0 to 1"),
        ("best", [], "alpha='best': must be auto"),
        ("auto", [], r"on=\[\]: must be runs' folders with alpha=auto"),
        (0.5, ["run"], r"on=\['run'\]: must be runs' folders with alpha=auto, else none"),
    ],
)
def test_a_wrong_alpha_is_refused(pair, tmp_path, alpha, runs, says):
    with pytest.raises(ConfigError, match=says):
        average_stage(*pair, alpha, runs, tmp_path / "out")


@pytest.mark.parametrize("what", ["configuration", "tokenizer"])
def test_models_that_are_not_alike_are_refused(pair, tmp_path, what):
    other = shutil.copytree(pair[1], tmp_path / "other")
    if what == "configuration":
        config = json.loads((other / "config.json").read_text())
        (other / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 0.5}))
    else:
        tokens = json.loads((other / "tokenizer.json").read_text())
        words = {
            word: number
            for word, number in tokens["model"]["vocab"].items()
            if not word.startswith("[")
        }
        first, second = list(words)[:2]
        tokens["model"]["vocab"] |= {first: words[second], second: words[first]}
        (other / "tokenizer.json").write_text(json.dumps(tokens))
    with pytest.raises(
        ConfigError, match=rf"other: must be like .*, but its {what} differs: .+: .* there, .* now"
    ):
        average_stage(pair[0], str(other), 0.5, [], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_auto_measures_decoders_by_the_next_token(inputs, tiny_tokenizer, tmp_path, monkeypatch):
    shape = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    config = LlamaConfig(vocab_size=len(tiny_tokenizer), **shape)
    for seed, name in enumerate("ab"):
        torch.manual_seed(seed)
        LlamaForCausalLM(config).save_pretrained(tmp_path / name)
        tiny_tokenizer.save_pretrained(tmp_path / name)
    for folder, source in (("target/held_out", inputs[1]), ("held_out", inputs[2])):
        shutil.copytree(source, tmp_path / "run" / folder)
    monkeypatch.setattr(average, "open_artifact", lambda *arguments: None)
    artifact = average_stage(
        str(tmp_path / "a"), str(tmp_path / "b"), "auto", [tmp_path / "run"], tmp_path / "out"
    )
    losses = artifact.manifest["losses_by_alpha"]
    near = [value for values in losses.values() for value in values.values()]
    assert all(
        math.log(len(tiny_tokenizer)) / 2 < value < 2 * math.log(len(tiny_tokenizer))
        for value in near
    )
