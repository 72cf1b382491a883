"""Chat model behind an OpenAI-compatible endpoint: ``POST /chat/completions``, with deadlines and bounded retries."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException, IncompleteRead
from time import monotonic, sleep
from typing import Any, ClassVar
from urllib.parse import urlsplit
from urllib.request import HTTPErrorProcessor, Request, build_opener

from dana.core.config import require
from dana.core.errors import ConfigError, EndpointError
from dana.core.logging import get_logger
from dana.studies.few_shot.chat import Message

log = get_logger(__name__)

LIMIT, PART = 1 << 24, 1 << 16  # bytes of an answer that are read, and at a time
WAIT, MAX_WAIT = 1.0, 60.0  # seconds before the second try, doubled each time, and at most, whatever the endpoint asks
SHOWN = 200  # characters of what an endpoint says that an error shows
AGAIN = (408, 425, 429)  # with 5xx: worth another try
SECRET = 8  # characters that a key has at least; shorter ones, such as "none", hide nothing


class _Failed(Exception):
    """A try without a reply.

    Attributes:
        wait: Seconds that the endpoint asks to wait; None if it does not say.
        is_final: Whether the same request would fail again.
    """

    def __init__(self, problem: str, wait: float | None = None, is_final: bool = False) -> None:
        super().__init__(problem)
        self.wait, self.is_final = wait, is_final


class _AnswersAsTheyAre(HTTPErrorProcessor):
    """Raise nothing for an error's status, and follow no redirect, which could hand the key to another host."""

    def http_response(self, request: Request, response: Any) -> Any:
        """Called by urllib for each answer."""
        return response

    https_response = http_response


