"""enqueue(): what is captured, what is refused with which sentence, and that it needs no Redis."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_tenant_queue import enqueue, enqueue_many, enqueueing, exceptions, system_context, tenant_context
from django_tenant_queue.brokers.memory import MemoryBroker
from django_tenant_queue.models import Job
from django_tenant_queue.seal import verify

from . import tasks

pytestmark = pytest.mark.django_db(transaction=True)
HELLO = {"text": "hello"}


class DeadBroker:
    """Every publish fails, as with no Redis at all; counts the tries."""

    def __init__(self) -> None:
        self.tries = 0

    def publish(self, *args: Any, **kwargs: Any) -> None:
        self.tries += 1
        raise exceptions.ScheduleUnavailable("no connection to 127.0.0.1")


@pytest.fixture
def schedule(memory_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> MemoryBroker:
    monkeypatch.setattr(enqueueing, "get_broker", lambda: memory_broker)
    memory_broker.begin_rebuild("first", replaces=None)
    memory_broker.open_epoch("first")
    return memory_broker


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> DeadBroker:
    broker = DeadBroker()
    monkeypatch.setattr(enqueueing, "get_broker", lambda: broker)
    monkeypatch.setattr(enqueueing, "_breaker", enqueueing._Breaker())
    return broker


def waiting(schedule: MemoryBroker) -> int:
    return sum(lane.waiting for lane in schedule.state().lanes.values())


def test_the_envelope_is_captured_and_sealed(schedule: MemoryBroker) -> None:
    with tenant_context("acme", actor_id=7, actor_type="user"):
        job = enqueue(tasks.writes, HELLO, priority=5, queue="bulk", cost=2.5, correlation_id="req-1")
    row = Job.objects.get(pk=job.pk)
    verify(row.envelope, row.seal_key, row.seal)
    assert (row.tenant_id, row.actor_id, row.actor_type, row.correlation_id) == ("acme", "7", "user", "req-1")
    assert (row.queue, row.priority, row.cost, row.lane_key, row.payload) == ("bulk", 5, 2500, "acme", '{"text":"hello"}')
    assert isinstance(job.id, UUID) and job.id.version == 7


def test_a_committed_job_is_published_and_a_rolled_back_one_is_nowhere(schedule: MemoryBroker) -> None:
    with tenant_context("acme"):
        with transaction.atomic():
            enqueue(tasks.writes, HELLO)
            assert waiting(schedule) == 0
        with transaction.atomic():
            enqueue(tasks.writes, HELLO)
            transaction.set_rollback(True)
    assert waiting(schedule) == Job.objects.count() == 1


def test_one_insert_for_many_jobs(schedule: MemoryBroker) -> None:
    """Round trips on the hot path: one statement for 500 jobs, and one for one."""
    with tenant_context("acme"), CaptureQueriesContext(connection) as queries:
        enqueue_many([(tasks.writes, {"text": str(n)}) for n in range(500)])
        enqueue(tasks.writes, HELLO)
    assert len(queries) == 2 and Job.objects.count() == waiting(schedule) == 501


def test_enqueue_works_while_redis_is_down(dead: DeadBroker) -> None:
    """The row is committed and the relay publishes it; after one failure requests do not wait for a dead Redis again."""
    with tenant_context("acme"):
        jobs = [enqueue(tasks.writes, HELLO) for _ in range(5)]
    assert Job.objects.filter(status="queued").count() == len(jobs) and dead.tries == 1


def test_the_snapshot_is_taken_at_the_call(schedule: MemoryBroker) -> None:
    """H11: what the caller does with the payload afterwards does not reach the job."""
    payload = {"text": "then"}
    with tenant_context("acme"), transaction.atomic():
        job = enqueue(tasks.writes, payload)
        payload["text"] = "now"
    assert Job.objects.get(pk=job.pk).payload == '{"text":"then"}'


def test_delayed_jobs_wait_in_the_ledger(schedule: MemoryBroker) -> None:
    """The delay is counted by the database's clock; nothing delayed is in the schedule."""
    with tenant_context("acme"):
        by_delay = enqueue(tasks.writes, HELLO, delay=60)
        by_time = enqueue(tasks.writes, HELLO, run_after=timezone.now() + timedelta(days=2))
    rows = {row.pk: row for row in Job.objects.all()}
    assert {row.status for row in rows.values()} == {"scheduled"} and waiting(schedule) == 0
    assert 58 < (rows[by_delay.pk].due_at - timezone.now()).total_seconds() <= 60
    assert rows[by_time.pk].due_at == by_time.due_at


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"priority": 101}, exceptions.InvalidOption, "integer from -100 to 100"),
        ({"priority": True}, exceptions.InvalidOption, "integer from -100 to 100"),
        ({"cost": 0}, exceptions.InvalidOption, "0.001 to 1000"),
        ({"cost": float("nan")}, exceptions.InvalidOption, "0.001 to 1000"),
        ({"queue": "fast"}, exceptions.InvalidOption, "interactive, default, bulk"),
        ({"delay": -1}, exceptions.InvalidOption, "from 0 to ten years"),
        ({"delay": float("inf")}, exceptions.InvalidOption, "from 0 to ten years"),
        ({"delay": 1, "run_after": timedelta(1)}, exceptions.InvalidOption, "not both"),
        ({"run_after": datetime(2030, 1, 1)}, exceptions.InvalidOption, "no time zone"),  # noqa: DTZ001
        ({"run_after": "tomorrow"}, exceptions.InvalidOption, "aware datetime"),
        ({"actor_type": "robot"}, exceptions.InvalidOption, "user, api_key, system"),
        ({"actor_id": True}, exceptions.InvalidOption, "not bool"),
        ({"idempotency_key": "k"}, exceptions.NotBuiltYet, "not built yet"),
        ({"tenant_id": "other"}, exceptions.TenantMismatch, "system_context"),
        ({"tenant_id": 1.0}, exceptions.InvalidTenant, "float"),
    ],
)
def test_bad_options_are_refused_with_a_sentence_and_nothing_is_written(
    schedule: MemoryBroker, options: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with tenant_context("acme"), pytest.raises(error, match=sentence):
        enqueue(tasks.writes, HELLO, **options)
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        ({}, "text"),
        ({"text": "a", "extra": 1}, "extra"),
        ({"text": "a", "self": 1}, "self"),
        ({1: "a"}, "must be strings"),
        (["a"], "dict of the task's arguments"),
    ],
)
def test_arguments_must_fit_the_task(schedule: MemoryBroker, payload: Any, sentence: str) -> None:
    """H10."""
    with tenant_context("acme"), pytest.raises(exceptions.InvalidPayload, match=sentence):
        enqueue(tasks.writes, payload)


