"""Auto selector and fusion: what is chosen, that the choice saw no text twice, and that it is what scores."""

import json
import logging

import numpy as np
import pytest

from dana.core.errors import ConfigError, DataError
from dana.core.schemas import Document
from dana.corpus.unit_stream import Units, draw, split_documents
from dana.scoring.ranking.auto import FUSION, AutoSelector, _choose
from dana.selectors.base import SelectorContext
from dana.selectors.build import CrossFitted, create_selector
from dana.selectors.checks import check_selector
from dana.selectors.fusion import FusionSelector

CELLS = ("cell", "gene", "protein", "kinase", "receptor", "assay", "ligand", "enzyme", "membrane", "tissue")
COURTS = ("court", "judge", "appeal", "motion", "statute", "counsel", "verdict", "tort", "clerk", "bail")
CONTEXT = SelectorContext(encoder="hashing:dims=64")


def sentences(words, count, seed, length=7):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(words, length)) for _ in range(count)]


def pool(count=300, share=0.1, seed=0):
    """Documents of three sentences, a share of them about cells."""
    random = np.random.default_rng(seed)
    made = []
    for number in range(count):
        words = CELLS if random.random() < share else COURTS
        text = "\n".join(sentences(words, 3, 1000 + number))
        made.append(Document(f"{'cells' if words is CELLS else 'courts'}-{number}", "s", text))
    return made


def lines(text):
    ends = np.cumsum([len(line) + 1 for line in text.split("\n")]) - 1
    return [(int(end) - len(line), int(end)) for line, end in zip(text.split("\n"), ends, strict=True)]


def fitted_and_pool(selector, task, share=0.1):
    units = Units.join(list(split_documents(pool(share=share), lines)))
    wanted = {name: (number, size) for number, (name, size) in enumerate(selector.samples(len(task)).items())}
    return selector.fit(task, draw([units], wanted, selector.runs()), 0), units


def row(name, ap):
    return {"name": name, "ap": ap}


@pytest.mark.parametrize(
    ("aps", "chosen"),
    [
        ({"words": 0.7, "vectors": 0.8, FUSION: 0.9}, "fusion:parts=words+vectors,weights=0.300+0.700"),
        ({"words": 0.7, "vectors": 0.905, FUSION: 0.9}, "fusion:parts=words+vectors,weights=0.300+0.700"),
        ({"words": 0.7, "vectors": 0.92, FUSION: 0.9}, "vectors"),
        ({"words": 0.9, "vectors": 0.8, FUSION: 0.9}, "fusion:parts=words+vectors,weights=0.300+0.700"),
        ({"words": 0.92, "vectors": 0.8, FUSION: 0.9}, "words"),
        ({"words": 0.915, "vectors": 0.92, FUSION: 0.9}, "words"),
        ({"words": 0.905, "vectors": 0.92, FUSION: 0.9}, "vectors"),
    ],
)
def test_the_fusion_is_taken_unless_one_is_better_and_of_near_ones_that_without_an_encoder(aps, chosen):
    rows = [row(name, ap) for name, ap in aps.items()]
    found, reason = _choose(rows, ["words", "vectors"], np.array([0.3, 0.7]), ["words"])
    assert found == chosen
    assert chosen.split(":")[0] in reason


def test_small_weights_are_left_out_and_the_identity_holds_weights():
    rows = [row("a", 0.5), row("b", 0.5), row("c", 0.5), row(FUSION, 0.9)]
    spec, _ = _choose(rows, ["a", "b", "c"], np.array([0.5, 0.49, 0.01]), [])
    assert spec == "fusion:parts=a+b,weights=0.500+0.490"
    one, two = (FusionSelector("lexical+lda", weights, context=CONTEXT).identity() for weights in ("1+1", "1+2"))
    assert one != two
    assert one == FusionSelector("lexical+lda", context=CONTEXT).identity()
    assert AutoSelector("lexical+lda", context=CONTEXT).uses == ("encoder", "general_share", "geometry")
    assert AutoSelector("lexical", context=CONTEXT).uses == ()


