"""Conformance checks of selectors: a name or an object in, a result per promise of the contract out.

``dana selectors check NAME``, or :func:`check_selector`. The run's encoder is ``hashing``, so nothing is downloaded. A
selector that cannot pass a check says so itself, in a class attribute ``exemptions = {"check": "reason"}``.
"""

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.conformance import CheckResult, expect, expect_close, run_checks, share_above
from dana.core.origin import blamed
from dana.core.schemas import Document
from dana.corpus.unit_stream import Units, units_of
from dana.selectors.base import FittedSelector, Selector, SelectorContext
from dana.selectors.build import create_selector

TASK = ("cell", "gene", "protein", "kinase", "receptor", "assay", "ligand", "enzyme")
OTHER = ("court", "judge", "appeal", "motion", "statute", "counsel", "verdict", "tort")
CONTEXT = SelectorContext(encoder="hashing:dims=64")
ANOTHER = SelectorContext(detector="pca", encoder="hashing:dims=32", geometry="l2", general_share=0.1)


@dataclass(frozen=True)
class SelectorCase:
    """A selector, texts to fit it on, and units to score.

    Attributes:
        selector: Unfitted, in a context.
    """

    selector: Selector

    @cached_property
    def fitted(self) -> FittedSelector:
        """The selector fitted with seed 0."""
        return self.fit(self.selector)

    @cached_property
    def inside(self) -> Units:
        """40 units of the task's topic."""
        return _units(TASK, 8, "task")

    @cached_property
    def outside(self) -> Units:
        """40 units of another topic."""
        return _units(OTHER, 8, "other")

    @cached_property
    def mixed(self) -> Units:
        """40 units whose words are of both topics."""
        return _units(TASK + OTHER, 8, "mixed")

    def fit(self, selector: Selector, seed: int = 0) -> FittedSelector:
        """Fit on 60 task texts and, for each sample asked for, 60 texts of which a fifth are of the task's topic."""
        general = {}
        for number, name in enumerate(selector.samples(60)):
            random = np.random.default_rng(100 + number)
            general[name] = _sentences(OTHER, 48, random) + _sentences(TASK, 12, random)
        return selector.fit(_sentences(TASK, 60, np.random.default_rng(1)), general, seed)


def check_selector(candidate: Any) -> list[CheckResult]:
    """Run every check.

    Args:
        candidate: A registered name or spec, or a :class:`dana.selectors.base.Selector`.

    Raises:
        PluginError: If the name is unknown or does not load, or names no selector.
        ConfigError: If a parameter of the spec is refused.
    """
    made = create_selector(candidate, CONTEXT) if isinstance(candidate, str) else replace(candidate, context=CONTEXT)
    with blamed("selector", str(candidate), made):
        made.identity()  # finds the components that its parameters name
    return run_checks(CHECKS, lambda: SelectorCase(replace(made)), getattr(made, "exemptions", {}))


def _sentences(words: tuple[str, ...], count: int, random: np.random.Generator) -> list[str]:
    return [" ".join(random.choice(words, 6)) for _ in range(count)]


def _units(words: tuple[str, ...], documents: int, name: str) -> Units:
    """Five units a document; a document's text is its units on a line each."""
    random = np.random.default_rng(len(name))
    texts = ["\n".join(_sentences(words, 5, random)) for _ in range(documents)]
    made = [Document(f"{name}-{number}", f"{name}.jsonl", text) for number, text in enumerate(texts)]

    def lines(text: str) -> list[tuple[int, int]]:
        ends = np.cumsum([len(line) + 1 for line in text.split("\n")]) - 1
        return [(int(end) - len(line), int(end)) for line, end in zip(text.split("\n"), ends, strict=True)]

    return next(units_of(made, lines))


def samples_are_named_sizes(case: SelectorCase) -> None:
    """`samples` gives whole numbers by name, for any size of task."""
    for task_units in (1, 60, 4000):
        wanted = dict(case.selector.samples(task_units))
        good = all(isinstance(name, str) and type(size) is int and size >= 0 for name, size in wanted.items())
        expect(good, f"samples({task_units}) is {wanted}; wanted are whole numbers from 0 by name")


