"""The causal objective: the loss of transformers, weighted, in chunks, on five architectures, packed or padded."""

import copy
import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch.utils.data import default_collate
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertGenerationConfig,
    BlenderbotConfig,
    CohereConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    T5Config,
    Trainer,
    TrainingArguments,
    XLNetConfig,
)

from dana.core.errors import ArtifactError, ConfigError
from dana.core.registry import OBJECTIVES
from dana.core.rng import torch_seed
from dana.core.schemas import iterate_documents
from dana.models import heads
from dana.models.varlen import NAME
from dana.stages.training import adapt_stage
from dana.train import DENOMINATORS, LAYOUTS
from dana.train.examples import Examples, SpecialTokens, build_examples
from dana.train.layout import BatchLayout
from dana.train.loop import train
from dana.train.objectives.causal import CausalCollator
from dana.train.planner import choose_execution, keeps_apart
from dana.train.settings import AdaptSettings, Execution, TrainSettings
from dana.train.tokens import Tokens
from tests.conftest import write_documents
from tests.train.conftest import HeldOut, gradient_of_step, new_state, parameters, use_varlen

SHAPE = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
SHAPE |= {"intermediate_size": 32, "max_position_embeddings": 64}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = {**SHAPE, **TOKENS, "num_key_value_heads": 2}
GPT2 = GPT2Config(vocab_size=60, n_embd=16, n_layer=2, n_head=2, n_positions=64, **TOKENS)
LLAMA = LlamaConfig(**GROUPED)
WINDOW = MistralConfig(**GROUPED, sliding_window=4)
GEMMA = Gemma3TextConfig(**GROUPED, head_dim=4, sliding_window=4, final_logit_softcapping=3.0)
QWEN = Qwen2Config(**GROUPED, tie_word_embeddings=True)
CONFIGS = [LLAMA, QWEN, GEMMA, GPT2, GPTNeoXConfig(**SHAPE, **TOKENS), WINDOW]
CONFIGS += [CohereConfig(**GROUPED, logit_scale=0.2), GraniteConfig(**GROUPED, logits_scaling=3.0)]
CAPPED = Gemma2Config(**GROUPED, head_dim=4, attn_logit_softcapping=2.0)
SIZES = [1, 2, 5, 16, 9, 12, 3, 16]  # one token alone has nothing to predict
WEIGHTS = [0.3, 1.0, 0.0, 0.7, 0.2, 1.0, 0.5, 0.9]
NOTHING = SpecialTokens(np.zeros(0, np.int32), np.zeros(0, np.int32))
names = pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)


def decoder(config, scale=5.0):
    """An untrained decoder without dropout; the scale makes its attention far from even."""
    config = copy.deepcopy(config)
    for name in [name for name in config.to_dict() if "dropout" in name or name.endswith("_pdrop")]:
        setattr(config, name, 0.0)
    with torch_seed(1), torch.no_grad():
        model = AutoModelForCausalLM.from_config(config)
        for value in model.parameters():
            value.mul_(scale if value.ndim > 1 else 1.0)
    return model


def gpt2(vocabulary, dropout=0.1):
    shape = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "bos_token_id": 0}
    rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    with torch_seed(1):
        return GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, **shape, **rates))


def make_batch(tokenizer, sizes, weights):
    special = SpecialTokens.from_tokenizer(tokenizer) if tokenizer else NOTHING
    stream = np.random.default_rng(0).integers(5, 60, sum(sizes))
    starts, ids = np.cumsum(sizes) - sizes, np.arange(len(sizes), dtype=np.uint64)
    return Examples(
        stream, starts, np.array(sizes), ids, np.array(weights, dtype=np.float32), special
    )


def reference(model, batch, denominator):
    """The step's loss by the model's own forward pass, example by example."""
    sums, counts, weights = [], [], batch.weights.astype(float)
    for first, last in pairwise(batch.offsets.tolist()):
        ids = torch.from_numpy(batch.tokens[first:last]).long()[None]
        counts.append(last - first - 1)
        sums.append(
            model(input_ids=ids, labels=ids).loss * counts[-1] if counts[-1] else torch.zeros(())
        )
    shares = [weight * part for weight, part in zip(weights, sums, strict=True)]
    if denominator == "batch":
        return sum(
            share / count for share, count in zip(shares, counts, strict=True) if count
        ) / len(counts)
    return sum(shares) / np.dot(
        weights if denominator == "weight_sum" else np.ones(len(counts)), counts
    )


def step_of(denominator, collator=None):
    collator = collator or CausalCollator(NOTHING)
    return collator.step_batch(make_batch(None, SIZES, WEIGHTS).take(np.arange(8)), 0, denominator)


