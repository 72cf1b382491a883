import pytest

from dana.studies.few_shot import http
from tests.studies.few_shot.chat_server import KEY


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """Seconds between attempts, without waiting; no proxy; the key of the endpoint."""
    seconds = []
    monkeypatch.setattr(http, "sleep", seconds.append)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DANA_TEST_KEY", KEY)
    return seconds