@dataclass(frozen=True)
class HTTPChat:
    """A model behind an OpenAI-compatible HTTP endpoint: vLLM, llama.cpp, Ollama, a provider.

    Connection errors, deadlines, answers 408, 425, 429 and 5xx, and answers without a reply are tried again, with twice
    the wait each time or what ``Retry-After`` says. A key is read from the environment when it is sent, and taken out
    of whatever the endpoint says.

    Attributes:
        base_url: Up to and without ``/chat/completions``, for example ``http://localhost:8000/v1``.
        model: Its name there.
        key_env: Environment variable that holds the key; None sends none.
        temperature: 0 for the likeliest reply.
        max_tokens: Most tokens of a reply; None leaves it to the endpoint.
        timeout: Seconds for one whole answer.
        retries: Further tries after one that failed.
    """

    base_url: str
    model: str
    key_env: str | None = None
    temperature: float = 0.0
    max_tokens: int | None = 1024
    timeout: float = 120.0
    retries: int = 5
    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        _check_url(self.base_url)
        require(bool(self.model.strip()), "model", self.model, "the model's name at the endpoint")
        for name in ("temperature", "retries"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        require(self.max_tokens is None or self.max_tokens >= 1, "max_tokens", self.max_tokens, "at least 1, or null")
        require(self.timeout > 0, "timeout", self.timeout, "above 0")
        self._key()

    @property
    def url(self) -> str:
        """Where requests go."""
        return f"{self.base_url.rstrip('/')}/chat/completions"

    def identity(self) -> dict[str, Any]:
        """See :class:`dana.studies.few_shot.chat.ChatModel`."""
        decides = {"model": self.model, "temperature": self.temperature, "max_tokens": self.max_tokens}
        return {"kind": "http", "base_url": self.base_url.rstrip("/"), **decides}

    def reply(self, messages: Sequence[Message], seed: int) -> str:
        """See :class:`dana.studies.few_shot.chat.ChatModel`.

        Raises:
            EndpointError: If the endpoint refuses, or gives no reply in any of the tries.
        """
        for attempt in range(self.retries + 1):
            try:
                return self._masked(self._ask(messages, seed))
            except _Failed as error:
                failed = error
            # Not inside of "except": the new error would hold the old one, and that one what the endpoint said.
            problem = " ".join(self._masked(str(failed)).split())[:SHOWN]
            if failed.is_final or attempt == self.retries:
                break
            seconds = min(WAIT * 2**attempt if failed.wait is None else failed.wait, MAX_WAIT)
            log.warning("%s: %s; again in %.3g s (%d of %d)", self.url, problem, seconds, attempt + 1, self.retries)
            sleep(seconds)
        raise EndpointError(f"{self.url}: {problem}{f' ({attempt + 1} tries)' if attempt else ''}")

    def _key(self) -> str:
        """The key, or nothing.

        Raises:
            ConfigError: If the variable is not set, or its value cannot be sent; the value is not shown.
        """
        if self.key_env is None:
            return ""
        if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", self.key_env):  # perhaps the key itself
            raise ConfigError("key_env: must be an environment variable's name, of A-Z, 0-9 and _ (not shown here)")
        key = os.environ.get(self.key_env, "").strip()
        require(bool(key), "key_env", self.key_env, "an environment variable that holds the key; it is not set")
        if not re.fullmatch(r"[!-~]+", key):
            raise ConfigError(
                f"{self.key_env}: the key in it holds blanks or signs that are not ASCII (not shown here)"
            )
        return key

    def _masked(self, text: str) -> str:
        """A text without the key, as it is or as JSON writes it."""
        key = self._key()
        for form in {key, json.dumps(key)[1:-1]} if len(key) >= SECRET else ():
            text = text.replace(form, "***")
        return text

    def _ask(self, messages: Sequence[Message], seed: int) -> str:
        """One try."""
        body: dict[str, Any] = {"model": self.model, "messages": list(messages), "temperature": self.temperature}
        if self.max_tokens is not None:
            body["max_tokens"] = self.max_tokens
        if self.temperature > 0:  # not every endpoint knows the field, and at 0 nothing is drawn
            body["seed"] = seed
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "dana"}
        if key := self._key():
            headers["Authorization"] = f"Bearer {key}"
        status, fields, answer = self._answer(Request(self.url, json.dumps(body).encode(), headers))
        text = answer.decode("utf-8", "replace")  # all of it: cut before the key is out of it, half a key would stay
        if 300 <= status < 400:
            raise _Failed(f"redirects to {fields.get('Location')}; give that as base_url", is_final=True)
        if status != 200:
            is_final = status < 500 and status not in AGAIN
            seconds = re.fullmatch(r"\s*(\d{1,9}(\.\d*)?)\s*", fields.get("Retry-After", ""), re.ASCII)
            raise _Failed(f"HTTP {status}: {text}", float(seconds[1]) if seconds else None, is_final)
        return _reply_in(answer, text)

    def _answer(self, request: Request) -> tuple[int, Any, bytes]:
        """Status, header fields and body. A socket's timeout is of each read, so the time of them all is looked at."""
        deadline, body = monotonic() + self.timeout, b""
        try:
            with build_opener(_AnswersAsTheyAre).open(request, timeout=self.timeout) as response:
                while len(body) < LIMIT and (part := response.read1(min(PART, LIMIT - len(body)))):
                    body += part
                    if monotonic() > deadline:
                        raise TimeoutError
                if response.length:  # of the announced bytes so many are missing
                    raise IncompleteRead(body, response.length)
                return response.status, response.headers, body
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            late = f"no whole answer in {self.timeout:g} s"
            problem = f"no answer: {reason or type(error).__name__}"
            raise _Failed(late if isinstance(reason, TimeoutError) else problem) from error


def _check_url(url: str) -> None:
    """Refuse a URL with more in it than a place; what it holds may be a key and is not shown."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        fits = False
    if not (fits and re.fullmatch(r"[!-~]+", url)) or parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError("base_url: must be http(s)://HOST[:PORT][/PATH], without user, password, ? and # (not shown)")


def _reply_in(answer: bytes, text: str) -> str:
    """The text of the first choice; a refusal, which some endpoints keep apart, is a reply."""
    try:
        message = json.loads(answer)["choices"][0]["message"]
        content = message["refusal"] if message.get("content") is None else message["content"]
    except (ValueError, RecursionError):
        raise _Failed(f"the answer is not JSON: {text}") from None
    except (KeyError, IndexError, TypeError, AttributeError):
        content = None
    if not isinstance(content, str):
        raise _Failed(f"the answer holds no text in choices[0].message: {text}")
    return content
