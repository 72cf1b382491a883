"""Held-out scores and their fusion: no fit and no weights have seen what they are applied to."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

from dana.core.schemas import Document
from dana.corpus.unit_stream import Units, split_documents
from dana.scoring.ranking.auto import (
    HeldOutScores,
    choose_selector,
    fused_scores,
    held_out_scores,
    texts_to_compare,
)
from dana.selectors.base import FittedSelector, Selector


@dataclass(frozen=True)
class FittedSpy(FittedSelector):
    """The texts that it was fitted on."""

    seen: list[str]

    def score_units(self, units):
        """1 for a unit that it was fitted on."""
        return np.isin(units.texts, self.seen) * 1.0


@dataclass(frozen=True)
class Spy(Selector):
    """Remembers the units of each fit."""

    fits: list[Units] = field(default_factory=list)
    fitted_type: ClassVar[type] = FittedSpy

    def learn(self, task, general, seed):
        """The task's texts."""
        self.fits.append(task)
        return FittedSpy(list(task.texts))


def documents(name, count, units=3):
    """Documents of so many units of words of their own."""
    made = [Document(f"{name}{d}", "s", "\n".join(f"{name}{d:03d}{u:02d}" for u in range(units))) for d in range(count)]
    size = len(name) + 5
    spans = [(start, start + size) for start in range(0, units * (size + 1), size + 1)]
    return Units.join(list(split_documents(made, lambda text: spans)))


def compared(task):
    return texts_to_compare(task, {"pieces": documents("general", 40)}, 15, 0)


def test_a_document_is_scored_by_a_fit_on_all_others():
    texts, spy = compared(documents("task", 9)), Spy()
    fold = np.arange(9) % 3
    found = held_out_scores(spy, texts, fold, 0)
    assert found.task.tolist() == [0.0] * 9
    document = np.array(texts.task.units.doc_ids).reshape(9, 3)[:, 0]
    for number, fit in enumerate(spy.fits):
        assert len(fit) == 18
        assert set(fit.doc_ids) == set(document[fold != number])


def test_a_text_and_its_copy_are_held_out_together():
    spy = Spy()
    texts = [f"text {number} of the task" for number in range(20)] * 2
    choose_selector(["spy"], [spy], compared(Units.of_texts(texts)), 5, 0.1, 0)
    assert [len(fit) for fit in spy.fits] == [32] * 5
    for fit in spy.fits:
        assert len(set(fit.texts)) == 16, "a text is fitted on, and its copy held out"


def test_a_folds_pieces_are_weighed_by_what_the_other_folds_say():
    random = np.random.default_rng(0)
    fold = np.arange(200) % 2
    first = np.where(fold == 0, -3.0, 3.0)  # finds the task in fold 0 only, the second selector in fold 1 only
    one, two = (HeldOutScores(task, random.normal(size=400)) for task in (first, -first))
    found = fused_scores([one, two], fold, 0)
    # Fold 0 is weighed by fold 1, where the second selector is right, and the other way round: both are wrong.
    assert found.task == pytest.approx(np.full(200, 3.0), abs=0.1)
    by_first = np.isclose(found.general, one.general, atol=0.05)
    by_second = np.isclose(found.general, two.general, atol=0.05)
    assert (by_first | by_second).all()
    assert by_first.sum() < 240 > by_second.sum()


class FittedNumber(FittedSpy):
    """Scores a unit by the number at its end, whatever it was fitted on."""

    def score_units(self, units):
        return np.array([float(text[-5:]) for text in units.texts])


class Number(Spy):
    """The same scores by every fit."""

    def learn(self, task, general, seed):
        return FittedNumber([])


def test_scores_are_standardised_by_the_general_units_and_averaged_over_fits():
    texts = compared(documents("task", 9))
    found = held_out_scores(Number(), texts, np.arange(9) % 3, 0)
    general, task = (FittedNumber([]).score_units(side.units) for side in (texts.general, texts.task))
    for side, pieces, scores in ((found.general, texts.general, general), (found.task, texts.task, task)):
        np.testing.assert_allclose(side, pieces.means((scores - general.mean()) / general.std()), atol=1e-12)
