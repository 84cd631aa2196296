"""What becomes of a job when its task behaves, misbehaves, or breaks its boundaries. Real Postgres, the worker in this process."""

from __future__ import annotations

import json
import logging
import math
from datetime import timedelta

import pytest
from django.utils import timezone

from django_tenant_queue import enqueue, tenant_context
from django_tenant_queue.models import DeadLetter, Job
from django_tenant_queue.registry import registry

from . import tasks
from .inline import InlineWorker, run, written

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_job_runs_as_its_tenant_and_commits_with_its_settle(worker: InlineWorker) -> None:
    job = run(worker, tasks.writes, {"text": "hello"})
    assert (job.status, job.fence, json.loads(job.result)) == ("succeeded", 1, ["acme", "acme"])
    assert written() == ["hello"] and job.began_at and job.finished_at >= job.started_at
    assert not worker.broker.state().leases and worker.slot.cleared == 1


def test_a_failure_is_rolled_back_and_waits_for_its_backoff(worker: InlineWorker) -> None:
    job = run(worker, tasks.fails)
    assert (job.status, job.failures, job.crashes, job.xid) == ("retrying", 1, 0, None)
    assert 1.9 <= (job.due_at - timezone.now()).total_seconds() <= 2.6 and written() == []
    assert job.errors[0]["class"] == "ValueError" and job.errors[0]["fence"] == 1


def test_the_last_failure_is_a_dead_letter_without_the_payloads_secrets(worker: InlineWorker, caplog: pytest.LogCaptureFixture) -> None:
    """H12: a canary under a secret-looking name is in the payload column and nowhere else in the ledger, nor in the log."""
    job = run(worker, tasks.fails_at_once, {"password": "canary-4711"})
    letter = DeadLetter.objects.get(job=job)
    assert (job.status, letter.reason, job.failures) == ("dead", "failed", 1)
    texts = [letter.message, letter.traceback, json.dumps(letter.attempts), job.reason, json.dumps(job.errors), caplog.text]
    assert "canary" in job.payload and not any("canary" in text for text in texts)
    assert "raise ValueError" in letter.traceback and "[redacted]" in letter.message


def test_retry_is_a_failure_with_the_wait_that_was_asked_for(worker: InlineWorker) -> None:
    job = run(worker, tasks.asks_retry, {"after": 100})
    assert (job.status, job.failures) == ("retrying", 1) and written() == []
    assert timedelta(seconds=95) < job.due_at - timezone.now() < timedelta(seconds=101)


def test_cancel_ends_the_job_with_a_sentence_and_no_dead_letter(worker: InlineWorker) -> None:
    job = run(worker, tasks.cancels)
    assert (job.status, job.reason) == ("cancelled", "the upload is gone")
    assert written() == [] and not DeadLetter.objects.exists()


@pytest.mark.parametrize("how", ["exit", "interrupt", "generator", "base"])
def test_an_exception_that_ends_processes_is_a_failure(worker: InlineWorker, how: str) -> None:
    """G03: sys.exit, KeyboardInterrupt, GeneratorExit, a bare BaseException: counted, and the thread lives."""
    assert run(worker, tasks.ends_process, {"how": how}).failures == 1
    assert run(worker, tasks.writes, {"text": "the next one"}).status == "succeeded"


@pytest.mark.parametrize("sql", ["COMMIT", "ROLLBACK", "COMMIT; BEGIN", "ROLLBACK; BEGIN"])
def test_a_task_that_ends_its_own_transaction_is_a_dead_letter(worker: InlineWorker, sql: str) -> None:
    """G09: its writes may be committed, so it is not run again, and the next job gets a clean connection."""
    job = run(worker, tasks.breaks_out, {"sql": sql})
    assert (job.status, job.dead_letter.reason, job.failures) == ("dead", "boundary", 0)
    assert "its own transaction" in job.dead_letter.message and "atomic=False" in job.dead_letter.message
    assert run(worker, tasks.writes, {"text": "x"}).status == "succeeded"


