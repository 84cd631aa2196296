"""Databases that lose a reply, kill a transaction or die, and leases that are lost before the body begins."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from django.db import OperationalError, connection

from django_tenant_queue import enqueue, exceptions, failpoints, tenant_context
from django_tenant_queue.brokers.base import Claim, ClaimRequest, QueueShare
from django_tenant_queue.brokers.memory import MemoryBroker
from django_tenant_queue.conf import get_conf
from django_tenant_queue.handback import take_expired
from django_tenant_queue.models import Job
from django_tenant_queue.starting import start_claims
from tests.conftest import Clock
from tests.proxy import Proxy

from . import tasks
from .inline import InlineWorker, written

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def proxy(worker: InlineWorker) -> Iterator[Proxy]:
    """Between this process and Postgres."""
    settings = connection.settings_dict
    place = {name: settings[name] for name in ("HOST", "PORT")}
    with Proxy((place["HOST"], int(place["PORT"]))) as between:
        connection.close()
        settings.update(HOST="127.0.0.1", PORT=between.port)
        yield between
        settings.update(place)
        connection.close()


@pytest.mark.parametrize(("delivered", "status", "lines"), [(True, "succeeded", ["once"]), (False, "retrying", [])])
def test_an_unknown_commit_is_decided_by_the_guarded_update(
    worker: InlineWorker,
    proxy: Proxy,
    delivered: bool,
    status: str,
    lines: list[str],
) -> None:
    """A09: H4, both branches: the COMMIT arrived and its reply is lost; it never arrived. No failure is counted, nothing is done twice."""
    with tenant_context("acme"):
        job = enqueue(tasks.writes, {"text": "once"})
    failpoint = threading.Event()

    def cut(**facts: object) -> None:
        proxy.cut_at_request(b"COMMIT", delivered=delivered)
        failpoint.set()

    with failpoints.active("H3", cut):
        worker.work_off()
    row = Job.objects.get(pk=job.pk)
    assert failpoint.is_set() and proxy.fired["cut"] == 1
    assert (row.status, row.failures, row.infrastructure) == (status, 0, 0 if delivered else 1)
    assert written() == lines and not worker.broker.state().leases


def test_a_database_that_is_gone_at_settle_is_waited_for(worker: InlineWorker, proxy: Proxy) -> None:
    """D02: the outcome is recorded once the database answers; a failed body is counted once."""
    with tenant_context("acme"):
        job = enqueue(tasks.fails)

    def go_down(**facts: object) -> None:
        proxy.refuse()
        proxy.reset_all()
        threading.Timer(1.0, proxy.heal).start()

    with failpoints.active("F1", go_down):
        worker.work_off()
    row = Job.objects.get(pk=job.pk)
    assert proxy.fired["refused"] >= 1 and (row.status, row.failures) == ("retrying", 1)


def test_the_victim_of_a_deadlock_is_run_again_without_a_failure(notes: None, memory_broker: MemoryBroker, worker: InlineWorker) -> None:
    """D04: 40P01 has a budget of its own."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO flow_note VALUES ('one'), ('two')")
    tasks.crossing = threading.Barrier(2, timeout=20)
    with tenant_context("acme"):
        jobs = [enqueue(tasks.locks, {"first": a, "second": b}) for a, b in (("one", "two"), ("two", "one"))]
    threads = [threading.Thread(target=lambda: (InlineWorker(memory_broker, limit=1).turn(), connection.close())) for _ in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    rows = Job.objects.filter(pk__in=[job.pk for job in jobs]).order_by("status")
    assert [(row.status, row.failures, row.infrastructure) for row in rows] == [("retrying", 0, 1), ("succeeded", 0, 0)]
    assert "deadlock" in rows[0].errors[0]["message"]


def claim_one(broker: MemoryBroker) -> tuple[Claim, ...]:
    return broker.claim(ClaimRequest("f" * 24, (QueueShare("default", 1),), 1)).claims


def test_a_job_whose_lease_is_lost_before_its_body_does_not_begin(worker: InlineWorker, clock: Clock) -> None:
    """E12: lost between claim and confirm: back to queued without penalty, in its lane."""
    with tenant_context("acme"):
        job = enqueue(tasks.writes, {"text": "never twice"})
    broker = worker.broker

    def lose_lease(**facts: object) -> None:
        clock.advance(9)
        assert len(broker.reap(10)) == 1

    with failpoints.active("D3", lose_lease):
        assert start_claims(claim_one(broker), broker=broker, conf=get_conf(), sent_at=time.monotonic()) == []
    row = Job.objects.get(pk=job.pk)
    assert (row.status, row.fence, row.interruptions, row.failures) == ("queued", 1, 0, 0) and written() == []
    assert worker.work_off() == 1 and Job.objects.get(pk=job.pk).fence == 2


@pytest.mark.parametrize(("age_seconds", "begins"), [(0, 1), (6.5, 0)])
def test_with_a_silent_schedule_only_a_young_claim_begins(
    worker: InlineWorker,
    monkeypatch: pytest.MonkeyPatch,
    age_seconds: float,
    begins: int,
) -> None:
    """E12: at confirm, Redis does not answer: a job begins only while less than LEASE - RENEW has passed since the claim was sent."""
    with tenant_context("acme"):
        job = enqueue(tasks.writes, {"text": "x"})
    broker = worker.broker
    claims = claim_one(broker)

    def silent(tokens: object) -> frozenset[str]:
        raise exceptions.ScheduleUnavailable("no answer")

    monkeypatch.setattr(broker, "renew", silent)
    started = start_claims(claims, broker=broker, conf=get_conf(), sent_at=time.monotonic() - age_seconds)
    assert len(started) == begins
    assert Job.objects.get(pk=job.pk).status == ("running" if begins else "queued")


def test_a_row_locked_by_somebody_else_is_put_off(worker: InlineWorker) -> None:
    """E02, D08: start does not wait behind a zombie's open settle: the claim is postponed, its lease ends a second later."""
    with tenant_context("acme"):
        job = enqueue(tasks.writes, {"text": "x"})
    locked, done = threading.Event(), threading.Event()

    def hold_lock() -> None:
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT 1 FROM tenant_queue_job WHERE id = %s FOR UPDATE", [job.id])
            locked.set()
            done.wait(20)
            cursor.execute("ROLLBACK")
        connection.close()

    holder = threading.Thread(target=hold_lock)
    holder.start()
    assert locked.wait(20)
    try:
        assert worker.turn() == 1
    finally:
        done.set()
        holder.join()
    row = Job.objects.get(pk=job.pk)
    assert (row.status, row.fence) == ("queued", 0) and len(worker.broker.state().leases) == 1


def test_no_lease_is_taken_while_the_ledger_is_away(worker: InlineWorker, proxy: Proxy, clock: Clock) -> None:
    """D02: the reaper asks the ledger first: a lease taken without it would leave the job nowhere until the reconciler looks."""
    with tenant_context("acme"):
        enqueue(tasks.writes, {"text": "x"})
    broker = worker.broker
    assert len(claim_one(broker)) == 1
    clock.advance(9)
    proxy.refuse()
    proxy.reset_all()
    with pytest.raises(OperationalError):
        take_expired(10, broker=broker)
    assert proxy.fired["reset"] == 1
    assert len(broker.state().leases) == 1
    proxy.heal()
    connection.close()
    assert take_expired(10, broker=broker) == 1
    assert worker.work_off() == 1
