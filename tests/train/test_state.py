"""Saved and loaded models: new heads and their warm-up, dropout, folders that transformers opens, refusals."""

import errno
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    BertForPreTraining,
    BertModel,
    DistilBertConfig,
    ModernBertConfig,
    RobertaConfig,
)

from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.schemas import iterate_documents
from dana.models.folder import model_identity
from dana.models.heads import SelectedLogits
from dana.models.language_model import check_length, dropouts, new_encoder
from dana.train.examples import build_examples
from dana.train.execution import make_accelerator
from dana.train.head_warmup import HeadCheck, WarmupFile, WarmupProgress, warm_up_head
from dana.train.layout import BatchLayout
from dana.train.objectives.masked import MaskedTokens
from dana.train.objectives.next_sentence import NextSentence
from dana.train.passes import default_tokens
from dana.train.planner import checkpoint_gradients
from dana.train.settings import Execution, HeadWarmup, TrainSettings
from dana.train.state import export_model, save_model
from dana.train.tokens import Tokens
from tests.families import FAMILIES
from tests.train.conftest import MASKED, SETTINGS, bert, gradient_of_step, mean_loss, new_state


@pytest.fixture
def checkpoint(tiny_tokenizer):
    return new_encoder("bert", "tiny", tiny_tokenizer, 0.1, seed=3)


def save(checkpoint, folder, **settings):
    save_model(new_state(checkpoint.model, TrainSettings(**settings)), checkpoint.tokenizer, folder)
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


def test_what_was_saved_loads_without_dana_and_is_the_same(
    checkpoint, folder, tiny_tokenizer, tmp_path
):
    assert equal(checkpoint.model, AutoModelForMaskedLM.from_pretrained(folder))
    assert AutoModel.from_pretrained(folder).config.hidden_size == 128
    again = load(folder)
    assert not again.new
    assert (
        again.tokenizer("Alpha beta")["input_ids"]
        == checkpoint.tokenizer("Alpha beta")["input_ids"]
    )
    pairs = new_encoder(
        "bert", "tiny", tiny_tokenizer, 0.0, seed=3, auto_class=NextSentence().auto_class
    )
    save(pairs, tmp_path / "pairs", objective="next_sentence")
    for kind in (BertForPreTraining, AutoModelForMaskedLM, AutoModel):
        _, report = kind.from_pretrained(tmp_path / "pairs", output_loading_info=True)
        assert not report["missing_keys"], kind
    assert equal(pairs.model, load(tmp_path / "pairs", 9, NextSentence).model)


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "camembert", "albert"])
def test_tied_embeddings_are_written_where_a_model_without_the_head_finds_them(family, tmp_path):
    FAMILIES[family].save(tmp_path / "base")
    language_model = MaskedTokens().prepare_model(str(tmp_path / "base"), seed=0)
    save(language_model, tmp_path / "model")
    encoder, report = AutoModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not [name for name in report["missing_keys"] if "pooler" not in name]
    trained = language_model.model.get_input_embeddings().weight
    assert torch.equal(encoder.get_input_embeddings().weight, trained)
    assert load(tmp_path / "model").new == frozenset()


def test_an_exported_model_is_complete_and_replaces_one_of_its_name(checkpoint, tmp_path):
    state = new_state(checkpoint.model)
    (tmp_path / "file").write_text("a file")
    for _ in range(2):
        export_model(state, checkpoint.tokenizer, tmp_path / "out" / "step-00000001")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["step-00000001"], (
        "nothing half-written is left"
    )
    assert equal(checkpoint.model, load(tmp_path / "out" / "step-00000001").model)
    with pytest.raises(ArtifactError, match="file/step-00000001: cannot be written"):
        export_model(state, checkpoint.tokenizer, tmp_path / "file" / "step-00000001")


def test_a_new_head_is_tied_and_depends_on_the_seed(backbone, folder):
    heads = [load(backbone, seed) for seed in (0, 0, 1)]
    assert all(name.startswith("cls.predictions") for name in heads[0].new)
    assert heads[0].new
    model = heads[0].model
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    pairs = [load(folder, seed, NextSentence) for seed in (0, 0, 1)]
    assert not any(head.new for head in pairs), "the head of pairs has no warm-up"
    assert load(backbone, 0, NextSentence).new == heads[0].new
    for weights in (
        [head.model.cls.predictions.transform.dense.weight for head in heads],
        [head.model.cls.seq_relationship.weight for head in pairs],
    ):
        assert torch.equal(weights[0], weights[1])
        assert not torch.equal(weights[0], weights[2])


