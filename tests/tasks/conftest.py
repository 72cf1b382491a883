"""Fixtures of the fine-tuning tests."""

from tests.finetuning.conftest import checkpoint, toy_card  # noqa: F401
