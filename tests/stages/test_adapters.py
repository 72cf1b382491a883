"""Adapters: trained alone, saved alone, resumed, folded; what they compute is what the folded weights compute."""

import json
import os
import re
import shutil
import signal
from copy import deepcopy
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PhiConfig,
    PhiForCausalLM,
)

from dana.cli.main import main
from dana.core.errors import ArtifactError, ConfigError, Preemption
from dana.core.rng import torch_seed
from dana.models.adapters import CONFIG, WEIGHTS, Adapter, add_adapter, write_adapter
from dana.models.folder import load_backbone, load_config, load_tokenizer, model_identity
from dana.models.known_text import FILE, read_known_text
from dana.stages.fold import fold_stage
from dana.stages.training import folder_text
from dana.train import run
from dana.train.evaluation import measure_loss
from dana.train.execution import make_accelerator
from dana.train.hf_trainer import load_model
from dana.train.layout import BatchLayout
from dana.train.loop import prepare
from dana.train.records import StepRecord
from dana.train.run import heldout_examples
from dana.train.settings import AdaptSettings, Execution
from tests.conftest import write_documents
from tests.stages.tiny_training import ADAPT, adapt, records

pytest.importorskip("peft")

WORD = "tokenizer"  # in the texts, and a row of its own
SETTINGS = AdaptSettings(
    objective="causal",
    steps=12,
    batch_size=16,
    max_tokens=48,
    evaluations=1,
    learning_rate=3e-2,
    adapter="lora:r=4",
)
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}


@pytest.fixture(scope="module")
def decoder(tmp_path_factory, byte_level):
    """An untrained Llama whose tokenizer was given a word, and its embeddings a row."""
    folder, tokenizer = tmp_path_factory.mktemp("adapters") / "decoder", deepcopy(byte_level)
    tokenizer.add_tokens([WORD])
    shape = {
        **SHAPE,
        "vocab_size": len(tokenizer),
        "tie_word_embeddings": True,
        "num_key_value_heads": 1,
    }
    with torch_seed(1), torch.no_grad():
        model = LlamaForCausalLM(LlamaConfig(**shape))
        model.model.embed_tokens.weight.mul_(10)  # or no hidden state could make a token likely
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    np.save(folder / FILE, np.zeros(0, np.uint64))
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory, repository_texts):
    folder, some = (
        tmp_path_factory.mktemp("adapter_texts"),
        [f"{WORD} {text}" for text in repository_texts[:24]],
    )
    parts = {"pool": some[4:], "task": some[:2], "held_out": some[2:4]}
    return [write_documents(folder / name, part) for name, part in parts.items()]


@pytest.fixture(scope="module")
def adapted(decoder, texts, tmp_path_factory):
    return adapt(decoder, texts, tmp_path_factory.mktemp("adapted") / "lora", SETTINGS).path


def loss(model, texts, tokenizer):
    """Mean nats a token of the held-out target text, by the model's own forward pass."""
    settings = replace(SETTINGS, adapter=None)
    held_out = {"task": folder_text(texts[1], tokenizer)}
    heldout = heldout_examples(held_out, settings.make_objective(), tokenizer, settings)
    state = prepare(model, settings, make_accelerator(), BatchLayout())
    return measure_loss(
        state.module, heldout.texts["task"], heldout.collator, state.shape, state.accelerator
    ).mean


def digests(folder):
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in folder.glob("*.*")}


