"""Shards of a scoring on Ray: their documents go out to workers, tables come back, and this process alone writes them.

Nodes need no common file system. Every shard is written as ``dana score --shard`` writes it, whole or not at all.
"""

import socket
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa

from dana.core.artifacts import OWN
from dana.core.errors import DanaError, Preempted
from dana.core.logging import get_logger, progress
from dana.core.schemas import SCORES, Document
from dana.core.stop import StopRequest
from dana.scoring.engines.parcel import Parcel
from dana.scoring.engines.ray_cluster import ONE_THREAD, RayCluster
from dana.scoring.saved_selector import SavedSelector
from dana.scoring.scoring import Scoring
from dana.scoring.shards import Shard, shards_of

log = get_logger(__name__)

TRIES = 3  # a shard whose workers died so often is the cause of it
AHEAD = 2  # shards that a worker has before it: one is scored, the next is there when it is done
POLL = 1.0  # seconds between two looks whether this process was told to stop
PATIENCE = 60.0  # seconds without a worker before the log says what is waited for


class ShardWorker:
    """What runs in a worker."""

    saved: SavedSelector

    def open(self, parcel: Parcel) -> None:
        """Load the selector."""
        with _told_where():
            self.saved = parcel.open()

    def score(self, number: int, documents: list[Document]) -> tuple[pa.Table, float]:
        """A shard's table, :data:`dana.core.schemas.SCORES`, and the seconds that it took."""
        begun = time.monotonic()
        with _told_where():
            table = pa.concat_tables([SCORES.empty_table(), *self.saved.tables(documents)]).combine_chunks()
        return table, time.monotonic() - begun


@contextmanager
def _told_where() -> Iterator[None]:
    """Tell what goes wrong inside with the name of the machine.

    Raises:
        DanaError: Instead of the error.
    """
    try:
        yield
    except Exception as error:
        said = str(error) if isinstance(error, DanaError) else f"{type(error).__name__}: {error}"
        raise DanaError(f"{said} (a Ray worker on {socket.gethostname()})") from error


def score_on_ray(scoring: Scoring, cluster: RayCluster) -> None:
    """Make the shards of a prepared scoring that nobody has made yet.

    Args:
        scoring: That :meth:`dana.scoring.sharded.ShardedTable.prepare` has run for.
        cluster: Whose workers score.

    Raises:
        ConfigError: If there is no such cluster, or no room in it.
        DanaError: If a worker fails, or three died over one shard; names it and the cause. What was scored stays.
        Preempted: If told to stop; what was scored stays.
    """
    every = shards_of(scoring.general.artifact.path)
    missing = scoring.shards.missing(every)
    if len(missing) < len(every):
        log.info("shards    %d of %d are there already", len(every) - len(missing), len(every))
    if not missing:
        return
    learned = scoring.shards.path / scoring.learned / OWN / scoring.learned
    parcel = Parcel.of(learned, scoring.selection.store)
    # Ray swallows what a signal's handler raises while it waits, so signals are remembered and looked at.
    with cluster.connected() as ray, StopRequest() as stop:
        count, gpus = cluster.workers(ray)
        log.info("ray       %d workers with a CPU and %g GPU each", count, gpus)
        crew = Crew(ray, parcel, count, gpus, stop)
        with (
            closing(crew.scored(missing)) as scored,
            progress(what="scoring", unit="units", total=scoring.expected(missing)) as bar,
        ):
            for number, table, seconds in scored:
                scoring.shards.write(number, table, seconds)
                bar.update(table.num_rows)
            bar.total = bar.n


