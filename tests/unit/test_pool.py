"""The pool: threads that take one job at a time, and the claimer's wait for several of them."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from django_tenant_queue.worker.pool import Pool


class Mute:
    """A slot that nobody watches, and a connection that is always there."""

    def occupy(self, *facts: Any) -> None: ...

    def clear(self) -> None: ...

    def reach(self) -> None: ...

    def freshen(self) -> None: ...


class Job:
    id, token, fence = "id", "token", 1

    class envelope:
        queue = "bulk"


@pytest.fixture
def gate() -> threading.Semaphore:
    """Lets one running job end for each release."""
    return threading.Semaphore(0)


@pytest.fixture
def pool(gate: threading.Semaphore) -> Pool:
    made = Pool([Mute() for _ in range(4)], lambda job, slot: gate.acquire(timeout=10), Mute(), lambda queue: None)
    made.start()
    made.wait_for_free(4, 10)
    return made


def test_the_wait_ends_when_enough_threads_are_free(pool: Pool, gate: threading.Semaphore) -> None:
    for _ in range(4):
        pool.post(Job())
    assert (pool.free, pool.busy) == (0, 4)
    threading.Timer(0.05, lambda: gate.release(2)).start()
    pool.wait_for_free(2, 10)
    assert pool.free == 2
    assert pool.running() == {"bulk": 2}
    gate.release(2)


def test_the_wait_ends_after_its_time(pool: Pool, gate: threading.Semaphore) -> None:
    for _ in range(4):
        pool.post(Job())
    began = time.monotonic()
    pool.wait_for_free(1, 0.05)
    assert time.monotonic() - began >= 0.05
    assert pool.free == 0
    gate.release(4)
