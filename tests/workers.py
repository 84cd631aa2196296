"""A worker of the tests: the real claim, start, run and settle on the calling thread, each step where a test can stop."""

from __future__ import annotations

import contextvars
import secrets
import time
from collections.abc import Sequence

from django_tenant_queue.brokers.base import Broker, Claim, ClaimRequest, QueueShare
from django_tenant_queue.conf import Conf
from django_tenant_queue.models.moves import StartedJob
from django_tenant_queue.starting import start_claims
from django_tenant_queue.worker.runner import Slot, run_job


class NoSlot:
    """A slot that nobody watches."""

    def begin(self, deadline: float) -> None: ...

    def clear(self) -> None: ...


class StepWorker:
    def __init__(self, broker: Broker, conf: Conf, slot: Slot | None = None) -> None:
        self.broker, self.conf, self.slot = broker, conf, slot or NoSlot()

    def claim(self, limit: int = 10) -> tuple[Claim, ...]:
        shares = tuple(QueueShare(queue, limit) for queue in self.conf.queue_names)
        while (reply := self.broker.claim(ClaimRequest(secrets.token_hex(12), shares, limit))).more and not reply.claims:
            pass  # only parked or indebted lanes were met so far
        return reply.claims

    def start(self, claims: Sequence[Claim], *, sent_seconds_ago: float = 0.0) -> list[StartedJob]:
        return start_claims(claims, broker=self.broker, conf=self.conf, sent_at=time.monotonic() - sent_seconds_ago)

    def run(self, job: StartedJob) -> None:
        contextvars.Context().run(run_job, job, self.slot, acks=self.broker, conf=self.conf)

    def work(self, limit: int = 10) -> int:
        """Claim, start and run up to `limit` jobs. -> how many were claimed."""
        claims = self.claim(limit)
        for job in self.start(claims):
            self.run(job)
        return len(claims)

    def work_until_quiet(self) -> None:
        while self.work():
            pass
