"""Relay: publishes what is due and not in the schedule, each row once after it became visible.

Order: promote (ledger), then read what became visible since the stored snapshot, publish it under the epoch that the snapshot
belongs to, then store the new snapshot: only after Redis answered for every row. If we die on the way, the next pass reads the same rows
again and the schedule refuses those it knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from uuid import UUID

from .. import failpoints
from ..brokers.base import Broker, Epoch, Published
from ..conf import Conf
from ..handback import ledger
from ..models.moves import Runnable
from ..models.snapshot import Snapshot
from ..models.walks import Look, look, newly_runnable
from ..publishing import publish
from .rebuild import rebuild, refill
from .turns import turn

BATCH = 1000
BATCHES = 10  # promoted in one pass: what was promoted is published before more is
MOST_LEASED = 1000
STORE_EVERY = 10_000  # transactions: a stored snapshot is not left further behind than this


class Relay:
    """Remembers the newest snapshot it saw stored (an older one means that Redis was rolled back), how far it found nothing to publish,
    and the rows that were refused because they were leased: a settled run whose ack is under way. They are offered again."""

    name = "relay"

    def __init__(self) -> None:
        self._forget(None)

    def _forget(self, epoch_id: str | None) -> None:
        self._epoch_id = epoch_id
        self._stored: Snapshot | None = None
        self._empty_until: Snapshot | None = None
        self._leased: set[UUID] = set()

    def interval(self, conf: Conf) -> float:
        return conf.relay_seconds

    def step(self, broker: Broker, conf: Conf) -> None:
        """One pass; idle: one statement and one call to Redis."""
        epoch = broker.read_epoch()  # before the look: what another relay stores meanwhile must not seem to come from the future
        seen = self._promote(conf, look(conf.database))
        if self._must_mend(epoch, seen.snapshot):
            return self._mend(broker, conf)
        assert epoch is not None
        self._follow(epoch)
        if self._leased:
            self._offer_again(broker, conf, epoch)
        if seen.snapshot > self._known():
            self._publish_difference(broker, conf, seen.snapshot)
        return None

    # -- due rows

    def _promote(self, conf: Conf, seen: Look) -> Look:
        if not seen.due:
            return seen
        for _ in range(BATCHES):
            if len(ledger(conf).promote_due(BATCH)) < BATCH:
                break
        failpoints.hit("M2")
        return look(conf.database)

    # -- the difference

    def _known(self) -> Snapshot:
        """Up to here every row was offered."""
        assert self._stored is not None
        return max(self._stored, self._empty_until) if self._empty_until else self._stored

    def _publish_difference(self, broker: Broker, conf: Conf, now: Snapshot) -> None:
        pages = newly_runnable(conf.database, now.since(self._known()))
        first = next(pages, [])
        assert self._stored is not None
        if not first and now.xmax - self._stored.xmax < STORE_EVERY:
            self._empty_until = now
            return
        with turn(self.name, conf) as mine:
            epoch = broker.read_epoch() if mine else None
            if epoch is None or epoch.id != self._epoch_id or epoch.snapshot is None or epoch.rebuilding:
                return
            self._follow(epoch)
            if now > self._stored:  # else another relay has been here since we looked
                self._publish_pages(broker, conf, epoch, now)

    def _publish_pages(self, broker: Broker, conf: Conf, epoch: Epoch, now: Snapshot) -> None:
        for rows in newly_runnable(conf.database, now.since(self._known())):
            self._offer(broker, epoch, rows)
            failpoints.hit("M2")
        broker.store_snapshot(str(now), epoch=epoch.id)
        self._stored = now

    def _offer(self, broker: Broker, epoch: Epoch, rows: list[Runnable]) -> None:
        self._leased.update(islice(_refused_as_leased(broker, epoch, rows), MOST_LEASED - len(self._leased)))

    def _offer_again(self, broker: Broker, conf: Conf, epoch: Epoch) -> None:
        """Most were about to start: those are no longer queued now."""
        self._leased = set(_refused_as_leased(broker, epoch, ledger(conf).queued_of(self._leased)))

    # -- a schedule that was lost

    def _follow(self, epoch: Epoch) -> None:
        assert epoch.snapshot is not None
        if epoch.id != self._epoch_id:
            self._forget(epoch.id)
        stored = Snapshot.parse(epoch.snapshot)
        self._stored = max(stored, self._stored) if self._stored else stored

    def _must_mend(self, epoch: Epoch | None, now: Snapshot) -> bool:
        """Lost, left half-built, rolled back, or filled from another ledger (a restored one has other transaction numbers)."""
        if epoch is None or epoch.rebuilding or epoch.snapshot is None:
            return True
        stored, newest = Snapshot.parse(epoch.snapshot), self._stored
        rolled_back = newest is not None and stored < newest and newest.xmax <= now.xmax
        return rolled_back or stored.xmax > now.xmax

    def _mend(self, broker: Broker, conf: Conf) -> None:
        with turn(self.name, conf) as mine:
            if not mine:
                return  # another relay is at it
            epoch = broker.read_epoch()
            if not self._must_mend(epoch, look(conf.database).snapshot):
                return
            if epoch is not None and not epoch.rebuilding and epoch.snapshot is None:
                refill(broker, conf, epoch.id)  # whoever rebuilt died between opening it and storing the snapshot
            else:
                rebuild(broker, conf, replaces=epoch.id if epoch else None)


def _refused_as_leased(broker: Broker, epoch: Epoch, rows: list[Runnable]) -> Iterator[UUID]:
    answers = publish(broker, rows, epoch=epoch.id)
    return (row.job_id for row, answer in zip(rows, answers, strict=True) if answer is Published.LEASED)
