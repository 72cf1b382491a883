"""Cross-fitting: no document is scored by a fit that has seen it, in a run, over plain texts and after loading."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

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
        """One per word of the background, less one per word of the task."""
        seen, wanted = set(self.background), set(self.task)
        return np.array([sum((word in seen) - (word in wanted) for word in text.split()) / 1 for text in units.texts])


@dataclass(frozen=True)
class Memory(Selector):
    """Units share a word with the background, or do not; higher = more do."""

    size: int = 500
    fitted_type: ClassVar[type] = FittedMemory

    def samples(self, task_units):
        """A background of any size."""
        return {"background": self.size}

    def learn(self, task, general, seed):
        """The words of both."""
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


def test_a_document_is_scored_by_the_fit_that_has_not_seen_it():
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


def test_plain_texts_are_halved_one_by_one_and_another_seed_halves_otherwise():
    texts = [f"w{n:05d}" for n in range(400)]
    fitted = CrossFitted(Memory()).fit(["task"], texts)
    assert fitted.score(texts).tolist() == [0.0] * 400
    assert fitted.score(["task"]).tolist() == [-1.0]
    halves = [half_of(Units.of_texts(texts), seed).tolist() for seed in (0, 1)]
    assert halves[0] != halves[1]
    assert halves[0] == half_of(Units.of_texts(texts), 0).tolist()


def test_either_fit_gets_a_sample_of_the_size_asked_for():
    assert CrossFitted(Memory(size=70)).samples(10) == {"background": 140}


def test_it_is_saved_and_loaded_with_both_fits(tmp_path):
    pool = corpus(60)
    selector = CrossFitted(Memory())
    fitted = selector.fit(["w00003", "w00200"], {"background": pool}, seed=9)
    fitted.save(tmp_path)
    assert selector.load(tmp_path).score(pool).tolist() == fitted.score(pool).tolist()
    assert sorted(set(fitted.score(pool))) == [-1.0, 0.0]


def test_one_document_is_fitted_on_whole_with_a_warning(heard):
    pool = corpus(1)
    fitted = CrossFitted(Memory()).fit(["task"], {"background": pool})
    assert fitted.score(pool).tolist() == [1.0] * 3
    assert "too few general documents for two fits" in heard.text


def test_what_asks_for_background_is_cross_fitted_and_nothing_else(monkeypatch):
    monkeypatch.setattr("dana.core.registry.Registry.create", lambda self, spec: Memory() if spec == "memory" else None)
    made = create_selector("memory", SelectorContext(geometry="l2"))
    assert isinstance(made, CrossFitted)
    assert made.context.geometry == made.settings.geometry == "l2"
    monkeypatch.undo()
    assert not isinstance(create_selector("random", SelectorContext()), CrossFitted)
    assert not isinstance(create_selector("detector:knn", SelectorContext()), CrossFitted)


def test_a_detector_stands_for_itself_over_the_runs_encoder():
    made = create_selector("pca:variance=0.5", SelectorContext(encoder="hashing:dims=32"))
    assert made.identity()["detector"] == "pca:variance=0.5"
    assert "detector" not in made.uses


def test_it_passes_the_conformance_checks():
    results = check_selector(CrossFitted(Memory()))
    assert [result for result in results if not result.passed] == []


def test_its_identity_tells_it_from_the_plain_selector_and_holds_the_parameters():
    identities = [CrossFitted(Memory(3)).identity(), CrossFitted(Memory(4)).identity(), Memory(3).identity()]
    assert len({str(identity) for identity in identities}) == 3
    assert identities[0]["size"] == 3


@pytest.mark.parametrize("order", [1, -1])
def test_a_units_score_does_not_depend_on_the_batch(order):
    pool = corpus(50)
    fitted = CrossFitted(Memory()).fit(["w00003", "w00100"], {"background": pool.rows(np.arange(90))})
    rows = np.arange(len(pool))[::order]
    assert fitted.score(pool.rows(rows)).tolist() == fitted.score(pool)[rows].tolist()
