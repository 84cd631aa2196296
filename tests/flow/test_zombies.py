"""Late runs: a worker that comes back after its job was taken over. The fence in the ledger decides, whoever is first."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from django_tenant_queue import enqueue, tenant_context
from django_tenant_queue.brokers.memory import MemoryBroker
from django_tenant_queue.conf import Conf
from django_tenant_queue.keepers import Reaper, Reconciler, Relay
from django_tenant_queue.models import Job
from django_tenant_queue.models.moves import StartedJob
from sampleproject.shop.models import JobEffect
from tests import jobs, oracle
from tests.conftest import Clock
from tests.workers import StepWorker
from tests.zombies import REPEATABLE_READ, Zombie

pytestmark = pytest.mark.django_db(transaction=True)
LEVELS = pytest.mark.parametrize("session", ["", REPEATABLE_READ], ids=["read committed", "repeatable read"])


@pytest.fixture
def worker(memory_broker: MemoryBroker, conf: Conf, monkeypatch: pytest.MonkeyPatch) -> StepWorker:
    monkeypatch.setattr("django_tenant_queue.enqueueing.get_broker", lambda: memory_broker)
    Relay().step(memory_broker, conf)
    return StepWorker(memory_broker, conf)


def started_job(worker: StepWorker, **payload: object) -> StartedJob:
    with tenant_context("acme"):
        enqueue(jobs.leave_effect, payload)
    (job,) = worker.start(worker.claim())
    return job


def expire(worker: StepWorker, clock: Clock) -> None:
    clock.advance(worker.conf.lease_seconds + 1)
    Reaper().step(worker.broker, worker.conf)


@LEVELS
def test_a_zombie_that_comes_back_after_the_other_run_changes_nothing(worker: StepWorker, clock: Clock, session: str) -> None:
    """E01, E03: its settle finds another fence (or, at REPEATABLE READ, a newer row) and everything it wrote is rolled back."""
    job = started_job(worker)
    with Zombie(worker, job, "H2", session=session) as zombie:
        expire(worker, clock)
        worker.work_until_quiet()
        assert Job.objects.get().status == "succeeded"
        zombie.resume()
    assert oracle.check([job.id], broker=worker.broker) == []
    assert JobEffect.objects.get().fence == 2


@LEVELS
def test_a_zombie_that_comes_back_during_the_other_run_changes_nothing(worker: StepWorker, clock: Clock, session: str) -> None:
    """E01, E03"""
    job = started_job(worker)
    with Zombie(worker, job, "H2", session=session) as zombie:
        expire(worker, clock)
        (second,) = worker.start(worker.claim())
        zombie.resume()
    assert not JobEffect.objects.exists()
    worker.run(second)
    assert oracle.check([job.id], broker=worker.broker) == []


@LEVELS
def test_a_zombie_whose_settle_is_under_way_wins_over_the_reaper(worker: StepWorker, clock: Clock, session: str) -> None:
    """E02, E03: the reaper skips the locked row, and the job is not run a second time."""
    job = started_job(worker)
    with Zombie(worker, job, "H3", session=session) as zombie:
        expire(worker, clock)
        assert worker.claim() == ()
        zombie.resume()
    Reconciler().step(worker.broker, worker.conf)
    worker.work_until_quiet()
    assert oracle.check([job.id], broker=worker.broker) == []
    assert Job.objects.get().fence == 1


def test_a_start_skips_a_locked_row_and_comes_back_to_it(
    worker: StepWorker, clock: Clock, another_backend: Callable[[], psycopg.Connection]
) -> None:
    """E02: released with a delay, it counts against the cap meanwhile; then the reaper publishes it."""
    with tenant_context("acme"):
        job = enqueue(jobs.leave_effect)
    somebody = another_backend()
    with somebody.transaction():
        somebody.execute("SELECT 1 FROM tenant_queue_job WHERE id = %s FOR UPDATE", [job.id])
        assert worker.start(worker.claim()) == []
        assert worker.broker.state().lanes["default", "acme"].running == 1
        assert worker.claim() == ()
    clock.advance(2)
    Reaper().step(worker.broker, worker.conf)
    worker.work_until_quiet()
    assert oracle.check([job.id], broker=worker.broker) == []


def test_a_locked_row_that_was_finished_meanwhile_is_dropped(
    worker: StepWorker, clock: Clock, another_backend: Callable[[], psycopg.Connection]
) -> None:
    """E02: terminal next time."""
    with tenant_context("acme"):
        job = enqueue(jobs.leave_effect)
    somebody = another_backend()
    with somebody.transaction():
        somebody.execute("UPDATE tenant_queue_job SET status = 'cancelled', finished_at = now() WHERE id = %s", [job.id])
        assert worker.start(worker.claim()) == []
    clock.advance(2)
    Reaper().step(worker.broker, worker.conf)
    worker.work_until_quiet()
    assert oracle.check([job.id], broker=worker.broker) == []


@pytest.mark.parametrize("payload", [{"fail_until_fence": 1}, {"cancel": True}])
def test_a_zombie_that_fails_late_burns_no_attempt(worker: StepWorker, clock: Clock, payload: dict[str, object]) -> None:
    """E04: its failure, or its wish to be cancelled, carries an old fence."""
    job = started_job(worker, **payload)
    with Zombie(worker, job, "F1") as zombie:
        expire(worker, clock)
        (second,) = worker.start(worker.claim())
        zombie.resume()
    row = Job.objects.get()
    assert (row.status, row.fence, row.failures, row.errors) == ("running", second.fence, 0, [])
    worker.run(second)
    assert Job.objects.get().status == ("cancelled" if "cancel" in payload else "succeeded")
    assert oracle.check([job.id], broker=worker.broker) == []


def test_a_zombie_does_not_end_the_lease_of_the_other_run(worker: StepWorker, clock: Clock) -> None:
    """Its ack names its own token."""
    job = started_job(worker)
    with Zombie(worker, job, "H2") as zombie:
        expire(worker, clock)
        (second,) = worker.start(worker.claim())
        zombie.resume()
    assert worker.broker.held([job.token, second.token]) == {second.token}