@pytest.mark.parametrize(
    "spec", ["lora:r=4", "dora:r=2,alpha=4,dropout=0.1,targets=q_proj+down_proj"]
)
def test_adapters_are_trained_alone_saved_alone_and_folded_into_a_plain_model(
    spec, decoder, texts, tmp_path
):
    from peft import PeftModel

    before = digests(decoder)
    folder = adapt(decoder, texts, tmp_path / "adapter", replace(SETTINGS, adapter=spec)).path
    assert digests(decoder) == before
    first, last = (
        line["target_loss"] for line in (records(folder, "evaluation")[at] for at in (0, -1))
    )
    assert last < first - 0.05, "they learn"
    assert not (folder / "model.safetensors").exists()
    tensors = load_file(folder / WEIGHTS)
    modules = (
        {"q_proj", "down_proj"} if "targets" in spec else {"q_proj", "k_proj", "v_proj", "o_proj"}
    )
    assert {name.split(".")[-3] for name in tensors if "lora_A.weight" in name} >= modules
    assert ("gate_proj" in str(tensors.keys())) == ("targets" not in spec)
    assert any("magnitude" in name for name in tensors) == spec.startswith("dora")
    base, (dense, tokenizer) = AutoModelForCausalLM.from_pretrained(decoder), load_model(folder)
    plain = AutoModelForCausalLM.from_pretrained(fold_stage(folder, tmp_path / "folded").path)
    with_peft = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(decoder), folder)
    for model in (dense, plain, with_peft.merge_and_unload().requires_grad_(True)):
        assert loss(model, texts, tokenizer) == pytest.approx(last, abs=1e-5)
    changes = (
        (plain.model.embed_tokens.weight != base.model.embed_tokens.weight)
        .any(1)
        .nonzero()
        .flatten()
        .tolist()
    )
    assert changes == [tokenizer.convert_tokens_to_ids(WORD)], (
        "only the row of the added word is trained"
    )
    written, shape = json.loads((folder / CONFIG).read_text()), Adapter.from_spec(spec)
    assert [written[name] for name in ("r", "lora_alpha", "lora_dropout")] == [
        shape.r,
        shape.alpha,
        shape.dropout,
    ]
    names = written["target_modules"]
    assert names == sorted(names), "peft has a set, whose order differs between processes"
    norms = [name for name in base.state_dict() if "norm" in name]
    assert all(torch.equal(plain.state_dict()[name], base.state_dict()[name]) for name in norms)
    card = (folder / "README.md").read_text()
    assert f"| adapter | `{spec}` |" in card
    assert "peft.PeftModel.from_pretrained" in card
    assert (
        read_known_text(str(tmp_path / "folded")).tolist()
        == read_known_text(str(folder)).tolist()
        != []
    )


def test_stopped_and_resumed_the_adapters_are_the_same_bytes(
    decoder, texts, adapted, tmp_path, monkeypatch
):
    def stop(accelerator, record):
        if isinstance(record, StepRecord) and record.step == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    settings = replace(SETTINGS, execution=Execution(save_every=3))
    with monkeypatch.context() as context:
        context.setattr(run, "track", stop)
        with pytest.raises(Preemption):
            adapt(decoder, texts, tmp_path / "lora", settings)
    state = load_file(tmp_path / "lora-checkpoints" / "last.safetensors")
    assert {
        name.split(".")[-2] for name in state if name.startswith("parameter.") and "lora" in name
    } == {"default"}
    assert all("lora" in name or "trainable_tokens" in name for name in state if name != "records")
    folder = adapt(decoder, texts, tmp_path / "lora", settings).path
    assert {name: digests(folder)[name] for name in (WEIGHTS, CONFIG)} == {
        name: digests(adapted)[name] for name in (WEIGHTS, CONFIG)
    }


