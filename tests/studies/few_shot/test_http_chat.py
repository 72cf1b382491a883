"""Chat model behind an endpoint: what is sent, what is tried again, what is refused, and that no key leaves it."""

import json
import logging

import pytest

from dana.core.errors import ConfigError, EndpointError
from dana.studies.few_shot import http
from dana.studies.few_shot.chat import open_chat
from tests.studies.few_shot.chat_server import KEY, cut, drip, hang, raw, says, serving, status

ASKED = [{"role": "user", "content": "Which? é"}]
NO_REPLY = [
    status(500),
    status(429),
    cut,
    raw(b"<html>busy</html>"),
    raw(b"[" * 100_000),
    raw(b"\xff\xfe"),
]
NO_REPLY += [
    raw(b"null"),
    raw(b'{"choices": null}'),
    raw(b'{"choices": [{"message": "Class A"}]}'),
    says(None),
]


def chat(endpoint, **settings):
    settings_text = "".join(f",{name}={value}" for name, value in settings.items())
    return open_chat(f"http:{endpoint.url},model=some/model:7b{settings_text}")


def test_what_is_sent():
    with serving([says("Class A")]) as endpoint:
        assert chat(endpoint, key_env="DANA_TEST_KEY").reply(ASKED, seed=3) == "Class A"
    ((path, fields, body),) = endpoint.seen
    assert path == "/v1/chat/completions"
    assert fields["Authorization"] == f"Bearer {KEY}"
    assert fields["Content-Type"] == "application/json"
    assert body == {
        "model": "some/model:7b",
        "messages": ASKED,
        "temperature": 0.0,
        "max_tokens": 1024,
    }


def test_without_a_key_none_is_sent_and_the_seed_only_where_something_is_drawn():
    with serving() as endpoint:
        chat(endpoint, temperature=0.7, max_tokens="null").reply(ASKED, seed=3)
    ((_, fields, body),) = endpoint.seen
    assert "Authorization" not in fields
    assert body == {"model": "some/model:7b", "messages": ASKED, "temperature": 0.7, "seed": 3}


@pytest.mark.parametrize("bad", NO_REPLY)
def test_what_is_no_reply_is_asked_for_again_and_then_told_in_one_line(bad, waits):
    with serving([bad, bad, says("Class B")]) as endpoint:
        assert chat(endpoint, retries=2).reply(ASKED, 0) == "Class B"
    assert waits == [1.0, 2.0]
    with serving(otherwise=bad) as endpoint, pytest.raises(EndpointError) as caught:
        chat(endpoint, retries=3).reply(ASKED, 0)
    assert len(endpoint.seen) == 4
    message = str(caught.value)
    assert message.startswith(f"{endpoint.url}/chat/completions: ")
    assert message.endswith("(4 attempts)")
    assert "\n" not in message
    assert len(message) < 330


@pytest.mark.parametrize("number", [400, 401, 403, 404, 422])
def test_what_would_be_refused_again_is_asked_once(number, waits):
    message = f"HTTP {number}: no such model$"
    with (
        serving(otherwise=status(number, "no such\nmodel")) as endpoint,
        pytest.raises(EndpointError, match=message),
    ):
        chat(endpoint).reply(ASKED, 0)
    assert len(endpoint.seen) == 1
    assert waits == []


def test_the_wait_doubles_up_to_the_most(waits):
    with serving(otherwise=status(500)) as endpoint, pytest.raises(EndpointError):
        chat(endpoint, retries=8).reply(ASKED, 0)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


@pytest.mark.parametrize(
    ("field", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("3600", 60.0),
        ("-5", 1.0),
        ("nan", 1.0),
        ("1e999", 1.0),
        ("soon", 1.0),
    ],
)
def test_retry_after_is_honoured_and_capped(field, seconds, waits):
    with serving([status(429, Retry_After=field), says("ok")]) as endpoint:
        chat(endpoint).reply(ASKED, 0)
    assert waits == [seconds]


@pytest.mark.parametrize("slow", [hang, drip])
def test_an_answer_has_a_deadline_as_a_whole(slow, waits):
    message = r"0\.15 s$"
    with (
        serving([slow], otherwise=says("late")) as endpoint,
        pytest.raises(EndpointError, match=message),
    ):
        chat(endpoint, timeout=0.15, retries=0).reply(ASKED, 0)
    with serving([slow], otherwise=says("ok")) as endpoint:
        assert chat(endpoint, timeout=1, retries=1).reply(ASKED, 0) == "ok"
    assert waits == [1.0]