def test_a_task_that_commits_and_then_fails_is_not_run_again(worker: InlineWorker) -> None:
    """G09: a retry would write twice."""
    job = run(worker, tasks.breaks_out_and_fails)
    assert (job.status, job.dead_letter.reason) == ("dead", "boundary") and written() == ["committed by hand"]


def test_an_atomic_block_left_open_is_a_dead_letter(worker: InlineWorker) -> None:
    """G09: Django would take the block for its own and never commit."""
    assert run(worker, tasks.leaves_atomic_open).dead_letter.reason == "boundary"
    assert run(worker, tasks.writes, {"text": "x"}).status == "succeeded"


@pytest.mark.parametrize("how", ["commit", "rollback", "set_autocommit"])
def test_django_refuses_to_end_the_jobs_transaction(worker: InlineWorker, how: str) -> None:
    """G09: connection.commit(), rollback(), set_autocommit(False) raise inside the job's atomic block: a plain failure."""
    assert run(worker, tasks.commits_through_django, {"how": how}).failures == 1
    assert run(worker, tasks.writes, {"text": "x"}).status == "succeeded"


@pytest.mark.parametrize("tenant", ["globex", ""])
def test_a_changed_tenant_setting_is_a_dead_letter(worker: InlineWorker, tenant: str) -> None:
    """G12: row-level security alone allows it; settle checks the marker again, nothing is committed."""
    job = run(worker, tasks.changes_tenant, {"tenant": tenant})
    assert (job.status, job.dead_letter.reason) == ("dead", "boundary") and written() == []
    assert "tenant setting" in job.dead_letter.message


def test_a_callback_that_raises_is_logged_and_the_job_stays_succeeded(worker: InlineWorker, caplog: pytest.LogCaptureFixture) -> None:
    """G20."""
    with caplog.at_level(logging.ERROR, logger="django_tenant_queue"):
        job = run(worker, tasks.registers_callback, {"how": "raises"})
    assert job.status == "succeeded" and written() == ["with a callback"]
    assert [r.event for r in caplog.records if hasattr(r, "event")] == ["callback_failed"]


def test_a_callback_runs_with_the_jobs_context(worker: InlineWorker) -> None:
    """G20: after settle, with tenant and job set."""
    assert run(worker, tasks.registers_callback, {"how": "looks"}).status == "succeeded"
    assert tasks.seen == [("acme", "acme")]


def test_a_callback_may_enqueue(worker: InlineWorker) -> None:
    """G20: the nested job is recorded with its parent's tenant, actor and correlation id."""
    parent = run(worker, tasks.registers_callback, {"how": "enqueues"})
    child = Job.objects.get(task="flow.writes")
    assert child.status == "succeeded" and written() == ["from a callback", "with a callback"]
    assert (child.tenant_id, child.actor_id, child.correlation_id) == ("acme", "7", parent.correlation_id)


@pytest.mark.parametrize("what", ["set", "nan", "large"])
def test_a_bad_result_fails_before_settle(worker: InlineWorker, what: str) -> None:
    """G23: not JSON or too large: the body is rolled back, not half done."""
    job = run(worker, tasks.returns, {"what": what})
    assert (job.status, job.failures, job.result) == ("retrying", 1, None) and written() == []
    assert "The task returned" in job.errors[0]["message"]


@pytest.mark.parametrize("what", ["plain", "surrogate"])
def test_a_json_result_is_kept(worker: InlineWorker, what: str) -> None:
    """G23: also text that Postgres itself could not store, because JSON escapes it."""
    job = run(worker, tasks.returns, {"what": what})
    assert job.status == "succeeded" and json.loads(job.result) in ({"rows": [1, 2]}, "\ud800\0")


@pytest.mark.parametrize(("fail", "children"), [(False, 1), (True, 0)])
def test_nested_jobs_share_the_fate_of_their_parent(worker: InlineWorker, fail: bool, children: int) -> None:
    run(worker, tasks.nests, {"then_fail": fail})
    assert Job.objects.filter(task="flow.writes").count() == children


