"""Fixtures of the selection stages' tests."""

from tests.api.conftest import pieces  # noqa: F401
from tests.stages.conftest import opened, texts  # noqa: F401
