"""Rebuild: the schedule put together again from the ledger, under a new epoch. An empty Redis at the first start is the same path.

Order: begin the epoch (claims answer "rebuilding"), limits, the leases of running rows, open it, every queued row, and last the
ledger's snapshot from before the walk. If we die on the way, the epoch is left rebuilding or without a snapshot: the next relay to take
its turn starts again, or walks again. The caller holds the relay's turn.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from .. import logs
from ..brokers.base import Broker, LaneLimits, Lease
from ..conf import Conf
from ..models import TenantBudget
from ..models.walks import Running, last_xid, look, queued_up_to, running_pages
from ..publishing import publish, task_number

T = TypeVar("T")
PAGE = 1000


def rebuild(broker: Broker, conf: Conf, *, replaces: str | None) -> bool:
    """Replace the epoch `replaces` (None: there is none). False: somebody else did. Raises what the stores raise."""
    epoch = secrets.token_hex(8)
    if not broker.begin_rebuild(epoch, replaces=replaces):
        return False
    logs.rebuild_begins(epoch, replaces)
    for limits in _pages(_limits(conf), PAGE):
        broker.set_limits(dict(limits))
    leases = 0
    for rows in running_pages(conf.database):
        broker.restore_leases([_lease(row, conf) for row in rows if row.token], epoch=epoch)
        leases += len(rows)
    broker.open_epoch(epoch)
    logs.rebuild_ends(epoch, leases, refill(broker, conf, epoch))
    return True


def refill(broker: Broker, conf: Conf, epoch: str) -> int:
    """Publish every queued row into this epoch, then store the snapshot from before. -> rows offered."""
    snapshot, offered = look(conf.database).snapshot, 0
    for rows in queued_up_to(conf.database, max(snapshot.xmax, last_xid(conf.database))):
        publish(broker, rows, epoch=epoch)
        offered += len(rows)
    broker.store_snapshot(str(snapshot), epoch=epoch)
    return offered


def _lease(row: Running, conf: Conf) -> Lease:
    return Lease(row.token, row.job_id, row.queue, row.lane_key, task_number(row.task), row.cost, round(conf.lease_seconds * 1_000_000))


def _limits(conf: Conf) -> Iterator[tuple[str, LaneLimits]]:
    """Budgets are the tenants'; they name lanes only while lanes are tenants. The default row "*" has no lane."""
    if conf.lane_key is not None:
        return
    budgets = TenantBudget.objects.using(conf.database).exclude(tenant_id="*")
    for budget in budgets.iterator(chunk_size=PAGE):
        yield budget.tenant_id, LaneLimits(weight=int(budget.weight * 1000), max_running=budget.max_running)


def _pages(items: Iterable[T], size: int) -> Iterator[list[T]]:
    walk = iter(items)
    while page := list(islice(walk, size)):
        yield page
