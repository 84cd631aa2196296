"""The threads of a worker process: each owns one slot, takes one job at a time, and is free again only with a ledger connection."""

from __future__ import annotations

import contextvars
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Protocol

from .. import logs
from ..models.moves import StartedJob
from .slots import Slot

IDLE_SECONDS = 1.0
Run = Callable[[StartedJob, Slot], None]


class ThreadConnection(Protocol):
    """A thread's connection to the ledger."""

    def reach(self) -> None:
        """Called before a thread counts as free. Returns when it has a connection: a thread that could not run a job gets none."""

    def freshen(self) -> None:
        """Called before a job after an idle time: a connection that died meanwhile is dropped, the job connects anew."""


class Pool:
    """`run(job, slot)` runs a job to its end and does not raise. `on_free(queue)`: a thread has become free; the queue of the job it
    ran, "" at its start. `connection`: what each thread does about its connection to the ledger."""

    def __init__(self, slots: Sequence[Slot], run: Run, connection: ThreadConnection, on_free: Callable[[str], None]) -> None:
        self._slots, self._run, self._connection, self._on_free = slots, run, connection, on_free
        self._mailboxes: list[SimpleQueue[StartedJob]] = [SimpleQueue() for _ in slots]
        self._free: set[int] = set()
        self._running: Counter[str] = Counter()
        self._lock = threading.Condition()

    def start(self) -> None:
        for index in range(len(self._slots)):
            threading.Thread(target=self._serve, args=(index,), name=f"slot-{index}", daemon=True).start()

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def busy(self) -> int:
        return self._running.total()

    def running(self) -> Mapping[str, int]:
        """Queue -> jobs that hold a slot."""
        with self._lock:
            return dict(self._running)

    def wait_for_free(self, threads: int, seconds: float) -> None:
        """Until so many threads are free, or for `seconds`."""
        with self._lock:
            self._lock.wait_for(lambda: len(self._free) >= threads, seconds)

    def post(self, job: StartedJob) -> None:
        """Give a started job to a free thread. The slot is occupied here, so that no death of the process finds the job nowhere."""
        with self._lock:
            index = self._free.pop()
            self._running[job.envelope.queue] += 1
        self._slots[index].occupy(job.id, job.token, job.fence)
        self._mailboxes[index].put(job)

    def _serve(self, index: int) -> None:
        queue = ""
        while True:
            self._connection.reach()
            with self._lock:
                self._free.add(index)
                self._lock.notify_all()
            free_at = time.monotonic()
            self._on_free(queue)
            job = self._mailboxes[index].get()
            queue = job.envelope.queue
            try:
                if time.monotonic() - free_at > IDLE_SECONDS:
                    self._connection.freshen()
                contextvars.Context().run(self._run, job, self._slots[index])
            except BaseException as error:
                logs.process_broken("a job's thread", error)
            finally:
                self._slots[index].clear()
                with self._lock:
                    self._running[queue] -= 1