class Crew:
    """Workers and the calls that they have before them."""

    def __init__(self, ray: Any, parcel: Parcel, count: int, gpus: float, stop: StopRequest) -> None:
        self.ray, self.count, self.stop = ray, count, stop
        self.parcel = ray.put(parcel)
        self.hire = (
            ray.remote(ShardWorker).options(num_cpus=1, num_gpus=gpus, max_restarts=0, runtime_env=ONE_THREAD).remote
        )
        self.calls: dict[Any, tuple[Any, Shard | None]] = {}  # in the order in which they were made; None: it opens
        self.ready: list[Any] = []
        self.deaths: Counter[int | None] = Counter()

    def scored(self, shards: list[Shard]) -> Generator[tuple[int, pa.Table, float]]:
        """Each shard's number, table and seconds, as they are done; the workers are gone after the last.

        Raises:
            DanaError: See :func:`score_on_ray`.
        """
        waiting = deque(shards)
        try:
            while waiting or any(shard for _, shard in self.calls.values()):
                self._staff(len(waiting))
                self._hand_out(waiting)
                for call in self._news():
                    worker, shard = self.calls[call]
                    try:
                        outcome = self.ray.get(call)
                    except self.ray.exceptions.RayTaskError as error:
                        raise DanaError(f"{_where(shard)}: {' '.join(str(error.cause).split())}") from error
                    except self.ray.exceptions.RayError as error:
                        waiting.extendleft(reversed(self._bury(worker, error)))
                        continue
                    del self.calls[call]
                    if shard is None:
                        self.ready.append(worker)
                        self.deaths[None] = 0
                    else:
                        yield shard.number, *outcome
        finally:
            for worker in {
                id(worker): worker for worker in [*self.ready, *(w for w, _ in self.calls.values())]
            }.values():
                self.ray.kill(worker)

    def _staff(self, waiting: int) -> None:
        """Start workers, no more than there is work for."""
        opening = sum(shard is None for _, shard in self.calls.values())
        for _ in range(min(self.count - len(self.ready), waiting) - opening):
            worker = self.hire()
            self.calls[worker.open.remote(self.parcel)] = worker, None

    def _hand_out(self, waiting: deque[Shard]) -> None:
        """Give shards to the workers with the fewest, so that no more wait in memory than are soon scored."""
        while waiting and self.ready:
            load = Counter(id(worker) for worker, shard in self.calls.values() if shard)
            worker = min(self.ready, key=lambda one: load[id(one)])
            if load[id(worker)] >= AHEAD:
                return
            shard = waiting.popleft()
            self.calls[worker.score.remote(shard.number, list(shard.read()))] = worker, shard

    def _news(self) -> list[Any]:
        """A call that has ended; none if nothing did for a minute.

        Raises:
            Preempted: If this process was told to stop.
        """
        ended: list[Any] = []
        until = time.monotonic() + PATIENCE
        while not ended and time.monotonic() < until:
            ended, _ = self.ray.wait(list(self.calls), num_returns=1, timeout=POLL)
            if self.stop.received:
                raise Preempted("told to stop; what was finished is kept, the same command goes on from there")
        if not ended and not self.ready:
            log.warning("ray       no worker is ready yet: each waits for room on a node, or opens the selector")
        return ended

    def _bury(self, worker: Any, error: Exception) -> list[Shard]:
        """Forget a worker that died; returns the shards that it had before it.

        Raises:
            DanaError: If it was the third over the shard that it was at, its first.
        """
        lost = [(call, shard) for call, (owner, shard) in self.calls.items() if owner is worker]
        for call, _ in lost:
            del self.calls[call]
        self.ready = [other for other in self.ready if other is not worker]
        self.ray.kill(worker)
        at = lost[0][1]
        number = None if at is None else at.number
        self.deaths[number] += 1
        said = " ".join(str(error).split())
        if self.deaths[number] == TRIES:
            raise DanaError(f"{_where(at)}: a Ray worker died {TRIES} times over it; the last time: {said}") from error
        log.warning("ray       %s: a worker died (%d of %d): %s", _where(at), self.deaths[number], TRIES, said)
        return [shard for _, shard in lost if shard]


def _where(shard: Shard | None) -> str:
    """What a worker was at, for messages."""
    if shard is None:
        return "opening the selector"
    return f"shard {shard.number} ({shard.part}, {shard.documents} documents from row {shard.first})"
