"""Texts by a tiny chat model: what it is shown, seeds, batches; and how well real and made are told apart."""

import numpy as np
import pytest

from dana.core.errors import ConfigError
from dana.studies.augmentation.generators import ChatGenerator
from dana.studies.augmentation.synthetic import LabelledText, tell_apart
from tests.studies.few_shot.test_local_chat import write_chat_model

PAIRS = [((f"w{at}", "w9", f"w{at}"), f"w{at} w1 w9 w{at} w2") for at in range(6)]
KEYWORDS = [("w3", "w4"), (), ("w5",), ("w6", "w7", "w6"), ("w8",)]


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    return {
        "model": str(write_chat_model(tmp_path_factory.mktemp("chat") / "model", positions=256)),
        "tokens": 6,
    }


def test_it_is_shown_texts_of_the_label_and_asked_for_one_with_the_keywords(spec):
    writer = ChatGenerator(**{**spec, "tokens": 3}).fit(PAIRS, 0)
    talk = writer.conversation(("w6", "w7", "w6"), 5)
    assert [turn["role"] for turn in talk] == ["user", "assistant"] * 2 + ["user"]
    texts = {text: keywords for keywords, text in PAIRS}
    for asked, answer in zip(talk[0::2], talk[1::2], strict=False):
        (text,) = (text for text in texts if text.startswith(answer["content"]))
        assert answer["content"] == " ".join(text.split()[:3]), "as long as a new one may be"
        assert (
            asked["content"]
            == f"Write a text of the same kind with these words: {texts[text][0]}, w9."
        )
    assert talk[-1]["content"] == "Write a text of the same kind with these words: w6, w7."
    assert writer.conversation((), 5)[-1]["content"] == "Write a text of the same kind."
    assert talk[:4] != writer.conversation((), 6)[:4], "the seed draws the texts"


def test_a_text_is_the_same_alone_and_in_any_batch(spec):
    seeds = [11, 12, 13, 14, 15]
    together = ChatGenerator(**spec).fit(PAIRS, 0).generate(KEYWORDS, seeds)
    writer = ChatGenerator(**spec, batch=2).fit(PAIRS, 0)
    assert writer.generate(KEYWORDS, seeds) == together
    assert [
        writer.generate([words], [seed])[0] for words, seed in zip(KEYWORDS, seeds, strict=True)
    ] == together
    assert writer.generate(KEYWORDS, [seed + 10 for seed in seeds]) != together
    assert len({*together}) == 5


def test_bad_settings_are_refused():
    for wrong in ({"shots": 0}, {"tokens": 0}, {"temperature": 0.0}, {"top_p": 0.0}, {"batch": 0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            ChatGenerator(**wrong)


def test_texts_of_one_source_are_not_told_apart_and_others_are():
    random = np.random.default_rng(0)

    def texts(words, count):
        rows = [" ".join(random.choice(words, 12)) for _ in range(count)]
        return [LabelledText(str(at), text, "a") for at, text in enumerate(rows)]

    words, others = [f"word{at}" for at in range(30)], [f"other{at}" for at in range(30)]
    real = texts(words, 60)
    assert 0.35 < tell_apart(real, texts(words, 60), 0) < 0.65
    assert tell_apart(real, texts([*words, *others], 60), 0) > 0.95
    assert tell_apart(real, texts(words, 1), 0) is None
