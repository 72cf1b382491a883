"""Ask a chat model behind an OpenAI-compatible endpoint, with timeouts and bounded retries.

Requests are ``POST /chat/completions``.
"""

import json
import os
import re
from collections.abc import Sequence
from http.client import HTTPException, IncompleteRead
from time import monotonic, sleep
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit
from urllib.request import HTTPErrorProcessor, Request, build_opener

from pydantic import Field

from dana.core.config import require
from dana.core.errors import ConfigError, EndpointError
from dana.core.logging import get_logger
from dana.core.settings import Count, CountOrZero, Float, Positive, settings_model
from dana.studies.few_shot.chat import Message

log = get_logger(__name__)

LIMIT = 1 << 24  # maximum bytes of a response
PART = 1 << 16  # bytes per read
WAIT = 1.0  # seconds before the first retry, doubled each time
MAX_WAIT = 60.0  # seconds before a retry at most, also by Retry-After
SHOWN = 200  # characters of a response that an error shows
AGAIN = (408, 425, 429)  # statuses to retry, besides 5xx
SECRET = 8  # shorter keys, such as "none", are not masked


class _AttemptError(Exception):
    """A request without a reply.

    Attributes:
        wait: Seconds of the endpoint's Retry-After; None without it.
        is_final: True if a retry would fail, too.
    """

    def __init__(self, problem: str, wait: float | None = None, is_final: bool = False) -> None:
        super().__init__(problem)
        self.wait = wait
        self.is_final = is_final


class _AnswersAsTheyAre(HTTPErrorProcessor):
    """Return responses with an error status, and follow no redirect.

    A redirect could send the key to another host.
    """

    def http_response(self, request: Request, response: Any) -> Any:
        return response

    https_response = http_response


