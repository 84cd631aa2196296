"""Writes down that a job ran."""

from __future__ import annotations

from django.db import connections, router
from django.utils import timezone

from django_tenant_queue import current_job

from .models import JobEffect
from .row_security import TENANT_SETTING

# What the database has set is read by the database, in the same statement. Plain SQL: it runs in every job, and costs a fifth of the ORM's.
_INSERT = f"""
    INSERT INTO {JobEffect._meta.db_table} (job_id, fence, tenant_id, tenant_seen, task, kind, began_at)
    VALUES (%s, %s, %s, coalesce(current_setting('{TENANT_SETTING}', true), ''), %s, %s, %s)"""


def record_effect(kind: str = "") -> None:
    """Write the effect row of the job that runs here. Call it first: its `began_at` says when the body began.

    In an atomic task the row is committed together with the job's settle, or not at all. Raises OutsideJob outside a job.
    """
    began_at = timezone.now()
    job = current_job()
    with connections[router.db_for_write(JobEffect)].cursor() as cursor:
        cursor.execute(_INSERT, [job.id, job.fence, job.tenant_id or "", job.task, kind, began_at])
