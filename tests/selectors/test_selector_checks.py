"""Checks of selectors: those of the core pass, each broken promise fails the check that names it. What is refused."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from dana.cli.main import main
from dana.core.checks import checks_of
from dana.core.errors import ConfigError, DataError, PluginError
from dana.core.registry import SELECTORS
from dana.selectors.base import FittedSelector, Selector, SelectorContext
from dana.selectors.build import create_selector
from dana.selectors.checks import SelectorChecks, check_selector

BUILT_IN = [
    "detector",
    "random",
    "cascade:first='hashing:dims=16'",
    "dsir",
    "lexical",
    "moore_lewis",
]
BUILT_IN += ["moore_lewis:order=1", "moore_lewis:score=perplexity"]
BUILT_IN += ["moore_lewis:normalise=none,vocabulary=target,cutoff=1"]
BUILT_IN += ["fusion:parts=lexical+lda,weights=0.4+0.6", "auto:dsir+lda,folds=2"]


def failures(candidate):
    return {result.name for result in check_selector(candidate) if not result.passed}


@pytest.mark.parametrize("spec", BUILT_IN)
def test_built_in_selectors_pass_every_check(spec, monkeypatch):
    monkeypatch.setattr(
        "dana.scoring.ranking.measures.PRECISION_REPLICATES", 9
    )  # its intervals decide nothing
    results = check_selector(spec)
    assert [(result.name, result.passed) for result in results] == [
        (name, True) for name in checks_of(SelectorChecks)
    ]
    exempt = [result.name for result in results if "exempt" in result.detail]
    assert exempt == (["target_text_scores_lower"] if spec == "random" else [])


def test_every_selector_of_the_core_is_checked():
    ours = [
        claims[0] for claims in SELECTORS.entries().values() if claims[0].dist.name == "dana-lm"
    ]
    core = {claim.name for claim in ours if not claim.value.startswith("dana.studies.")}
    elsewhere = {
        "classifier",
        "perplexity_gap",
    }  # in test_classifier_selector.py and test_perplexity_gap.py
    assert {spec.partition(":")[0] for spec in BUILT_IN} | elsewhere == core


@dataclass(frozen=True)
class FlawedModel(FittedSelector):
    """Share of unknown words; `flaw` breaks one promise."""

    flaw: str
    words: list
    calls: list = field(default_factory=list, compare=False, metadata={"saved": False})

    def score_units(self, units):
        scores = np.array(
            [np.mean([word not in self.words for word in text.split()]) for text in units.texts]
        )
        self.calls.append(1)
        flaws = {
            "wrong sign": lambda: -scores,
            "float32": lambda: scores.astype(np.float32),
            "one too few": lambda: scores[1:],
            "batch-dependent": lambda: (
                scores - (scores.mean() if len(scores) else 0) + np.arange(len(scores))
            ),
            "nothing for nothing": lambda: scores if len(scores) else None,
            "counts its calls": lambda: scores + len(self.calls),
        }
        return flaws.get(self.flaw, lambda: scores)()

    def save(self, folder):
        super().save(folder)
        if self.flaw == "pickles":
            (folder / "model.pkl").write_text("x")


@dataclass(frozen=True)
class FlawedSelector(Selector):
    flaw: str = ""
    fitted_type: ClassVar[type] = FlawedModel

    def samples(self, target_units):
        return {"some": 0.5} if self.flaw == "half a sample" else {}

    def learn(self, target, pool, seed):
        words = sorted({word for text in target.texts for word in text.split()})
        if self.flaw == "global state":
            words = list(np.random.default_rng().permutation(words)[:4])
        if self.flaw == "undeclared setting" and self.settings.geometry == "l2":
            words = words[:4]
        return FlawedModel(self.flaw, words)

    def identity(self):
        return {"of": np.ones(1)} if self.flaw == "opaque" else super().identity()


FLAWS = [
    ("wrong sign", "target_text_scores_lower"),
    ("float32", "results_are_finite_and_of_their_type"),
]
FLAWS += [
    ("one too few", "results_are_finite_and_of_their_type"),
    ("batch-dependent", "order_and_batch_do_not_matter"),
]
FLAWS += [("nothing for nothing", "no_items_give_no_results")]
FLAWS += [
    ("counts its calls", "calling_and_fitting_change_nothing"),
    ("pickles", "saved_and_loaded_scores_equal"),
]
FLAWS += [("half a sample", "samples_are_named_sizes"), ("global state", "same_seed_same_scores")]
FLAWS += [
    ("undeclared setting", "settings_not_used_decide_nothing"),
    ("opaque", "identity_is_plain_and_stable"),
]


@pytest.mark.parametrize(("flaw", "check"), FLAWS)
def test_a_flaw_fails_its_check(flaw, check):
    assert check in failures(FlawedSelector(flaw))


def test_a_selector_without_a_flaw_passes():
    assert failures(FlawedSelector()) == set()


BAD_PARAMETERS = {
    "random": "context=3",
    "cascade": "keep=1.5",
    "dsir": "normalise=length order=0 buckets=0 smoothing=0.0",
    "lexical": "order=0 characters=1 buckets=0 c=0.0 background=0",
    "classifier": "negatives=worst ratio=0.0 epochs=0 learning_rate=0.0 batch_size=0 max_tokens=2",
    "moore_lewis": "order=0 min_count=0 cutoff=-1 background=0 background=all score=total "
    "vocabulary=pool normalise=word normalise=none,score=perplexity",
    "fusion": "parts=lexical+lexical parts=lexical++svm parts=lexical+auto "
    "weights=1 weights=1+x weights=0+0 weights=1+-1",
    "auto": "parts=lexical+lexical folds=1 prevalence=0",
}


@pytest.mark.parametrize("selector", BAD_PARAMETERS)
def test_parameters_out_of_range_are_refused(selector):
    for parameter in BAD_PARAMETERS[selector].split():
        with pytest.raises(ConfigError, match=parameter.partition("=")[0] + "="):
            create_selector(f"{selector}:{parameter}", SelectorContext())


TARGET, POOL = ["the kinase binds the receptor"] * 12, ["the court heard the appeal"] * 12


UNTEACHABLE = [
    ("detector:knn", ["a", 3], ["a"], r"target\[1\]"),
    ("detector:knn", TARGET, ["b", None], r"pool\[1\]"),
]
UNTEACHABLE += [("detector:knn", TARGET, [], "geometry"), ("lexical", [], POOL, "target")]
UNTEACHABLE += [
    ("lexical", TARGET, ["!", "..."], "background"),
    ("dsir", ["", " "], POOL, "target"),
]
UNTEACHABLE += [("dsir", TARGET, [" "], "background"), ("classifier", [], POOL, "target")]
UNTEACHABLE += [
    ("moore_lewis", TARGET, [], "background"),
    ("moore_lewis", TARGET, {"geometry": POOL}, "background"),
]
UNTEACHABLE += [("moore_lewis:min_count=99", TARGET, POOL, "min_count=99")]
UNTEACHABLE += [("moore_lewis:min_count=99", [" "], POOL, r"training texts$")]
UNTEACHABLE += [("moore_lewis:min_count=1,vocabulary=target", [" "], POOL, r"training texts$")]


@pytest.mark.parametrize(("spec", "target", "pool", "message"), UNTEACHABLE)
def test_text_that_teaches_nothing_is_refused(spec, target, pool, message):
    with pytest.raises(DataError, match=message):
        create_selector(spec, SelectorContext(encoder="hashing:dims=16")).fit(target, pool)


def test_unknown_names_and_parameters_are_refused():
    with pytest.raises(PluginError, match="unknown detector 'knm'; did you mean 'knn'"):
        check_selector("detector:detector=knm")
    with pytest.raises(ConfigError, match="RandomSelector takes: nothing"):
        create_selector("random:3", SelectorContext())


UNREAD = {
    "selector=casade": "unknown selector 'casade'; did you mean 'cascade'?",
    "selector=cascade:first=hasing": "unknown encoder 'hasing'; did you mean 'hashing'?",
    "selector=detector:knn,geometry=l3": "geometry='l3': must be one of none, l2",
    "selector=detectr:knn": "unknown selector 'detectr'; did you mean 'detector'? A",
    "selector=density": "did you mean 'density_ratio'?",
    "selector=detector:knn:k=0": "knn: k=0: must be at least 1",
    "selection.encoder=hasing": "unknown encoder 'hasing'; did you mean 'hashing'?",
    "selection.geometry=whiten:0": "geometry='whiten:0': must be one of",
    "ranking.detectors=[knn,lov]": "unknown detector 'lov'; did you mean 'lof'?",
}


def test_a_bad_spec_is_told_before_text_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("task.jsonl", "pool.jsonl"):
        Path(name).write_text("this is no JSON\n")
    recipe = "task: task.jsonl\npool: [pool.jsonl]\nout: out\nmodel: nowhere\nselection: {encoder: hashing}\n"
    for setting, message in UNREAD.items():
        ranks = setting.startswith("ranking")
        Path("recipe.yaml").write_text(recipe + ("selector: detector\n" if ranks else ""))
        assert (
            main(["score", *["--rank-only"] * ranks, "--config", "recipe.yaml", "--set", setting])
            == 2
        )
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert message in line
        assert not Path("out").exists()
