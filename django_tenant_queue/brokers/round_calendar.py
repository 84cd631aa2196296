"""Deficit Round-Robin on a round calendar: one queue's lanes, ordered by the round of their next visit. The readable twin of lua/lib/.

The ring of textbook DRR becomes a sorted set, lane -> number of the round in which it is next visited; rounds in which nobody is due are
jumped. Nothing here knows leases, tokens or epochs. All numbers are integers: microseconds ("time") or thousandths of cost ("jobs").
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from .base import LaneLimits, SchedulerSettings
from .redis.keys import encode

NEWCOMER, REGULAR = 0, 1


class Waiting(NamedTuple):
    """A job in its lane; compares as the lane serves: highest priority, then order of arrival."""

    score: int
    arrival: int
    job_id: UUID
    task_number: int
    cost: int


class Place(NamedTuple):
    """Where a lane stands in the ring; the smallest is the head. The arrival orders lanes of one round without a bias by name."""

    due: int
    group: int
    arrival: int


@dataclass(slots=True)
class Lane:
    """One lane key's line within the queue. `last` None: nothing is remembered, it owes and is owed nothing."""

    key: str
    line: list[Waiting] = field(default_factory=list)
    running: int = 0
    deficit: int = 0
    last: int | None = None
    place: Place | None = None
    parked: bool = False

    def is_known(self) -> bool:
        """Whether anything is to be said of it."""
        return bool(self.line or self.running or self.place or self.parked or self.last is not None)


