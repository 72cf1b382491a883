"""Conformance checks of detectors, encoders and selectors, one result per rule.

Run them by ``dana plugins check detector NAME`` (``encoders``, ``selectors``), or
:func:`check_detector`, :func:`check_encoder` and :func:`check_selector`. Each kind of component has
a class below that fits, calls and saves one; its methods ``check_...``, inherited ones included,
are the checks. A component that cannot pass a check lists it in a class attribute ``exemptions =
{"check": "reason"}``.
"""

import copy
import json
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.core.checks import CheckResult, expect, run_checks
from dana.core.errors import DataError
from dana.core.registry import DETECTORS, ENCODERS, origin_of, plugin_errors
from dana.core.schemas import Document
from dana.corpus.unit_stream import Units, split_documents
from dana.corpus.units import Span
from dana.detectors.base import background_units, fit_detector
from dana.detectors.pyod import as_detector, restore, save_fitted
from dana.encoders.base import Encoder, encode, encoder_identity
from dana.selectors.base import FittedSelector, Selector, SelectorContext
from dana.selectors.build import create_selector

DIMS = 12  # width of a detector's rows
# The target's mean along the first half of the dimensions; the outliers' along the others is twice
# that.
SHIFT = 4.0
ODD = ("x", "Δ-Prolin — 日本語 🙂", "line one\nline two\ttabbed", "word " * 2000)
TARGET = ("cell", "gene", "protein", "kinase", "receptor", "assay", "ligand", "enzyme")
OTHER = ("court", "judge", "appeal", "motion", "statute", "counsel", "verdict", "tort")
CONTEXT = SelectorContext(encoder="hashing:dims=64")  # nothing is downloaded
ANOTHER = SelectorContext(detector="pca", encoder="hashing:dims=32", geometry="l2", pool_share=0.1)


def check_detector(candidate: Any) -> list[CheckResult]:
    """Run every check of detectors.

    Args:
        candidate: A registered name or spec, or an unfitted detector (of dana's protocol or PyOD's
            convention).

    Raises:
        PluginError: If the name is unknown or does not load.
        ConfigError: If a parameter of the spec is out of range.
    """
    component = DETECTORS.create(candidate) if isinstance(candidate, str) else candidate
    detector = as_detector(component)
    exemptions = getattr(component, "exemptions", {})
    return run_checks(DetectorChecks, lambda: DetectorChecks(detector), exemptions)


def check_encoder(candidate: Any) -> list[CheckResult]:
    """Run every check of encoders; arguments and errors as for :func:`check_detector`.

    Raises:
        ArtifactError: If its checkpoint is missing.
    """
    encoder = ENCODERS.create(candidate) if isinstance(candidate, str) else candidate
    encoder_identity(encoder)  # fails if its checkpoint is missing
    exemptions = getattr(encoder, "exemptions", {})
    return run_checks(EncoderChecks, lambda: EncoderChecks(encoder), exemptions)


def check_selector(candidate: Any) -> list[CheckResult]:
    """Run every check of selectors, with the encoder ``hashing``; see :func:`check_detector`."""
    if isinstance(candidate, str):
        selector = create_selector(candidate, CONTEXT)
    else:
        selector = replace(candidate, context=CONTEXT)
    with plugin_errors("selector", str(candidate), selector):
        selector.identity()  # fails if a component that its parameters name is missing
    exemptions = getattr(selector, "exemptions", {})
    return run_checks(SelectorChecks, lambda: SelectorChecks(selector), exemptions)


def expect_close(result: Any, reference: Any, message: str, tolerance: float = 1e-5) -> None:
    """Expect two arrays of one shape to differ by little.

    The largest difference may be `tolerance` times the largest reference number.
    """
    actual = np.asarray(result, dtype=np.float64)
    expected = np.asarray(reference, dtype=np.float64)
    has_shape = actual.shape == expected.shape
    expect(has_shape, f"{message}: shape {actual.shape}, expected {expected.shape}")
    largest = max(float(np.abs(expected).max(initial=0)), 1e-12)
    worst = float(np.abs(actual - expected).max(initial=0)) / largest
    difference = f"relative difference {worst:.1e}, allowed {tolerance:.0e}"
    expect(worst <= tolerance, f"{message}: {difference}")


def share_above(higher: Any, lower: Any) -> float:
    """Compute AUROC: the share of pairs in which a number of `higher` is above one of `lower`."""
    above = np.asarray(higher, dtype=np.float64)
    below = np.asarray(lower, dtype=np.float64)
    return float((above[:, None] > below[None]).mean())


