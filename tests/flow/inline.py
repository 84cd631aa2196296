"""A worker in the test's own process and thread: claim, start, run, settle, through the same code as a real one."""

from __future__ import annotations

import itertools
import time
from contextvars import Context

from django.db import connection

from django_tenant_queue import enqueue, tenant_context
from django_tenant_queue.brokers.base import Broker, ClaimRequest, QueueShare
from django_tenant_queue.conf import Conf, get_conf
from django_tenant_queue.models import Job
from django_tenant_queue.starting import start_claims
from django_tenant_queue.worker.runner import run_job

_requests = itertools.count(1)


class RecordingSlot:
    """Remembers what the runner told the lease keeper."""

    def __init__(self) -> None:
        self.deadlines: list[float] = []
        self.cleared = 0

    def begin(self, deadline: float) -> None:
        self.deadlines.append(deadline)

    def clear(self) -> None:
        self.cleared += 1


class InlineWorker:
    """`limit` jobs a claim, queues in the configured order."""

    def __init__(self, broker: Broker, conf: Conf | None = None, limit: int = 8) -> None:
        self.broker, self.conf, self.limit = broker, conf or get_conf(), limit
        self.slot = RecordingSlot()

    def turn(self) -> int:
        """One claim and everything it took. -> jobs run."""
        sent_at = time.monotonic()
        shares = tuple(QueueShare(name, self.limit) for name in self.conf.queue_names)
        reply = self.broker.claim(ClaimRequest(f"{next(_requests):024x}", shares, self.limit))
        started = start_claims(reply.claims, broker=self.broker, conf=self.conf, sent_at=sent_at)
        for job in started:
            Context().run(run_job, job, self.slot, acks=self.broker, conf=self.conf)
        return len(reply.claims)

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
