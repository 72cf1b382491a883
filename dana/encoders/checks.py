"""Conformance checks of encoders: a name or an object in, a result per promise of the contract out.

``dana encoders check NAME``, or :func:`check_encoder`. An encoder that cannot pass a check says so itself, in a class
attribute ``exemptions = {"check": "reason"}``.
"""

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dana.core.conformance import CheckResult, expect, expect_close, run_checks, share_above
from dana.core.registry import ENCODERS
from dana.encoders.base import Encoder, encode, encoder_identity
from dana.encoders.store import StoredEncoder

TOPICS = (
    ("the gene is expressed in the cell", "a kinase binds the protein", "the protein of the cell binds the gene"),
    ("the court denied the appeal", "the judge heard the motion", "the judge of the court denied the motion"),
)
ODD = ("x", "Δ-Prolin — 日本語 🙂", "line one\nline two\ttabbed", "word " * 2000)


@dataclass(frozen=True)
class EncoderCase:
    """An encoder, and how to make another like it.

    Attributes:
        make: Makes the encoder.
        name: How it is named in messages.
    """

    make: Callable[[], Encoder]
    name: str

    def encode(self, texts: list[str]) -> Tensor:
        """Vectors by a fresh encoder."""
        return encode(self.make(), texts, self.name).cpu()

    @property
    def texts(self) -> list[str]:
        """Six texts of two topics and four odd ones."""
        return [*TOPICS[0], *TOPICS[1], *ODD]


def check_encoder(candidate: Any) -> list[CheckResult]:
    """Run every check.

    Args:
        candidate: A registered name or spec, or an encoder.

    Raises:
        PluginError: If the name is unknown or does not load.
        ConfigError: If a parameter of the spec is refused.
        ArtifactError: If its checkpoint is not there.
    """
    made = ENCODERS.create(candidate) if isinstance(candidate, str) else candidate
    name = candidate if isinstance(candidate, str) else type(candidate).__name__
    encoder_identity(made)  # finds its checkpoint
    return run_checks(CHECKS, lambda: EncoderCase(lambda: made, name), getattr(made, "exemptions", {}))


def vectors_are_float32_and_finite(case: EncoderCase) -> None:
    """One finite float32 vector a text."""
    vectors = case.encode(case.texts)
    expect(vectors.dtype == torch.float32, f"dtype {vectors.dtype}, expected torch.float32")
    bad = (~torch.isfinite(vectors).all(1)).nonzero().flatten().tolist()
    expect(not bad, f"non-finite vector for {case.texts[bad[0]][:40]!r}" if bad else "")


def no_texts_give_no_vectors(case: EncoderCase) -> None:
    """An empty list gives shape (0, dims)."""
    empty, dims = case.encode([]).shape, case.encode(case.texts[:1]).shape[1]
    expect(empty == (0, dims), f"encode([]) has shape {tuple(empty)}, expected (0, {dims})")


def same_texts_same_vectors(case: EncoderCase) -> None:
    """Two calls on one list give bit-equal vectors; equal texts have equal ones."""
    once, again = case.encode(case.texts), case.encode(case.texts)
    expect(torch.equal(once, again), "two calls on the same texts differ")
    twice = case.encode([case.texts[0], case.texts[1], case.texts[0]])
    expect_close(twice[2], twice[0], "the same text twice in one call")


def order_and_batch_do_not_matter(case: EncoderCase) -> None:
    """A text's vector does not depend on the other texts of the call, to 1e-5."""
    together = case.encode(case.texts)
    expect_close(case.encode(case.texts[::-1]).flip(0), together, "in another order")
    expect_close(torch.cat([case.encode([text]) for text in case.texts]), together, "one by one")


def the_input_is_not_changed(case: EncoderCase) -> None:
    """`encode` leaves the list of texts as it was."""
    texts = case.texts
    case.encode(texts)
    expect(texts == case.texts, "encode changed its list of texts")


def a_topic_is_nearer_to_itself(case: EncoderCase) -> None:
    """Cosines within a topic are mostly above those between two topics that share no content word."""
    vectors = torch.nn.functional.normalize(case.encode([*TOPICS[0], *TOPICS[1]]))
    cosine = vectors @ vectors.T
    within = torch.cat([cosine[:3, :3][~torch.eye(3, dtype=torch.bool)], cosine[3:, 3:].triu(1).flatten()])
    share = share_above(within[within != 0], cosine[:3, 3:].flatten())
    expect(share > 0.7, f"AUROC {share:.2f} of cosines within a topic against those between topics; above 0.7 wanted")


def identity_is_plain_and_stable(case: EncoderCase) -> None:
    """`identity` gives JSON values, the same every time, and no path of this machine."""
    once, again = (json.dumps(encoder_identity(case.make()), sort_keys=True) for _ in range(2))
    expect(once == again, "identity() differs between two calls")
    expect(str(Path.home()) not in once, f"identity() holds a path of this machine: {once}")


def stored_and_read_vectors_are_equal(case: EncoderCase) -> None:
    """Through an embedding store in float16, a vector read back is bit-equal to the one that was written."""
    encoder, texts = case.make(), [*TOPICS[0], *TOPICS[1]]
    with tempfile.TemporaryDirectory() as name:
        written = StoredEncoder(encoder, Path(name))
        first = written.encode(texts)
        written.close()
        read = StoredEncoder(encoder, Path(name)).encode(texts)
    expect(torch.equal(first, read), "vectors read from the store differ from those written")
    expect_close(first.cpu(), encode(encoder, texts, case.name).cpu(), "rounded to float16", 1e-3)


CHECKS: list[Callable[[EncoderCase], None]] = [
    vectors_are_float32_and_finite,
    no_texts_give_no_vectors,
    same_texts_same_vectors,
    order_and_batch_do_not_matter,
    the_input_is_not_changed,
    a_topic_is_nearer_to_itself,
    identity_is_plain_and_stable,
    stored_and_read_vectors_are_equal,
]
