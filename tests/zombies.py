"""A worker that stops at a failpoint inside its job and comes back later, when others may have taken the job over."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from django.db import connection, connections

from django_tenant_queue import failpoints
from django_tenant_queue.models.moves import StartedJob
from tests.workers import StepWorker

REPEATABLE_READ = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ"


class Zombie:
    """`with Zombie(...) as zombie:` it has reached the place; `zombie.resume()` lets it go on to its end."""

    def __init__(self, worker: StepWorker, job: StartedJob, place: str, *, session: str = "") -> None:
        self._worker, self._job, self._place, self._session = worker, job, place, session
        self._reached, self._go_on, self._stack = threading.Event(), threading.Event(), ExitStack()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._stack.enter_context(failpoints.active(self._place, self._stop))
        self._thread.start()
        assert self._reached.wait(10), f"failpoint {self._place} did not fire"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.resume()
        self._stack.close()

    def resume(self) -> None:
        self._go_on.set()
        self._thread.join(20)
        assert not self._thread.is_alive(), "the zombie did not end"

    def _stop(self, **facts: Any) -> None:
        if threading.current_thread() is self._thread:
            self._reached.set()
            self._go_on.wait(20)

    def _run(self) -> None:
        try:
            if self._session:
                with connection.cursor() as cursor:
                    cursor.execute(self._session)
            self._worker.run(self._job)
        finally:
            connections.close_all()
