"""Conformance checks of detectors, encoders and selectors: a name or an object in, a result per promise out.

``dana detectors check NAME`` and its like, or :func:`check_detector`, :func:`check_encoder` and :func:`check_selector`.
A kind of component is a class below that knows how to fit, call and save one; each method ``check_...`` of it and of
the classes above it is a check. A component that cannot pass one says so itself, in a class attribute ``exemptions =
{"check": "reason"}``.
"""

import copy
import json
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.core.errors import DanaError, DataError
from dana.core.registry import DETECTORS, ENCODERS, origin_of, plugin_errors
from dana.core.schemas import Document
from dana.corpus.unit_stream import Units, split_documents
from dana.detectors.base import background_units, fit_detector
from dana.detectors.pyod import as_detector, restore, save_fitted
from dana.encoders.base import Encoder, encode, encoder_identity
from dana.selectors.base import FittedSelector, Selector, SelectorContext
from dana.selectors.build import create_selector

DIMS = 12  # of a detector's rows
SHIFT = 4.0  # the task's mean along the first half of the dimensions; the outliers' along the others is twice that
ODD = ("x", "Δ-Prolin — 日本語 🙂", "line one\nline two\ttabbed", "word " * 2000)
TASK = ("cell", "gene", "protein", "kinase", "receptor", "assay", "ligand", "enzyme")
OTHER = ("court", "judge", "appeal", "motion", "statute", "counsel", "verdict", "tort")
CONTEXT = SelectorContext(encoder="hashing:dims=64")  # nothing is downloaded
ANOTHER = SelectorContext(detector="pca", encoder="hashing:dims=32", geometry="l2", general_share=0.1)


@dataclass(frozen=True)
class CheckResult:
    """One check's outcome.

    Attributes:
        name: The check.
        passed: Whether it holds, or the component is exempt.
        detail: What was found wrong, or the reason of the exemption.
    """

    name: str
    passed: bool
    detail: str = ""

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"{'ok' if self.passed else 'FAILED':<7} {self.name.replace('_', ' ')}{detail}"


def check_detector(candidate: Any) -> list[CheckResult]:
    """Run every check of detectors.

    Args:
        candidate: A registered name or spec, or an unfitted detector (of dana's protocol or PyOD's convention).

    Raises:
        PluginError: If the name is unknown or does not load.
        ConfigError: If a parameter of the spec is refused.
    """
    component = DETECTORS.create(candidate) if isinstance(candidate, str) else candidate
    detector = as_detector(component)
    return _run(DetectorChecks, detector, getattr(component, "exemptions", {}))


def check_encoder(candidate: Any) -> list[CheckResult]:
    """Run every check of encoders; for what it takes and raises see :func:`check_detector`.

    Raises:
        ArtifactError: If its checkpoint is not there.
    """
    encoder = ENCODERS.create(candidate) if isinstance(candidate, str) else candidate
    encoder_identity(encoder)  # finds its checkpoint
    return _run(EncoderChecks, encoder, getattr(encoder, "exemptions", {}))


def check_selector(candidate: Any) -> list[CheckResult]:
    """Run every check of selectors, with the encoder ``hashing``; for what it takes and raises see above."""
    named = isinstance(candidate, str)
    selector = create_selector(candidate, CONTEXT) if named else replace(candidate, context=CONTEXT)
    with plugin_errors("selector", str(candidate), selector):
        selector.identity()  # finds the components that its parameters name
    return _run(SelectorChecks, selector, getattr(selector, "exemptions", {}))


def checks_of(kind: type["Checks"]) -> list[str]:
    """Names of the checks of a kind."""
    return [name.removeprefix("check_") for name in dir(kind) if name.startswith("check_")]


def _run(kind: type["Checks"], component: Any, exempt: Mapping[str, str]) -> list[CheckResult]:
    """Every check on a case of its own, but for those that the component is exempt from."""
    names = checks_of(kind)
    unknown = sorted(exempt.keys() - set(names))
    results = [CheckResult(name, False, "exempt from a check that does not exist") for name in unknown]
    for name in names:
        if name in exempt:
            results.append(CheckResult(name, True, f"exempt: {exempt[name]}"))
            continue
        try:
            getattr(kind(component), f"check_{name}")()
            results.append(CheckResult(name, True))
        except Exception as error:  # whatever a plug-in raises
            told = f"{error}" if isinstance(error, AssertionError | DanaError) else f"{type(error).__name__}: {error}"
            results.append(CheckResult(name, False, told))
    return results


def expect(holds: bool, message: str) -> None:
    """Raise an AssertionError with the message unless the claim holds."""
    if not holds:
        raise AssertionError(message)


