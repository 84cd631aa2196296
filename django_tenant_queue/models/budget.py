"""TenantBudget: what one tenant may use."""

from __future__ import annotations

from decimal import Decimal

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models


class TenantBudget(models.Model):
    """One row per tenant; `"*"` holds the default. Change it through `control.set_limits`, which also tells the schedule."""

    tenant_id = models.CharField(max_length=128, primary_key=True)
    weight = models.DecimalField(
        max_digits=7, decimal_places=3, default=Decimal(1), validators=[MinValueValidator(Decimal("0.01")), MaxValueValidator(1000)]
    )
    max_running = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        db_table = "tenant_queue_tenantbudget"

    def __str__(self) -> str:
        return self.tenant_id
