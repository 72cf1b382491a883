"""Layouts of micro-batches: how a step is cut, attention without padding, and that nothing learnt depends on them."""

import copy

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    DebertaV2Config,
    ModernBertConfig,
)

from dana.core.errors import ConfigError
from dana.models.heads import SelectedLogits
from dana.models.varlen import (
    attention,
    calls,
    has_kernel,
    kernel_attention,
    padded_attention,
)
from dana.train import LAYOUTS
from dana.train.layout import BatchLayout, lay_out, micro_batches
from dana.train.planner import KERNEL_RUNS, choose_execution
from dana.train.records import StepRecord
from dana.train.settings import Execution, TrainSettings
from tests.models.test_heads import CONFIGS, SHAPE
from tests.train.conftest import MASKED, bert, parameters, random_examples, run, use_varlen

HUGE = BatchLayout(budget=1 << 20)
LENGTHS = st.lists(st.integers(1, 64), min_size=1, max_size=60)


@given(
    lengths=LENGTHS,
    budget=st.integers(64, 400),
    world=st.integers(1, 4),
    layout=st.sampled_from(LAYOUTS),
)
def test_micro_batches_divide_a_step_among_ranks(lengths, budget, world, layout):
    lengths = np.array(lengths)
    ranks = [
        micro_batches(lengths, BatchLayout(layout, budget), rank, world) for rank in range(world)
    ]
    assert len({len(batches) for batches in ranks}) == 1, (
        "collectives need equally many on every rank"
    )
    assert sorted(row for batches in ranks for rows in batches for row in rows) == list(
        range(lengths.size)
    )
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    for rows in (rows for batches in ranks for rows in batches if rows.size):
        size = lay_out(rows, offsets, BatchLayout(layout))[0].size
        assert size <= budget + (lengths.max() if layout == "unpadded" else 0)
    alone = [micro_batches(np.array([5, 5, 5]), BatchLayout(layout, 4), rank, 2) for rank in (0, 1)]
    assert [[rows.tolist() for rows in batches] for batches in alone] == [[[0], [2]], [[1], []]], (
        "longer than allowed"
    )


def test_padded_micro_batches_have_similar_lengths_unless_a_pass_costs_more():
    lengths = np.array([4, 40, 5, 41, 6, 42])
    batches = micro_batches(lengths, BatchLayout(budget=126))
    assert [sorted(lengths[rows].tolist()) for rows in batches] == [[40, 41, 42], [4, 5, 6]]
    lengths = np.array([128] * 16 + [100] * 4 + [40] * 30 + [20] * 10)
    batches = micro_batches(lengths, HUGE)
    assert [sorted({*lengths[rows].tolist()}) for rows in batches] == [[100, 128], [40], [20]]
    assert len(micro_batches(np.array([100, 10, 10, 5]), HUGE)) == 1, (
        "too few to keep a processor busy twice"
    )