class RoundCalendar:
    """`limits_of` and `held_back` (why a lane key may not run now, or None) belong to the lane key, over all queues."""

    def __init__(self, settings: SchedulerSettings, limits_of: Callable[[str], LaneLimits], held_back: Callable[[str], str | None]) -> None:
        self._settings, self._limits_of, self._held_back = settings, limits_of, held_back
        self.round = 1
        self.arrivals = self.waiting = self.running = 0
        self.lanes: dict[str, Lane] = {}
        self.idle: dict[str, int] = {}  # lanes outside the ring, not parked, remembered -> round after which that is worth nothing
        self._ring: list[tuple[Place, str]] = []  # a heap; an entry that is not its lane's place is stale
        self._estimates: dict[str, tuple[int, int]] = {}  # lane key -> microseconds, valid until

    # -- what a job costs

    def share(self, key: str) -> int:
        return max(1, self._settings.quantum * self._limits_of(key).weight // 1000)

    def estimate_us(self, key: str, now: int) -> int | None:
        value, until = self._estimates.get(key, (0, 0))
        return value if until > now else None

    def learn(self, key: str, held_us: int, now: int) -> None:
        """Running mean of the time this lane's jobs held a slot."""
        known = self.estimate_us(key, now)
        value = held_us if known is None else (4 * known + held_us) // 5
        self._estimates[key] = max(1, value), now + self._settings.estimate_keep_us

    def charge(self, key: str, cost: int, now: int) -> int:
        if self._settings.mode == "jobs":
            return cost
        return (self.estimate_us(key, now) or self._settings.first_estimate_us) * cost // 1000

    def lack(self, deficit: int, charge: int) -> int:
        """Credit that is missing before the head job may be taken; none when <= 0."""
        return charge - deficit if self._settings.mode == "jobs" else 1 - deficit

    # -- the ring

    def lane(self, key: str) -> Lane:
        return self.lanes.setdefault(key, Lane(key))

    def head(self) -> Lane | None:
        while self._ring:
            place, key = self._ring[0]
            if key in self.lanes and self.lanes[key].place == place:
                return self.lanes[key]
            heapq.heappop(self._ring)
        return None

    def ring(self) -> list[str]:
        return [lane.key for _, lane in sorted((lane.place, lane) for lane in self.lanes.values() if lane.place is not None)]

    def _insert(self, lane: Lane, due: int, group: int) -> None:
        self.arrivals += 1
        lane.place = Place(due, group, self.arrivals)
        heapq.heappush(self._ring, (lane.place, lane.key))

    def _leave(self, lane: Lane) -> None:
        lane.place = None
        self.rest_outside(lane)

    def rest_outside(self, lane: Lane) -> None:
        """Note after which round the credit of a lane outside the ring is worth nothing, so that it can be forgotten."""
        if lane.place is None and not lane.parked and lane.last is not None:
            self.idle[lane.key] = lane.last + _rounds(-lane.deficit, self.share(lane.key))

    # -- joining

    def _repaid(self, lane: Lane, share: int) -> tuple[int, int]:
        """Deficit and last round as they are for a lane that was outside: unspent credit dies, rounds passed repay debt."""
        last = self.round - 1 if lane.last is None else lane.last
        if last >= self.round:
            return lane.deficit, last
        return min(0, lane.deficit + (self.round - 1 - last) * share) if lane.deficit < 0 else 0, self.round - 1

    def repay(self, lane: Lane, share: int) -> None:
        lane.deficit, lane.last = self._repaid(lane, share)

    def _lack_on_joining(self, deficit: int, last: int, key: str, cost: int, now: int) -> int:
        lack = self.lack(deficit, self.charge(key, cost, now))
        return lack - self.share(key) if last == self.round - 1 else lack  # this round's quantum is still to come

    def join(self, lane: Lane, cost: int, now: int) -> None:
        """A job (of this cost) arrived in an empty lane, a parked lane is woken, or a lane was taken out of the ring."""
        self.repay(lane, self.share(lane.key))
        lane.parked = False
        self.idle.pop(lane.key, None)
        lack = self._lack_on_joining(lane.deficit, lane.last or 0, lane.key, cost, now)
        if lack <= 0:
            self._insert(lane, self.round, NEWCOMER)
        else:
            self._insert(lane, self.round + _rounds(lack, self.share(lane.key)), REGULAR)

    def refit(self, lane: Lane, now: int) -> None:
        """After a refund: a lane in the ring whose debt it cleared is taken out and joins again."""
        if lane.place is None or not lane.line or lane.place.due <= self.round:
            return
        cost = lane.line[0].cost
        if self._lack_on_joining(*self._repaid(lane, self.share(lane.key)), lane.key, cost, now) <= 0:
            self.join(lane, cost, now)

    # -- verbs

    def add(self, key: str, score: int, job_id: UUID, task_number: int, cost: int, now: int) -> bool:
        """Put a job into its lane; True when the lane may be visited."""
        lane = self.lane(key)
        if lane.place is None and not lane.parked:
            self.join(lane, cost, now)
        self.arrivals += 1
        self.waiting += 1
        heapq.heappush(lane.line, Waiting(score, self.arrivals, job_id, task_number, cost))
        return not lane.parked

    def visit(self, lane: Lane, slots: int, now: int) -> list[tuple[Waiting, int]]:
        """Visit the head lane: the jobs taken, each with its charge, at most `slots`."""
        assert lane.place is not None
        due = lane.place.due
        self.round = max(self.round, due)
        taken: list[tuple[Waiting, int]] = []
        while True:
            if not lane.line:
                self._leave(lane)
                return taken
            if self._held_back(lane.key):
                lane.place, lane.parked = None, True
                return taken
            charge = self.charge(lane.key, lane.line[0].cost, now)
            self._credit(lane, due, charge)
            if len(taken) == slots:
                return taken
            lack = self.lack(lane.deficit, charge)
            if lack > 0:
                self._insert(lane, due + max(1, _rounds(lack, self.share(lane.key))), REGULAR)
                return taken
            lane.deficit -= charge
            lane.running += 1
            self.running += 1
            self.waiting -= 1
            taken.append((heapq.heappop(lane.line), charge))

    def _credit(self, lane: Lane, due: int, charge: int) -> None:
        last = self.round - 1 if lane.last is None else lane.last
        if last < due:
            share = self.share(lane.key)
            lane.deficit, lane.last = min(lane.deficit + (due - last) * share, share + charge), due

    def settle(self, lane: Lane, amount: int) -> None:
        """Add a refund (or, negative, what is still owed) to the deficit."""
        if amount:
            lane.deficit, lane.last = lane.deficit + amount, self.round - 1 if lane.last is None else lane.last

    def end_round_at_rest(self) -> None:
        """A claim found the ring empty: when nothing runs either, nobody competes, and the round passes."""
        if self.running == 0 and self.idle:
            self.round += 1

    def sweep(self, limit: int) -> None:
        """Forget up to `limit` lanes whose credit is worth nothing any more; a lane with running jobs will be settled and keeps it."""
        over = ((after, encode(key), key) for key, after in self.idle.items() if after < self.round)
        for _, _, key in heapq.nsmallest(limit, over):
            del self.idle[key]
            if self.lanes[key].running == 0:
                self.lanes[key].deficit, self.lanes[key].last = 0, None
                self.forget(key)

    def forget(self, key: str) -> None:
        """Drop the lane's entry when it says nothing."""
        if key in self.lanes and not self.lanes[key].is_known():
            del self.lanes[key]


def _rounds(missing: int, share: int) -> int:
    """Rounds of `share` that make up for what is missing."""
    return -(-max(0, missing) // share)