@pytest.mark.parametrize("number", [302, 307])
def test_a_redirect_is_not_followed(number):
    with (
        serving() as other,
        serving(otherwise=status(number, Location=f"{other.url}/x")) as endpoint,
    ):
        with pytest.raises(EndpointError, match=f"redirects to {other.url}/x"):
            chat(endpoint, key_env="DANA_TEST_KEY").reply(ASKED, 0)
        assert (len(endpoint.seen), other.seen) == (1, [])


def test_a_refusal_is_a_reply():
    body = b'{"choices": [{"message": {"content": null, "refusal": "I will not."}}]}'
    with serving([raw(body)]) as endpoint:
        assert chat(endpoint).reply(ASKED, 0) == "I will not."


@pytest.mark.parametrize("has_length", [True, False])
def test_a_reply_is_read_up_to_a_limit(has_length, monkeypatch):
    body = json.dumps({"choices": [{"message": {"content": "y" * 2900}}]}).encode()

    def without_length(handler, request):
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(body)
        handler.close_connection = True

    with serving(otherwise=raw(body) if has_length else without_length) as endpoint:
        monkeypatch.setattr(http, "LIMIT", 2000)
        with pytest.raises(EndpointError):
            chat(endpoint, retries=0).reply(ASKED, 0)
        monkeypatch.setattr(http, "LIMIT", 3000)
        assert chat(endpoint, retries=0).reply(ASKED, 0) == "y" * 2900


def test_a_key_that_json_escapes_is_masked(monkeypatch):
    monkeypatch.setenv("DANA_TEST_KEY", 'pass"word\\1234')
    with (
        serving(otherwise=raw(b'"pass\\"word\\\\1234')) as endpoint,
        pytest.raises(EndpointError) as caught,
    ):
        chat(endpoint, key_env="DANA_TEST_KEY", retries=0).reply(ASKED, 0)
    assert "word" not in str(caught.value)


@pytest.mark.parametrize(
    "bad", [status(500, f"bad key {KEY}"), status(401, f"bad key {KEY}"), raw(KEY.encode())]
)
def test_an_endpoint_that_says_the_key_is_not_quoted(bad, waits, heard):
    heard.set_level(logging.DEBUG)
    with serving(otherwise=bad) as endpoint, pytest.raises(EndpointError) as caught:
        chat(endpoint, key_env="DANA_TEST_KEY", retries=1).reply(ASKED, 0)
    assert endpoint.seen[0][1]["Authorization"].endswith(KEY)
    assert "***" in str(caught.value)
    assert KEY not in f"{caught.value!r} {caught.value.__context__!r} {heard.text}"
    with serving([says(f"Class A {KEY}")]) as endpoint:
        assert chat(endpoint, key_env="DANA_TEST_KEY").reply(ASKED, 0) == "Class A ***"


@pytest.mark.parametrize("before", range(http.SHOWN - len(KEY) - 40, http.SHOWN, 7))
def test_a_key_where_what_is_shown_ends_is_not_shown_in_part(before):
    """Without a reply, in one that is no JSON, and in one that is no text: whatever of the answer an error shows."""
    content = "x" * before + KEY
    for bad in (
        raw(content.encode()),
        raw(json.dumps({"detail": content}).encode()),
        says([content]),
    ):
        with serving(otherwise=bad) as endpoint, pytest.raises(EndpointError) as caught:
            chat(endpoint, key_env="DANA_TEST_KEY", retries=0).reply(ASKED, 0)
        assert "xxx" in str(caught.value)
        assert KEY[:3] not in str(caught.value)


URLS = [
    "http://user:{}@localhost/v1",
    "http://localhost/v1?key_is={}",
    "http://localhost/v1#{}",
    "ftp://localhost/{}",
]
URLS += ["http://local host/{}"]
BAD_KEYS = [(f"{url},model=m", KEY, "base_url") for url in URLS]
for setting in ("key", "api_key", "token", "key_env", "API_KEY"):
    BAD_KEYS.append((f"http://localhost:1/v1,model=m,{setting}={{}}", KEY, "environment variable"))
for value in (f"{KEY}\nX-Evil: 1", f"{KEY} x", f"{KEY}é"):
    BAD_KEYS.append(("http://localhost:1/v1,model=m,key_env=DANA_TEST_KEY", value, "DANA_TEST_KEY"))


@pytest.mark.parametrize(("spec", "key", "says"), BAD_KEYS)
def test_a_key_in_the_url_or_spec_or_that_no_header_can_hold_is_refused_and_not_shown(
    spec, key, says, monkeypatch
):
    monkeypatch.setenv("DANA_TEST_KEY", key)
    with pytest.raises(ConfigError, match=says) as caught:
        open_chat(f"http:{spec.format(key)}")
    assert KEY not in str(caught.value)
