"""Writes down that a job ran."""

from __future__ import annotations

from django.db.models import CharField, Func, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from django_tenant_queue import current_job

from .models import JobEffect
from .row_security import TENANT_SETTING


def record_effect(kind: str = "") -> JobEffect:
    """Write the effect row of the job that runs here. Call it first: its `began_at` says when the body began.

    In an atomic task the row is committed together with the job's settle, or not at all. Raises OutsideJob outside a job.
    """
    began_at = timezone.now()
    job = current_job()
    seen = Coalesce(Func(Value(TENANT_SETTING), Value(True), function="current_setting"), Value(""), output_field=CharField())
    return JobEffect.objects.create(
        job_id=job.id, fence=job.fence, tenant_id=job.tenant_id or "", tenant_seen=seen, task=job.task, kind=kind, began_at=began_at
    )