@pytest.fixture
def warm_up(backbone, tiny_tokenizer, write_corpus, repository_texts):
    """Warms up a new head; returns the model, its loss, and its held-out losses before and after."""
    tokens = Tokens.from_documents(
        iterate_documents(write_corpus("c", repository_texts[:6])), tiny_tokenizer
    )
    collator, heldout = (
        MaskedTokens().collator(tiny_tokenizer, 0),
        MaskedTokens().heldout_collator(tiny_tokenizer),
    )
    examples, _ = build_examples(tokens, None, collator.special_tokens, 64)

    def run(warmup, dtype=torch.float32, check=None, file=None, **settings):
        head = load(backbone)
        head.model.to(dtype)
        module = SelectedLogits(head.model)
        before = mean_loss(module, examples, heldout, 8192)
        settings = TrainSettings(max_tokens=64, **settings)
        shape = BatchLayout.from_config(head.model.config, default_tokens(settings))
        result = warm_up_head(head, examples, collator, settings, warmup, shape, check, file)
        return head.model, result, (before, mean_loss(module, examples, heldout, 8192))

    return run


def test_a_warm_up_lowers_the_loss_and_leaves_the_backbone_alone(warm_up, backbone, monkeypatch):
    rates, original = [], torch.optim.AdamW.step

    def record(self, *args):
        rates.append([group["lr"] for group in self.param_groups])
        return original(self, *args)

    monkeypatch.setattr(torch.optim.AdamW, "step", record)
    model, _, (before, after) = warm_up(HeadWarmup(20, 8, learning_rate=1e-2))
    assert after < before - 0.2
    assert equal(load(backbone).model.bert, model.bert)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert [rate for rate, _ in rates] == pytest.approx(
        [5e-3, 1e-2, *np.linspace(1e-2, 1e-2 / 18, 18)], rel=1e-6
    )
    assert all(one == other for one, other in rates)
    model, loss, _ = warm_up(HeadWarmup(steps=0))
    assert loss is None
    assert equal(load(backbone).model, model)


def test_a_new_head_begins_as_guesses_by_frequency_and_must_get_below_them(
    warm_up, backbone, tiny_tokenizer, write_corpus, repository_texts
):
    documents = iterate_documents(write_corpus("h", repository_texts[:6]))
    tokens = Tokens.from_documents(documents, tiny_tokenizer)
    collator = MaskedTokens().heldout_collator(tiny_tokenizer)
    examples, _ = build_examples(tokens, None, collator.special_tokens, 64)
    check = HeadCheck(examples, collator, make_accelerator())
    _, head, (before, after) = warm_up(HeadWarmup(2, 8, 1e-6, margin=-1.5), check=check)
    assert head.entropy == pytest.approx(after, abs=1.5), (
        "the bias alone is near guesses by frequency"
    )
    assert after < before
    assert head.heldout_loss == pytest.approx(after, abs=0.5)
    _, head, _ = warm_up(HeadWarmup(1000, 8, margin=-1.5), check=check)
    assert head.steps == 50, "it ends at the first check below the bar"
    words = r"the new head is at \d\.\d+ nats .* 2 steps, where guessing by frequency costs \d\.\d+"
    with pytest.raises(DataError, match=words):
        warm_up(HeadWarmup(2, 8, 1e-6), check=check)


class Stopped(Exception):
    """What a killed warm-up raises here."""


@dataclass(frozen=True)
class StoppingCheck(HeadCheck):
    """Never lets a warm-up end early, and stops it at the third measurement."""

    measured: list = field(default_factory=list)
    stops: bool = True

    def measure(self, module, shape):
        if self.stops and len(self.measured) == 2:
            raise Stopped
        loss = super().measure(module, shape)
        self.measured.append(loss)
        return loss + 100 if len(self.measured) < 4 else loss


def test_a_stopped_warm_up_goes_on_to_the_same_head(
    warm_up, tiny_tokenizer, write_corpus, repository_texts, tmp_path, heard
):
    documents = iterate_documents(write_corpus("h", repository_texts[:6]))
    tokens = Tokens.from_documents(documents, tiny_tokenizer)
    collator = MaskedTokens().heldout_collator(tiny_tokenizer)
    examples, _ = build_examples(tokens, None, collator.special_tokens, 64)
    warmup = HeadWarmup(160, 4, margin=-9)
    accelerator = make_accelerator()
    whole_check = StoppingCheck(examples, collator, accelerator, stops=False)
    whole, head, _ = warm_up(warmup, check=whole_check)
    file = WarmupFile(tmp_path / "head", {"seed": 0})
    with pytest.raises(Stopped):
        warm_up(warmup, check=StoppingCheck(examples, collator, accelerator), file=file)
    assert "parameter.0" in load_file(file.path), "no pickle"
    rest_check = StoppingCheck(
        examples, collator, accelerator, whole_check.measured[:2], stops=False
    )
    resumed, resumed_head, _ = warm_up(warmup, check=rest_check, file=file)
    assert "goes on after 100 steps" in heard.text
    assert resumed_head == head
    assert head.steps == 160
    assert equal(resumed, whole)
    again, _, _ = warm_up(warmup, check=rest_check, file=file)
    assert equal(again, whole), "a finished one is taken as it is"
    heard.clear()
    other = replace(file, depends_on={"seed": 1})
    warm_up(replace(warmup, steps=1), check=rest_check, file=other)
    assert "goes on" not in heard.text
    content = file.path.read_bytes()
    for damaged in (
        b"cut off",
        content.replace(b"progress", b"#rogress"),
        content.replace(b"{", b"#", 2),
    ):
        heard.clear()
        file.path.write_bytes(damaged)
        warm_up(replace(warmup, steps=1), check=rest_check, file=file)
        assert "cannot be read, and is begun anew" in heard.text


