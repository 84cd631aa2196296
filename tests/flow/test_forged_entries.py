"""Somebody writes to Redis: the schedule carries ids and routing only, and the row decides what runs, for whom and whether."""

from __future__ import annotations

import logging
from uuid import uuid4

import pytest

from django_tenant_queue import enqueue, failpoints, logs, tenant_context
from django_tenant_queue.brokers.base import Broker, Publication
from django_tenant_queue.conf import Conf
from django_tenant_queue.keepers import Reconciler, Relay
from django_tenant_queue.models import Job
from sampleproject.shop.models import JobEffect
from tests import jobs, oracle
from tests.redis_servers import admin
from tests.workers import StepWorker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def worker(broker: Broker, conf: Conf, monkeypatch: pytest.MonkeyPatch) -> StepWorker:
    monkeypatch.setattr(logs, "_once", logs.Once())  # what earlier tests logged says nothing about this one
    Relay().step(broker, conf)
    return StepWorker(broker, conf)


@pytest.fixture
def job(worker: StepWorker) -> Job:
    """Committed for acme and not yet published."""
    with failpoints.active("E2", "raise"), tenant_context("acme"):
        return enqueue(jobs.leave_effect)


@pytest.mark.parametrize(("queue", "lane"), [("default", "globex"), ("interactive", "acme")])
def test_an_entry_in_another_lane_is_dropped_and_the_row_wins(
    worker: StepWorker, job: Job, queue: str, lane: str, caplog: pytest.LogCaptureFixture
) -> None:
    """I14, J01: it runs once, from its own lane, as its own tenant."""
    worker.broker.publish([Publication(job.id, queue, lane, 1)])
    with caplog.at_level(logging.ERROR):
        assert worker.start(worker.claim()) == []
    assert "security" in caplog.text
    assert worker.broker.state().lanes["default", "acme"].waiting == 1
    worker.work_until_quiet()
    assert oracle.check([job.id], broker=worker.broker) == []


def test_an_entry_of_no_job_is_dropped_and_counted(worker: StepWorker, caplog: pytest.LogCaptureFixture) -> None:
    """J01"""
    worker.broker.publish([Publication(uuid4(), "default", "acme", 1) for _ in range(20)])
    assert worker.work(20) == 20
    assert worker.work() == 0
    assert oracle.check([], broker=worker.broker) == []
    assert len([record for record in caplog.records if "no such job" in record.message]) <= 1  # J03: no unbounded log


def test_a_foreign_task_number_changes_nothing(worker: StepWorker, job: Job) -> None:
    """J01: the row names the task."""
    worker.broker.publish([Publication(job.id, "default", "acme", 424242, cost=1_000_000, at_head=True)])
    worker.work_until_quiet()
    assert JobEffect.objects.get().task == "tests.jobs.leave_effect"
    assert oracle.check([job.id], broker=worker.broker) == []


def test_a_job_that_is_not_due_does_not_run(worker: StepWorker) -> None:
    """J01: nor one that is finished."""
    with tenant_context("acme"):
        later = enqueue(jobs.leave_effect, delay=3600)
    worker.broker.publish([Publication(later.id, "default", "acme", 1)])
    assert worker.start(worker.claim()) == []
    assert Job.objects.get().status == "scheduled"
    assert worker.broker.state().leases == {}


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_one_entry_pushed_fifty_times_runs_once(redis_broker: Broker, conf: Conf, job: Job, worker: StepWorker) -> None:
    """F01: written by hand into the lane, past the refusal of a known id."""
    Relay().step(redis_broker, conf)
    client = admin()
    (line,) = client.scan_iter(match=f"{{dtq:{conf.namespace}:*:line:default:acme", count=1000)
    ((entry, score),) = client.zrange(line, 0, -1, withscores=True)
    client.zadd(line, {number.to_bytes(8, "big") + entry[8:]: score for number in range(1000, 1049)})
    worker.work_until_quiet()
    Reconciler().step(redis_broker, conf)
    worker.work_until_quiet()
    assert client.zcard(line) == 0
    assert oracle.check([job.id], broker=redis_broker) == []
    assert all(count >= 0 for depth in redis_broker.depths().values() for count in depth.values())
