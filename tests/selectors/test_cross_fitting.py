"""Cross-fitting: no document is scored by a fit that has seen it. Random scores need no fit."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dana.core.schemas import Document
from dana.corpus.unit_stream import Units, draw, split_documents
from dana.selectors.base import FittedSelector, Selector, SelectorContext
from dana.selectors.build import CrossFitted, create_selector, half_of
from dana.selectors.checks import check_selector
from dana.selectors.random import RandomSelector


@dataclass(frozen=True)
class MemoryModel(FittedSelector):
    """The words it has seen."""

    target: list[str]
    background: list[str]

    def score_units(self, units):
        words = [text.split() for text in units.texts]
        return np.array(
            [sum((w in self.background) - (w in self.target) for w in unit) / 1 for unit in words]
        )


@dataclass(frozen=True)
class Memory(Selector):
    """Units share a word with the background, or do not; higher = more do."""

    size: int = 500
    fitted_type: ClassVar[type] = MemoryModel

    def samples(self, target_units):
        return {"background": self.size}

    def learn(self, target, pool, seed):
        sides = (target, pool["background"])
        return MemoryModel(
            *(sorted({word for text in side.texts for word in text.split()}) for side in sides)
        )


def documents_of_pool(documents=200):
    """Documents of three units, which are one word of their own each."""
    lines = [(0, 6), (7, 13), (14, 20)]
    texts = ("\n".join(f"w{3 * d + u:05d}" for u in range(3)) for d in range(documents))
    return Units.join(
        list(
            split_documents(
                [Document(f"d{d}", "s", text) for d, text in enumerate(texts)], lambda _: lines
            )
        )
    )


def test_documents_are_scored_by_the_fit_without_them():
    pool = documents_of_pool()
    background = draw([pool], {"background": (1, 10**6)})  # all of it
    assert len(background["background"]) == len(pool) == 600
    assert Memory().fit(["target"] * 3, background).score(pool).tolist() == [1.0] * 600
    model = CrossFitted(Memory()).fit(["target"] * 3, background, seed=5)
    assert model.score(pool).tolist() == [0.0] * 600
    half = half_of(pool, 5)
    assert 0.4 < half.mean() < 0.6
    assert half.reshape(-1, 3).std(1).max() == 0  # a document's units are in one half
    for number, part in enumerate(model.halves):
        assert part.background == sorted(np.array(pool.texts)[half == number])
        assert part.score(pool).tolist() == (half == number).tolist()


def test_plain_texts_are_halved_by_seed():
    texts = [f"w{n:05d}" for n in range(400)]
    model = CrossFitted(Memory()).fit(["target"], texts)
    assert model.score(texts).tolist() == [0.0] * 400
    assert model.score(["target"]).tolist() == [-1.0]
    one, again, other = (half_of(Units.of_texts(texts), seed).tolist() for seed in (0, 0, 1))
    assert one == again != other


def test_one_document_is_fitted_whole_with_a_warning(heard):
    pool = documents_of_pool(1)
    assert (
        CrossFitted(Memory()).fit(["target"], {"background": pool}).score(pool).tolist()
        == [1.0] * 3
    )
    assert "too few pool documents" in heard.text


def test_selectors_with_a_background_are_cross_fitted(monkeypatch):
    monkeypatch.setattr(
        "dana.core.registry.Registry.create",
        lambda self, spec: Memory() if spec == "memory" else None,
    )
    selector = create_selector("memory", SelectorContext(geometry="l2"))
    assert isinstance(selector, CrossFitted)
    assert selector.samples(10) == {"background": 1000}
    assert selector.identity() != selector.inner.identity()
    assert selector.context.geometry == selector.settings.geometry == "l2"
    monkeypatch.undo()
    for spec in ("random", "detector:knn"):
        assert not isinstance(create_selector(spec, SelectorContext()), CrossFitted)
    pca = create_selector("pca:variance=0.5", SelectorContext(encoder="hashing:dims=32"))
    assert pca.identity()["detector"] == "pca:variance=0.5"
    assert "detector" not in pca.uses
    assert [result for result in check_selector(CrossFitted(Memory())) if not result.passed] == []


def test_random_scores_are_uniform_by_seed_and_unit_alone(tmp_path):
    units = Units.of_texts(["text"] * 20_000)
    units.keys[:] = np.arange(20_000, dtype=np.uint64)
    one, other = (RandomSelector().fit([], {}, seed).score(units) for seed in (0, 1))
    np.testing.assert_allclose(np.histogram(one, 10, (0, 1))[0] / 20_000, 0.1, atol=0.01)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.03
    assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 0.03
    model, rows = RandomSelector().fit(["target"], {}, 0), np.array([7, 3, 5])
    np.testing.assert_array_equal(model.score(units.rows(rows)), one[rows])
    first, second, again = model.score(["a text", "another text", "a text"])
    assert first == again == model.score(["a text"])[0] != second
    assert RandomSelector().identity() == {"selector": "RandomSelector"}
    assert RandomSelector().samples(100) == {}
