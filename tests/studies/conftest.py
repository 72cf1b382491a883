"""Fixtures that the studies' tests share with those of the core."""

from tests.stages.conftest import card, checkpoint, opened, ran, texts  # noqa: F401
