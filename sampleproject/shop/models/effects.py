"""What jobs did, one row a run: the evidence for "nothing lost, nothing twice, nobody else's"."""

from __future__ import annotations

from django.db import models


class JobEffect(models.Model):
    """One committed run of a job.

    On purpose neither under row-level security nor unique: it must be able to show a wrong tenant and a second run.
    `tenant_id` is what the job says, `tenant_seen` what the database had set when the row was written ('' for none).
    """

    job_id = models.UUIDField(db_index=True)
    fence = models.BigIntegerField()
    tenant_id = models.CharField(max_length=128)
    tenant_seen = models.CharField(max_length=128)
    task = models.CharField(max_length=200)
    kind = models.CharField(max_length=40, blank=True)
    began_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.task} {self.job_id} run {self.fence}"
