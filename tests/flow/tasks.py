"""Tasks that misbehave in every way the runner must survive."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.db import connection, transaction

from django_tenant_queue import Cancel, Retry, current_job, enqueue, task, tenant_transaction

seen: list[Any] = []


def tenant_seen() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('app.current_tenant_id', true)")
        return str(cursor.fetchone()[0])


def note(text: str) -> None:
    """A write in the job's own transaction."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO flow_note (text) VALUES (%s)", [text])


@task(name="flow.writes")
def writes(text: str) -> list[str | None]:
    note(text)
    return [tenant_seen(), current_job().tenant_id]


@task(name="flow.fails")
def fails(text: str = "boom") -> None:
    note("of a failed run")
    raise ValueError(text)


@task(name="flow.fails_once_tried", max_retries=0)
def fails_at_once(password: str = "") -> None:
    raise ValueError(f"cannot log in with {password}")


@task(name="flow.asks_retry")
def asks_retry(after: float) -> None:
    note("of a retried run")
    raise Retry(after=after)


@task(name="flow.cancels")
def cancels() -> None:
    note("of a cancelled run")
    raise Cancel("the upload is gone")


@task(name="flow.ends_process")
def ends_process(how: str) -> None:
    if how == "exit":
        sys.exit(0)
    raise {"interrupt": KeyboardInterrupt, "generator": GeneratorExit, "base": BaseException}[how](how)


@task(name="flow.breaks_out")
def breaks_out(sql: str) -> None:
    note("before breaking out")
    with connection.cursor() as cursor:
        cursor.execute(sql)


@task(name="flow.breaks_out_and_fails")
def breaks_out_and_fails() -> None:
    note("committed by hand")
    with connection.cursor() as cursor:
        cursor.execute("COMMIT")
    raise ValueError("after a commit by hand")


@task(name="flow.leaves_atomic_open")
def leaves_atomic_open() -> None:
    transaction.atomic().__enter__()


@task(name="flow.commits_through_django")
def commits_through_django(how: str) -> None:
    getattr(transaction, how)(*([False] if how == "set_autocommit" else []))


@task(name="flow.changes_tenant")
def changes_tenant(tenant: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('app.current_tenant_id', %s, true)", [tenant])
    note("as somebody else")


@task(name="flow.registers_callback")
def registers_callback(how: str) -> None:
    note("with a callback")
    transaction.on_commit({"raises": _raise, "enqueues": _enqueue, "looks": _look}[how])


def _raise() -> None:
    raise RuntimeError("in a callback")


def _enqueue() -> None:
    with tenant_transaction():
        enqueue(writes, {"text": "from a callback"})


def _look() -> None:
    with tenant_transaction():
        seen.append((current_job().tenant_id, tenant_seen()))


@task(name="flow.returns")
def returns(what: str) -> Any:
    note("before returning")
    return {"set": {1}, "nan": float("nan"), "large": "x" * 100_000, "plain": {"rows": [1, 2]}, "surrogate": "\ud800\0"}[what]


@task(name="flow.nests")
def nests(then_fail: bool) -> None:
    enqueue(writes, {"text": "nested"})
    if then_fail:
        raise ValueError("after enqueueing")


@task(name="flow.autocommit", atomic=False)
def autocommit(inside: bool) -> str:
    if not inside:
        return tenant_seen()
    with tenant_transaction():
        note("of an autocommit task")
        return tenant_seen()


@task(name="flow.aborts_transaction")
def aborts_transaction() -> None:
    note("lost with its transaction")
    with connection.cursor() as cursor:
        try:
            cursor.execute("SELECT 1/0")
        except Exception:
            json.dumps("swallowed")


@task(name="flow.loses_connection")
def loses_connection() -> None:
    note("lost with its connection")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")


crossing: Any = None


@task(name="flow.locks")
def locks(first: str, second: str) -> None:
    """Locks two rows, the second after another job has locked its first."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM flow_note WHERE text = %s FOR UPDATE", [first])
        if current_job().attempt == 1:
            crossing.wait()
        cursor.execute("SELECT 1 FROM flow_note WHERE text = %s FOR UPDATE", [second])