@settings_model
class HTTPChat:
    """A model behind an OpenAI-compatible HTTP endpoint: vLLM, llama.cpp, Ollama, a provider.

    Retries connection errors, timeouts, statuses 408, 425, 429 and 5xx, and responses without a
    reply, with exponential backoff or after ``Retry-After``. The key is read from the environment
    and masked in all that the endpoint returns.

    Attributes:
        base_url: URL without ``/chat/completions``, for example ``http://localhost:8000/v1``.
        model: Name of the model at the endpoint.
        key_env: Environment variable with the key; None for no key.
        temperature: Temperature of the sampling.
        max_tokens: Maximum tokens of a reply; None for the endpoint's default.
        timeout: Seconds for a whole response.
        retries: Number of retries.
    """

    base_url: str
    model: Annotated[str, Field(min_length=1)]
    key_env: str | None = None
    temperature: Annotated[Float, Field(ge=0)] = 0.0
    max_tokens: Count | None = 1024
    timeout: Positive = 120.0
    retries: CountOrZero = 5
    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        _check_url(self.base_url)
        self._key()

    @property
    def url(self) -> str:
        """URL of the requests."""
        return f"{self.base_url.rstrip('/')}/chat/completions"

    def identity(self) -> dict[str, Any]:
        return {
            "kind": "http",
            "base_url": self.base_url.rstrip("/"),
            "model": self.model,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }

    def reply(self, messages: Sequence[Message], seed: int) -> str:
        """Request a reply, with retries.

        Raises:
            EndpointError: If the endpoint refuses, or gives no reply in any attempt.
        """
        for attempt in range(self.retries + 1):
            try:
                return self._without_key(self._ask(messages, seed))
            except _AttemptError as error:
                failure = error
            # Outside of "except", as the context of a new error would hold the unmasked response.
            problem = " ".join(self._without_key(str(failure)).split())[:SHOWN]
            if failure.is_final or attempt == self.retries:
                break
            wait = WAIT * 2**attempt if failure.wait is None else failure.wait
            seconds = min(wait, MAX_WAIT)
            log.warning(
                "%s: %s; retry %d of %d in %.3g s",
                self.url,
                problem,
                attempt + 1,
                self.retries,
                seconds,
            )
            sleep(seconds)
        attempts = f" ({attempt + 1} attempts)" if attempt else ""
        raise EndpointError(f"{self.url}: {problem}{attempts}")

    def _key(self) -> str:
        """Read the key from the environment; empty without `key_env`.

        Raises:
            ConfigError: If the variable is not set, or its value is invalid in a header; the value
                is not shown.
        """
        if self.key_env is None:
            return ""
        if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", self.key_env):  # perhaps the key itself
            raise ConfigError(
                "key_env: must be the name of an environment variable, of A-Z, 0-9 and _ (not"
                " shown)"
            )
        key = os.environ.get(self.key_env, "").strip()
        remedy = "an environment variable with the key; it is not set"
        require(bool(key), "key_env", self.key_env, remedy)
        if not re.fullmatch(r"[!-~]+", key):
            raise ConfigError(
                f"{self.key_env}: must be a key of ASCII characters without blanks (not shown)"
            )
        return key

    def _without_key(self, text: str) -> str:
        """Mask the key in a text, plain or as a JSON string."""
        key = self._key()
        if len(key) < SECRET:
            return text
        in_json = json.dumps(key)[1:-1]
        for form in {key, in_json}:
            text = text.replace(form, "***")
        return text

    def _ask(self, messages: Sequence[Message], seed: int) -> str:
        """Send one request and return its reply."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(messages),
            "temperature": self.temperature,
        }
        if self.max_tokens is not None:
            body["max_tokens"] = self.max_tokens
        if self.temperature > 0:  # not all endpoints support the field, which has no effect at 0
            body["seed"] = seed
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": "dana",
        }
        key = self._key()
        if key:
            headers["Authorization"] = f"Bearer {key}"
        request = Request(self.url, json.dumps(body).encode(), headers)
        status, answer_headers, answer = self._answer(request)
        # Not cut before masking, which would leave a part of the key.
        text = answer.decode("utf-8", "replace")
        if 300 <= status < 400:
            location = answer_headers.get("Location")
            raise _AttemptError(f"redirects to {location}; use it as base_url", is_final=True)
        if status != 200:
            is_final = status < 500 and status not in AGAIN
            wait = _seconds_in(answer_headers.get("Retry-After", ""))
            raise _AttemptError(f"HTTP {status}: {text}", wait, is_final)
        return _reply_in(answer, text)

    def _answer(self, request: Request) -> tuple[int, Any, bytes]:
        """Return status, headers and body.

        A socket times out per read, so a deadline bounds the whole response.
        """
        deadline = monotonic() + self.timeout
        body = b""
        try:
            with build_opener(_AnswersAsTheyAre).open(request, timeout=self.timeout) as response:
                while len(body) < LIMIT:
                    part = response.read1(min(PART, LIMIT - len(body)))
                    if not part:
                        break
                    body += part
                    if monotonic() > deadline:
                        raise TimeoutError
                if response.length:  # bytes that are missing
                    raise IncompleteRead(body, response.length)
                return response.status, response.headers, body
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            problem = f"no response: {reason or type(error).__name__}"
            if isinstance(reason, TimeoutError):
                problem = f"no complete response in {self.timeout:g} s"
            raise _AttemptError(problem) from error


def _check_url(url: str) -> None:
    """Refuse a URL that is invalid or could have credentials in it; it is not shown."""
    if not _is_plain_url(url):
        raise ConfigError(
            "base_url: must be http(s)://HOST[:PORT][/PATH], without user, password, ? and # (not"
            " shown)"
        )


def _is_plain_url(url: str) -> bool:
    """Tell whether a URL has a host, and no user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        has_host = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return False
    if not has_host or not re.fullmatch(r"[!-~]+", url):
        return False
    return not (parts.username or parts.password or parts.query or parts.fragment)


def _seconds_in(retry_after: str) -> float | None:
    """Return the seconds of a header ``Retry-After``; None if it has none, such as a date."""
    seconds = re.fullmatch(r"\s*(\d{1,9}(\.\d*)?)\s*", retry_after, re.ASCII)
    return float(seconds[1]) if seconds else None


def _reply_in(answer: bytes, text: str) -> str:
    """Return the text of the first choice, or of its refusal."""
    try:
        message = json.loads(answer)["choices"][0]["message"]
        content = message["refusal"] if message.get("content") is None else message["content"]
    except (ValueError, RecursionError):
        raise _AttemptError(f"the response is not JSON: {text}") from None
    except (KeyError, IndexError, TypeError, AttributeError):
        content = None
    if not isinstance(content, str):
        raise _AttemptError(f"the response has no text in choices[0].message: {text}")
    return content
