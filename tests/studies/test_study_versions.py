"""Each version of a study's component computes what it always did; see tests/versions.py."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from versions import check_pin, components, letters, parameters, pin_of, sentences

from dana.selectors.base import SelectorContext
from dana.selectors.build import create_selector
from dana.studies.augmentation.generators import GENERATORS
from dana.studies.few_shot.chat import open_chat
from dana.studies.topic_gap.arms import TOPIC_GAP_ARMS, TopicCase
from dana.studies.topic_gap.documents import strip_to_letters
from dana.studies.topics.settings import TOPIC_MODELS
from tests.studies.augmentation.few_topics import CELLS, few_topics
from tests.studies.augmentation.test_seq2seq import WORDS, write_small_t5
from tests.studies.few_shot.chat_server import says, serving
from tests.studies.few_shot.test_local_chat import TALK, write_chat_model
from tests.studies.topics.planted_topics import known_topics

PINS = Path(__file__).with_name("versions.json")
GROUPS = (
    "dana.selectors",
    "dana.topic_models",
    "dana.chat_models",
    "dana.generators",
    "dana.topic_gap_arms",
)
COMPONENTS = [
    (group, name, one) for group in GROUPS for name, one in components(group, in_studies=True)
]
PAIRS = [((text.split()[0], text.split()[3]), text) for text in sentences(tuple(WORDS), 8, 0)]
KEYWORDS = [("word1", "word2"), ("word3",), ()]


def clusters(spec: str, seed: int) -> dict[str, Any]:
    selector = create_selector(spec, SelectorContext(encoder="hashing:dims=48,words=1"))
    pool = sentences(tuple(WORDS[:20]), 60, seed) + sentences(tuple(WORDS[10:]), 60, seed + 1)
    model = selector.fit(sentences(tuple(WORDS[:12]), 20, seed + 2), {"clusters": pool}, seed)
    sizes = [size for units in (60, 4000) for size in selector.samples(units).values()]
    return {"scores": model.score(sentences(tuple(WORDS), 12, seed + 3)), "samples": sizes}


def topics(spec: str, seed: int) -> dict[str, Any]:
    bags, _, _ = known_topics()
    model = TOPIC_MODELS.create(spec).fit(bags.rows(np.arange(200)), 3, seed)
    return {"beta": model.beta, "theta": model.theta(bags.counts[200:208])}


def texts(spec: str, seed: int) -> dict[str, Any]:
    return {
        "texts": letters(GENERATORS.create(spec).fit(PAIRS, seed).generate(KEYWORDS, [seed, 5, 6]))
    }


def reply(spec: str, seed: int) -> dict[str, Any]:
    return {"reply": letters([open_chat(spec).reply(TALK, seed)])}


def trained_on(spec: str, seed: int) -> dict[str, Any]:
    """The texts of a topic-gap arm, of twelve documents about one of three topics."""
    with TemporaryDirectory() as name:
        few_topics().save(Path(name) / "topics")
        rows = [
            (f"d{at:02}", f"Enzyme {at} of a yeast cell, verdict {at % 3}", "xy"[at % 2])
            for at in range(16)
        ]
        documents = pd.DataFrame(rows, columns=["id", "whole", "label"])
        documents = documents.assign(
            text=documents["whole"], stripped=documents["whole"].map(strip_to_letters)
        )
        sets = [*["test"] * 2, *["on"] * 4, *["unused"] * 4, *["off"] * 4, *["validation"] * 2]
        documents = documents.assign(share=np.linspace(0.9, 0.1, 16).astype(np.float32), set=sets)
        case = TopicCase(CELLS, 2, documents, Path(name) / "topics")
        outputs = TOPIC_GAP_ARMS.create(spec).texts(case, seed, Path(name) / "work")
        return {"texts": letters([f"{text.id} {text.label} {text.text}" for text in outputs])}


# What computes, and the specs by which the parameters show.
COMPUTED = {
    "clusters": (
        clusters,
        ["k=3,pca=4,seeds=2", "k=2,pca=24,seeds=1", "k=3,pca=0,seeds=1,smoothing=9.0"],
    ),
    # at the default rate ten steps make 6 % of what CPUs round otherwise: Adam's steps are as long
    # for gradients near 0
    "etm": (
        topics,
        [
            f"learning_rate=0.001,dims=8,hidden=8,{own}"
            for own in ("steps=3", "steps=4,batch=50,spread=1")
        ],
    ),
    "lda": (topics, ["", "batch=50,alpha=0.1"]),
    "t5": (texts, ["{t5},epochs=3,tokens=8", "{t5},epochs=2,tokens=8,top_k=3,top_p=0.5"]),
    "chat": (
        texts,
        ["{chat},tokens=8,shots=1", "{chat},tokens=8,temperature=0.3,top_p=0.7,batch=2"],
    ),
    "embedded": (texts, [""]),
    "local": (reply, ["{chat},max_new_tokens=8", "{chat},max_new_tokens=8,temperature=3.0"]),
    **{
        arm: (trained_on, [""])
        for arm in ("on", "off", "repeated", "random_keywords", "augmented_baseline")
    },
    **{arm: (trained_on, ["", "keywords=2,ratio=2"]) for arm in ("augmented", "shuffled")},
    "http": (reply, ["{url},model=m", "{url},model=m,temperature=0.5,max_tokens=7"]),
}


@pytest.fixture(scope="module")
def spec_paths(tmp_path_factory):
    """What specs name: models, and an endpoint that replies with what it was asked."""
    folder = tmp_path_factory.mktemp("versions")
    outputs = {
        "t5": write_small_t5(folder / "t5"),
        "chat": write_chat_model(folder / "chat", positions=256),
    }
    with serving(otherwise=says(lambda request: json.dumps(request, sort_keys=True))) as endpoint:
        yield {**outputs, "url": endpoint.url}


@pytest.mark.parametrize(
    ("group", "name", "component"), COMPONENTS, ids=[one[1] for one in COMPONENTS]
)
def test_a_version_computes_what_it_always_did_of_studies(group, name, component, spec_paths):
    compute, variants = COMPUTED[name]

    def numbers(seed: int) -> dict[str, Any]:
        specs = {
            variant: f"{name}:{variant.format_map(spec_paths)}" if variant else name
            for variant in variants
        }
        outcomes = {variant: compute(spec, seed) for variant, spec in specs.items()}
        return {
            f"{variant} {part}".strip(): outcomes[variant][part]
            for variant in specs
            for part in outcomes[variant]
        }

    assert isinstance(vars(component).get("version"), int), "a version of its own"
    check_pin(PINS, group, name, pin_of(component.version, parameters(component), numbers))
