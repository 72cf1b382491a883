import json

import pytest
import torch
import toy_task
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
)

from dana.core.rng import torch_seed
from dana.models.classifier import head_layers, new_classifier
from dana.models.folder import load_own_tokenizer, padding_id

IDS = torch.tensor([[2, 6, 7, 3], [2, 8, 3, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])


def head(classifier):
    return torch.cat(
        [value.flatten() for layer in head_layers(classifier.model) for value in layer.parameters()]
    )


def test_a_head_depends_on_its_seed_alone(checkpoint, tmp_path):
    """Not on what was drawn before, nor on the weights of the checkpoint."""
    other = toy_task.write_checkpoint(tmp_path, seed=1)
    first, second = new_classifier(checkpoint, 3, seed=4), new_classifier(str(other), 3, seed=4)
    assert torch.equal(head(first), head(second))
    weights = "model.bert.embeddings.word_embeddings.weight"
    assert not torch.equal(first.state_dict()[weights], second.state_dict()[weights])
    torch.manual_seed(2)
    assert torch.equal(head(new_classifier(checkpoint, 3, seed=4)), head(first))
    assert not torch.equal(head(new_classifier(checkpoint, 3, seed=5)), head(first))


def test_adapters_of_a_classifier_serve_one_of_other_labels(tmp_path):
    """Its encoder has them; its head is new, as it has another shape."""
    peft = pytest.importorskip("peft")
    base = tmp_path / "base"
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=2,
    )
    BertForSequenceClassification(config).save_pretrained(base)
    model = BertForSequenceClassification.from_pretrained(base)
    adapted = peft.get_peft_model(
        model, peft.LoraConfig(r=2, target_modules=["query"], init_lora_weights=False)
    )
    adapted.save_pretrained(tmp_path / "adapter")
    name = "encoder.layer.0.attention.self.query.weight"
    plain = dict(BertForSequenceClassification.from_pretrained(base).bert.named_parameters())
    for labels in (2, 3):
        classifier = new_classifier(str(tmp_path / "adapter"), labels, 0)
        weights = {
            key.partition("model.")[2]: value for key, value in classifier.named_parameters()
        }
        [found] = [value for key, value in weights.items() if key.endswith(name)]
        assert not torch.equal(found, plain[name])


@pytest.mark.parametrize("width", [32, 128])
def test_the_head_is_as_strong_on_a_narrow_model_as_on_a_wide_one(tmp_path, width):
    """Weights of spread 1 / sqrt(3 width) turn inputs of size 1 into outputs of size 0.58 at any width."""
    model = toy_task.write_checkpoint(tmp_path, hidden_size=width)
    dense = new_classifier(str(model), 3, 0).model.bert.pooler.dense
    assert dense.weight.std().item() == pytest.approx((3 * width) ** -0.5, rel=0.1)
    assert dense(torch.randn(500, width)).std().item() == pytest.approx(3**-0.5, rel=0.15)


