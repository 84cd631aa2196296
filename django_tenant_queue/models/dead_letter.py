"""DeadLetter: a job that will not run again unless a person says so."""

from __future__ import annotations

from django.db import models


class Reason(models.TextChoices):
    FAILED = "failed", "failed too often"
    CRASHED = "crashed", "killed its process too often"
    BOUNDARY = "boundary", "broke its transaction or tenant boundary"
    BAD_SEAL = "bad_seal", "its row does not match its seal"
    UNREADABLE = "unreadable_payload", "its payload cannot be read"
    UNKNOWN_TASK = "unknown_task", "no worker knows its task"
    INFRASTRUCTURE = "infrastructure", "infrastructure errors used up their budget"


class DeadLetter(models.Model):
    """Written in the transaction that moves its job to `dead`. Texts are cleaned, bounded and redacted before they get here."""

    job = models.OneToOneField("django_tenant_queue.Job", on_delete=models.CASCADE, related_name="dead_letter")
    tenant_id = models.CharField(max_length=128, null=True)
    task = models.CharField(max_length=200)
    reason = models.CharField(max_length=32, choices=Reason)
    error_class = models.CharField(max_length=255, blank=True)
    message = models.TextField(blank=True)
    traceback = models.TextField(blank=True)
    fingerprint = models.CharField(max_length=32)
    attempts = models.JSONField(default=list)  # the job's errors, one object per attempt that did not succeed
    created_at = models.DateTimeField()

    class Meta:
        db_table = "tenant_queue_deadletter"
        indexes = [models.Index("tenant_id", models.F("created_at").desc(), name="tenant_queue_dead_tenant")]

    def __str__(self) -> str:
        return f"{self.task}: {self.reason}"