def expect_close(found: Any, expected: Any, message: str, tolerance: float = 1e-5) -> None:
    """Expect two arrays of one shape to differ by at most `tolerance` of the largest expected number."""
    one, other = (np.asarray(part, dtype=np.float64) for part in (found, expected))
    expect(one.shape == other.shape, f"{message}: shape {one.shape}, expected {other.shape}")
    worst = float(np.abs(one - other).max(initial=0)) / max(float(np.abs(other).max(initial=0)), 1e-12)
    expect(worst <= tolerance, f"{message}: relative difference {worst:.1e}, allowed {tolerance:.0e}")


def share_above(higher: Any, lower: Any) -> float:
    """AUROC: share of pairs in which a number of the first array is above one of the second."""
    one, other = (np.asarray(part, dtype=np.float64) for part in (higher, lower))
    return float((one[:, None] > other[None]).mean())


class Checks:
    """A component with what it is tried on, and what every kind promises.

    Attributes:
        component: Unfitted.
        result: Class, dtype and dimensions of what a call gives, a row an item.
        items: To call it with.
        inputs: What it is given, by name, and must not write into.
    """

    result: tuple[type, str, int]
    items: Any
    inputs: Mapping[str, Any]

    def __init__(self, component: Any) -> None:
        self.component = component

    def call(self, items: Any) -> Any:
        """Scores of shape (items,), or vectors of shape (items, dims)."""

    def take(self, rows: list[int]) -> Any:
        """Some of the items."""
        return [self.items[row] for row in rows]

    def identity(self) -> dict[str, Any]:
        """What stands for the component in a fingerprint."""
        return origin_of(self.component)

    def fit_another(self) -> None:
        """Fit the component on something else, where it is fitted."""

    def check_identity_is_plain_and_stable(self) -> None:
        """Its identity is JSON values, the same every time, and no path of this machine."""
        once, again = (json.dumps(self.identity(), sort_keys=True) for _ in range(2))
        expect(once == again, "identity differs between two calls or two objects with the same parameters")
        expect(str(Path.home()) not in once, f"identity holds a path of this machine: {once}")

    def check_results_are_finite_and_of_their_type(self) -> None:
        """One finite number or vector an item: float64 scores, float32 vectors."""
        kind, dtype, dims = self.result
        results, count = self.call(self.items), len(self.items)
        expect(isinstance(results, kind), f"a {type(results).__name__}, expected a {kind.__name__}")
        shape = tuple(results.shape)
        expect(len(shape) == dims and shape[0] == count, f"shape {shape} for {count} items")
        expect(str(results.dtype).endswith(dtype), f"dtype {results.dtype}, expected {dtype}")
        bad = np.flatnonzero(~np.isfinite(np.asarray(results)).reshape(count, -1).all(1))
        expect(not bad.size, f"item {bad[:1]} has a number that is not finite")

    def check_no_items_give_no_results(self) -> None:
        """No rows or units give no scores, no texts give vectors of shape (0, dims)."""
        expected = (0, *np.shape(self.call(self.take([0])))[1:])
        shape = np.shape(self.call(self.take([])))
        expect(shape == expected, f"shape {shape} for no items, expected {expected}")

    def check_order_and_batch_do_not_matter(self) -> None:
        """An item's result does not depend on the other items of the call, to 1e-5."""
        places = list(range(len(self.items)))
        together = np.asarray(self.call(self.items))
        expect_close(self.call(self.take(places[::-1])), together[::-1], "in another order")
        alone = [np.asarray(self.call(self.take([place]))) for place in places]
        expect_close(np.concatenate(alone), together, "one by one")

    def check_calling_and_fitting_change_nothing(self) -> None:
        """A call and another fit leave inputs as they were, and the next call's results, to the last bit."""
        before = copy.deepcopy(dict(self.inputs))
        first = np.asarray(self.call(self.items)).copy()
        self.fit_another()
        expect(np.array_equal(first, self.call(self.items)), "a second call, or another fit, changed the results")
        for name, given in before.items():
            expect(np.array_equal(given, self.inputs[name]), f"the {name} were written into")


