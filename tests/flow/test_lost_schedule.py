"""The schedule is lost with jobs in every state, and comes back from the ledger. A private Valkey, broken for real."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from django_tenant_queue import conf as configuration
from django_tenant_queue import enqueue_many, tenant_context
from django_tenant_queue.brokers.base import Broker
from django_tenant_queue.brokers.redis.clients import Patience
from django_tenant_queue.conf import Conf
from django_tenant_queue.exceptions import ScheduleError, ScheduleUnavailable
from django_tenant_queue.keepers import Reaper, Reconciler, Relay
from django_tenant_queue.models import Job
from embedded import Valkey
from tests import jobs, oracle
from tests.conftest import Clock, scheduler_settings
from tests.redis_servers import admin, broker_of
from tests.workers import StepWorker

pytestmark = pytest.mark.django_db(transaction=True)
QUEUED, DELAYED, RUNNING = 120, 15, 10
HASTY = Patience(total_seconds=2.5, attempt_seconds=2.0)


@pytest.fixture
def worker(private_valkey: Valkey, conf: Conf, clock: Clock, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[StepWorker]:
    alias = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": private_valkey.url}
    settings.CACHES = {**settings.CACHES, conf.redis_alias: alias}
    conf = configuration.get_conf()
    broker = broker_of(conf, scheduler_settings(conf, clock), HASTY)
    monkeypatch.setattr("django_tenant_queue.enqueueing.get_broker", lambda: broker)
    Relay().step(broker, conf)
    yield StepWorker(broker, conf)
    broker.close()


def everything_keepers_do(broker: Broker, conf: Conf) -> None:
    for keeper in (Relay(), Reaper(), Reconciler()):
        keeper.step(broker, conf)


def busy(worker: StepWorker) -> tuple[list[Job], list[Any]]:
    """Queued, delayed and running jobs of a few tenants."""
    made: list[Job] = []
    for tenant in ("acme", "globex", "initech"):
        with tenant_context(tenant):
            made += enqueue_many([(jobs.leave_effect, {})] * (QUEUED // 3))
            made += enqueue_many([(jobs.leave_effect, {})] * (DELAYED // 3), delay=3600)
    return made, worker.start(worker.claim(RUNNING))


def finish(worker: StepWorker, running: list[Any]) -> None:
    for job in running:
        worker.run(job)
    worker.work_until_quiet()
    Job.objects.filter(status="scheduled").update(due_at=timezone.now())
    everything_keepers_do(worker.broker, worker.conf)
    worker.work_until_quiet()


def test_a_flushed_schedule_is_rebuilt_and_each_job_runs_once(worker: StepWorker, private_valkey: Valkey) -> None:
    """C01 (scaled): queued, delayed, running. The bound: one pass of the relay; running jobs settle by their fence meanwhile."""
    made, running = busy(worker)
    worker.run(running.pop())
    admin(private_valkey.url).flushall()
    worker.run(running.pop())  # settles without the schedule; its ack finds none
    Relay().step(worker.broker, worker.conf)
    assert set(worker.broker.state().leases) == {job.token for job in running}
    finish(worker, running)
    assert oracle.check([job.id for job in made], broker=worker.broker) == []
    assert set(Job.objects.values_list("fence", "interruptions")) == {(1, 0)}


def test_a_server_restarted_without_persistence_is_filled_again(worker: StepWorker, private_valkey: Valkey) -> None:
    """C02: while it is down enqueue and settle work; its scripts are gone too."""
    made, running = busy(worker)
    private_valkey.kill()
    with tenant_context("acme"):
        made += enqueue_many([(jobs.leave_effect, {})] * 3)
    worker.run(running.pop())
    with pytest.raises(ScheduleUnavailable):
        Relay().step(worker.broker, worker.conf)
    private_valkey.start()
    Relay().step(worker.broker, worker.conf)
    finish(worker, running)
    assert oracle.check([job.id for job in made], broker=worker.broker) == []
    assert set(Job.objects.values_list("fence", "interruptions")) == {(1, 0)}


def test_without_an_epoch_nothing_is_claimed(worker: StepWorker, private_valkey: Valkey) -> None:
    busy(worker)
    admin(private_valkey.url).flushall()
    with pytest.raises(ScheduleError):
        worker.claim()
