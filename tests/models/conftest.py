"""Fixtures of the tests of models."""

import multiprocessing

import pytest

from tests.finetuning.conftest import checkpoint, toy_card  # noqa: F401

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def shared_count():
    """A number that forked processes share; ``value`` is 0 at first."""
    return FORK.Value("i", 0)


@pytest.fixture
def of_two_processes():
    """Call a function in two processes at once and return both results."""

    def call(function):
        queue = FORK.Queue()
        processes = [FORK.Process(target=lambda: queue.put(function())) for _ in range(2)]
        for process in processes:
            process.start()
        results = [queue.get(timeout=60) for _ in processes]
        for process in processes:
            process.join()
        return results

    return call
