"""Reconciler: compares ledger and schedule, and repairs what no other keeper sees.

Running rows whose token is not leased (a reaper died after it took the lease; confirm and hand-back both failed) go back to queued by
token, when two looks in a row found them so: a start may be on its way between the ledger and its confirm. Order: ledger, then publish.
Queued rows that the schedule does not hold are offered again; it refuses those it knows. Limits that changed since they were last
offered are offered, in case that `control` did not reach the schedule.
"""

from __future__ import annotations

from uuid import UUID

from ..brokers.base import Broker, Epoch, LaneLimits
from ..conf import Conf
from ..handback import ledger, publish_or_leave
from ..models.walks import START, Position, queued_after, running_pages
from ..publishing import publish
from .rebuild import limits_in_pages
from .turns import turn

PAGE = 1000
PAGES = 20  # of queued rows in one pass; the walk goes on where it stopped


class Reconciler:
    """`_missing`: (job id, token) of running rows that had no lease at the last look. `_walked`: where the walk of queued rows stands.
    `_limits`: as last offered to the epoch `_epoch_id`."""

    name = "reconciler"

    def __init__(self) -> None:
        self._missing: frozenset[tuple[UUID, str]] = frozenset()
        self._walked: Position = START
        self._limits: dict[str, LaneLimits] = {}
        self._epoch_id = ""

    def interval(self, conf: Conf) -> float:
        return conf.reconcile_seconds

    def step(self, broker: Broker, conf: Conf) -> float | None:
        """-> seconds until the second look at rows without a lease, None: none was found."""
        epoch = broker.read_epoch()
        if epoch is None or epoch.rebuilding or epoch.snapshot is None:
            return None  # the relay mends it first
        with turn(self.name, conf) as mine:
            if not mine:
                return None
            found = self._without_lease(broker, conf, epoch)
            if found is None:
                return None
            rows = ledger(conf).hand_back_tokens(sorted(found & self._missing))
            given_back = {row.job_id for row in rows}
        self._missing = frozenset((job_id, token) for job_id, token in found if job_id not in given_back)
        publish_or_leave(rows, broker)
        self._walk_queued(broker, conf, epoch)
        if epoch.id != self._epoch_id:
            self._limits, self._epoch_id = {}, epoch.id
            broker.discard_old_epochs()
        self._offer_limits(broker, conf)
        return min(conf.lease_seconds, conf.reconcile_seconds) if self._missing else None

    def _without_lease(self, broker: Broker, conf: Conf, epoch: Epoch) -> frozenset[tuple[UUID, str]] | None:
        """Running rows whose token is not leased; None when the schedule was replaced meanwhile, which says nothing about them."""
        found: set[tuple[UUID, str]] = set()
        for rows in running_pages(conf.database, PAGE):
            held = broker.held(row.token for row in rows)
            found.update((row.job_id, row.token) for row in rows if row.token not in held)
        after = broker.read_epoch()
        return frozenset(found) if after is not None and after.id == epoch.id else None

    def _walk_queued(self, broker: Broker, conf: Conf, epoch: Epoch) -> None:
        for _ in range(PAGES):
            rows, self._walked = queued_after(conf.database, self._walked, PAGE)
            publish(broker, rows, epoch=epoch.id)
            if len(rows) < PAGE:
                self._walked = START
                return

    def _offer_limits(self, broker: Broker, conf: Conf) -> None:
        for page in limits_in_pages(conf):
            if changed := {key: limits for key, limits in page.items() if self._limits.get(key) != limits}:
                broker.set_limits(changed)
                self._limits.update(changed)
