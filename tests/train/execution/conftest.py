"""Fixtures of the trainer's tests."""

from tests.train.conftest import collator, examples, make_examples, paired, run, tiny_model, weighted  # noqa: F401
