"""Checks of encoders: the built-in ones pass, and each broken promise fails the check that names it."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dana.core.checks import checks_of
from dana.encoders.hashing import HashingEncoder
from dana.selectors.checks import EncoderChecks, check_encoder


@pytest.mark.parametrize("spec", ["hashing", "hashing:dims=64,words=1", "static"])
def test_built_ins_pass_every_check(spec):
    results = check_encoder(spec)
    assert [str(result) for result in results if not result.passed or result.detail] == []
    assert [result.name for result in results] == checks_of(EncoderChecks)


@dataclass(frozen=True)
class HashingWithFlaw:
    """The hashing encoder; `flaw` breaks one promise."""

    flaw: str = ""
    calls: list = field(default_factory=list)

    def encode(self, texts):
        """What is promised, but for the flaw."""
        self.calls.append(1)
        if self.flaw == "needs a text" and not texts:
            raise IndexError("no first text")
        vectors = HashingEncoder(64).encode(texts)
        if self.flaw == "writes into its input":
            texts.sort()
        flaws = {"float64": vectors.double, "not finite": lambda: vectors / vectors}
        flaws |= {"batch-dependent": lambda: vectors - vectors.mean(0) if len(texts) else vectors}
        flaws |= {"counts its calls": lambda: vectors + len(self.calls)}
        return flaws.get(self.flaw, lambda: vectors)()

    def identity(self):
        """Its flaw."""
        return {
            "flaw": self.flaw,
            "file": str(Path.home() / "model") if self.flaw == "has a path" else "",
        }


FLAWS = [
    ("float64", "results_are_finite_and_of_their_type"),
    ("not finite", "results_are_finite_and_of_their_type"),
]
FLAWS += [
    ("needs a text", "no_items_give_no_results"),
    ("batch-dependent", "order_and_batch_do_not_matter"),
]
FLAWS += [("counts its calls", "calling_and_fitting_change_nothing")]
FLAWS += [("writes into its input", "calling_and_fitting_change_nothing")]
FLAWS += [("has a path", "identity_is_plain_and_stable"), ("", None)]


@pytest.mark.parametrize(("flaw", "check"), FLAWS)
def test_a_flaw_is_caught_by_its_check(flaw, check):
    failures = {result.name for result in check_encoder(HashingWithFlaw(flaw)) if not result.passed}
    assert check in failures if flaw else not failures
