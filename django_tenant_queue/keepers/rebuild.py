"""Rebuild: the schedule put together again from the ledger, under a new epoch. An empty Redis at the first start is the same path.

Order: begin the epoch (claims answer "rebuilding"), limits, the leases of running rows, open it, every queued row, and last the
ledger's snapshot from before the walk. If we die on the way, the epoch is left rebuilding or without a snapshot: the next relay to take
its turn starts again, or walks again. The caller holds the relay's turn.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from itertools import islice

from .. import logs
from ..brokers.base import Broker, LaneLimits, Lease
from ..conf import Conf
from ..control import lane_limits
from ..models import TenantBudget
from ..models.walks import Running, last_xid, look, queued_up_to, running_pages
from ..publishing import publish, task_number

PAGE = 1000


def rebuild(broker: Broker, conf: Conf, *, replaces: str | None) -> bool:
    """Replace the epoch `replaces` (None: there is none). False: somebody else did. Raises what the stores raise."""
    epoch = secrets.token_hex(8)
    if not broker.begin_rebuild(epoch, replaces=replaces):
        return False
    logs.rebuild_begins(epoch, replaces)
    for limits in limits_in_pages(conf):
        broker.set_limits(limits)
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


def limits_in_pages(conf: Conf) -> Iterator[dict[str, LaneLimits]]:
    """The limits of every budget. Budgets name tenants, so they fit lanes only while lanes are tenants; the default row "*" has no lane."""
    if conf.lane_key is not None:
        return
    budgets = TenantBudget.objects.using(conf.database).exclude(tenant_id="*").iterator(chunk_size=PAGE)
    while page := list(islice(budgets, PAGE)):
        yield {budget.tenant_id: lane_limits(budget) for budget in page}