class Checks:
    """Checks that every kind of component has to pass.

    Attributes:
        component: Unfitted component.
        result: Class, dtype and number of dimensions of a call's result, which has one row per
            item.
        items: Items to call it with.
        inputs: Inputs by name, which it must not change.
    """

    result: tuple[type, str, int]
    items: Any
    inputs: Mapping[str, Any]

    def __init__(self, component: Any) -> None:
        self.component = component

    def call(self, items: Any) -> Any:
        """Compute scores of shape (items,), or vectors of shape (items, dims)."""

    def take(self, rows: list[int]) -> Any:
        """Select items by row number."""
        return [self.items[row] for row in rows]

    def identity(self) -> dict[str, Any]:
        """Return what represents the component in a fingerprint."""
        return origin_of(self.component)

    def fit_another(self) -> None:
        """Fit the component on other data, if it is fitted."""

    def check_identity_is_plain_and_stable(self) -> None:
        """Check that the identity is JSON, equal between calls, and has no path of this machine."""
        once = json.dumps(self.identity(), sort_keys=True)
        again = json.dumps(self.identity(), sort_keys=True)
        problem = "identity differs between two calls or two objects with the same parameters"
        expect(once == again, problem)
        home = str(Path.home())
        has_path = home != "/" and home in once  # "/" is the home of users of containers
        expect(not has_path, f"identity holds a path of this machine: {once}")

    def check_results_are_finite_and_of_their_type(self) -> None:
        """Check for one finite result per item: float64 scores or float32 vectors."""
        kind, dtype, dims = self.result
        results = self.call(self.items)
        count = len(self.items)
        expect(isinstance(results, kind), f"a {type(results).__name__}, expected a {kind.__name__}")
        shape = tuple(results.shape)
        expect(len(shape) == dims and shape[0] == count, f"shape {shape} for {count} items")
        expect(str(results.dtype).endswith(dtype), f"dtype {results.dtype}, expected {dtype}")
        is_finite = np.isfinite(np.asarray(results)).reshape(count, -1).all(1)
        bad = np.flatnonzero(~is_finite)
        expect(not bad.size, f"item {bad[:1]} has a number that is not finite")

    def check_no_items_give_no_results(self) -> None:
        """Check that no items give no scores, or vectors of shape (0, dims)."""
        empty_shape = (0, *np.shape(self.call(self.take([0])))[1:])
        shape = np.shape(self.call(self.take([])))
        expect(shape == empty_shape, f"shape {shape} for no items, expected {empty_shape}")

    def check_order_and_batch_do_not_matter(self) -> None:
        """Check that an item's result does not depend on the other items of the call, to 1e-5."""
        rows = list(range(len(self.items)))
        together = np.asarray(self.call(self.items))
        expect_close(self.call(self.take(rows[::-1])), together[::-1], "in another order")
        alone = [np.asarray(self.call(self.take([row]))) for row in rows]
        expect_close(np.concatenate(alone), together, "one by one")

    def check_calling_and_fitting_change_nothing(self) -> None:
        """Check that calls and other fits change neither inputs nor later results, to the bit."""
        before = copy.deepcopy(dict(self.inputs))
        first = np.asarray(self.call(self.items)).copy()
        self.fit_another()
        is_same = np.array_equal(first, self.call(self.items))
        expect(is_same, "a second call, or another fit, changed the results")
        for name, copy_of_input in before.items():
            is_same = np.array_equal(copy_of_input, self.inputs[name])
            expect(is_same, f"the {name} were written into")


class FittedChecks(Checks):
    """Checks that detectors and selectors have to pass."""

    inside: Any  # items like those of the fit
    outside: Any  # items far from these
    least_auroc: float  # of outside against inside

    @cached_property
    def fitted_component(self) -> Any:
        """Component fitted with seed 0."""
        return self.fit(0)

    def fit(self, seed: int) -> Any:
        """Fit the component."""

    def call(self, items: Any) -> Any:
        return self.fitted_component.score(items)

    def reload(self, folder: Path) -> Any:
        """Save the fitted component to a folder and load it."""

    def check_same_seed_same_scores(self) -> None:
        """Check that two fits with one seed give bit-equal scores."""
        once = self.fit(3).score(self.items)
        again = self.fit(3).score(self.items)
        expect(np.array_equal(once, again), "two fits with seed 3 score differently")

    def check_saved_and_loaded_scores_equal(self) -> None:
        """Check that it is saved as safetensors and JSON, and scores equally after loading."""
        with tempfile.TemporaryDirectory() as name:
            scores = self.reload(Path(name)).score(self.items)
            suffixes = {path.suffix for path in Path(name).rglob("*") if path.is_file()}
        problem = f"files {sorted(suffixes)}; only .safetensors and .json are allowed"
        expect(suffixes <= {".safetensors", ".json"}, problem)
        expect_close(scores, self.call(self.items), "after loading", 1e-7)

    def check_target_text_scores_lower(self) -> None:
        """Check the sign: items far from the task score above items like it."""
        share = share_above(self.call(self.outside), self.call(self.inside))
        message = f"AUROC {share:.3f} of foreign items against the task's; higher = more foreign"
        expect(share > self.least_auroc, message)


