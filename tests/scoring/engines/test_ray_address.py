"""Who answers at --address: a cluster of Ray, or something else, for which Ray itself would wait many minutes."""

import socket
import threading
from contextlib import contextmanager

import pytest

from dana.core.errors import ConfigError
from dana.scoring.engines import ray_cluster
from dana.scoring.engines.ray_cluster import RayCluster

pytest.importorskip("ray", reason="Ray is not installed: pip install 'dana[ray]'")


@contextmanager
def server(answer):
    """A server that answers its first connection with these bytes, and keeps it open if there are none."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ended = threading.Event()

        def serve():
            with listening.accept()[0] as one:
                one.recv(1000)
                one.sendall(answer)
                ended.wait(0 if answer else 20)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        ended.set()
        thread.join()


@pytest.mark.parametrize("answer", [b"HTTP/1.0 505 HTTP Version Not Supported\r\n\r\n", b"SSH-2.0", b"\0\0\0\4"])
def test_a_server_of_something_else_is_refused_before_ray_waits_for_it(answer):
    with server(answer) as address, pytest.raises(ConfigError, match=f"--address='{address}'.*there is no Ray"):
        RayCluster(address).check()


def test_a_server_that_says_nothing_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(ray_cluster, "PATIENCE", 0.2)
    with server(b"") as address, pytest.raises(ConfigError, match=r"no Ray cluster answers there \(timed out\)"):
        RayCluster(address).check()


def test_a_head_node_is_known_by_its_first_frame():
    with server(bytes([0, 0, 12, 4, 0, 0, 0, 0, 0]) + bytes(12)) as address:
        RayCluster(address).check()
