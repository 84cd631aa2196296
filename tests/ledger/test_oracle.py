"""The oracle itself can fail: each kind of damage is seen, and named."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import psycopg
import pytest
from django.db import connection
from django.db.models import F

from django_tenant_queue import enqueue, tenant_context
from django_tenant_queue.brokers.memory import MemoryBroker
from django_tenant_queue.conf import Conf
from django_tenant_queue.keepers import Relay
from django_tenant_queue.models import Job
from sampleproject.shop.models import JobEffect
from tests import jobs, oracle
from tests.waiting import eventually
from tests.workers import StepWorker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def done(memory_broker: MemoryBroker, conf: Conf, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Five jobs, each run once; the second needed two attempts."""
    monkeypatch.setattr("django_tenant_queue.enqueueing.get_broker", lambda: memory_broker)
    relay, worker = Relay(), StepWorker(memory_broker, conf)
    relay.step(memory_broker, conf)
    with tenant_context("acme"):
        made = [enqueue(jobs.leave_effect, {"fail_until_fence": int(number == 1)}) for number in range(5)]
    worker.work_until_quiet()

    def all_succeeded() -> bool:
        Job.objects.filter(status="retrying").update(due_at=F("enqueued_at"))
        relay.step(memory_broker, conf)
        worker.work_until_quiet()
        assert [row for row in Job.objects.values_list("status", "reason", "fence") if row[0] != "succeeded"] == []
        return True

    eventually(all_succeeded, within=20)
    return made


def found(made: list[Job]) -> list[str]:
    return [violation[:3] for violation in oracle.check([job.id for job in made])]


def test_an_undamaged_run_has_no_violation(done: list[Job], memory_broker: MemoryBroker) -> None:
    assert oracle.check([job.id for job in done], broker=memory_broker, within_seconds=60) == []


def test_a_deleted_effect_is_seen(done: list[Job]) -> None:
    JobEffect.objects.filter(job_id=done[0].id).delete()
    assert found(done) == ["(2)"]


def test_a_duplicated_effect_is_seen(done: list[Job]) -> None:
    effect = JobEffect.objects.get(job_id=done[0].id)
    effect.pk = None
    effect.save()
    assert found(done) == ["(2)"]


def test_an_effect_of_a_job_that_did_not_succeed_is_seen(done: list[Job]) -> None:
    Job.objects.filter(pk=done[0].id).update(status="cancelled")
    assert found(done) == ["(2)"]


@pytest.mark.parametrize("column", ["tenant_id", "tenant_seen"])
def test_an_effect_labelled_with_another_tenant_is_seen(done: list[Job], column: str) -> None:
    JobEffect.objects.filter(job_id=done[0].id).update(**{column: "globex"})
    assert found(done) == ["(4)"]


def test_an_effect_of_an_older_fence_is_seen(done: list[Job]) -> None:
    JobEffect.objects.filter(job_id=done[1].id).update(fence=1)
    assert found(done) == ["(3)"]


def test_a_lost_job_is_seen(done: list[Job]) -> None:
    done[0].id = uuid4()
    assert found(done) == ["(1)"]


def test_a_job_that_never_ended_is_seen(done: list[Job]) -> None:
    Job.objects.filter(pk=done[0].id).update(status="queued", finished_at=None)
    assert found(done) == ["(1)", "(2)"]


def test_a_dead_job_without_its_dead_letter_is_seen(done: list[Job]) -> None:
    Job.objects.filter(pk=done[0].id).update(status="dead")
    JobEffect.objects.filter(job_id=done[0].id).delete()
    assert found(done) == ["(1)"]


def test_fences_that_went_back_are_seen(done: list[Job]) -> None:
    Job.objects.filter(pk=done[1].id).update(errors=[{"fence": 2}, {"fence": 1}])
    assert found(done) == ["(5)"]


def test_a_lease_that_is_left_is_seen(done: list[Job], memory_broker: MemoryBroker, conf: Conf) -> None:
    with tenant_context("acme"):
        enqueue(jobs.leave_effect)
    StepWorker(memory_broker, conf).claim()
    assert {violation[:3] for violation in oracle.check([], broker=memory_broker)} == {"(6)"}


def test_a_backend_idle_in_a_transaction_is_seen(done: list[Job], another_backend: Callable[[], psycopg.Connection]) -> None:
    other = another_backend()
    other.execute("BEGIN")
    assert found(done) == ["(7)"]


def test_a_job_that_waited_too_long_is_seen(done: list[Job]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE shop_jobeffect SET began_at = began_at + interval '1 hour' WHERE job_id = %s", [done[0].id])
    (violation,) = oracle.check([job.id for job in done], within_seconds=600)
    assert violation.startswith("(8)")
