"""A local S3 server, and a proxy before it that cuts connections, for the tests of URLs."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Cutter:
    """A TCP proxy that ends the first `left` connections after some bytes of the answer, and counts those it passes."""

    def __init__(self, port: int) -> None:
        self.target, self.left, self.after, self.cuts = port, 0, 0, 0
        self.answered: list[int] = []  # bytes, of each piece: threads may append at once
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, connections: int, after: int) -> None:
        """End so many connections once they have carried `after` bytes of an answer, or of a request (negative)."""
        self.left, self.after, self.cuts = connections, after, 0

    @property
    def options(self) -> dict[str, str]:
        """What s3fs must be told to reach the server through this proxy."""
        return {
            "endpoint_url": f"http://127.0.0.1:{self.port}",
            "key": "testing",
            "secret": "testing",
        }

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
                for one, other, sign in ((client, server, -1), (server, client, 1)):
                    threading.Thread(
                        target=self._carry, args=(one, other, sign), daemon=True
                    ).start()

    def _carry(self, one: socket.socket, other: socket.socket, sign: int) -> None:
        count = 0
        with suppress(OSError):
            while block := one.recv(1 << 14):
                count += len(block)
                if self.left and self.after * sign > 0 and count > abs(self.after):
                    self.left, self.cuts = self.left - 1, self.cuts + 1
                    break
                other.sendall(block)
                if sign > 0:
                    self.answered.append(len(block))
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def object_store() -> Iterator[Cutter]:
    """A server of S3 in this process, reached through a :class:`Cutter`."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    proxy = Cutter(port)
    try:
        yield proxy
    finally:
        proxy.close()
        server.stop()