def test_an_adapter_is_a_model_wherever_dana_reads_one(adapted, decoder, tmp_path):
    folded = fold_stage(adapted, tmp_path / "folded").path
    one, other = load_backbone(str(adapted)), load_backbone(str(folded))
    ids = torch.arange(40)[None]
    torch.testing.assert_close(one(input_ids=ids)[0], other(input_ids=ids)[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        load_backbone(str(decoder))(input_ids=ids)[0].shape,
        one(input_ids=ids)[0].shape,
        msg="the same shape",
    )
    assert not torch.allclose(
        load_backbone(str(decoder))(input_ids=ids)[0], one(input_ids=ids)[0], atol=1e-3
    )
    identity = model_identity(str(adapted))
    assert identity["base"] == model_identity(str(decoder))
    assert {WEIGHTS, CONFIG} < identity.keys()


def test_an_encoder_has_them_too(base, inputs, tmp_path):
    folder = adapt(
        base, inputs, tmp_path / "lora", replace(ADAPT, adapter="lora:r=2", learning_rate=1e-2)
    ).path
    (dense, tokenizer), line = load_model(folder), records(folder, "evaluation")[-1]
    assert type(dense).__name__ == "BertForMaskedLM"
    assert load_config(str(folder)).model_type == "bert"
    assert load_tokenizer(str(folder))[1].get_vocab() == tokenizer.get_vocab()
    again = adapt(folder, inputs, tmp_path / "again", replace(ADAPT, steps=1))
    assert records(again.path, "evaluation")[0]["target_loss"] == pytest.approx(
        line["target_loss"], abs=1e-5
    )


@pytest.mark.parametrize("is_tied", [True, False])
def test_rows_of_added_words_are_trained_where_they_are_read_and_predicted(
    is_tied, byte_level, tmp_path
):
    """Beside a bias of the predicted words, which peft leaves out."""
    tokenizer, ids = deepcopy(byte_level), torch.arange(200, 258)[None]
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    tokenizer.add_tokens([WORD])
    with torch_seed(1), torch.no_grad():
        model = PhiForCausalLM(PhiConfig(**SHAPE, vocab_size=258, tie_word_embeddings=is_tied))
        model.lm_head.bias.normal_()
        model.save_pretrained(tmp_path / "base")
        tokenizer.save_pretrained(tmp_path / "base")
    logits = model(ids).logits
    add_adapter(model, tokenizer, "lora:r=2", str(tmp_path / "base"), seed=0)
    torch.testing.assert_close(model(ids).logits, logits)
    rows = {
        name: part
        for name, part in model.named_parameters()
        if part.requires_grad and "lora" not in name
    }
    assert [part.shape for part in rows.values()] == [(1, 32)] * (1 if is_tied else 2)
    with torch.no_grad():
        for part in rows.values():
            part.normal_()
    write_adapter(model, dict(model.named_parameters()), tmp_path / "adapter")
    tokenizer.save_pretrained(tmp_path / "adapter")
    (dense, _), changes = load_model(tmp_path / "adapter"), model(ids).logits
    torch.testing.assert_close(dense(ids).logits, changes, atol=1e-5, rtol=1e-4)
    assert ((changes - logits).abs() > 1e-3)[0, 0].tolist() == [False] * 257 + [True]
    assert ((changes - logits).abs() > 1e-3)[0, -1].sum() > 200, "the last token is the word"


BAD_SPECS = {
    "prefix": "lora or dora",
    "lora:r=0": "r=0",
    "lora:rank=3": "Adapter takes: ",
    "lora:dropout=1": "dropout",
    "lora:r=x": "r",
}


@pytest.mark.parametrize("spec", BAD_SPECS)
def test_a_wrong_spec_is_refused_before_anything_is_read(spec):
    with pytest.raises(ConfigError, match=BAD_SPECS[spec]):
        AdaptSettings(adapter=spec)


def test_without_peft_the_line_says_what_to_install(monkeypatch, adapted):
    monkeypatch.setattr("dana.models.adapters.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"adapter='lora'.*pip install 'peft>="):
        Adapter.from_spec("lora")
    with pytest.raises(
        ArtifactError, match=r"holds an adapter, which peft opens: pip install 'peft>="
    ):
        load_backbone(str(adapted))


def test_a_model_without_the_targets_or_without_a_head_is_refused(
    decoder, texts, inputs, base, tmp_path
):
    for targets, problem in {
        "query": "without query, which .* lacks",
        "q_proj+v_prj": "without v_prj, which .* lacks",
        "lm_head": "without lm_head, .*weights of another layer",
        "embed_tokens": "without embed_tokens, .*an added word",
        "norm": "is not supported.*targets=all-linear",
    }.items():
        with pytest.raises(
            ConfigError, match=rf"adapter='lora:targets={re.escape(targets)}'.*{problem}"
        ):
            adapt(
                decoder,
                texts,
                tmp_path / "out",
                replace(SETTINGS, adapter=f"lora:targets={targets}"),
            )
    load_backbone(base).save_pretrained(headless := tmp_path / "headless")
    AutoTokenizer.from_pretrained(base).save_pretrained(headless)
    with pytest.raises(ConfigError, match="no language-model head, which adapters do not train"):
        adapt(headless, inputs, tmp_path / "out", replace(ADAPT, adapter="lora"))
    assert not (tmp_path / "out").exists()


@pytest.fixture
def copy(adapted, decoder, tmp_path):
    """A copy of the adapter whose base is a copy, too."""
    shutil.copytree(adapted, tmp_path / "adapter")
    shutil.copytree(decoder, tmp_path / "base")
    change_config(tmp_path / "adapter", base_model_name_or_path=str(tmp_path / "base"))
    return tmp_path / "adapter"


def change_config(folder, **values):
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**config, **values}))


