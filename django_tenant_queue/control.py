"""Crossing: what a person changes. The only thing that admin pages and commands call.

Order: ledger first, then the schedule. If we die in between, or the schedule does not answer, the reconciler offers every limit again.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from . import logs
from .brokers.base import WEIGHT_RANGE, Broker, LaneLimits
from .conf import get_conf
from .envelope import tenant_id_of
from .exceptions import InvalidOption, ScheduleError
from .handback import ledger
from .models import TenantBudget


def set_limits(tenant: Any, *, broker: Broker, weight: Any = 1, max_running: int | None = None) -> TenantBudget:
    """Set a tenant's weight (0.01 to 1000) and its cap on running jobs (None: no cap); they act on the backlog at once.

    Raises InvalidTenant, InvalidOption. When the schedule does not answer, the limits reach it within the reconcile interval.
    """
    values = {"weight": _weight(weight), "max_running": _cap(max_running)}
    budget, _ = TenantBudget.objects.using(get_conf().database).update_or_create(tenant_id=tenant_id_of(tenant), defaults=values)
    try:
        broker.set_limits({budget.tenant_id: lane_limits(budget)})
    except ScheduleError as error:
        logs.schedule_trouble("limits", error)
    return budget


def lane_limits(budget: TenantBudget) -> LaneLimits:
    """A budget as the schedule needs it."""
    return LaneLimits(weight=int(budget.weight * 1000), max_running=budget.max_running)


def cancel(job_ids: Iterable[UUID], *, reason: str) -> list[UUID]:
    """Cancel jobs that do not run yet. -> the ids that were cancelled. Their entries in lanes are dropped when they are claimed."""
    return ledger().cancel(job_ids, reason=reason)


def _weight(value: Any) -> Decimal:
    low, high = (Decimal(bound) / 1000 for bound in WEIGHT_RANGE)
    try:
        weight = Decimal(str(value))
    except InvalidOperation:
        weight = Decimal("NaN")
    if isinstance(value, bool) or weight.is_nan() or not low <= weight <= high:
        raise InvalidOption("weight", value, f"it must be a number from {low} to {high}")
    return weight


def _cap(value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise InvalidOption("max_running", value, "it must be an integer of 0 or more, or None for no cap")
    return value