class DetectorChecks(FittedChecks):
    """Checks of a detector, on two clouds in different directions, the second one farther out."""

    result = (Tensor, "float64", 1)
    least_auroc = 0.95

    def __init__(self, component: Any) -> None:
        super().__init__(component)
        self.inside, far = clouds(300, 240, DIMS, 7)
        self.outside = far[:40]
        self.background = far[40:]
        self.items = torch.cat([self.inside[:20], self.outside[:20]])
        self.inputs = {
            "target": self.inside,
            "rows to score": self.items,
            "background": self.background,
        }

    def fit(self, seed: int) -> Any:
        """Fit on the inner cloud, with a background from the outer one."""
        return self.fit_on(self.inside, seed=seed)

    def fit_on(self, rows: Tensor, background: Tensor | None = None, seed: int = 0) -> Any:
        """Fit on other rows, or with another background."""
        if background is None:
            background = self.background
        return fit_detector(self.component, rows, seed, background)

    def fit_another(self) -> None:
        self.fit_on(self.inside + 5, self.background - 5)

    def take(self, rows: list[int]) -> Tensor:
        items: Tensor = self.items[torch.tensor(rows, dtype=torch.int64)]
        return items

    def reload(self, folder: Path) -> Any:
        save_fitted(self.fitted_component, "checked", folder)
        return restore(self.component, folder)

    def refuses(self, what: str, call: Callable[[], Any], *names: str) -> None:
        """Expect a call to raise a DataError that contains the names."""
        try:
            call()
        except DataError as error:
            missing = [name for name in names if name not in str(error)]
            expect(not missing, f"{what}: the message does not name {', '.join(missing)}: {error}")
        else:
            raise AssertionError(f"{what} must raise DataError")

    def check_bad_rows_are_refused_by_name(self) -> None:
        """Check that NaN, another width and too few rows raise a DataError.

        It names the row, and the background if that is at fault.
        """
        rows = self.inside
        self.refuses("fit on NaN", lambda: self.fit_on(with_nan(rows)), "row 3")
        self.refuses("score of NaN", lambda: self.call(with_nan(rows)), "row 3")
        self.refuses("score of another width", lambda: self.call(rows[:, :5]))
        self.refuses("fit on one row", lambda: self.fit_on(rows[:1]))
        if background_units(self.component):
            empty = self.background[:0]
            broken = with_nan(self.background)
            narrow = self.background[:, :5]
            self.refuses("no background", lambda: self.fit_on(rows, empty), "background")
            self.refuses(
                "a background with NaN", lambda: self.fit_on(rows, broken), "background", "row 3"
            )
            self.refuses("one of another width", lambda: self.fit_on(rows, narrow), "background")

    def check_constant_and_repeated_columns_survive(self) -> None:
        """Check that constant and duplicated dimensions break neither scores nor sign."""
        rows = with_odd_columns(self.inside)
        queries = with_odd_columns(self.outside)
        detector = self.fit_on(rows, with_odd_columns(self.background))
        expect(bool(torch.isfinite(detector.score(queries)).all()), "non-finite scores")
        share = share_above(detector.score(queries), detector.score(rows))
        expect(share > 0.9, f"AUROC falls to {share:.3f}")

    def check_fewer_rows_than_dimensions_work(self) -> None:
        """Check a fit on 30 rows of 64 dimensions, as for a small task."""
        near, far = clouds(30, 40, 64, 1)
        detector = self.fit_on(near, far[10:])
        above = detector.score(far[:10]).min() > detector.score(near).median()
        expect(bool(above), "far rows score below the median of the fitted")


class EncoderChecks(Checks):
    """Checks of an encoder, on texts of two topics and odd ones."""

    result = (Tensor, "float32", 2)

    def __init__(self, component: Encoder) -> None:
        super().__init__(component)
        texts = _sentences(TARGET + OTHER, 6, np.random.default_rng(0))
        self.items = [*texts, *ODD, texts[0]]
        self.inputs = {"texts": self.items}

    def call(self, items: list[str]) -> Tensor:
        return encode(self.component, items, type(self.component).__name__).cpu()

    def identity(self) -> dict[str, Any]:
        return encoder_identity(self.component)