MODERN = {
    "cls_token_id": 2,
    "sep_token_id": 3,
    "global_attn_every_n_layers": 1,
    "classifier_pooling": "mean",
}
SHAPES = {
    "bert": ({}, ["bert.pooler.dense", "classifier"]),
    "roberta": ({"type_vocab_size": 1}, ["classifier.dense", "classifier.out_proj"]),
    "deberta-v2": ({}, ["pooler.dense", "classifier"]),
    "albert": ({"embedding_size": 16}, ["albert.pooler", "classifier"]),
    "distilbert": (
        {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
        ["pre_classifier", "classifier"],
    ),
    "modernbert": (MODERN, ["head.dense", "head.norm", "classifier"]),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_whatever_head_a_checkpoint_brings_it_starts_from_the_seed_s(kind, tmp_path):
    """One with a trained head of other labels, and its backbone alone; both keep their backbone."""
    changes, names = SHAPES[kind]
    with torch_seed(3):
        config = AutoConfig.for_model(kind, **{**toy_task.SIZE, **changes}, num_labels=5)
        model = AutoModelForSequenceClassification.from_config(config)
        for name in names:
            torch.nn.init.normal_(model.get_submodule(name).weight, mean=3.0)
    model.save_pretrained(tmp_path / "with head")
    model.base_model.save_pretrained(tmp_path / "bare")
    classifier, bare = (
        new_classifier(str(tmp_path / name), 3, seed=4) for name in ("with head", "bare")
    )
    modules = {id(module): name for name, module in classifier.model.named_modules()}
    assert [modules[id(layer)] for layer in head_layers(classifier.model)] == names
    assert classifier.out is classifier.model.get_submodule(names[-1])
    assert torch.equal(head(classifier), head(bare))
    assert head(classifier).max() < 3
    backbone = classifier.model.base_model.state_dict()
    for name, value in model.base_model.state_dict().items():
        assert torch.equal(value, backbone[name]) or "pooler" in name
    assert getattr(classifier.model.config, "classifier_pooling", "cls") == "cls"


def test_a_decoder_answers_for_the_last_token_before_the_padding(tmp_path):
    AutoTokenizer.from_pretrained(toy_task.write_checkpoint(tmp_path)).save_pretrained(
        tmp_path / "gpt2"
    )
    config = AutoConfig.for_model(
        "gpt2", vocab_size=toy_task.SIZE["vocab_size"], n_embd=32, n_layer=1, n_head=2
    )
    AutoModel.from_config(config).save_pretrained(tmp_path / "gpt2")
    classifier = new_classifier(str(tmp_path / "gpt2"), 3, 0).eval()
    with torch.no_grad():
        assert torch.allclose(
            classifier(IDS, MASK)[1], classifier(IDS[1:, :3], MASK[1:, :3])[0], atol=1e-6
        )


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_logits_are_the_head_on_the_first_token_or_the_mean_of_real_ones_by_hand(
    checkpoint, pooling
):
    classifier = new_classifier(checkpoint, 3, 0, pooling=pooling).eval()
    layers = classifier.model
    dense = layers.bert.pooler.dense if pooling == "cls" else layers.head.dense
    with torch.no_grad():
        states = layers.base_model(input_ids=IDS, attention_mask=MASK)[0]
        vectors = (
            states[:, 0]
            if pooling == "cls"
            else torch.stack([states[0].mean(0), states[1, :3].mean(0)])
        )
        inner = torch.tanh(vectors @ dense.weight.T + dense.bias)
        logits = classifier(IDS, MASK)
        assert torch.allclose(
            logits, inner @ classifier.out.weight.T + classifier.out.bias, atol=1e-6
        )
        alone = classifier(IDS[1:, :3], MASK[1:, :3])
        assert torch.allclose(logits[1], alone[0], atol=1e-6), "padding changes nothing"


def test_mean_tokens_of_modernbert_pass_a_tanh_then_the_norm_of_its_own_head(tmp_path):
    config = AutoConfig.for_model("modernbert", **toy_task.SIZE, **SHAPES["modernbert"][0])
    AutoModel.from_config(config).save_pretrained(tmp_path)
    classifier = new_classifier(str(tmp_path), 3, 0, pooling="mean").eval()
    dense, norm = classifier.model.head.dense, classifier.model.head.norm
    with torch.no_grad():
        states = classifier.model.base_model(input_ids=IDS, attention_mask=MASK)[0]
        vectors = torch.stack([states[0].mean(0), states[1, :3].mean(0)])
        inner = norm(torch.tanh(vectors @ dense.weight.T + dense.bias))
        logits = inner @ classifier.out.weight.T + classifier.out.bias
        assert torch.allclose(classifier(IDS, MASK), logits, atol=1e-6)
    assert classifier.model.drop.p == 0.1


def test_a_checkpoint_in_half_precision_is_fine_tuned_in_single(checkpoint, tmp_path):
    AutoModelForMaskedLM.from_pretrained(checkpoint).to(torch.bfloat16).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(checkpoint).save_pretrained(tmp_path)
    classifier = new_classifier(str(tmp_path), 3, 0)
    assert {value.dtype for value in classifier.parameters()} == {torch.float32}
    assert classifier(IDS, MASK).shape == (2, 3)


@pytest.mark.parametrize("pad", [None, 0, 3])
def test_a_decoder_reads_its_last_token_whatever_padding_its_configuration_names(tmp_path, pad):
    folder = toy_task.write_decoder(tmp_path, ["the", "printer", "shows", "an", "error"])
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "pad_token_id": pad}))
    tokenizer = load_own_tokenizer(str(folder))
    classifier = new_classifier(str(folder), 3, seed=0).eval()
    tokens = tokenizer("the printer shows an error")["input_ids"]

    def logits(width):
        ids = torch.full((1, width), padding_id(tokenizer))
        ids[0, : len(tokens)] = torch.tensor(tokens)
        with torch.no_grad():
            return classifier(ids, (torch.arange(width) < len(tokens)).long()[None])

    alone, padded = logits(len(tokens)), logits(len(tokens) + 7)
    torch.testing.assert_close(padded, alone, rtol=1e-4, atol=1e-5)
