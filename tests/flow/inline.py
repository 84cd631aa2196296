"""A worker that works everything off, and what its tasks wrote."""

from __future__ import annotations

from django.db import connection

from django_tenant_queue import enqueue, tenant_context
from django_tenant_queue.brokers.base import Broker
from django_tenant_queue.conf import get_conf
from django_tenant_queue.models import Job
from tests.workers import StepWorker


class RecordingSlot:
    """Remembers what the runner told the lease keeper."""

    def __init__(self) -> None:
        self.deadlines: list[float] = []
        self.cleared = 0

    def begin(self, deadline: float) -> None:
        self.deadlines.append(deadline)

    def clear(self) -> None:
        self.cleared += 1


class InlineWorker(StepWorker):
    """Takes `limit` jobs a claim and runs each; remembers what the slot was told."""

    def __init__(self, broker: Broker, limit: int = 8) -> None:
        super().__init__(broker, get_conf(), RecordingSlot())
        self.limit = limit

    def turn(self) -> int:
        """One claim and everything it took. -> claims taken."""
        return self.work(self.limit)

    def work_off(self) -> int:
        """Turns until a claim takes nothing. -> claims taken."""
        total = 0
        while taken := self.turn():
            total += taken
        return total


def written() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT text FROM flow_note ORDER BY text")
        return [row[0] for row in cursor.fetchall()]


def run(worker: InlineWorker, task: object, payload: dict[str, object] | None = None) -> Job:
    """Enqueue as acme, work everything off. -> the row as it is then."""
    with tenant_context("acme", actor_id="7", actor_type="user"):
        job = enqueue(task, payload or {})
    worker.work_off()
    return Job.objects.get(pk=job.pk)
