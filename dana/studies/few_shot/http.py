"""Chat model behind an OpenAI-compatible endpoint: ``POST /chat/completions`` with timeouts and bounded retries."""

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

LIMIT, PART = 1 << 24, 1 << 16  # maximum bytes of a response; bytes per read
WAIT, MAX_WAIT = (
    1.0,
    60.0,
)  # seconds before the first retry, doubled each time; maximum, also of Retry-After
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
        self.wait, self.is_final = wait, is_final


class _AnswersAsTheyAre(HTTPErrorProcessor):
    """Return responses with an error status, and follow no redirect, which could send the key to another host."""

    def http_response(self, request: Request, response: Any) -> Any:
        return response

    https_response = http_response


@dataclass(frozen=True)
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
        require(self.temperature >= 0, "temperature", self.temperature, "at least 0")
        require(self.retries >= 0, "retries", self.retries, "at least 0")
        require(
            self.max_tokens is None or self.max_tokens >= 1,
            "max_tokens",
            self.max_tokens,
            "at least 1, or null",
        )
        require(self.timeout > 0, "timeout", self.timeout, "above 0")
        self._key()

    @property
    def url(self) -> str:
        """URL of the requests."""
        return f"{self.base_url.rstrip('/')}/chat/completions"

    def identity(self) -> dict[str, Any]:
        decoding = {
            "model": self.model,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }
        return {"kind": "http", "base_url": self.base_url.rstrip("/"), **decoding}

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
            seconds = min(WAIT * 2**attempt if failure.wait is None else failure.wait, MAX_WAIT)
            log.warning(
                "%s: %s; retry %d of %d in %.3g s",
                self.url,
                problem,
                attempt + 1,
                self.retries,
                seconds,
            )
            sleep(seconds)
        raise EndpointError(
            f"{self.url}: {problem}{f' ({attempt + 1} attempts)' if attempt else ''}"
        )

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
                "key_env: must be the name of an environment variable, of A-Z, 0-9 and _ (not shown)"
            )
        key = os.environ.get(self.key_env, "").strip()
        require(
            bool(key),
            "key_env",
            self.key_env,
            "an environment variable with the key; it is not set",
        )
        if not re.fullmatch(r"[!-~]+", key):
            raise ConfigError(
                f"{self.key_env}: must be a key of ASCII characters without blanks (not shown)"
            )
        return key

    def _without_key(self, text: str) -> str:
        """Mask the key in a text, plain or as a JSON string."""
        key = self._key()
        for form in {key, json.dumps(key)[1:-1]} if len(key) >= SECRET else ():
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
        if key := self._key():
            headers["Authorization"] = f"Bearer {key}"
        status, fields, answer = self._answer(Request(self.url, json.dumps(body).encode(), headers))
        text = answer.decode(
            "utf-8", "replace"
        )  # not cut before masking, which would leave a part of the key
        if 300 <= status < 400:
            raise _AttemptError(
                f"redirects to {fields.get('Location')}; use it as base_url", is_final=True
            )
        if status != 200:
            is_final = status < 500 and status not in AGAIN
            seconds = re.fullmatch(
                r"\s*(\d{1,9}(\.\d*)?)\s*", fields.get("Retry-After", ""), re.ASCII
            )
            raise _AttemptError(
                f"HTTP {status}: {text}", float(seconds[1]) if seconds else None, is_final
            )
        return _reply_in(answer, text)

    def _answer(self, request: Request) -> tuple[int, Any, bytes]:
        """Return status, headers and body. A socket times out per read, so a deadline bounds the whole response."""
        deadline, body = monotonic() + self.timeout, b""
        try:
            with build_opener(_AnswersAsTheyAre).open(request, timeout=self.timeout) as response:
                while len(body) < LIMIT and (part := response.read1(min(PART, LIMIT - len(body)))):
                    body += part
                    if monotonic() > deadline:
                        raise TimeoutError
                if response.length:  # bytes that are missing
                    raise IncompleteRead(body, response.length)
                return response.status, response.headers, body
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            late = f"no complete response in {self.timeout:g} s"
            problem = f"no response: {reason or type(error).__name__}"
            raise _AttemptError(late if isinstance(reason, TimeoutError) else problem) from error


def _check_url(url: str) -> None:
    """Refuse a URL that is invalid or could have credentials in it; it is not shown."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        fits = False
    if (
        not (fits and re.fullmatch(r"[!-~]+", url))
        or parts.username
        or parts.password
        or parts.query
        or parts.fragment
    ):
        raise ConfigError(
            "base_url: must be http(s)://HOST[:PORT][/PATH], without user, password, ? and # (not shown)"
        )


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