def test_a_parameter_without_a_gradient_is_kept_and_restored(tmp_path):
    learnt, idle = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer = torch.optim.AdamW([learnt, idle])
    learnt.grad = torch.ones(3)
    optimizer.step()
    file = WarmupFile(tmp_path / "head", {"seed": 0})
    file.write(optimizer, WarmupProgress([2.0]))
    others = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
    other = torch.optim.AdamW(others)
    assert file.restore(other) == WarmupProgress([2.0])
    assert torch.equal(others[0], learnt)
    assert torch.equal(others[1], idle)
    others[1].grad = torch.ones(3)
    other.step()
    assert not torch.equal(others[1], idle)


def test_without_a_held_out_token_to_predict_all_steps_are_taken(warm_up, weighted_examples):
    @dataclass(frozen=True)
    class Nothing(HeadCheck):
        def measure(self, module, shape):
            return None

    nothing = Nothing(weighted_examples, None, None)
    _, head, _ = warm_up(HeadWarmup(60, 4), check=nothing)
    assert head.steps == 60
    assert head.heldout_loss is None


def test_a_warm_up_does_not_depend_on_the_cut_into_micro_batches(warm_up):
    exact = torch.float64  # Adam amplifies the rounding of tiny gradients
    model, loss, _ = warm_up(HeadWarmup(2, 8), exact)
    cut, cut_loss, _ = warm_up(HeadWarmup(2, 8), exact, execution=Execution(micro_batch_tokens=64))
    assert cut_loss.loss == pytest.approx(loss.loss, abs=1e-5)
    for name, value in cut.state_dict().items():
        torch.testing.assert_close(value, model.state_dict()[name], atol=1e-5, rtol=0)


SMALL = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "pad_token_id": 0,
}
RATES = {"attention_dropout": 0.1, "mlp_dropout": 0.1, "embedding_dropout": 0.1}
CONFIGS = [RobertaConfig(**SMALL, intermediate_size=32, max_position_embeddings=40)]
CONFIGS += [DistilBertConfig(vocab_size=60, dim=16, n_layers=1, n_heads=2, hidden_dim=32)]
CONFIGS += [
    ModernBertConfig(**SMALL, **RATES, intermediate_size=32, cls_token_id=1, sep_token_id=2)
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
def test_dropout_is_that_of_the_run_and_the_config_stays(config, tiny_tokenizer, tmp_path):
    rates = dropouts(config)
    assert set(rates.values()) == {0.1}
    config.vocab_size = len(tiny_tokenizer)
    AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path)
    tiny_tokenizer.save_pretrained(tmp_path)
    ids = torch.arange(5, 25)[None]
    for dropout, varies in ((None, True), (0.0, False), (0.5, True)):
        model = MaskedTokens().prepare_model(str(tmp_path), 0, dropout).model.train()
        assert dropouts(model.config) == rates
        with torch.no_grad():
            assert torch.equal(model(ids).logits, model(ids).logits) is not varies


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_recomputed_gradients_are_the_same(examples, dropout):
    batch = MASKED.step_batch(examples.take(np.arange(8)), 0, "batch")
    gradients, passes = [], {False: [], True: []}
    for recompute, calls in passes.items():
        model = bert(dropout)
        if recompute:
            checkpoint_gradients(model)
        model.bert.encoder.layer[0].attention.register_forward_hook(
            lambda *call, calls=calls: calls.append(call)
        )
        gradients.append(gradient_of_step(new_state(model, budget=64), batch, SETTINGS)[1])
    assert len(passes[True]) == 2 * len(passes[False]) > 0, "layers are computed twice"
    assert float(gradients[0].norm()) > 0.1
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-6, rtol=0)


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


def test_a_folder_with_missing_weights_is_refused(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["bert.encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert "bert.encoder.layer.1" in refusal(ArtifactError, load, folder)


def test_what_a_model_cannot_do_is_refused(checkpoint, monkeypatch):
    config = checkpoint.model.config
    check_length(config, 64)
    assert "max_tokens=65" in refusal(ConfigError, check_length, config, 65)
    assert "512" in refusal(
        ConfigError, check_length, RobertaConfig(max_position_embeddings=514), 513
    )
    assert "roberta" in refusal(ConfigError, NextSentence().auto_class, RobertaConfig())
    monkeypatch.setattr(type(checkpoint.model), "supports_gradient_checkpointing", False)
    message = refusal(ConfigError, checkpoint_gradients, checkpoint.model)
    assert message.startswith("execution.gradient_checkpointing=true: bert")


def test_the_identity_of_a_model_of_the_hub_is_its_commit(monkeypatch):
    config = SimpleNamespace(_commit_hash="abc", architectures=[])
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", lambda *_, **__: config)
    assert model_identity("org/name") == {"name": "org/name", "commit": "abc"}
