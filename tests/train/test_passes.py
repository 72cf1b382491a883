"""The size of a pass: what fits into a GPU's memory, chosen once; a device that runs out stands in for it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from dana.core.errors import DanaError
from dana.models.heads import SelectedLogits
from dana.train import passes
from dana.train.execution import Precision
from dana.train.layout import BatchLayout, micro_batches
from dana.train.loop import train
from dana.train.objectives.classes import ClassCollator
from dana.train.objectives.crops import CropsCollator
from dana.train.passes import Trial, default_tokens
from dana.train.planner import choose_execution
from dana.train.settings import Execution, TrainSettings
from tests.train.conftest import (
    MASKED,
    SPECIAL_TOKENS,
    TEXTS,
    bert,
    new_state,
    parameters,
    random_documents,
    random_examples,
)

SETTINGS = TrainSettings(steps=3, batch_size=24, max_tokens=16, evaluations=0)


class SmallDevice:
    """Runs out of memory in a pass of more than so many tokens, padding included."""

    def __init__(self, tokens, monkeypatch):
        self.tokens = tokens
        self.tried = []
        forward = SelectedLogits.forward

        def measured(module, input_ids, *arguments, **more):
            self.tried.append(input_ids.numel())
            if input_ids.numel() > self.tokens:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return forward(module, input_ids, *arguments, **more)

        monkeypatch.setattr(SelectedLogits, "forward", measured)
        monkeypatch.setattr(passes, "is_tried", lambda accelerator: True)
        monkeypatch.setattr(passes, "MOST", 256)
        monkeypatch.setattr(passes, "LEAST", 32)


def choose(settings=SETTINGS, known=None, examples=None, model=None):
    AcceleratorState._reset_state(reset_partial_state=True)
    examples = random_examples() if examples is None else examples
    return choose_execution(
        model or bert(0.1), examples, settings, Accelerator(cpu=True), MASKED, known
    )


def test_a_cpu_has_one_size_and_tries_none(monkeypatch):
    tried = []
    monkeypatch.setattr(passes, "_fits", lambda *arguments: tried.append(1))
    shape, reasons = choose()
    assert shape.budget == default_tokens(SETTINGS) == 8192
    assert "tokens (default of cpu)" in reasons[0]
    assert not tried
    assert default_tokens(replace(SETTINGS, max_tokens=10_000)) == 10_000
    asked = replace(SETTINGS, execution=Execution(micro_batch_tokens=64))
    shape, reasons = choose(asked)
    assert shape.budget == 64
    assert "of at most 64 tokens (set by execution.micro_batch_tokens)" in reasons[0]


@pytest.mark.parametrize(("holds", "chosen"), [(10**6, 272), (254, 136), (70, 68), (5, 32)])
def test_a_pass_is_halved_until_it_fits(holds, chosen, monkeypatch):
    device = SmallDevice(holds, monkeypatch)
    model = bert(0.1)
    before = parameters(model)
    random_state = torch.get_rng_state()
    # Of the 24 longest examples a step takes 24.
    shape, reasons = choose(model=model, examples=random_examples(200))
    assert shape.budget == chosen
    assert f"of at most {chosen} tokens (tried on this device)" in reasons[0]
    assert torch.equal(parameters(model), before)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(value.grad is None for value in model.parameters())
    assert max(device.tried) > 200, "the longest examples are tried"


def test_memory_for_the_optimizer_is_held_while_passes_are_tried(monkeypatch):
    held = []
    empty = torch.empty

    def look(*size, **options):
        if options.get("dtype") == torch.uint8:
            held.append(size[0])
        return empty(*size, **options)

    SmallDevice(10**6, monkeypatch)
    monkeypatch.setattr(torch, "empty", look)
    model = bert()
    choose(model=model)
    assert held == [8 * sum(value.numel() for value in model.parameters())]


def test_a_run_that_goes_on_has_its_passes_and_another_run_its_own(monkeypatch):
    device = SmallDevice(130, monkeypatch)
    assert choose()[0].budget == 68
    device.tokens = 10**6  # another device
    shape, reasons = choose(known=68)
    assert shape.budget == 68
    assert "(of this run before it stopped)" in reasons[0]
    assert choose()[0].budget == 272
    asked = replace(SETTINGS, execution=Execution(micro_batch_tokens=64))
    assert choose(asked, known=68)[0].budget == 64, "what the settings say goes first"


def test_the_least_of_all_ranks_is_taken(monkeypatch):
    SmallDevice(10**6, monkeypatch)
    gathered = []

    class Ranks:
        num_processes = 2
        distributed_type = SimpleNamespace(value="MULTI_CPU")
        process_index = 0
        device = torch.device("cpu")

        def gather(self, own):
            gathered.append(int(own))
            return torch.tensor([int(own), 64])

    precision = Precision(Ranks.device, "no", from_launcher=False)
    trial = Trial(bert(), random_examples(), SETTINGS, Ranks(), precision, MASKED)
    tokens, _ = passes.choose_tokens(trial, BatchLayout())
    assert (gathered, tokens) == ([272], 64)


@pytest.mark.parametrize(
    ("failing", "where"),
    [(0, "step 1"), (3, "step 2"), ("evaluation", "evaluation after step 0")],
)
def test_memory_that_runs_out_later_is_said_with_a_size_to_take(failing, where, monkeypatch):
    state = new_state(bert(), SETTINGS, 64)
    forward = SelectedLogits.forward
    seen = []

    def fail(module, *arguments, **more):
        if module.training:
            seen.append(1)
        is_due = not module.training if failing == "evaluation" else len(seen) == failing + 1
        if is_due and (module.training or failing == "evaluation"):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(module, *arguments, **more)

    monkeypatch.setattr(SelectedLogits, "forward", fail)
    settings = replace(SETTINGS, batch_size=8)
    message = rf"^{where}: out of memory with execution.micro_batch_tokens=64; .* such as 32,"
    with pytest.raises(DanaError, match=message):
        list(train(state, random_examples(), [MASKED] * 3, settings, TEXTS))


def test_a_gpu_s_passes_without_padding_are_few_and_equal():
    lengths = np.random.default_rng(0).integers(20, 100, 300)
    tokens = int(lengths.sum())
    shape = BatchLayout("unpadded", budget=tokens - 50)
    sizes = [int(lengths[rows].sum()) for rows in micro_batches(lengths, shape)]
    assert len(sizes) == 2
    assert max(sizes) - min(sizes) < 2 * 100, "the longest text is at most so long"
    sizes = [
        int(lengths[rows].sum()) for rows in micro_batches(lengths, replace(shape, budget=4096))
    ]
    assert len(sizes) == -(-tokens // 4096)
    assert max(sizes) <= 4096
    assert min(sizes) > 0.9 * max(sizes)


def test_a_gpu_s_padded_passes_are_large():
    lengths = np.concatenate([np.full(500, 128), np.full(60, 30), np.full(5, 8)])
    one = BatchLayout(budget=65_536)
    on_cpu = [int(rows.size) for rows in micro_batches(lengths, one)]
    on_gpu = [int(rows.size) for rows in micro_batches(lengths, one.on("cuda"))]
    assert on_cpu == [500, 60, 5]
    assert on_gpu == [500, 65], "short texts share a pass"
    lengths = np.full(500, 100)
    lengths[-20:] = 50
    assert len(micro_batches(lengths, one.on("cuda"))) == 1, "a small rest joins"
    assert [len(rows) for rows in micro_batches(lengths, one.on("cpu"))] == [480, 20]


@pytest.mark.parametrize("objective", ["position", "crops"])
def test_passes_of_an_objective_with_a_module_of_its_own_are_tried(objective, monkeypatch):
    monkeypatch.setattr(passes, "is_tried", lambda accelerator: True)
    settings = replace(SETTINGS, objective=objective, batch_size=8)
    made = settings.make_objective()
    documents = random_documents(12, draw=made.draw(0))
    collators = {
        "position": ClassCollator(made, SPECIAL_TOKENS, 0),
        "crops": CropsCollator(SPECIAL_TOKENS),
    }
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(cpu=True)
    shape, reasons = choose_execution(
        bert(0.1), documents, settings, accelerator, collators[objective]
    )
    assert shape.budget == 65_536 + 16
    assert "(tried on this device)" in reasons[0]


@pytest.mark.parametrize(
    ("kind", "device", "tried"),
    [
        ("NO", "cuda", True),
        ("MULTI_GPU", "cuda", True),
        ("NO", "cpu", False),
        ("NO", "mps", False),
        ("DEEPSPEED", "cuda", False),
        ("FSDP", "cuda", False),
    ],
)
def test_passes_are_tried_on_gpus_that_hold_the_whole_model(kind, device, tried):
    accelerator = SimpleNamespace(
        device=torch.device(device), distributed_type=SimpleNamespace(value=kind)
    )
    assert passes.is_tried(accelerator) is tried


@pytest.mark.parametrize(("saves", "bytes_a_parameter"), [(False, 8), (True, 16)])
def test_a_gpu_is_tried_beside_what_training_takes_and_a_tenth_of_it(
    saves, bytes_a_parameter, monkeypatch
):
    held, calls = [], []
    model = bert()
    monkeypatch.setattr(passes, "saves_casts", lambda *arguments: saves)
    monkeypatch.setattr(passes, "_fits", lambda trial, batch, shape: calls.append(list(held)))
    monkeypatch.setattr(passes.torch, "empty", lambda size, **options: held.append(size))
    for name in ("empty_cache", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda *device: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1, 80_000))
    accelerator = SimpleNamespace(
        device=torch.device("cuda"),
        num_processes=1,
        distributed_type=SimpleNamespace(value="NO"),
    )
    trial = Trial(model, random_examples(), SETTINGS, accelerator, None, MASKED)
    tokens, _ = passes.choose_tokens(trial, BatchLayout())
    count = sum(value.numel() for value in model.parameters())
    assert calls[0] == [bytes_a_parameter * count, 8000]
    assert len(calls) == 6, "from 65,552 down, and the least is not tried"
    assert tokens == 1024


def test_memory_that_is_too_small_to_set_aside_is_left_to_the_first_step(monkeypatch):
    model = bert()
    errors = [torch.OutOfMemoryError("out of memory"), RuntimeError("another one")]

    def fail(size, **options):
        raise errors.pop(0)

    def set_aside():
        with passes._set_aside(model, 8, torch.device("cpu")):
            pass

    monkeypatch.setattr(torch, "empty", fail)
    set_aside()
    with pytest.raises(RuntimeError, match="another one"):
        set_aside()
