"""What a run may do on the way: compute layers twice, write models, and drop out otherwise."""

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    DistilBertConfig,
    ModernBertConfig,
    RobertaConfig,
)

from dana.core.errors import ArtifactError, ConfigError
from dana.models.language_model import dropouts, new_encoder
from dana.train.checkpoints import CheckpointPolicy, Checkpoints
from dana.train.layout import BatchLayout
from dana.train.loop import prepare, take_step
from dana.train.objectives.masked import MaskedTokens
from dana.train.planner import checkpoint_gradients
from dana.train.records import EvaluationRecord
from dana.train.settings import AdaptSettings, Execution, TrainSettings

SETTINGS = TrainSettings(max_tokens=16, clip=1e9, execution=Execution(micro_batch_tokens=64))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradients_computed_twice_are_the_same(tiny_model, collator, examples, dropout, monkeypatch):
    def gradients(again):
        model, passes = tiny_model(dropout), []
        if again:
            checkpoint_gradients(model)
        prepared = prepare(model, SETTINGS, Accelerator(cpu=True), BatchLayout(budget=64))
        prepared.optimizer = torch.optim.SGD(prepared.module.parameters(), lr=1.0)
        model.bert.encoder.layer[0].attention.register_forward_hook(lambda *_: passes.append(1))
        before = torch.cat([value.detach().flatten() for value in model.parameters()])
        batch = collator.step_batch(examples.take(np.arange(8)), 0, "batch")
        take_step(prepared, batch, 1.0, 0, SETTINGS)
        return before - torch.cat([value.detach().flatten() for value in model.parameters()]), len(passes)

    (once, passes), (twice, more) = gradients(False), gradients(True)
    assert more == 2 * passes, "or nothing was computed twice"
    assert float(once.norm()) > 0.1
    torch.testing.assert_close(twice, once, atol=1e-6, rtol=0)


def test_a_model_that_cannot_compute_twice_is_refused(tiny_model, monkeypatch):
    model = tiny_model()
    monkeypatch.setattr(type(model), "supports_gradient_checkpointing", False)
    with pytest.raises(ConfigError, match=r"execution\.gradient_checkpointing=true: bert cannot do it"):
        checkpoint_gradients(model)


SMALL = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "pad_token_id": 0,
}
CONFIGS = [
    BertConfig(**SMALL),
    RobertaConfig(**SMALL, max_position_embeddings=40),
    DistilBertConfig(vocab_size=60, dim=16, n_layers=1, n_heads=2, hidden_dim=32),
    ModernBertConfig(
        **SMALL, attention_dropout=0.1, mlp_dropout=0.1, embedding_dropout=0.1, cls_token_id=1, sep_token_id=2
    ),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
def test_dropout_is_that_of_the_run_and_the_model_keeps_its_own(config, tiny_tokenizer, tmp_path):
    own = dropouts(config)
    assert set(own.values()) == {0.1}
    config.vocab_size = len(tiny_tokenizer)
    AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path)
    tiny_tokenizer.save_pretrained(tmp_path)
    ids = torch.arange(5, 25)[None]

    def varies(dropout):
        loaded = MaskedTokens().prepare_model(str(tmp_path), 0, dropout).model
        assert dropouts(loaded.config) == own, "what is saved is the model's own"
        loaded.train()
        with torch.no_grad():
            return not torch.equal(loaded(ids).logits, loaded(ids).logits)

    assert [varies(dropout) for dropout in (None, 0.0, 0.5)] == [True, False, True]


def test_a_dropout_is_part_of_the_fingerprint_and_in_its_range():
    assert AdaptSettings(dropout=0.0).decisive() == AdaptSettings().decisive() | {"dropout": 0.0}
    with pytest.raises(ConfigError, match=r"dropout=1\.0: must be in \[0, 1\), or null"):
        AdaptSettings(dropout=1.0)


def export(prepared, tokenizer, folder):
    policy = CheckpointPolicy(Checkpoints(folder, {}), SETTINGS, {}, [EvaluationRecord(1, 8, None, None, None, None)])
    policy.export(prepared, tokenizer, policy.checkpoints)


def test_an_export_that_cannot_be_written_is_one_line(tiny_model, tiny_tokenizer, tmp_path):
    prepared = prepare(tiny_model(), SETTINGS, Accelerator(cpu=True), BatchLayout())
    (tmp_path / "exports").write_text("a file")
    with pytest.raises(ArtifactError, match="exports/step-00000001: cannot be written"):
        export(prepared, tiny_tokenizer, tmp_path / "exports")


def test_an_exported_model_is_whole_and_replaces_one_of_the_same_name(tiny_tokenizer, tmp_path):
    checkpoint = new_encoder("bert", "tiny", tiny_tokenizer, 0.1, seed=0)
    prepared = prepare(checkpoint.model, TrainSettings(), Accelerator(cpu=True), BatchLayout())
    for _ in range(2):
        export(prepared, tiny_tokenizer, tmp_path / "exports")
    assert [path.name for path in (tmp_path / "exports").iterdir()] == ["step-00000001"], "nothing half-written is left"
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path / "exports" / "step-00000001")
    for name, value in checkpoint.model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
    assert AutoTokenizer.from_pretrained(tmp_path / "exports" / "step-00000001").vocab_size == tiny_tokenizer.vocab_size
