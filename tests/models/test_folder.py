"""Foreign folders: their code never runs, half a model is an error, and every file that is read is part of identity."""

import json
import os
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForMaskedLM, ModernBertModel

from dana.core.errors import ArtifactError, Preemption
from dana.core.launch import stop_on_signal
from dana.encoders.transformer import TransformerEncoder
from dana.models.classifier import new_classifier
from dana.models.folder import (
    licence_line,
    load_backbone,
    load_complete,
    load_tokenizer,
    model_identity,
    padding_id,
    resolve_model,
    running,
)
from dana.models.heads import SelectedLogits
from dana.models.language_model import load_language_model
from dana.selectors.classifier import _logits
from tests.families import FAMILIES

LOADERS = {"backbone": load_backbone, "classifier": lambda model: new_classifier(model, 3, 0)}
LOADERS |= {"mean pooling": lambda model: new_classifier(model, 3, 0, pooling="mean")}
LOADERS |= {
    "language model": lambda model: load_language_model(model, lambda _: AutoModelForMaskedLM, 0)
}
LOADERS |= {"complete model": lambda model: load_complete(AutoModelForMaskedLM, model)}


@pytest.fixture
def model(tmp_path):
    return Path(shutil.copytree(resolve_model("dana-mini"), tmp_path / "model"))


