"""A chat endpoint for tests: gives the answers that it is told, one by one, and records its requests."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "sk-not-to-be-written-0123456789"


def send(handler, status, body, **fields):
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    for name, value in fields.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def status(number, body="busy", **fields):
    """An error, with header fields."""
    return lambda handler, request: send(handler, number, body.encode(), **fields)


def says(content):
    """A reply; a callable makes it of the request."""

    def answer(handler, request):
        message = {
            "role": "assistant",
            "content": content(request) if callable(content) else content,
        }
        send(handler, 200, json.dumps({"choices": [{"index": 0, "message": message}]}).encode())

    return answer


def raw(body):
    """200 with these bytes."""
    return lambda handler, request: send(handler, 200, body)


def cut(handler, request):
    """Half an answer, then the connection is closed."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True


def hang(handler, request):
    """No answer."""
    handler.server.ended.wait(30)


def drip(handler, request):
    """A byte now and then, so that no single read takes long."""
    handler.send_response(200)
    handler.end_headers()
    while not handler.server.ended.wait(0.02):
        handler.wfile.write(b" ")
        handler.wfile.flush()


class Endpoint(ThreadingHTTPServer):
    """Gives `answers` in order, then `otherwise`; `seen` has path, header fields and body of each request."""

    daemon_threads = True

    def __init__(self, answers, otherwise):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.otherwise, self.seen = list(answers), otherwise, []
        self.ended = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request, client_address):
        """A client that disconnects is no error."""


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, dict(self.headers), body))
        answer = self.server.answers.pop(0) if self.server.answers else self.server.otherwise
        answer(self, body)

    def do_GET(self):  # only a redirect that is followed gets here
        self.server.seen.append((self.path, dict(self.headers), {}))
        send(self, 200, b"{}")

    def log_message(self, *_):
        """Quiet."""


@contextmanager
def serving(answers=(), otherwise=None):
    """An endpoint on a free port."""
    endpoint = Endpoint(answers, otherwise or says("ok"))
    threading.Thread(
        target=endpoint.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    ).start()
    try:
        yield endpoint
    finally:
        endpoint.ended.set()
        endpoint.shutdown()
        endpoint.server_close()