class SelectorChecks(FittedChecks):
    """Checks of a selector, on units of the target's topic, another topic and both."""

    result = (np.ndarray, "float64", 1)
    least_auroc = 0.75

    def __init__(self, component: Selector) -> None:
        super().__init__(replace(component))
        self.inside = _units(TARGET, 8, "target")
        self.outside = _units(OTHER, 8, "other")
        self.items = _units(TARGET + OTHER, 8, "mixed")
        self.inputs = {}

    def fit(self, seed: int) -> FittedSelector:
        return self.fit_in(replace(self.component), seed)

    def fit_in(self, selector: Selector, seed: int = 0) -> FittedSelector:
        """Fit on 60 target texts and 60 texts per pool sample, a fifth of them like the target."""
        pool = {}
        for number, name in enumerate(selector.samples(60)):
            random = np.random.default_rng(100 + number)
            pool[name] = _sentences(OTHER, 48, random) + _sentences(TARGET, 12, random)
        target = _sentences(TARGET, 60, np.random.default_rng(1))
        fitted: FittedSelector = selector.fit(target, pool, seed)
        return fitted

    def fit_another(self) -> None:
        others = _sentences(OTHER, 64, np.random.default_rng(2))
        target = [f"something else entirely, number {number}" for number in range(60)]
        self.component.fit(target, dict.fromkeys(self.component.samples(60), others), 1)

    def take(self, rows: list[int]) -> Units:
        items: Units = self.items.rows(np.array(rows, dtype=np.int64))
        return items

    def reload(self, folder: Path) -> FittedSelector:
        self.fitted_component.save(folder)
        fitted: FittedSelector = replace(self.component).load(folder)
        return fitted

    def identity(self) -> dict[str, Any]:
        identity: dict[str, Any] = replace(self.component).identity()
        return identity

    def check_samples_are_named_sizes(self) -> None:
        """Check that `samples` gives whole numbers by name, for any size of task."""
        for target_units in (1, 60, 4000):
            sizes = dict(self.component.samples(target_units))
            problem = f"samples({target_units}) is {sizes}; expected whole numbers from 0 by name"
            for name, size in sizes.items():
                expect(isinstance(name, str) and type(size) is int and size >= 0, problem)

    def check_settings_not_used_decide_nothing(self) -> None:
        """Check that settings of the run outside `uses` change neither scores nor identity."""
        in_use = {name: getattr(CONTEXT, name) for name in self.component.uses}
        other = replace(self.component, context=replace(ANOTHER, **in_use))
        same = other.identity() == self.component.identity()
        expect(same, "a setting that is not in `takes` is part of the identity")
        scores = self.fit_in(other).score(self.items)
        same = np.array_equal(scores, self.call(self.items))
        expect(same, "a setting that is not in `takes` changes scores")


def with_nan(rows: Tensor) -> Tensor:
    """Copy rows with a NaN in row 3."""
    broken = rows.clone()
    broken[3, 0] = float("nan")
    return broken


def with_odd_columns(rows: Tensor) -> Tensor:
    """Copy rows with their first two columns repeated and a constant one at the end."""
    return torch.cat([rows, rows[:, :2], torch.ones(len(rows), 1)], 1)


def clouds(inside: int, outside: int, dims: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw normal rows around two orthogonal means, of which the second is twice as long."""
    noise = torch.randn(inside + outside, dims, generator=torch.Generator().manual_seed(seed))
    first = torch.arange(dims) < dims // 2
    return noise[:inside] + SHIFT * first, noise[inside:] + 2 * SHIFT * ~first


def _sentences(words: tuple[str, ...], count: int, random: np.random.Generator) -> list[str]:
    return [" ".join(random.choice(words, 6)) for _ in range(count)]


def _units(words: tuple[str, ...], documents: int, name: str) -> Units:
    """Make documents of five units, one per line."""
    random = np.random.default_rng(len(name))
    texts = ["\n".join(_sentences(words, 5, random)) for _ in range(documents)]
    of_words = []
    for number, text in enumerate(texts):
        of_words.append(Document(f"{name}-{number}", f"{name}.jsonl", text))
    return next(split_documents(of_words, _line_spans))


def _line_spans(text: str) -> list[Span]:
    return [line.span() for line in re.finditer(".+", text)]
