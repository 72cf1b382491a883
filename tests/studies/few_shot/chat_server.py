"""An endpoint of our own for tests: answers chat completions as told, one by one, and keeps what it was sent."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-not-to-be-written-0123456789"
Answer = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes, **fields: str) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    for name, value in fields.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def status(number: int, body: str = "busy", **fields: str) -> Answer:
    """An error, with header fields."""
    return lambda handler, request: send(handler, number, body.encode(), **fields)


def says(content: Any) -> Answer:
    """A reply; a callable makes it of the request."""

    def answer(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        reply = content(request) if callable(content) else content
        message = {"role": "assistant", "content": reply}
        send(handler, 200, json.dumps({"choices": [{"index": 0, "message": message}]}).encode())

    return answer


def raw(body: bytes) -> Answer:
    """200 with these bytes."""
    return lambda handler, request: send(handler, 200, body)


def cut(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
    """Half an answer, then the connection is gone."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True


class Endpoint(ThreadingHTTPServer):
    """Takes the answers in their order, then `otherwise`.

    Attributes:
        seen: Path, header fields and body of each request.
        ended: Set at the end, so that an answer that hangs does not hang for ever.
    """

    daemon_threads = True

    def __init__(self, answers: list[Answer], otherwise: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.otherwise = list(answers), otherwise
        self.seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.ended = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no news."""


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, dict(self.headers), body))
        answer = self.server.answers.pop(0) if self.server.answers else self.server.otherwise
        answer(self, body)

    def do_GET(self) -> None:  # what a redirect that is followed would come to
        self.server.seen.append((self.path, dict(self.headers), {}))
        send(self, 200, b"{}")

    def log_message(self, *_: Any) -> None:
        """Quiet."""


def hang(handler: Any, request: dict[str, Any]) -> None:
    """No answer."""
    handler.server.ended.wait(30)


def drip(handler: Any, request: dict[str, Any]) -> None:
    """A byte now and then, so that no single read takes long."""
    handler.send_response(200)
    handler.end_headers()
    while not handler.server.ended.wait(0.02):
        handler.wfile.write(b" ")
        handler.wfile.flush()


@contextmanager
def serving(answers: list[Answer] | None = None, otherwise: Answer | None = None) -> Iterator[Endpoint]:
    """An endpoint at a port of its own."""
    endpoint = Endpoint(answers or [], otherwise or says("ok"))
    thread = threading.Thread(target=endpoint.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.ended.set()
        endpoint.shutdown()
        endpoint.server_close()