def scores_are_float64_and_finite(case: SelectorCase) -> None:
    """One finite float64 score a unit, for units of a corpus and for plain texts."""
    for units in (case.mixed, list(case.mixed.texts)):
        scores = case.fitted.score(units)
        expect(isinstance(scores, np.ndarray), f"score gave a {type(scores).__name__}, expected a numpy array")
        expect(scores.shape == (len(units),), f"shape {scores.shape} for {len(units)} units")
        expect(scores.dtype == np.float64, f"dtype {scores.dtype}, expected float64")
        expect(bool(np.isfinite(scores).all()), "non-finite scores")


def task_text_scores_lower(case: SelectorCase) -> None:
    """Units of another topic score above units of the task's (the sign)."""
    share = share_above(case.fitted.score(case.outside), case.fitted.score(case.inside))
    expect(share > 0.75, f"AUROC {share:.3f} of another topic against the task's; higher must mean more foreign")


def order_and_batch_do_not_matter(case: SelectorCase) -> None:
    """A unit's score does not depend on the other units of the call."""
    units, fitted = case.mixed, case.fitted
    together = fitted.score(units)
    backwards = np.arange(len(units))[::-1]
    expect_close(fitted.score(units.rows(backwards)), together[backwards], "in another order")
    alone = [fitted.score(units.rows(np.array([row]))) for row in range(len(units))]
    expect_close(np.concatenate(alone), together, "one by one")


def no_units_give_no_scores(case: SelectorCase) -> None:
    """No units give an empty array."""
    nothing: list[str] = []
    for empty in (case.mixed.rows(np.array([], dtype=np.int64)), nothing):
        shape = np.shape(case.fitted.score(empty))
        expect(shape == (0,), f"shape {shape} for no units, expected (0,)")


def same_seed_same_scores(case: SelectorCase) -> None:
    """Two fits with one seed give bit-equal scores."""
    once, again = (case.fit(replace(case.selector), seed=3).score(case.mixed) for _ in range(2))
    expect(np.array_equal(once, again), "two fits with seed 3 score differently")


def fitting_and_scoring_change_nothing(case: SelectorCase) -> None:
    """A second score and another fit leave the scores of a fitted selector as they were."""
    first = case.fitted.score(case.mixed)
    others = _sentences(OTHER, 64, np.random.default_rng(2))
    case.selector.fit(["something else entirely"] * 60, dict.fromkeys(case.selector.samples(60), others), 1)
    expect(np.array_equal(case.fitted.score(case.mixed), first), "a second call or another fit changed the scores")


def saved_and_loaded_scores_equal(case: SelectorCase) -> None:
    """Saved as safetensors and JSON, a fitted selector scores alike after loading by another object of its class."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        case.fitted.save(folder)
        found = {path.suffix for path in folder.rglob("*") if path.is_file()}
        expect(found <= {".safetensors", ".json"}, f"files {sorted(found)}; only .safetensors and .json are allowed")
        loaded = replace(case.selector).load(folder)
        expect_close(loaded.score(case.mixed), case.fitted.score(case.mixed), "after loading", 1e-7)


def identity_is_plain_and_stable(case: SelectorCase) -> None:
    """`identity` gives JSON values, the same for two objects with the same parameters."""
    once, again = (json.dumps(replace(case.selector).identity(), sort_keys=True) for _ in range(2))
    expect(once == again, "identity() differs between two objects with the same parameters")


def settings_not_used_decide_nothing(case: SelectorCase) -> None:
    """Settings of the run that are not in `uses` change neither the scores nor the identity."""
    used = {name: getattr(CONTEXT, name) for name in case.selector.uses}
    other = replace(case.selector, context=replace(ANOTHER, **used))
    expect(other.identity() == case.selector.identity(), "a setting that is not in `takes` is part of the identity")
    scores = case.fit(other).score(case.mixed)
    expect(np.array_equal(scores, case.fitted.score(case.mixed)), "a setting that is not in `takes` changes scores")


CHECKS: list[Callable[[SelectorCase], None]] = [
    samples_are_named_sizes,
    scores_are_float64_and_finite,
    task_text_scores_lower,
    order_and_batch_do_not_matter,
    no_units_give_no_scores,
    same_seed_same_scores,
    fitting_and_scoring_change_nothing,
    saved_and_loaded_scores_equal,
    identity_is_plain_and_stable,
    settings_not_used_decide_nothing,
]