class FittedChecks(Checks):
    """What detectors and selectors promise."""

    inside: Any  # items like those that it is fitted on
    outside: Any  # items that are far from these
    least: float  # share of pairs in which the latter must score above the former

    @cached_property
    def fitted(self) -> Any:
        """The component fitted with seed 0."""
        return self.fit(0)

    def fit(self, seed: int) -> Any:
        """A fresh fit."""

    def call(self, items: Any) -> Any:
        """Scores of shape (items,)."""
        return self.fitted.score(items)

    def reload(self, folder: Path) -> Any:
        """The fitted component saved to a folder and loaded again."""

    def check_same_seed_same_scores(self) -> None:
        """Two fits with one seed give bit-equal scores."""
        once, again = (self.fit(3).score(self.items) for _ in range(2))
        expect(np.array_equal(once, again), "two fits with seed 3 score differently")

    def check_saved_and_loaded_scores_equal(self) -> None:
        """Saved as safetensors and JSON, what was fitted scores alike after loading."""
        with tempfile.TemporaryDirectory() as name:
            scores = self.reload(Path(name)).score(self.items)
            suffixes = {path.suffix for path in Path(name).rglob("*") if path.is_file()}
        allowed = {".safetensors", ".json"}
        expect(suffixes <= allowed, f"files {sorted(suffixes)}; only .safetensors and .json are allowed")
        expect_close(scores, self.call(self.items), "after loading", 1e-7)

    def check_task_text_scores_lower(self) -> None:
        """Items that are far from the task score above items like it (the sign)."""
        share = share_above(self.call(self.outside), self.call(self.inside))
        expect(share > self.least, f"AUROC {share:.3f} of foreign items against the task's; higher = more foreign")


class DetectorChecks(FittedChecks):
    """A detector on two clouds, of which the second is farther out and in another direction."""

    result = Tensor, "float64", 1
    least = 0.95

    def __init__(self, component: Any) -> None:
        super().__init__(component)
        self.inside, far = clouds(300, 240, DIMS, 7)
        self.outside, self.background = far[:40], far[40:]
        self.items = torch.cat([self.inside[:20], self.outside[:20]])
        self.inputs = {"task": self.inside, "rows to score": self.items, "background": self.background}

    def fit(self, seed: int) -> Any:
        """On the inner cloud, against rows like the outliers."""
        return self.fit_on(self.inside, seed=seed)

    def fit_on(self, rows: Tensor, background: Tensor | None = None, seed: int = 0) -> Any:
        """On other rows, or against others."""
        return fit_detector(self.component, rows, seed, self.background if background is None else background)

    def fit_another(self) -> None:
        """On shifted clouds."""
        self.fit_on(self.inside + 5, self.background - 5)

    def take(self, rows: list[int]) -> Tensor:
        """Rows of both clouds."""
        return self.items[torch.tensor(rows, dtype=torch.int64)]

    def reload(self, folder: Path) -> Any:
        """See :func:`dana.detectors.pyod.restore`."""
        save_fitted(self.fitted, "checked", folder)
        return restore(self.component, folder)

    def refuses(self, what: str, call: Callable[[], Any], *names: str) -> None:
        """Expect a DataError of a call, which names what it must."""
        try:
            call()
        except DataError as error:
            missing = [name for name in names if name not in str(error)]
            expect(not missing, f"{what}: the message does not name {', '.join(missing)}: {error}")
        else:
            raise AssertionError(f"{what} must raise DataError")

    def check_bad_rows_are_refused_by_name(self) -> None:
        """NaN, another width and too few rows raise a DataError; it names the first row with NaN, and a background."""
        rows, background = self.inside, self.background
        self.refuses("fit on NaN", lambda: self.fit_on(with_nan(rows)), "row 3")
        self.refuses("score of NaN", lambda: self.call(with_nan(rows)), "row 3")
        self.refuses("score of another width", lambda: self.call(rows[:, :5]))
        self.refuses("fit on one row", lambda: self.fit_on(rows[:1]))
        if background_units(self.component):
            self.refuses("no background", lambda: self.fit_on(rows, background[:0]), "background")
            self.refuses(
                "a background with NaN", lambda: self.fit_on(rows, with_nan(background)), "background", "row 3"
            )
            self.refuses("one of another width", lambda: self.fit_on(rows, background[:, :5]), "background")

    def check_constant_and_repeated_columns_survive(self) -> None:
        """Constant and duplicated dimensions, which embeddings have, break neither scores nor sign."""
        rows, queries, background = (
            torch.cat([part, part[:, :2], torch.ones(len(part), 1)], dim=1)
            for part in (self.inside, self.outside, self.background)
        )
        fitted = self.fit_on(rows, background)
        expect(bool(torch.isfinite(fitted.score(queries)).all()), "non-finite scores")
        share = share_above(fitted.score(queries), fitted.score(rows))
        expect(share > 0.9, f"AUROC falls to {share:.3f}")

    def check_fewer_rows_than_dimensions_work(self) -> None:
        """30 rows of 64 dimensions, as a small task has."""
        near, far = clouds(30, 40, 64, 1)
        fitted = self.fit_on(near, far[10:])
        above = fitted.score(far[:10]).min() > fitted.score(near).median()
        expect(bool(above), "far rows score below the median of the fitted")


