"""A secret in a payload is in the payload column and nowhere else."""

from __future__ import annotations

from django.db import connection

from django_tenant_queue import enqueue
from django_tenant_queue.models import DeadLetter, Job
from tests.process.conftest import StartTree
from tests.process.project import tasks
from tests.redis_servers import admin, keys_of
from tests.waiting import eventually

CANARY = "canary-d41d8cd98f"


def ledger_dump() -> str:
    """Every column of every table of ours but the payload, as text."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'tenant_queue%'")
        rows: list[str] = []
        for (table,) in cursor.fetchall():
            cursor.execute(f"SELECT (to_jsonb(t) - 'payload')::text FROM \"{table}\" t")
            rows += [row[0] for row in cursor.fetchall()]
    assert rows
    return "\n".join(rows)


def schedule_dump(namespace: str) -> bytes:
    """Every key of the schedule with its serialised value. Small values are stored as they are."""
    client, keys = admin(), keys_of(namespace)
    assert keys
    return b"\n".join(key + b" " + (client.dump(key) or b"") for key in keys)


def test_a_payloads_secret_is_found_in_the_payload_column_only(start_tree: StartTree, namespace: str) -> None:
    """H12: the database dump, the Redis dump, the stored traceback and the workers' logs are searched for it."""
    job = enqueue(tasks.fail_with, {"password": CANARY, "text": "x"}, tenant_id="acme")
    waiting = schedule_dump(namespace)
    tree = start_tree("--processes", "1", "--threads", "1", "--burst")
    assert tree.wait(60) == 0, tree.text()
    letter = DeadLetter.objects.get(job_id=job.pk)
    assert CANARY in Job.objects.get(pk=job.pk).payload
    assert "[redacted]" in letter.message
    assert "login with" in letter.traceback
    for place, text in {"ledger": ledger_dump(), "schedule": repr(waiting + schedule_dump(namespace)), "log": tree.text()}.items():
        assert CANARY not in text, place


def test_the_search_would_find_it(namespace: str) -> None:
    """The check above can fail: a canary where it must not be is seen in either dump."""
    job = enqueue(tasks.effect, {}, tenant_id=CANARY)
    assert CANARY in ledger_dump()
    admin().set(f"{{dtq:{namespace}:0}}:x", CANARY)
    assert CANARY in repr(schedule_dump(namespace))
    eventually(lambda: Job.objects.filter(pk=job.pk).exists())
