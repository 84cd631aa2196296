"""What the tests of trees ask the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.db import connection

from django_tenant_queue.models import Job


def statuses(jobs: Iterable[Job]) -> list[str]:
    known = dict(Job.objects.filter(pk__in=[job.pk for job in jobs]).values_list("pk", "status"))
    return [known[job.pk] for job in jobs]


def all_are(status: str, jobs: Iterable[Job]) -> bool:
    return set(statuses(jobs)) == {status}


def effects(job: Job) -> list[tuple[int, int]]:
    """(fence, pid) of each run of the job that committed."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT fence, pid FROM process_effect WHERE job_id = %s ORDER BY id", [job.pk])
        return list(cursor.fetchall())


def repeated() -> list[UUID]:
    """Jobs with more than one committed run: always empty."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT job_id FROM process_effect GROUP BY job_id HAVING count(*) > 1")
        return [row[0] for row in cursor.fetchall()]