def test_auto_finds_the_tasks_documents_and_says_what_it_chose(heard):
    heard.set_level(logging.INFO, logger="dana")
    selector = create_selector("auto:lexical+lda", CONTEXT)
    assert isinstance(selector, AutoSelector)
    fitted, units = fitted_and_pool(selector, sentences(CELLS, 60, 1), share=0.02)
    scores = fitted.score(units)
    is_cells = np.array([doc_id.startswith("cells") for doc_id in units.doc_ids])
    assert scores[is_cells].max() < scores[~is_cells].min()
    choice = fitted.notes["choice"]
    assert [one["name"] for one in choice["candidates"]] == ["lexical", "lda", "fusion"]
    assert all(one["auroc"] > 0.9 for one in choice["candidates"])
    assert all(one["ap"] > 0.7 for one in choice["candidates"])  # of the general pieces some are about cells, too
    assert choice["chosen"] == fitted.spec
    assert fitted.spec.startswith("fusion:parts=lexical+lda,weights=")
    assert "the fusion of lexical" in heard.text
    json.dumps(fitted.notes)


def test_a_candidate_that_finds_the_task_weighs_more_than_chance():
    fitted, _ = fitted_and_pool(AutoSelector("lexical+random", folds=2, context=CONTEXT), sentences(CELLS, 60, 1))
    good, chance, _ = fitted.notes["choice"]["candidates"]
    assert good["weight"] > 0.6
    assert good["weight"] + chance["weight"] == pytest.approx(1)


def test_what_was_chosen_is_what_scores(tmp_path):
    selector = AutoSelector("lexical+lda", context=CONTEXT)
    fitted, units = fitted_and_pool(selector, sentences(CELLS, 60, 1))
    wanted = {name: (number, size) for number, (name, size) in enumerate(selector.samples(60).items())}
    samples = draw([units], wanted, selector.runs())
    alone = create_selector(fitted.spec, CONTEXT)
    same = alone.fit(sentences(CELLS, 60, 1), {name: samples[name] for name in alone.samples(60)}, 0)
    assert isinstance(alone, CrossFitted)
    assert same.score(units).tolist() == fitted.score(units).tolist()
    fitted.save(tmp_path)
    loaded = selector.load(tmp_path)
    np.testing.assert_allclose(loaded.score(units), fitted.score(units), rtol=1e-12)
    assert loaded.notes == fitted.notes


def test_task_text_like_the_general_text_gets_an_average_precision_of_the_prevalence():
    fitted, _ = fitted_and_pool(AutoSelector("lexical", context=CONTEXT), sentences(COURTS, 80, 1))
    (only,) = fitted.notes["choice"]["candidates"]
    assert only["ap"] < 0.25  # the prevalence is 0.1; a leak of what was fitted on would show here


def test_the_fusion_is_the_weighted_sum_of_standardised_scores_of_halves_that_have_not_seen_the_unit(tmp_path):
    task, units = sentences(CELLS, 60, 1), Units.join(list(split_documents(pool(), lines)))
    selector = FusionSelector("lexical+lda", "1+3", context=CONTEXT)
    samples = draw([units], {name: (1, size) for name, size in selector.samples(60).items()})
    fitted = selector.fit(task, samples, 4)
    expected = 0
    for spec, weight in (("lexical", 0.25), ("lda", 0.75)):
        part = create_selector(spec, CONTEXT)
        alone = part.fit(task, {name: samples[name].first(size) for name, size in part.samples(60).items()}, 4)
        general = alone.score(samples["background"])
        expected = expected + weight * (alone.score(units) - general.mean()) / general.std()
    np.testing.assert_allclose(fitted.score(units), expected, atol=1e-9)
    fitted.save(tmp_path)
    np.testing.assert_allclose(selector.load(tmp_path).score(units), fitted.score(units), rtol=1e-12)


@pytest.mark.parametrize("spec", ["fusion:parts=lexical+lda,weights=0.4+0.6", "auto:lexical+lda,folds=2"])
def test_they_pass_the_conformance_checks(spec):
    results = check_selector(spec)
    assert [(result.name, result.detail) for result in results if not result.passed] == []


@pytest.mark.parametrize("spec", ["auto:lexical+lexical", "auto:lexical,folds=1", "auto:lexical,prevalence=0"])
def test_a_bad_spec_is_refused(spec):
    with pytest.raises(ConfigError, match=r"(parts|folds|prevalence)="):
        create_selector(spec, CONTEXT)


def test_too_little_text_is_refused():
    auto, task = AutoSelector("lexical", context=CONTEXT), sentences(CELLS, 20, 0)
    with pytest.raises(ConfigError, match="task='4 units'"):
        auto.fit(task[:4], sentences(COURTS, 50, 0))
    with pytest.raises(DataError, match="background"):
        auto.fit(task, {"background": [], "pieces": ["a b"]})
    with pytest.raises(DataError, match="--selector"):
        auto.fit(task, ["one text"] * 2)