class EncoderChecks(Checks):
    """An encoder on a few texts of two topics, and odd ones."""

    result = Tensor, "float32", 2

    def __init__(self, component: Encoder) -> None:
        super().__init__(component)
        texts = _sentences(TASK + OTHER, 6, np.random.default_rng(0))
        self.items = [*texts, *ODD, texts[0]]
        self.inputs = {"texts": self.items}

    def call(self, items: list[str]) -> Tensor:
        """Vectors of shape (texts, dims)."""
        return encode(self.component, items, type(self.component).__name__).cpu()

    def identity(self) -> dict[str, Any]:
        """Of the encoder, and whose code it is."""
        return encoder_identity(self.component)


class SelectorChecks(FittedChecks):
    """A selector on units of the task's topic, of another and of both."""

    result = np.ndarray, "float64", 1
    least = 0.75

    def __init__(self, component: Selector) -> None:
        super().__init__(replace(component))
        self.inside, self.outside = _units(TASK, 8, "task"), _units(OTHER, 8, "other")
        self.items, self.inputs = _units(TASK + OTHER, 8, "mixed"), {}

    def fit(self, seed: int) -> FittedSelector:
        """Another object with the same parameters, fitted."""
        return self.fit_in(replace(self.component), seed)

    def fit_in(self, selector: Selector, seed: int = 0) -> FittedSelector:
        """On 60 task texts and, for each sample asked for, 60 texts of which a fifth are of the task's topic."""
        general = {}
        for number, name in enumerate(selector.samples(60)):
            random = np.random.default_rng(100 + number)
            general[name] = _sentences(OTHER, 48, random) + _sentences(TASK, 12, random)
        return selector.fit(_sentences(TASK, 60, np.random.default_rng(1)), general, seed)

    def fit_another(self) -> None:
        """On one text and samples of the other topic."""
        others = _sentences(OTHER, 64, np.random.default_rng(2))
        self.component.fit(["something else entirely"] * 60, dict.fromkeys(self.component.samples(60), others), 1)

    def take(self, rows: list[int]) -> Units:
        """Units of both topics."""
        return self.items.rows(np.array(rows, dtype=np.int64))

    def reload(self, folder: Path) -> FittedSelector:
        """Loaded by another object of the selector's class."""
        self.fitted.save(folder)
        return replace(self.component).load(folder)

    def identity(self) -> dict[str, Any]:
        """Of another object with the same parameters."""
        return replace(self.component).identity()

    def check_samples_are_named_sizes(self) -> None:
        """`samples` gives whole numbers by name, for any size of task."""
        for task_units in (1, 60, 4000):
            wanted = dict(self.component.samples(task_units))
            good = all(isinstance(name, str) and type(size) is int and size >= 0 for name, size in wanted.items())
            expect(good, f"samples({task_units}) is {wanted}; wanted are whole numbers from 0 by name")

    def check_settings_not_used_decide_nothing(self) -> None:
        """Settings of the run that are not in `uses` change neither the scores nor the identity."""
        used = {name: getattr(CONTEXT, name) for name in self.component.uses}
        other = replace(self.component, context=replace(ANOTHER, **used))
        same = other.identity() == self.component.identity()
        expect(same, "a setting that is not in `takes` is part of the identity")
        scores = self.fit_in(other).score(self.items)
        expect(np.array_equal(scores, self.call(self.items)), "a setting that is not in `takes` changes scores")


def with_nan(rows: Tensor) -> Tensor:
    """A copy that is not finite in row 3."""
    broken = rows.clone()
    broken[3, 0] = float("nan")
    return broken


def clouds(inside: int, outside: int, dims: int, seed: int) -> tuple[Tensor, Tensor]:
    """Normal rows around two means; the second is orthogonal to the first and twice as long."""
    noise = torch.randn(inside + outside, dims, generator=torch.Generator().manual_seed(seed))
    first = torch.arange(dims) < dims // 2
    return noise[:inside] + SHIFT * first, noise[inside:] + 2 * SHIFT * ~first


def _sentences(words: tuple[str, ...], count: int, random: np.random.Generator) -> list[str]:
    return [" ".join(random.choice(words, 6)) for _ in range(count)]


def _units(words: tuple[str, ...], documents: int, name: str) -> Units:
    """Five units a document; a document's text is its units on a line each."""
    random = np.random.default_rng(len(name))
    texts = ["\n".join(_sentences(words, 5, random)) for _ in range(documents)]
    of_words = [Document(f"{name}-{number}", f"{name}.jsonl", text) for number, text in enumerate(texts)]
    return next(split_documents(of_words, lambda text: [line.span() for line in re.finditer(".+", text)]))
