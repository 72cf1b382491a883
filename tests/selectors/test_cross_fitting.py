"""Cross-fitting: no document is scored by a fit that has seen it, in a run, over plain texts and after loading."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dana.core.schemas import Document
from dana.corpus.unit_stream import Units, draw, split_documents
from dana.selectors.base import FittedSelector, Selector, SelectorContext
from dana.selectors.build import CrossFitted, create_selector, half_of
from dana.selectors.checks import check_selector


@dataclass(frozen=True)
class FittedMemory(FittedSelector):
    """What it has seen."""

    task: list[str]
    background: list[str]

    def score_units(self, units):
        seen, wanted = set(self.background), set(self.task)
        return np.array([sum((word in seen) - (word in wanted) for word in text.split()) / 1 for text in units.texts])


@dataclass(frozen=True)
class Memory(Selector):
    """Units share a word with the background, or do not; higher = more do."""

    size: int = 500
    fitted_type: ClassVar[type] = FittedMemory

    def samples(self, task_units):
        return {"background": self.size}

    def learn(self, task, general, seed):
        words = lambda units: sorted({word for text in units.texts for word in text.split()})  # noqa: E731
        return FittedMemory(words(task), words(general["background"]))


def lines(text):
    return [(start, start + 6) for start in range(0, len(text), 7)]


def own_words(first, documents, units=3):
    """Documents whose units are one word of their own each."""
    return [
        Document(f"d{d}", "s", "\n".join(f"w{units * d + u:05d}" for u in range(units)))
        for d in range(first, first + documents)
    ]


def corpus(documents=200):
    return Units.join(list(split_documents(own_words(0, documents), lines)))


def test_documents_are_scored_by_the_fit_without_them():
    pool = corpus()
    background = draw([pool], {"background": (1, 10**6)})  # all of it
    assert len(background["background"]) == len(pool) == 600
    plain = Memory().fit(["task"] * 3, background).score(pool)
    assert plain.tolist() == [1.0] * 600
    fitted = CrossFitted(Memory()).fit(["task"] * 3, background, seed=5)
    assert fitted.score(pool).tolist() == [0.0] * 600
    half = half_of(pool, 5)
    assert 0.4 < half.mean() < 0.6
    assert half.reshape(-1, 3).std(1).max() == 0  # a document's units are in one half
    for number, part in enumerate(fitted.halves):
        assert part.background == sorted(np.array(pool.texts)[half == number])
        seen = part.score(pool)
        assert seen.tolist() == (half == number).tolist()


def test_plain_texts_are_halved_by_seed():
    texts = [f"w{n:05d}" for n in range(400)]
    fitted = CrossFitted(Memory()).fit(["task"], texts)
    assert fitted.score(texts).tolist() == [0.0] * 400
    assert fitted.score(["task"]).tolist() == [-1.0]
    halves = [half_of(Units.of_texts(texts), seed).tolist() for seed in (0, 1)]
    assert halves[0] != halves[1]
    assert halves[0] == half_of(Units.of_texts(texts), 0).tolist()


def test_cross_fits_are_saved_and_loaded(tmp_path):
    pool = corpus(60)
    selector = CrossFitted(Memory())
    fitted = selector.fit(["w00003", "w00200"], {"background": pool}, seed=9)
    fitted.save(tmp_path)
    assert selector.load(tmp_path).score(pool).tolist() == fitted.score(pool).tolist()
    assert sorted(set(fitted.score(pool))) == [-1.0, 0.0]


def test_one_document_is_fitted_whole_with_a_warning(heard):
    pool = corpus(1)
    fitted = CrossFitted(Memory()).fit(["task"], {"background": pool})
    assert fitted.score(pool).tolist() == [1.0] * 3
    assert "too few general documents" in heard.text


def test_selectors_with_a_background_are_cross_fitted(monkeypatch):
    monkeypatch.setattr("dana.core.registry.Registry.create", lambda self, spec: Memory() if spec == "memory" else None)
    made = create_selector("memory", SelectorContext(geometry="l2"))
    assert isinstance(made, CrossFitted)
    assert made.samples(10) == {"background": 1000}
    assert made.identity() != made.inner.identity()
    assert made.context.geometry == made.settings.geometry == "l2"
    monkeypatch.undo()
    assert not isinstance(create_selector("random", SelectorContext()), CrossFitted)
    assert not isinstance(create_selector("detector:knn", SelectorContext()), CrossFitted)


def test_a_detector_spec_is_a_selector():
    made = create_selector("pca:variance=0.5", SelectorContext(encoder="hashing:dims=32"))
    assert made.identity()["detector"] == "pca:variance=0.5"
    assert "detector" not in made.uses


def test_cross_fits_pass_the_checks():
    results = check_selector(CrossFitted(Memory()))
    assert [result for result in results if not result.passed] == []
