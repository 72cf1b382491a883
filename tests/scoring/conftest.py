"""Fixtures of the selection stages' tests."""

from tests.stages.conftest import opened, texts  # noqa: F401