def _edit(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def _without(model, part):
    _change(
        model, lambda weights: {name: value for name, value in weights.items() if part not in name}
    )


def _change(model, change):
    save_file(change(load_file(model / WEIGHTS)), model / WEIGHTS)


WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
WO = "model.layers.0.attn.Wo.weight"
LORA = {f"{WO[:-6]}lora_A.weight": torch.ones(2)}
TWO_LAYERS = {"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}
HALF = {
    "whole numbers": (
        lambda m: _change(m, lambda w: {**w, WO: w[WO].int()}),
        "not floating-point numbers",
    ),
    "an adapter is left over": (lambda m: _change(m, lambda w: {**w, **LORA}), "lora_A"),
    "quantised": (
        lambda m: _edit(m / "config.json", quantization_config={"quant_method": "fp8"}),
        "is quantised",
    ),
    "a list that is none": (
        lambda m: _edit(m / "config.json", architectures="Bert"),
        "architectures='Bert'",
    ),
    "a tensor is missing": (lambda m: _without(m, "layers.3.mlp_norm"), "layers.3.mlp_norm.weight"),
    "all layers are missing": (
        lambda m: _without(m, "layers."),
        "layers.0.attn.Wo.weight and 22 others",
    ),
    "layers are left over": (
        lambda m: _edit(m / "config.json", **TWO_LAYERS),
        "layers.2.attn.Wo.weight and 11 others",
    ),
    "another shape": (
        lambda m: _edit(m / "config.json", intermediate_size=8),
        "other shapes than in its config.json",
    ),
    "a pickle": (
        lambda m: (m / WEIGHTS).rename(m / "model.bin"),
        "needs weights as *.safetensors; model.bin: pickles",
    ),
}


@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize(("damage", "named"), HALF.values(), ids=HALF)
def test_a_half_loaded_or_pickled_model_is_an_error(model, loader, damage, named):
    damage(model)
    with pytest.raises(ArtifactError) as error:
        loader(str(model))
    assert str(error.value).startswith(f"{model}: ")
    assert named in str(error.value)


IDS = torch.ones(1, 4, dtype=torch.int64)
CALLS = {
    "encode": lambda model: TransformerEncoder(model).encode(["one text"]),
    "select": lambda model: _logits(load_backbone(model), IDS, IDS),
    "classify": lambda model: new_classifier(model, 3, 0)(IDS, IDS),
    "train": lambda model: SelectedLogits(LOADERS["language model"](model).model)(IDS, IDS[0]),
    "train in bfloat16": lambda model: SelectedLogits(LOADERS["language model"](model).model, True)(
        IDS, IDS[0]
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_model_that_cannot_run_is_named_with_reason_and_precision(model, name, monkeypatch):
    def forward(*_, **__):
        raise errors.pop()

    monkeypatch.setattr(ModernBertModel, "forward", forward)
    errors = [torch.OutOfMemoryError("CUDA out of memory"), ValueError("no <eos> in a text\nmore")]
    call = CALLS[name]
    line = rf"{model}: the model cannot run: no <eos> in a text; see its config.json"
    if name == "train in bfloat16":
        line = (
            rf"{model}: the model cannot run in bfloat16: no <eos> in a text; "
            "float32 may work: set ACCELERATE_MIXED_PRECISION=no"
        )
    with pytest.raises(ArtifactError, match=line):
        call(str(model))
    with pytest.raises(torch.OutOfMemoryError):
        call(str(model))


def test_weights_under_another_model_type_are_missing(model):
    _edit(model / "config.json", model_type="gpt2")
    with pytest.raises(ArtifactError, match=r"are missing: h.0.attn.c_attn.bias and 51 others"):
        load_backbone(str(model))


@pytest.mark.parametrize("loader", [*LOADERS.values(), load_tokenizer])
def test_code_in_a_folder_is_refused_before_it_is_asked_about(model, loader, monkeypatch):
    (model / "evil.py").write_text(f"open({str(model / 'ran')!r}, 'w')\nclass C: pass\nM = C\n")
    auto_map = {"AutoConfig": "evil.C", "AutoModel": "evil.M", "AutoModelForMaskedLM": "evil.M"}
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    _edit(model / "config.json", auto_map=auto_map)
    loader(str(model))
    _edit(model / "config.json", model_type="evil")
    with pytest.raises(ArtifactError, match="needs code from its folder, which dana never runs"):
        loader(str(model))
    assert not (model / "ran").exists()


NAMES = ["pytorch_model.bin", "../model/model.safetensors", "other.safetensors", 3]


INDICES = [
    "[]",
    "{}",
    '{"weight_map": {}}',
    *(json.dumps({"weight_map": {"a": name}}) for name in NAMES),
]


@pytest.mark.parametrize("text", INDICES)
def test_an_index_names_safetensors_beside_it_and_nothing_else(model, text):
    (model / "pytorch_model.bin").write_bytes(b"")
    (model / INDEX).write_text(text)
    with pytest.raises(
        ArtifactError, match=r"index\.json: (pytorch_model\.bin|\.\./model|other|3|cannot|the key)"
    ):
        load_backbone(str(model))


def test_weights_that_are_not_finite_adapters_and_too_large_ids_are_refused(model):
    vocabulary = json.loads((model / "tokenizer.json").read_text())
    vocabulary["model"]["vocab"]["zzzz"] = 99_999
    (model / "tokenizer.json").write_text(json.dumps(vocabulary))
    with pytest.raises(ArtifactError, match="the tokenizer has 100000 tokens"):
        load_tokenizer(str(model))
    weights = load_file(model / WEIGHTS)
    weights["model.embeddings.tok_embeddings.weight"][7, 0] = float("nan")
    save_file(weights, model / WEIGHTS)
    with pytest.raises(ArtifactError, match=r"not finite: embeddings\.tok_embeddings\.weight"):
        load_backbone(str(model))
    (model / "adapter_config.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"adapter_config\.json"):
        load_backbone(str(model))


@pytest.fixture
def memory_without_numbers():
    """What transformers does not set is no number, as in memory that was used before."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("family", ["longformer", "fnet", "luke"])
def test_a_bias_that_transformers_forgets_begins_at_0(tmp_path, family, memory_without_numbers):
    FAMILIES[family].save(tmp_path)
    AutoModel.from_pretrained(tmp_path).save_pretrained(tmp_path)
    language_model = load_language_model(str(tmp_path), lambda _: AutoModelForMaskedLM, 0)
    new = {
        name: value
        for name, value in language_model.model.named_parameters()
        if name in language_model.new
    }
    assert {"bias", "weight"} == {name.rpartition(".")[2] for name in new}
    assert all(not value.any() for name, value in new.items() if name.endswith("bias"))
    assert all(value.any() for name, value in new.items() if name.endswith("weight"))


def test_rows_are_filled_with_the_end_of_a_text_where_there_is_no_padding_token():
    ids = [(0, 5), (None, 5), (None, None)]
    assert [
        padding_id(SimpleNamespace(pad_token_id=pad, eos_token_id=eos)) for pad, eos in ids
    ] == [0, 5, 0]


FILES = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "weights.safetensors",
    INDEX,
    "vocab.txt",
]
FILES += ["merges.txt", "special_tokens_map.json", "spiece.model", "chat_template.jinja"]


@pytest.mark.parametrize("name", FILES)
def test_every_file_that_transformers_reads_is_part_of_the_identity(model, name):
    weights = load_file((model / WEIGHTS).rename(model / "weights.safetensors"))
    (model / INDEX).write_text(
        json.dumps({"metadata": {}, "weight_map": dict.fromkeys(weights, "weights.safetensors")})
    )
    assert load_backbone(str(model)).config.num_hidden_layers == 4
    before = model_identity(str(model))
    with (model / name).open("ab") as file:
        file.write(b"\n")
    after = model_identity(str(model))
    assert {key for key in before | after if before.get(key) != after.get(key)} == {name}


@pytest.mark.parametrize(
    ("card", "line"),
    [
        ("---\nlibrary_name: x\nlicense: mit\nlanguage: en\n---\n", "license: mit\n"),
        ("---\nlanguage: en\n---\nlicense: mit\n", ""),
        ("license: mit\n", ""),
        ("---\nlicense:mit\n---\n", ""),
    ],
)
def test_a_card_hands_on_the_licence_of_its_base(tmp_path, card, line):
    (tmp_path / "README.md").write_text(card)
    assert licence_line(str(tmp_path)) == line
    assert licence_line("dana-mini") == "license: cc-by-sa-4.0\n"


def test_a_signal_during_a_forward_pass_is_no_fault_of_the_model():
    def forward():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    with pytest.raises(Preemption), stop_on_signal(), running(SimpleNamespace(config=None)):
        forward()
