"""Killed between ledger and schedule: each gap between the two stores, and who repairs it. Real servers, real SIGKILL."""

from __future__ import annotations

import pytest
from django.db import transaction
from django.utils import timezone

from django_tenant_queue import enqueue, tenant_context
from django_tenant_queue.brokers.base import Broker, Publication
from django_tenant_queue.conf import Conf
from django_tenant_queue.keepers import Reaper, Relay
from django_tenant_queue.models import Job
from sampleproject.shop.models import JobEffect, Workspace
from tests import jobs, oracle
from tests.conftest import Clock
from tests.dying import killed_at
from tests.workers import StepWorker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def schedule(redis_broker: Broker, conf: Conf, monkeypatch: pytest.MonkeyPatch) -> Broker:
    monkeypatch.setattr("django_tenant_queue.enqueueing.get_broker", lambda: redis_broker)
    Relay().step(redis_broker, conf)
    return redis_broker


@pytest.fixture
def worker(schedule: Broker, conf: Conf) -> StepWorker:
    return StepWorker(schedule, conf)


def waiting(broker: Broker) -> int:
    return sum(lane.waiting for lane in broker.state().lanes.values())


def enqueue_with_a_workspace(task: object = jobs.leave_effect, **payload: object) -> None:
    with tenant_context("acme"), transaction.atomic():
        Workspace.objects.create(id="acme", name="Acme")
        enqueue(task, payload)  # type: ignore[arg-type]


def test_killed_before_commit_nothing_is_there(schedule: Broker, conf: Conf) -> None:
    """A01"""
    killed_at("E1", enqueue_with_a_workspace)
    Relay().step(schedule, conf)
    assert not Workspace.objects.exists()
    assert not Job.objects.exists()
    assert waiting(schedule) == 0


def test_killed_after_commit_the_relay_publishes(schedule: Broker, conf: Conf, worker: StepWorker) -> None:
    """A02"""
    killed_at("E2", enqueue_with_a_workspace)
    assert Workspace.objects.exists()
    assert Job.objects.get().status == "queued"
    assert waiting(schedule) == 0
    Relay().step(schedule, conf)
    worker.work_until_quiet()
    assert oracle.check([Job.objects.get().id], broker=schedule) == []


def test_killed_after_publish_the_second_publish_is_refused(schedule: Broker, conf: Conf, worker: StepWorker) -> None:
    """A03: published, and nobody knows it; published again before and after the job was claimed."""
    killed_at("E3", enqueue_with_a_workspace)
    Relay().step(schedule, conf)
    assert waiting(schedule) == 1
    started = worker.start(worker.claim())
    Relay().step(schedule, conf)
    assert waiting(schedule) == 0
    worker.run(started[0])
    assert worker.claim() == ()
    assert oracle.check([started[0].id], broker=schedule) == []


def test_killed_before_the_ack_the_job_stays_settled(schedule: Broker, conf: Conf, worker: StepWorker, clock: Clock) -> None:
    """A10: the lease is reaped; an entry that comes back is dropped when it is claimed."""
    enqueue_with_a_workspace()
    killed_at("H5", worker.work)
    job = Job.objects.get()
    assert (job.status, job.fence) == ("succeeded", 1)
    publish_again(schedule, job)
    clock.advance(conf.lease_seconds + 1)
    Reaper().step(schedule, conf)
    publish_again(schedule, job)
    assert worker.work() == 1
    assert oracle.check([job.id], broker=schedule) == []
    assert Job.objects.get().fence == 1


def publish_again(schedule: Broker, job: Job) -> None:
    schedule.publish([Publication(job.id, job.queue, job.lane_key, 1)])


def test_killed_after_a_failure_was_recorded_it_runs_when_it_is_due(schedule: Broker, conf: Conf, worker: StepWorker, clock: Clock) -> None:
    """A12: never before its due time, once after it, although the lease of the failed run was never acked."""
    enqueue_with_a_workspace(fail_until_fence=1)
    killed_at("F2", worker.work)
    job, relay = Job.objects.get(), Relay()
    assert (job.status, job.failures) == ("retrying", 1)
    relay.step(schedule, conf)
    assert Job.objects.get().status == "retrying"
    Job.objects.update(due_at=timezone.now())
    relay.step(schedule, conf)
    assert worker.work() == 0  # refused: the dead run's lease is still there
    clock.advance(conf.lease_seconds + 1)
    Reaper().step(schedule, conf)
    relay.step(schedule, conf)
    worker.work_until_quiet()
    assert oracle.check([job.id], broker=schedule) == []
    assert Job.objects.get().fence == 2


def test_killed_after_the_dead_letter_it_never_runs_again(schedule: Broker, conf: Conf, worker: StepWorker, clock: Clock) -> None:
    """A13"""
    enqueue_with_a_workspace(jobs.never_succeed)
    killed_at("F3", worker.work)
    job = Job.objects.get()
    assert (job.status, job.dead_letter.reason) == ("dead", "failed")
    clock.advance(conf.lease_seconds + 1)
    for keeper in (Relay(), Reaper()):
        keeper.step(schedule, conf)
    worker.work_until_quiet()
    assert not JobEffect.objects.exists()
    assert oracle.check([job.id], broker=schedule) == []