def check_step(config, denominator="batch", budget=50, layout="padded"):
    """Compare loss and gradient of a step with the reference."""
    batch, model, other = step_of(denominator), decoder(config), decoder(config)
    loss = reference(model, batch.examples, denominator)
    loss.backward()
    autograd = torch.cat([value.grad.flatten() for value in model.parameters()])
    if layout == "unpadded":
        use_varlen(other)
    settings = TrainSettings(max_tokens=16, objective="causal", denominator=denominator, clip=1e9)
    outcome, gradient = gradient_of_step(
        new_state(other, settings, budget, layout=layout), batch, settings
    )
    assert outcome.loss == pytest.approx(float(loss.detach()), rel=1e-6)
    torch.testing.assert_close(
        gradient, autograd, atol=1e-6 * float(autograd.abs().max()), rtol=1e-4
    )


@pytest.mark.parametrize("denominator", DENOMINATORS)
@pytest.mark.parametrize("budget", [16, 512])
@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_loss_and_gradient_of_a_weighted_step_are_those_of_transformers(
    config, denominator, budget
):
    check_step(config, denominator, budget)


@names
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_architecture_has_them_in_both_layouts(config, layout):
    check_step(config, layout=layout)


@names
def test_an_architecture_passes_the_trial_of_its_layout_and_stays_as_it_was(config):
    model = decoder(config)
    assert keeps_apart(model)
    assert model.training
    assert model.config._attn_implementation == "sdpa"


def test_no_more_than_a_chunk_of_logits_is_held_and_nothing_changes(monkeypatch):
    sizes, logits_of = [], heads.decoder_logits

    def counted(model, states):
        sizes.append(len(states))
        return logits_of(model, states)

    monkeypatch.setattr(heads, "decoder_logits", counted)
    for chunk, most in ((1 << 25, 56), (60 * 7 + 59, 7), (1, 1)):
        monkeypatch.setattr(heads, "CHUNK", chunk)
        sizes.clear()
        check_step(LLAMA, budget=512)
        passes = sizes[1:]  # the first is the trial of the head
        assert max(passes) == most
        assert sum(passes) == 2 * 56, "once forwards, once again backwards"


def test_an_unknown_head_has_all_logits_at_once_and_is_named(monkeypatch, heard):
    monkeypatch.setattr(
        heads, "decoder_logits", lambda model, states: model.get_output_embeddings()(states) + 0.1
    )
    check_step(GPT2)
    assert "gpt2: the logits of a micro-batch are computed at once, not in chunks" in heard.text


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_capped_attention_is_padded_and_says_so(precision, monkeypatch):
    monkeypatch.setattr("dana.train.planner.has_kernel", lambda device: True)
    AcceleratorState._reset_state(reset_partial_state=True)

    def choose(layout):
        execution = Execution(layout=layout)
        settings = TrainSettings(
            steps=2, batch_size=8, max_tokens=16, objective="causal", execution=execution
        )
        accelerator = Accelerator(cpu=True, mixed_precision=precision)
        return choose_execution(
            decoder(CAPPED), make_batch(None, SIZES, WEIGHTS), settings, accelerator
        )

    shape, reasons = choose("auto")
    assert shape.layout == "padded"
    assert (
        precision == "no"
        or "tried without padding, gemma2 mixes the examples of a row" in reasons[2]
    )
    with pytest.raises(ConfigError, match=r"layout=unpadded .*gemma2"):
        choose("unpadded")
    model = decoder(CAPPED)
    model.set_attn_implementation(NAME)
    with pytest.raises(ArtifactError, match="softcap needs padded rows"):
        heads.SelectedLogits(model)(
            **step_of("batch").micro(np.arange(8), BatchLayout("unpadded")).inputs
        )
    AcceleratorState._reset_state(reset_partial_state=True)  # its precision is that of later tests


def test_capped_attention_has_the_loss_of_transformers_when_padded():
    check_step(CAPPED)


