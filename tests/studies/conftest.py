"""Fixtures that the studies' tests share with those of the core."""

from tests.stages.conftest import card, texts  # noqa: F401
from tests.stages.conftest import opened as scores_run  # noqa: F401
