"""Connections to a Ray cluster: the optional import, the address, a cluster of this machine's own, room for workers."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dana.core.config import require
from dana.core.errors import ConfigError, PluginError
from dana.core.logging import get_logger

log = get_logger(__name__)

ADDRESSES = "HOST:PORT of a head node, auto for a cluster that runs on this machine, or local for one of its own"
PATIENCE = 10.0  # seconds for a head node to take a connection; Ray itself tries for ever
SETTINGS = 4  # type of the frame that a server of HTTP/2, and so of gRPC, sends first
ONE_THREAD = {"env_vars": {"OMP_NUM_THREADS": "1"}}  # sums depend on the number; Ray would pass on that of its node
# No reports to its makers; workers without a GPU see none; those of a cluster that this process starts are no nicer
# than any other process of dana (with Ray's 15 they starve on a machine that does something else, too).
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_worker_niceness": "0",
}


@dataclass(frozen=True)
class RayCluster:
    """Where shards are scored; none of it changes a score.

    Attributes:
        address: Of the cluster, see :data:`ADDRESSES`; None takes ``RAY_ADDRESS``, else one that runs on this machine,
            else starts one for as long as it is used.
        actors: Workers, each with one CPU and one thread; None takes as many as the cluster has room for.
        num_gpus: Share of a GPU that each worker has, or a whole number of them; None is a whole GPU where any node
            has one, else none.
    """

    address: str | None = None
    actors: int | None = None
    num_gpus: float | None = None

    def __post_init__(self) -> None:
        require(self.actors is None or self.actors >= 1, "--actors", self.actors, "at least 1")
        gpus = float(self.num_gpus or 0)
        require(0 <= gpus <= 1 or (gpus > 0 and gpus.is_integer()), "--num-gpus", gpus, "in [0, 1] or a whole number")

    def check(self) -> None:
        """Find out, before any work, whether Ray is there and somebody answers at the address.

        Raises:
            ConfigError: If nobody does.
            PluginError: If Ray is not installed.
        """
        import_ray()
        address = self._named
        if address in (None, "auto", "local"):
            return
        host, _, port = str(address).rpartition(":")
        require(bool(host) and "/" not in host and port.isdigit(), "--address", address, ADDRESSES)
        try:
            with socket.create_connection((host.strip("[]"), int(port)), PATIENCE) as there:
                answer = None if os.environ.get("RAY_USE_TLS", "0") != "0" else _answer(there)
            require(answer in (None, SETTINGS), "--address", address, f"{ADDRESSES}; what answers there is no Ray")
        except (OSError, OverflowError) as error:
            raise ConfigError(f"--address {address!r}: no Ray cluster answers there ({error})") from error

    @property
    def _named(self) -> str | None:
        return self.address or os.environ.get("RAY_ADDRESS") or None

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """The module ``ray``, connected; where this process was connected before, it stays so, to that cluster.

        Raises:
            ConfigError: If there is no cluster, or one of another Ray or Python.
        """
        self.check()
        ray = import_ray()
        if ray.is_initialized():
            yield ray
            return
        log.info("ray       connecting to %s", self._named or "a cluster of this machine, or a new one")
        in_main = threading.current_thread() is threading.main_thread()
        answering = signal.getsignal(signal.SIGTERM) if in_main else None
        try:
            ray.init(address=self._named, logging_level="ERROR", log_to_driver=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            said = " ".join(str(error).split())
            raise ConfigError(f"--address {self._named!r}: no Ray cluster to work with ({said})") from error
        if in_main:
            signal.signal(signal.SIGTERM, answering)  # Ray's own would end this process without a word
        try:
            yield ray
        finally:
            ray.shutdown()

    def workers(self, ray: Any) -> tuple[int, float]:
        """How many workers to start, and each one's share of a GPU.

        Raises:
            ConfigError: If no node could ever hold one.
        """
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        gpus = self.num_gpus
        if gpus is None:
            gpus = 1.0 if any(node.get("GPU") for node in nodes) else 0.0
        room = sum(_room(node, gpus) for node in nodes)
        if not room:
            there = "; ".join(f"{node.get('CPU', 0):g} CPU, {node.get('GPU', 0):g} GPU" for node in nodes)
            raise ConfigError(f"no node of the Ray cluster has 1 CPU and {gpus:g} GPU for a worker; there are: {there}")
        return self.actors or room, gpus


def _answer(there: socket.socket) -> int:
    """Type of the HTTP/2 frame by which a server answers a client that begins, as any of gRPC; -1 if none does."""
    there.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]))
    head = b""
    while len(head) < 9 and (more := there.recv(9 - len(head))):
        head += more
    return head[3] if len(head) == 9 and head[5:] == bytes(4) else -1  # of the connection, which is stream 0


def _room(node: dict[str, float], gpus: float) -> int:
    """Workers that a node holds."""
    room = int(node.get("CPU", 0))
    if not gpus:
        return room
    there = int(node.get("GPU", 0))
    return min(room, there * int(1 / gpus) if gpus < 1 else there // int(gpus))


def import_ray() -> Any:
    """The module ``ray``, with its environment set where the user has not.

    Raises:
        PluginError: If it is not installed.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise PluginError(f"Ray is not installed: pip install 'dana[ray]' ({error})") from error
    return ray