# For GPT-2 the Trainer also counts the first token of each text, which nothing predicts: its
# gradient is smaller.
@pytest.mark.parametrize("config", [QWEN, LLAMA], ids=["qwen2", "llama"])
def test_with_all_weights_1_a_run_is_that_of_the_trainer_of_transformers(config, tmp_path):
    examples = replace(
        make_batch(None, SIZES[1:], WEIGHTS[1:]), weights=np.ones(7, dtype=np.float32)
    )
    rates = {"learning_rate": 1e-3, "weight_decay": 0.0}
    settings = TrainSettings(
        objective="causal",
        denominator="token_count",
        steps=4,
        batch_size=7,
        max_tokens=16,
        evaluations=0,
        schedule="constant",
        warmup=0.0,
        betas=(0.9, 0.999),
        eps=1e-3,  # so large that the rounding of a gradient of 0, as of key biases, moves nothing
        clip=1e9,
        **rates,
    )
    collator = CausalCollator(NOTHING)
    state = new_state(decoder(config), settings, budget=40)
    *_, last = train(
        state,
        examples,
        [collator],
        settings,
        HeldOut({"target": examples, "pool": examples}, collator),
    )
    batch = examples.take(np.arange(7))
    rows = [batch.tokens[first:end].tolist() for first, end in pairwise(batch.offsets.tolist())]
    width = max(map(len, rows))
    table = [
        {
            "input_ids": row + [0] * (width - len(row)),
            "attention_mask": [1] * len(row) + [0] * (width - len(row)),
            "labels": row + [-100] * (width - len(row)),
        }
        for row in rows
    ]
    arguments = TrainingArguments(
        str(tmp_path),
        max_steps=4,
        per_device_train_batch_size=7,
        lr_scheduler_type="constant",
        max_grad_norm=1e9,
        adam_epsilon=1e-3,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        **rates,
    )
    trainer = Trainer(decoder(config), arguments, train_dataset=table, data_collator=_collate)
    trainer.train()
    torch.testing.assert_close(
        parameters(state.model), parameters(trainer.model), atol=1e-6, rtol=0
    )
    assert not torch.allclose(parameters(state.model), parameters(decoder(config)), atol=1e-4), (
        "it has learnt"
    )
    assert last.target_loss == pytest.approx(
        float(reference(trainer.model.eval(), batch, "token_count").detach()), abs=1e-5
    )


def _collate(rows):
    return default_collate(
        [{name: torch.tensor(value) for name, value in row.items()} for row in rows]
    )


def test_adapting_trains_measures_and_writes_a_folder_without_dana(
    repository_texts, byte_level, tmp_path
):
    texts = {
        "pool": repository_texts[4:20],
        "task": repository_texts[:2],
        "held_out": repository_texts[2:4],
    }
    inputs = [write_documents(tmp_path / name, some) for name, some in texts.items()]
    gpt2(len(byte_level)).save_pretrained(tmp_path / "base")
    byte_level.save_pretrained(tmp_path / "base")
    rates = {"dropout": 0.0, "learning_rate": 1e-2}
    settings = AdaptSettings(
        objective="causal", steps=30, batch_size=16, max_tokens=48, evaluations=0, **rates
    )
    artifact = adapt_stage(
        str(tmp_path / "base"), inputs[0], None, *inputs[1:], settings, tmp_path / "out"
    )
    lines = [
        json.loads(line) for line in (artifact.path / "training.jsonl").read_text().splitlines()
    ]
    before, after = (line for line in lines if line["kind"] == "evaluation")
    assert after["target_loss"] < before["target_loss"] - 0.5
    assert artifact.manifest["depends_on"]["settings"]["objective"]["code"]["class"] == "Causal"
    card = (artifact.path / "README.md").read_text()
    assert "| objective | next token |" in card
    assert "`AutoModelForCausalLM.from_pretrained`" in card
    collator = OBJECTIVES.create("causal").heldout_collator(byte_level)
    tokens = Tokens.from_documents(iterate_documents(inputs[1]), byte_level)
    heldout, _ = build_examples(tokens, None, collator.special_tokens, 48)
    batch = collator.step_batch(heldout.take(np.arange(len(heldout))), 0, "token_count").examples
    for folder, line in ((tmp_path / "base", before), (artifact.path, after)):
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        assert line["target_loss"] == pytest.approx(
            float(reference(model, batch, "token_count").detach()), abs=1e-5
        )


def test_models_that_see_what_follows_are_refused_and_decoders_by_masked():
    causal = OBJECTIVES.create("causal")
    for config in (
        BertConfig(),
        T5Config(),
        XLNetConfig(),
        BertGenerationConfig(),
        BlenderbotConfig(),
    ):
        with pytest.raises(
            ConfigError,
            match=rf"objective='causal'.* {config.model_type} also sees what follows",
        ) as error:
            causal.auto_class(config)
        is_masked = config.model_type == "bert"
        assert ("--objective masked" in str(error.value)) == is_masked
        can_be_tuned = config.model_type in ("t5", "xlnet")
        assert ("dana finetune --model" in str(error.value)) == can_be_tuned
    for config in (*CONFIGS, BertConfig(is_decoder=True)):
        assert causal.auto_class(config) is AutoModelForCausalLM
    for config in CONFIGS:
        with pytest.raises(
            ConfigError,
            match=rf"objective='masked'.* {config.model_type} has .*; adapt it with --objective caus",
        ):
            OBJECTIVES.create("masked").auto_class(config)
