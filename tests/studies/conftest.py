"""Fixtures that the studies' tests share with those of the core, and a chat model that they register."""

import pytest

from dana.core import registry
from tests.stages.conftest import card, texts  # noqa: F401
from tests.stages.conftest import opened as scores_run  # noqa: F401
from tests.studies.scripted_chat import ENTRY


@pytest.fixture(scope="package", autouse=True)
def scripted_chat():
    """Register the chat model ``scripted``."""
    entry_points = registry.entry_points

    def with_scripted(group):
        entries = list(entry_points(group))
        return [*entries, ENTRY] if group == ENTRY.group else entries

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "entry_points", with_scripted)
        yield
