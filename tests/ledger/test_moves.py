"""The moves of a job: each guard lets through what it should, and nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from django_tenant_queue import enqueue, enqueue_many, tenant_context
from django_tenant_queue.brokers.memory import MemoryBroker
from django_tenant_queue.conf import Conf
from django_tenant_queue.models import DeadLetter, Job
from django_tenant_queue.models.moves import StartedJob
from tests import jobs

pytestmark = pytest.mark.django_db(transaction=True)
ERROR = {"class": "ValueError", "message": "boom", "fence": 1}
TOKEN = "a" * 24 + ".0"


@pytest.fixture(autouse=True)
def _broker(memory_broker: MemoryBroker, conf: Conf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing opens its schedule: what is enqueued stays in the ledger."""
    monkeypatch.setattr("django_tenant_queue.enqueueing.get_broker", lambda: memory_broker)


def queued(**options: object) -> Job:
    with tenant_context("acme"):
        return enqueue(jobs.leave_effect, **options)  # type: ignore[arg-type]


def start(job: Job, token: str = TOKEN, queue: str = "default", lane: str = "acme") -> list[StartedJob]:
    return Job.objects.start([(job.id, token, queue, lane)])


def bury(job: Job, fence: int) -> bool:
    return Job.objects.bury(job.id, fence, reason="failed", error=ERROR, traceback="", fingerprint="f", failed=True)


def test_start_raises_the_fence_and_keeps_the_token() -> None:
    job = queued()
    (started,) = start(job)
    row = Job.objects.get()
    assert (row.status, row.fence, row.claim_token) == ("running", 1, TOKEN) == ("running", started.fence, started.token)
    assert started.envelope == row.envelope


@pytest.mark.parametrize(("queue", "lane"), [("bulk", "acme"), ("default", "globex")])
def test_start_refuses_another_queue_or_lane(queue: str, lane: str) -> None:
    assert start(queued(), queue=queue, lane=lane) == []


def test_start_refuses_what_is_not_queued_and_due() -> None:
    running, later = queued(), queued(delay=60)
    start(running)
    for job in (running, later):
        assert start(job) == []
    Job.objects.filter(pk=later.id).update(status="queued")  # not due yet, whatever its status says
    assert start(later) == []


def test_a_queued_row_is_due_at_once_by_the_databases_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """E10: the web server's clock is 90 s ahead."""
    ahead = timezone.now() + timedelta(seconds=90)
    with monkeypatch.context() as patch:
        patch.setattr("django_tenant_queue.enqueueing.timezone.now", lambda: ahead)
        job = queued()
    assert job.enqueued_at == ahead
    assert start(job)


@pytest.mark.parametrize(
    "settle",
    [
        lambda job, fence: Job.objects.succeed(job.id, fence, result=None, began_at=None),
        lambda job, fence: Job.objects.retry(job.id, fence, after_seconds=1, error=ERROR, began_at=None),
        lambda job, fence: Job.objects.put_back(job.id, fence, after_seconds=1, reason="not here"),
        lambda job, fence: Job.objects.cancel_running(job.id, fence, reason="enough", began_at=None),
        bury,
        lambda job, fence: Job.objects.hand_back([(job.id, fence)]),
        lambda job, fence: Job.objects.suspect_of([(job.id, fence)]),
        lambda job, fence: Job.objects.crash(job.id, fence, error=ERROR, max_crashes=3),
    ],
    ids=["succeed", "retry", "put back", "cancel", "bury", "hand back", "suspect", "crash"],
)
def test_only_the_current_fence_moves_a_running_job(settle: object) -> None:
    """E04: neither an older fence nor a newer one, and each fence once."""
    job = queued()
    start(job)
    for wrong in (0, 2):
        assert not settle(job, wrong)  # type: ignore[operator]
    assert Job.objects.get().status == "running"
    assert not DeadLetter.objects.exists()
    assert settle(job, 1)  # type: ignore[operator]
    assert not settle(job, 1)  # type: ignore[operator]


def test_a_token_hands_back_only_its_own_run() -> None:
    job = queued()
    start(job)
    assert Job.objects.hand_back_tokens([(job.id, "b" * 24 + ".0")]) == []
    (row,) = Job.objects.hand_back_tokens([(job.id, TOKEN)])
    assert (row.job_id, Job.objects.get().interruptions) == (job.id, 1)
    assert Job.objects.hand_back_tokens([(job.id, TOKEN)]) == []


def test_hand_back_stamps_the_row_for_the_relay() -> None:
    job = queued()
    before = Job.objects.get().xid
    start(job)
    Job.objects.hand_back([(job.id, 1)], penalty=False)
    row = Job.objects.get()
    assert (row.status, row.interruptions, row.claim_token) == ("queued", 0, "")
    assert row.xid > before  # type: ignore[operator]


def test_a_crash_counts_shared_deaths_before_it_and_stops_before_the_limit() -> None:
    job = queued()
    for death in (1, 2):
        start(job)
        assert bool(Job.objects.suspect_of([(job.id, death)]))
    start(job)
    assert Job.objects.crash(job.id, 3, error=ERROR, max_crashes=3) == []  # 1 + 2 shared: the third kill; the caller buries it
    assert Job.objects.bury(job.id, 3, reason="crashed", error=ERROR, traceback="", fingerprint="f", crashed=True)
    assert (Job.objects.get().crashes, Job.objects.get().status) == (3, "dead")


def test_promotion_takes_what_is_due_and_stamps_it() -> None:
    due, later = queued(delay=0), queued(delay=60)
    assert [row.job_id for row in Job.objects.promote_due(10)] == [due.id]
    assert Job.objects.get(pk=due.id).xid is not None
    assert Job.objects.get(pk=later.id).xid is None


def test_a_finished_job_is_moved_by_nothing() -> None:
    job = queued()
    start(job)
    Job.objects.succeed(job.id, 1, result=None, began_at=None)
    assert start(job) == []
    assert Job.objects.cancel([job.id], reason="too late") == []
    assert Job.objects.promote_due(10) == []
    assert Job.objects.hand_back_tokens([(job.id, TOKEN)]) == []
    assert Job.objects.get().status == "succeeded"


def test_errors_keep_the_newest_twenty() -> None:
    job = queued()
    for fence in range(1, 23):
        start(job)
        Job.objects.retry(job.id, fence, after_seconds=0, error={**ERROR, "fence": fence}, began_at=None)
        Job.objects.promote_due(1)
    assert [error["fence"] for error in Job.objects.get().errors] == list(range(3, 23))


def test_starts_are_heap_only_updates() -> None:
    """No index, and no predicate of one, mentions a column that changes at start: 0 of 100,000 updates were HOT with one on status."""
    with tenant_context("acme"):
        made = enqueue_many([(jobs.leave_effect, {})] * 200)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE tenant_queue_job SET (fillfactor = 20)")
        cursor.execute("VACUUM FULL tenant_queue_job")
        before = heap_only_updates(cursor)
        Job.objects.start([(job.id, TOKEN, "default", "acme") for job in made])
        after = heap_only_updates(cursor)
        cursor.execute("ALTER TABLE tenant_queue_job RESET (fillfactor)")
    assert after - before == 200


def heap_only_updates(cursor: object) -> int:
    cursor.execute("SELECT pg_stat_force_next_flush()")  # type: ignore[attr-defined]
    cursor.execute("SELECT pg_stat_clear_snapshot()")  # type: ignore[attr-defined]
    cursor.execute("SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'tenant_queue_job'")  # type: ignore[attr-defined]
    return int(cursor.fetchone()[0])  # type: ignore[attr-defined]