def test_one_bad_job_of_many_refuses_all(schedule: MemoryBroker) -> None:
    """H01: nothing is written by half."""
    jobs = [(tasks.writes, HELLO), (tasks.writes, {"text": "x" * 70_000})]
    with tenant_context("acme"), pytest.raises(exceptions.InvalidPayload, match="65536"):
        enqueue_many(jobs)
    assert not Job.objects.exists()


def test_a_tenant_scoped_task_needs_a_tenant(schedule: MemoryBroker) -> None:
    with pytest.raises(exceptions.MissingTenant, match="tenant_context"):
        enqueue(tasks.writes, HELLO)
    with system_context(), pytest.raises(exceptions.MissingTenant):
        enqueue(tasks.writes, HELLO)


def test_the_system_may_enqueue_for_any_tenant(schedule: MemoryBroker) -> None:
    with tenant_context("acme"), system_context():
        assert enqueue(tasks.writes, HELLO, tenant_id="globex").tenant_id == "globex"


@pytest.mark.parametrize("name", ["os.system", "../../x", "flow.write", "f" * 10_000, "flow.writеs", "", None, 7])
def test_task_names_resolve_only_through_the_registry(schedule: MemoryBroker, name: Any) -> None:
    """H16: no import by name; a look-alike in Cyrillic is another name."""
    with tenant_context("acme"), pytest.raises(exceptions.UnknownTask, match="No task is registered"):
        enqueue(name, HELLO)


def test_django_tasks_style(schedule: MemoryBroker) -> None:
    with tenant_context("acme"):
        assert tasks.writes.enqueue(text="a").payload == tasks.writes.using(priority=3).enqueue("a").payload == '{"text":"a"}'


def test_a_lane_key_may_be_constant(schedule: MemoryBroker, settings: Any) -> None:
    """LANE_KEY moves the job to another line; tenant and seal stay its own."""
    settings.TENANT_QUEUE = {**settings.TENANT_QUEUE, "LANE_KEY": "one-line"}
    with tenant_context("acme"):
        job = enqueue(tasks.writes, HELLO)
    assert (job.lane_key, job.tenant_id) == ("one-line", "acme")


def test_threads_enqueue_side_by_side(schedule: MemoryBroker) -> None:
    def many() -> None:
        with tenant_context("acme"):
            for _ in range(20):
                enqueue(tasks.writes, HELLO)
        connection.close()

    threads = [threading.Thread(target=many) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Job.objects.count() == waiting(schedule) == 100