def change_weights(file, change):
    weights = load_file(file)
    change(weights)
    save_file(weights, file)


def last_of(weights):
    return weights[max(name for name in weights if "lora_A" in name)]


DAMAGES = {
    "base changed": (
        lambda one: change_weights(
            one.parent / "base" / "model.safetensors", lambda w: w["model.norm.weight"].add_(1)
        ),
        "its base .*base has changed since.*; restore it",
    ),
    "base missing": (lambda one: shutil.rmtree(one.parent / "base"), "base: no such folder"),
    "no base named": (
        lambda one: (one / CONFIG).write_text("{}"),
        "adapter_config.json: names no base",
    ),
    "itself its base": (
        lambda one: change_config(one, base_model_name_or_path=str(one)),
        "must be the base's folder",
    ),
    "no tensors": (
        lambda one: (one / WEIGHTS).unlink(),
        "needs its tensors as adapter_model.safetensors",
    ),
    "cut": (lambda one: os.truncate(one / WEIGHTS, 500), "cannot be loaded"),
    "a tensor less": (
        lambda one: change_weights(one / WEIGHTS, lambda w: w.pop(max(w))),
        "has other tensors",
    ),
    "another tensor": (
        lambda one: change_weights(one / WEIGHTS, lambda w: w.update(more=torch.zeros(1))),
        "has other tensors",
    ),
    "another rank": (
        lambda one: change_config(one, r=3),
        "cannot be loaded: .*size mismatch|size mismatch",
    ),
    "not a number": (
        lambda one: change_weights(one / WEIGHTS, lambda w: last_of(w).fill_(torch.nan)),
        "NaN",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_one_line(damage, copy, tmp_path, capsys):
    change, line = DAMAGES[damage]
    assert load_model(copy)
    change(copy)
    with pytest.raises(ArtifactError, match=line) as error:
        load_model(copy)
    assert "\n" not in str(error.value)
    assert main(["files", "fold", str(copy), "--out", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()


def test_an_adapter_of_an_adapter_is_to_be_folded_first(copy, decoder, texts, tmp_path, capsys):
    with pytest.raises(ConfigError, match=r"an adapter, too; fold that first: dana files fold"):
        adapt(copy, texts, tmp_path / "out", SETTINGS)
    assert main(["files", "fold", str(decoder), "--out", str(tmp_path / "out")]) == 2
    assert "a folder with adapter_config.json" in capsys.readouterr().err
    assert main(["files", "fold", str(copy), "--out", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"folder": str(tmp_path / "out")}
    adapt(tmp_path / "out", texts, tmp_path / "second", replace(SETTINGS, steps=1))