def test_positions_of_two_examples_by_hand():
    rows, offsets = np.array([1, 0]), np.array([0, 2, 5, 9])
    positions, inputs = lay_out(rows, offsets, BatchLayout())
    assert positions.tolist() == [[2, 3, 4], [0, 1, -1]]
    assert inputs["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    positions, inputs = lay_out(rows, offsets, BatchLayout("unpadded", first_position=2))
    assert positions.tolist() == [[2, 3, 4, 0, 1]]
    assert inputs["position_ids"].tolist() == [[2, 3, 4, 2, 3]]
    assert inputs["cu_seq_lens_q"].tolist() == inputs["cu_seq_lens_k"].tolist() == [0, 3, 5]
    assert inputs["max_length_q"] == inputs["max_length_k"] == 3


@pytest.mark.parametrize(
    ("bounds", "window"), [([0, 4, 5, 9], 0), ([0, 7, 9], 3), ([0, 7, 9], 1), ([0, 8, 9], 2)]
)
def test_attention_without_padding_is_that_of_each_example(bounds, window):
    parts = torch.randn(
        3, 1, 2, 9, 4, generator=torch.Generator().manual_seed(0), requires_grad=True
    )
    ends = torch.tensor(bounds, dtype=torch.int32)
    options = {"cu_seq_lens_q": ends, "max_length_q": int(ends.diff().max())}
    options |= {"sliding_window": window} if window else {}
    output, _ = attention(torch.nn.Module(), *parts.unbind(0), None, **options)
    owner = torch.repeat_interleave(ends.diff())
    mask = owner[:, None] == owner
    if window:  # transformers counts the position itself
        mask &= (torch.arange(9)[:, None] - torch.arange(9)).abs() < window
    alone = torch.nn.functional.scaled_dot_product_attention(
        *parts.unbind(0), attn_mask=mask
    ).transpose(1, 2)
    torch.testing.assert_close(output, alone)
    output.square().sum().backward()
    assert torch.isfinite(parts.grad).all(), "also of padding, which sees nothing"


def kernel_difference(bounds, heads, dims, window=-1):
    """The largest difference of the kernel to the padded product on random vectors, both in bfloat16."""
    generator = torch.Generator(bounds.device).manual_seed(0)
    shape = (3, 1, heads, int(bounds[-1]), dims)
    query, key, value = torch.randn(
        shape, generator=generator, device=bounds.device, dtype=torch.bfloat16
    ).unbind(0)
    longest = int(bounds.diff().max())
    options = {"cu_seq_lens_q": bounds, "max_length_q": longest, "sliding_window": window + 1}
    kernel, _ = attention(torch.nn.Module(), query, key, value, None, **options)
    product = padded_attention(
        query.float(), key.float(), value.float(), bounds, longest, sides=(window, window)
    )
    return float((kernel.float() - product).abs().max())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("window", [-1, 20])
def test_the_kernel_agrees_with_the_padded_product(window):
    bounds = torch.tensor([0, 120, 121, 300], dtype=torch.int32, device="cuda")
    assert has_kernel(bounds.device)
    assert 0 < kernel_difference(bounds, 4, 64, window) < 3e-2


@pytest.fixture
def kernel(monkeypatch):
    """A CPU that has the kernel: the padded product stands in for it. Returns the arguments of each call."""
    taken = []

    def stand_in(query, key, value, bounds, longest, scaling, dropout, sides):
        assert {part.dtype for part in (query, key, value)} <= {torch.bfloat16, torch.float16}
        taken.append({"dropout": dropout, "sides": sides})
        return padded_attention(query, key, value, bounds, longest, scaling, dropout, sides)

    monkeypatch.setattr("dana.models.varlen.kernel_attention", stand_in)
    monkeypatch.setattr("dana.models.varlen.has_kernel", lambda device: True)
    monkeypatch.setattr("dana.train.planner.has_kernel", lambda device: True)
    return taken


def test_the_kernel_gets_the_window(kernel):
    bounds = torch.tensor([0, 20, 21, 50], dtype=torch.int32)
    assert kernel_difference(bounds, 2, 8) < 3e-2
    assert kernel_difference(bounds, 2, 8, window=5) < 3e-2
    assert [call["sides"] for call in kernel] == [(-1, -1), (5, 5)]


@pytest.mark.parametrize(
    ("dims", "sides", "causal"), [(64, (-1, -1), False), (26, (-1, 0), True), (8, (5, 0), False)]
)
def test_the_operator_takes_heads_of_any_width_and_gives_their_gradients(
    dims, sides, causal, monkeypatch
):
    """Of the operator itself a CPU has shapes and gradients alone, on torch's meta device."""
    forward = torch.ops.aten._flash_attention_forward
    arguments = []

    def look(*values, **options):
        arguments.append((values, options))
        return forward(*values, **options)

    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", look)
    parts = [
        torch.empty(1, 4, 50, dims, dtype=torch.bfloat16, device="meta", requires_grad=True)
        for _ in range(3)
    ]
    bounds = torch.empty(4, dtype=torch.int32, device="meta")
    output = kernel_attention(*parts, bounds, 29, dropout=0.1, sides=sides)
    assert output.shape == (1, 50, 4, dims)
    output.sum().backward()
    assert [part.grad.shape for part in parts] == [part.shape for part in parts]
    (((query, *_, longest, rate, is_causal, _), options),) = arguments
    assert query.shape == (50, 4, -(-dims // 8) * 8)
    assert (longest, rate, is_causal) == (29, 0.1, causal)
    assert options["scale"] == pytest.approx(dims**-0.5), "of the head, not of what fills it up"
    assert (options["window_size_left"], options["window_size_right"]) == sides


@pytest.mark.parametrize("budget", [32, 100])
def test_a_layout_changes_nothing_that_is_learnt(weighted_examples, budget):
    results = [run(weighted_examples, steps=4, layout=layout, budget=budget) for layout in LAYOUTS]
    (one, records), (other, other_records) = results
    torch.testing.assert_close(parameters(one.module), parameters(other.module), atol=1e-6, rtol=0)
    for first, second in zip(records, other_records, strict=True):
        name = "loss" if isinstance(first, StepRecord) else "target_loss"
        assert getattr(second, name) == pytest.approx(getattr(first, name), abs=1e-6)


def choose(model, precision="no", objective="masked", **execution):
    AcceleratorState._reset_state(reset_partial_state=True)
    execution = Execution(**execution)
    settings = TrainSettings(
        steps=2, batch_size=8, max_tokens=16, objective=objective, execution=execution
    )
    return choose_execution(
        model, random_examples(), settings, Accelerator(cpu=True, mixed_precision=precision)
    )


SMALL = {name: size for name, size in SHAPE.items() if name != "max_position_embeddings"}
DEBERTA = DebertaV2Config(**SMALL, relative_attention=True, pos_att_type=["c2p", "p2c"])
WINDOWS = ModernBertConfig(**{**SHAPE, "num_hidden_layers": 4}, pad_token_id=0, local_attention=6)
SUPPORTED = [config for config in CONFIGS if config.model_type != "mpnet"] + [WINDOWS]
UNSUPPORTED = [DEBERTA, *(config for config in CONFIGS if config.model_type == "mpnet")]


def model_of(config, scale=1.0):
    """An untrained model; a scale above 1 gives it attention that is far from even."""
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(copy.deepcopy(config))
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(scale if value.ndim > 1 else 1.0)
    return model


@pytest.mark.parametrize(
    "config", SUPPORTED, ids=lambda config: f"{config.model_type}-{config.num_hidden_layers}"
)
def test_a_supported_architecture_has_the_logits_of_padded_rows(config):
    assert choose(model_of(config), layout="unpadded")[0].layout == "unpadded"
    examples = random_examples(40)
    by_length = np.argsort(examples.lengths, kind="stable")
    batch = MASKED.step_batch(
        examples.take(by_length[np.linspace(0, 39, 8).astype(int)]), 0, "token_count"
    )

    def logits(layout, rows):
        model = model_of(config, scale=10)
        if layout == "unpadded":
            use_varlen(model)
        micro = batch.micro(rows, BatchLayout.from_config(config, 1 << 30, layout))
        with torch.no_grad():
            return SelectedLogits(model).eval()(**micro.inputs)[
                torch.argsort(micro.owners, stable=True)
            ]

    reference = logits("padded", np.arange(8))
    (rows,) = micro_batches(batch.lengths, BatchLayout("unpadded", 1 << 30))
    assert float((logits("unpadded", rows) - reference).abs().max() / reference.abs().max()) < 1e-6


@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize("config", UNSUPPORTED, ids=lambda config: config.model_type)
def test_an_unsupported_architecture_is_padded(config, precision, monkeypatch):
    monkeypatch.setattr("dana.train.planner.has_kernel", lambda device: True)
    with pytest.raises(ConfigError, match=rf"layout=unpadded .*{config.model_type}"):
        choose(model_of(config), precision=precision, layout="unpadded")
    assert choose(model_of(config), precision=precision)[0].layout == "padded"


@pytest.mark.parametrize(
    ("has", "precision", "objective", "layout"),
    [
        (False, "bf16", "masked", "padded"),
        (True, "bf16", "masked", "unpadded"),
        (True, "no", "masked", "padded"),  # the kernel has no float32
        (True, "bf16", "next_sentence", "padded"),
    ],
)
def test_auto_is_unpadded_where_device_precision_and_objective_allow(
    has, precision, objective, layout, kernel, monkeypatch
):
    monkeypatch.setattr("dana.train.planner.has_kernel", lambda device: has)
    model = bert(next_sentence=objective == "next_sentence")
    shape, reasons = choose(model, precision, objective)
    assert shape.layout == layout
    assert not shape.bf16, "Accelerate applies the precision of a launch"
    assert model.config._attn_implementation == ("dana_varlen" if layout == "unpadded" else "sdpa")
    assert reasons[0].startswith("batch     8 examples a step = 1 rank(s) x 1 micro-batch(es)")
    assert reasons[2].startswith(f"layout    {layout}: ")


ENDS = {"bos_token_id": None, "eos_token_id": None}
ROTARY = {**SHAPE, **ENDS, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0}
OTHERS = {
    name: ("causal", AutoConfig.for_model(name, **ROTARY))
    for name in ("llama", "qwen2", "qwen3", "mistral", "gemma", "phi", "smollm3", "olmo2")
}
OTHERS["eurobert"] = ("masked", AutoConfig.for_model("eurobert", **ROTARY, mask_token_id=4))
OTHERS["gpt2"] = ("causal", AutoConfig.for_model("gpt2", **SHAPE))
KERNEL_MODELS = OTHERS | {
    name: ("masked", AutoConfig.for_model(name, **SHAPE, pad_token_id=int("roberta" in name)))
    for name in ("bert", "roberta", "xlm-roberta", "electra", "distilbert", "modernbert")
}


@pytest.mark.parametrize("name", KERNEL_MODELS)
def test_every_attention_of_a_training_pass_is_the_kernel_at_the_checkpoint_s_own_dropout(
    name, kernel
):
    objective, config = KERNEL_MODELS[name]
    auto = AutoModelForMaskedLM if objective == "masked" else AutoModelForCausalLM
    model = auto.from_config(config)
    shape, reasons = choose(model, "bf16", objective)
    assert reasons[2] == f"layout    unpadded: {KERNEL_RUNS}"
    assert shape.layout == "unpadded"
    kernel.clear()
    calls.clear()
    module = SelectedLogits(model, bf16=True).train()
    batch = MASKED.step_batch(random_examples(8).take(np.arange(8)), 0, "token_count")
    module(**batch.micro(np.arange(8), shape).inputs).float().sum().backward()
    layers = config.num_hidden_layers
    assert calls == {"kernel": layers}
    rates = {"attention_probs_dropout_prob": 0.1, "attention_dropout": 0.0, "attn_pdrop": 0.1}
    rate = next(getattr(config, key, rates[key]) for key in rates if hasattr(config, key))
    assert [call["dropout"] for call in kernel] == [rate] * layers


@pytest.mark.parametrize(
    ("stand_in", "reason"),
    [
        ("fails", "tried in bf16, bert fails without padding: RuntimeError: no such kernel"),
        ("is not reached", "tried in bf16, the attention of bert does not take the kernel"),
    ],
)
def test_a_model_that_the_kernel_does_not_run_in_is_padded_and_the_log_says_why(
    stand_in, reason, kernel, monkeypatch
):
    def fail(*arguments):
        raise RuntimeError("no such kernel\non this device")

    if stand_in == "fails":
        monkeypatch.setattr("dana.models.varlen.kernel_attention", fail)
    else:
        monkeypatch.setattr("dana.models.varlen.WIDEST_HEAD", 4)
    model = bert(0.1)
    shape, reasons = choose(model, "bf16")
    assert shape.layout == "padded"
    assert reasons[2] == f"layout    padded: {reason}"
    assert model.config._attn_implementation == "sdpa"
    assert model.training
    assert all(value.grad is None for value in model.parameters())
    with pytest.raises(ConfigError, match=rf"layout=unpadded: {reason}; use .*layout=padded"):
        choose(bert(0.1), "bf16", layout="unpadded")


def test_a_model_that_zero_3_has_cut_up_is_padded_and_the_log_says_why(kernel, monkeypatch):
    monkeypatch.setattr("dana.train.planner.is_cut", lambda parameters: True)
    shape, reasons = choose(bert(0.1), "bf16")
    assert shape.layout == "padded"
    assert reasons[2].endswith("ZeRO-3 has cut the model up, so nothing can be tried")


def test_a_device_without_the_kernel_runs_rows_without_padding_by_the_product_if_asked():
    shape, reasons = choose(bert(0.1), "bf16", layout="unpadded")
    assert shape.layout == "unpadded"
    assert reasons[2] == (
        "layout    unpadded: set by execution.layout; attention by a padded product, "
        "as this device has no attention kernel for rows without padding"
    )


@pytest.mark.parametrize(
    ("has", "launch", "reason"),
    [
        (True, None, "bf16: default"),
        (False, None, "no: default"),
        (True, "no", "no: set by the launch"),
    ],
)
def test_bf16_is_used_where_the_device_has_it_and_the_launch_sets_nothing(
    has, launch, reason, monkeypatch
):
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    if launch:
        monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", launch)
    monkeypatch.setattr("dana.train.execution.has_bf16", lambda device: has)
    shape, reasons = choose(bert())
    assert shape.bf16 is reason.startswith("bf16")
    assert reasons[1].startswith(f"precision {reason}")
