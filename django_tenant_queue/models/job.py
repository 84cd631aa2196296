"""Job: one asked-for run, a row of the ledger. Its status is moved only by the named moves of `JobQuerySet`."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from uuid_utils.compat import uuid7

from ..envelope import Envelope
from .moves import JobQuerySet


class Status(models.TextChoices):
    SCHEDULED = "scheduled", "scheduled"
    QUEUED = "queued", "queued"
    RUNNING = "running", "running"
    RETRYING = "retrying", "retrying"
    SUCCEEDED = "succeeded", "succeeded"
    CANCELLED = "cancelled", "cancelled"
    DEAD = "dead", "dead"


class Job(models.Model):
    """`cost` in thousandths. `xid`: the transaction that made the row runnable, NULL while it waits for its due time.

    HOT: no index and no index predicate mentions a column that changes at start (status, fence, claim_token, started_at).
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant_id = models.CharField(max_length=128, null=True)
    lane_key = models.CharField(max_length=512)
    actor_id = models.CharField(max_length=128, null=True)
    actor_type = models.CharField(max_length=16)
    task = models.CharField(max_length=200)
    payload = models.TextField()  # text, not jsonb: jsonb changes numbers, and the seal is over these bytes
    queue = models.CharField(max_length=64)
    priority = models.SmallIntegerField(default=0)
    cost = models.IntegerField(default=1000)
    status = models.CharField(max_length=16, choices=Status, default=Status.QUEUED)
    reason = models.TextField(default="", blank=True)

    enqueued_at = models.DateTimeField()
    due_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    began_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    fence = models.BigIntegerField(default=0)
    claim_token = models.CharField(max_length=40, default="", blank=True)
    failures = models.IntegerField(default=0)
    crashes = models.IntegerField(default=0)
    interruptions = models.IntegerField(default=0)
    infrastructure = models.IntegerField(default=0)
    suspect = models.SmallIntegerField(default=0)  # deaths shared with other begun jobs, not yet counted as crashes
    errors = models.JSONField(default=list)  # one object per attempt that did not succeed, newest last, bounded

    result = models.TextField(null=True)
    correlation_id = models.CharField(max_length=128)
    trace = models.CharField(max_length=128, default="", blank=True)
    seal = models.CharField(max_length=64)
    seal_key = models.CharField(max_length=16)
    xid = models.BigIntegerField(null=True)

    objects = JobQuerySet.as_manager()

    class Meta:
        db_table = "tenant_queue_job"
        indexes = [
            models.Index("xid", "id", name="tenant_queue_job_unfinished", condition=Q(finished_at__isnull=True, xid__isnull=False)),
            models.Index("due_at", name="tenant_queue_job_due", condition=Q(finished_at__isnull=True, xid__isnull=True)),
            models.Index("tenant_id", F("enqueued_at").desc(), name="tenant_queue_job_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.task} {self.id}"

    @property
    def envelope(self) -> Envelope:
        return Envelope(
            job_id=self.id,
            tenant_id=self.tenant_id,
            actor_id=self.actor_id,
            actor_type=self.actor_type,
            task=self.task,
            payload=self.payload,
            queue=self.queue,
            priority=self.priority,
            cost=self.cost,
            enqueued_at=self.enqueued_at,
            correlation_id=self.correlation_id,
            trace=self.trace,
        )