def test_autocommit_tasks_reach_the_database_only_in_a_tenant_transaction(worker: InlineWorker) -> None:
    assert json.loads(run(worker, tasks.autocommit, {"inside": True}).result) == "acme"
    refused = run(worker, tasks.autocommit, {"inside": False})
    assert refused.status == "retrying" and "tenant_transaction()" in refused.reason


def test_a_swallowed_database_error_cannot_be_settled_as_success(worker: InlineWorker) -> None:
    job = run(worker, tasks.aborts_transaction)
    assert (job.status, job.failures) == ("retrying", 1) and written() == []


def test_a_terminated_backend_is_not_the_tasks_fault(worker: InlineWorker) -> None:
    """D01: 57P01 in the body: rolled back, counted as infrastructure, and the next job has a fresh connection."""
    job = run(worker, tasks.loses_connection)
    assert (job.status, job.failures, job.infrastructure) == ("retrying", 0, 1) and written() == []
    assert run(worker, tasks.writes, {"text": "x"}).status == "succeeded"


def test_an_unknown_task_waits_for_a_worker_that_knows_it(worker: InlineWorker) -> None:
    """M01: no attempt is burnt; the row says why it waits."""
    registry.discard("flow.writes")
    try:
        with tenant_context("acme"):
            job = enqueue_unregistered()
        worker.work_off()
    finally:
        registry.add(tasks.writes)
    row = Job.objects.get(pk=job.pk)
    assert (row.status, row.failures, row.infrastructure, row.crashes) == ("retrying", 0, 0, 0)
    assert "No task is registered" in row.reason


def enqueue_unregistered() -> Job:
    registry.add(tasks.writes)
    try:
        return enqueue(tasks.writes, {"text": "later"})
    finally:
        registry.discard("flow.writes")


def test_an_unknown_task_becomes_a_dead_letter_in_the_end(worker: InlineWorker, settings: object) -> None:
    """M01: after UNKNOWN_TASK_SECONDS since it was first put back."""
    with tenant_context("acme"):
        job = enqueue_unregistered()
    old = (timezone.now() - timedelta(hours=2)).isoformat()
    Job.objects.filter(pk=job.pk).update(errors=[{"class": "django_tenant_queue.exceptions.UnknownTask", "at": old}])
    worker.work_off()
    registry.add(tasks.writes)
    assert Job.objects.get(pk=job.pk).dead_letter.reason == "unknown_task"


@pytest.mark.parametrize("column", ["payload", "tenant_id", "actor_id", "task", "correlation_id"])
def test_an_edited_row_is_a_dead_letter(worker: InlineWorker, column: str) -> None:
    """J02: what is sealed cannot be edited in the table."""
    with tenant_context("acme"):
        job = enqueue(tasks.writes, {"text": "a"})
    edited = {"payload": '{"text":"b"}', "task": "flow.cancels"}.get(column, "other")
    Job.objects.filter(pk=job.pk).update(**{column: edited})
    worker.work_off()
    assert Job.objects.get(pk=job.pk).dead_letter.reason == "bad_seal" and written() == []


def test_a_row_under_an_unknown_seal_key_waits(worker: InlineWorker) -> None:
    """J02: a key rotation that has not reached this worker is no reason for a dead letter."""
    with tenant_context("acme"):
        job = enqueue(tasks.writes, {"text": "a"})
    Job.objects.filter(pk=job.pk).update(seal_key="0" * 16)
    worker.work_off()
    row = Job.objects.get(pk=job.pk)
    assert row.status == "retrying" and row.failures == 0 and written() == []


def test_deadline_is_set_for_the_body_and_lifted_for_the_settle(worker: InlineWorker) -> None:
    run(worker, tasks.writes, {"text": "x"})
    body, after = worker.slot.deadlines
    assert body < math.inf and after == math.inf
