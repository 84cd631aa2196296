"""What every tenant table has: the tenant its policy compares."""

from __future__ import annotations

from django.db import models


class TenantRow(models.Model):
    """A row that belongs to one workspace. Its table is listed in a ForceTenantPolicy of a migration.

    `tenant_id` is Workspace.id without a foreign key: a key check would lock the workspace's row in every job that writes an order.
    """

    tenant_id = models.CharField(max_length=64)

    class Meta:
        abstract = True
