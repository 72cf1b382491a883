"""Each version of a study's component computes what it always did; see tests/versions.py."""

import json
from pathlib import Path

import numpy as np
import pytest
from versions import check_pin, components, letters, parameters, pin_of, sentences

from dana.selectors.base import SelectorContext
from dana.selectors.build import create_selector
from dana.studies.augmentation.base import GENERATORS
from dana.studies.few_shot.base import open_chat
from dana.studies.topics.settings import TOPIC_MODELS
from tests.studies.augmentation.test_seq2seq import WORDS, write_small_t5
from tests.studies.few_shot.chat_server import says, serving
from tests.studies.few_shot.test_local_chat import TALK, write_chat_model
from tests.studies.topics.planted_topics import planted

PINS = Path(__file__).with_name("versions.json")
GROUPS = ("dana.selectors", "dana.topic_models", "dana.chat_models", "dana.generators")
COMPONENTS = [(group, name, one) for group in GROUPS for name, one in components(group, in_studies=True)]


def compute(name: str, seed: int, folder: Path) -> np.ndarray | list[int]:
    """Numbers of a component on a seed."""
    match name:
        case "clusters":
            selector = create_selector("clusters:k=3,pca=4,seeds=2", SelectorContext(encoder="hashing:dims=16,words=1"))
            general = sentences(tuple(WORDS[:20]), 60, seed) + sentences(tuple(WORDS[10:]), 60, seed + 1)
            fitted = selector.fit(sentences(tuple(WORDS[:12]), 20, seed + 2), {"clusters": general}, seed)
            return fitted.score(sentences(tuple(WORDS), 12, seed + 3))
        case "etm" | "lda":
            bags, _, _ = planted()
            spec = "etm:epochs=5,dims=8,hidden=8,batch=100" if name == "etm" else name
            return TOPIC_MODELS.create(spec).fit(bags.rows(np.arange(200)), 3, seed).beta
        case "t5":
            generator = GENERATORS.create(f"t5:{write_small_t5(folder / 't5')},epochs=3,tokens=8")
        case "embedded":
            generator = GENERATORS.create(name)
        case "local":
            return letters([open_chat(f"local:{write_chat_model(folder / 'chat')},max_new_tokens=8").reply(TALK, seed)])
        case "scripted":
            lines = [
                {"reply": f"to w{word}", "contains": f"w{word}", "turn": turn} for word in (9, 4) for turn in (1, 2)
            ]
            (folder / "replies.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            return letters([open_chat(f"scripted:{folder / 'replies.jsonl'}").reply(TALK, seed)])
        case "http":
            with serving(otherwise=says(lambda request: json.dumps(request, sort_keys=True))) as endpoint:
                return letters([open_chat(f"http:{endpoint.url},model=m").reply(TALK, seed)])
    pairs = [((text.split()[0], text.split()[3]), text) for text in sentences(tuple(WORDS), 8, seed)]
    keywords = [("word1", "word2"), ("word3",), ()]
    return letters(generator.fit(pairs, seed).generate(keywords, [seed, 5, 6]))


@pytest.mark.parametrize(("group", "name", "component"), COMPONENTS, ids=[one[1] for one in COMPONENTS])
def test_a_version_computes_what_it_always_did_of_studies(group, name, component, tmp_path):
    now = pin_of(component.version, parameters(component), lambda seed: compute(name, seed, tmp_path))
    check_pin(PINS, group, name, now)
