"""Gradient checkpointing, dropout of a run, and exported models."""

import pytest
import torch
from accelerate import Accelerator
from transformers import AutoModelForMaskedLM, AutoTokenizer, DistilBertConfig, ModernBertConfig, RobertaConfig

from dana.core.errors import ArtifactError, ConfigError
from dana.models.language_model import dropouts, new_encoder
from dana.train.checkpoints import CheckpointPolicy, Checkpoints
from dana.train.layout import BatchLayout
from dana.train.loop import prepare
from dana.train.objectives.masked import MaskedTokens
from dana.train.planner import checkpoint_gradients
from dana.train.records import EvaluationRecord
from dana.train.settings import TrainSettings
from tests.train.conftest import gradient_of_step


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_recomputed_gradients_are_the_same(tiny_model, collator, examples, dropout):
    settings = TrainSettings(max_tokens=16, clip=1e9)
    batch = collator.step_batch(examples.take(torch.arange(8).numpy()), 0, "batch")
    gradients, passes = [], []
    for recompute in (False, True):
        model = tiny_model(dropout)
        if recompute:
            checkpoint_gradients(model)
        model.bert.encoder.layer[0].attention.register_forward_hook(lambda *_: passes.append(1))
        state = prepare(model, settings, Accelerator(cpu=True), BatchLayout(budget=64))
        gradients.append(gradient_of_step(state, batch, settings)[1])
        passes.append(0)
    first = passes.index(0)
    assert len(passes) - first - 2 == 2 * first, "layers are computed twice"
    assert float(gradients[0].norm()) > 0.1
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-6, rtol=0)


def test_a_model_without_gradient_checkpointing_is_refused(tiny_model, monkeypatch):
    model = tiny_model()
    monkeypatch.setattr(type(model), "supports_gradient_checkpointing", False)
    with pytest.raises(ConfigError, match=r"execution\.gradient_checkpointing=true: bert"):
        checkpoint_gradients(model)


SMALL = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "pad_token_id": 0}
RATES = {"attention_dropout": 0.1, "mlp_dropout": 0.1, "embedding_dropout": 0.1}
CONFIGS = [
    RobertaConfig(**SMALL, intermediate_size=32, max_position_embeddings=40),
    DistilBertConfig(vocab_size=60, dim=16, n_layers=1, n_heads=2, hidden_dim=32),
    ModernBertConfig(**SMALL, **RATES, intermediate_size=32, cls_token_id=1, sep_token_id=2),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
def test_dropout_is_that_of_the_run_and_the_config_keeps_its_own(config, tiny_tokenizer, tmp_path):
    own = dropouts(config)
    assert set(own.values()) == {0.1}
    config.vocab_size = len(tiny_tokenizer)
    AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path)
    tiny_tokenizer.save_pretrained(tmp_path)
    ids = torch.arange(5, 25)[None]
    for dropout, varies in ((None, True), (0.0, False), (0.5, True)):
        model = MaskedTokens().prepare_model(str(tmp_path), 0, dropout).model.train()
        assert dropouts(model.config) == own
        with torch.no_grad():
            assert torch.equal(model(ids).logits, model(ids).logits) is not varies


def test_an_exported_model_is_complete_and_replaces_one_of_its_name(tiny_tokenizer, tmp_path):
    checkpoint = new_encoder("bert", "tiny", tiny_tokenizer, 0.1, seed=0)
    state = prepare(checkpoint.model, TrainSettings(), Accelerator(cpu=True), BatchLayout())
    record = EvaluationRecord(1, 8, None, None, None, None)
    for folder in ("exports", "exports", "file"):
        policy = CheckpointPolicy(Checkpoints(tmp_path / folder, {}), TrainSettings(), {}, [record])
        if folder == "file":
            (tmp_path / "file").write_text("a file")
            with pytest.raises(ArtifactError, match="file/step-00000001: cannot be written"):
                policy.export(state, tiny_tokenizer, policy.checkpoints)
        else:
            policy.export(state, tiny_tokenizer, policy.checkpoints)
    path = tmp_path / "exports" / "step-00000001"
    assert list((tmp_path / "exports").iterdir()) == [path], "nothing half-written is left"
    model = AutoModelForMaskedLM.from_pretrained(path)
    for name, value in checkpoint.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name
    assert AutoTokenizer.from_pretrained(path).vocab_size == tiny_tokenizer.vocab_size
