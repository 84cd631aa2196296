"""The schedule in one process's memory: the readable twin of the Lua scripts, and the broker of tests that need no server."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from uuid import UUID

from ..exceptions import EpochMoved, ScheduleLost
from .base import (
    Broker,
    Claim,
    ClaimReply,
    ClaimRequest,
    Epoch,
    LaneLimits,
    LaneState,
    Lease,
    Publication,
    Published,
    SchedulerSettings,
    ScheduleState,
    Waiter,
)
from .redis.keys import encode
from .round_calendar import NEWCOMER, Lane, RoundCalendar, Waiting

SPARE_VISITS = 64  # parked and indebted lanes that one claim may meet beside those it takes from
SPARE_SWEEPS = 16
SLEEPER_US = 2_000_000
AT_HEAD = -101  # before every priority
NO_LIMITS = LaneLimits()


@dataclass(slots=True)
class _Held:
    """A lease: what was claimed, what its lane was charged, when it expires. Postponed: given back, waits for the reaper."""

    claim: Claim
    charged: int
    expires_us: int
    postponed: bool = False


@dataclass(slots=True)
class _Schedule:
    """What one epoch holds."""

    calendars: dict[str, RoundCalendar] = field(default_factory=dict)
    jobs: dict[UUID, str | None] = field(default_factory=dict)  # job id -> claim token, None while it waits
    leases: dict[str, _Held] = field(default_factory=dict)
    limits: dict[str, LaneLimits] = field(default_factory=dict)
    wakeups: dict[str, int] = field(default_factory=dict)  # lane key -> when its pause ends
    requests: dict[str, tuple[int, int]] = field(default_factory=dict)  # request id -> limit, remembered until
    sleepers: dict[str, dict[str, int]] = field(default_factory=dict)  # queue -> name -> since


class MemoryBroker(Broker):
    """`lose()` forgets everything, as FLUSHALL does."""

    def __init__(self, settings: SchedulerSettings) -> None:
        self._settings = settings
        self._lock = threading.RLock()
        self._waiters: dict[str, _EventWaiter] = {}
        self.lose()

    def lose(self) -> None:
        self._epoch: Epoch | None = None
        self._schedule = _Schedule()
        self._now = 0

    @contextmanager
    def _verb(self, epoch: str | None = None) -> Iterator[int]:
        """Every verb: alone, under the current epoch, at one moment (yielded, in microseconds)."""
        with self._lock:
            if self._epoch is None:
                raise ScheduleLost("The schedule has no epoch: it was lost or never opened. The reconciler opens a new one.")
            if epoch is not None and epoch != self._epoch.id:
                raise EpochMoved(f"The schedule's epoch is {self._epoch.id!r}, not {epoch!r}: read it again.")
            self._now = self._settings.clock_us() if self._settings.clock_us else time.time_ns() // 1000
            yield self._now

    def _calendar(self, queue: str) -> RoundCalendar:
        if queue not in self._schedule.calendars:
            self._schedule.calendars[queue] = RoundCalendar(self._settings, self._limits_of, self._held_back)
        return self._schedule.calendars[queue]

    # -- jobs into lanes

    def publish(self, publications: Sequence[Publication], *, epoch: str | None = None) -> list[Published]:
        with self._verb(epoch) as now:
            stirred: set[str] = set()
            words = [self._publish(job, now, stirred) for job in publications]
            self._stir(stirred, now)
            return words

    def _publish(self, job: Publication, now: int, stirred: set[str]) -> Published:
        if job.job_id in self._schedule.jobs:
            return Published.WAITING if self._schedule.jobs[job.job_id] is None else Published.LEASED
        score = AT_HEAD if job.at_head else -job.priority
        if self._calendar(job.queue).add(job.lane_key, score, job.job_id, job.task_number, job.cost, now):
            stirred.add(job.queue)
        self._schedule.jobs[job.job_id] = None
        return Published.PUBLISHED

    # -- jobs out of lanes

    def claim(self, request: ClaimRequest) -> ClaimReply:
        with self._verb(None) as now:
            assert self._epoch is not None
            if self._epoch.rebuilding:
                return ClaimReply(rebuilding=True)
            if self._remembers(request.request_id, now):
                return ClaimReply(self._taken_by(request.request_id), self._next_wakeup())
            if any(f"{request.request_id}.{index}" in self._schedule.leases for index in range(request.limit)):
                return ClaimReply(self._held_under(request.request_id, request.limit), self._next_wakeup())
            return self._claim(request, now)

    def _claim(self, request: ClaimRequest, now: int) -> ClaimReply:
        stirred: set[str] = set()
        for key, _ in self._due_wakeups(now, request.limit):
            self._wake(key, now, stirred)
        claims: list[Claim] = []
        left: dict[str, int] = {}
        visits = request.limit + SPARE_VISITS
        for share in request.shares:
            slots = min(share.limit, request.limit - len(claims))
            taken = 0
            if slots > 0 and visits > 0:
                before = len(claims)
                visits = self._claim_share(share.queue, slots, visits, request, claims)
                taken = len(claims) - before
            left[share.queue] = share.limit - taken
        if claims:
            self._schedule.requests[request.request_id] = request.limit, now + 2 * self._settings.lease_us
        filled = len(claims) == request.limit
        more = not filled and (visits == 0 or bool(self._due_wakeups(now, 1)))
        self._sleep_or_pass_on(request, left, stirred, filled, more, now)
        return ClaimReply(tuple(claims), self._next_wakeup(), more)

    def _claim_share(self, queue: str, slots: int, visits: int, request: ClaimRequest, claims: list[Claim]) -> int:
        """Visit lanes of one queue until the slots are filled, the ring is empty or no visit is left; the visits left."""
        calendar = self._calendar(queue)
        full = len(claims) + slots
        while len(claims) < full and visits > 0:
            lane = calendar.head()
            if lane is None:
                calendar.end_round_at_rest()
                break
            visits -= 1
            for job, charge in calendar.visit(lane, full - len(claims), self._now):
                claims.append(self._lease(job, charge, queue, lane.key, f"{request.request_id}.{len(claims)}"))
            if lane.parked:
                self._note_wakeup(lane.key)
        calendar.sweep(request.limit + SPARE_SWEEPS)
        return visits

    def _sleep_or_pass_on(
        self, request: ClaimRequest, left: Mapping[str, int], stirred: set[str], filled: bool, more: bool, now: int
    ) -> None:
        for queue, slots in left.items():
            sleepers = self._schedule.sleepers.setdefault(queue, {})
            if request.sleeper:
                sleepers.pop(request.sleeper, None)
                if slots > 0 and not filled and not more:
                    sleepers[request.sleeper] = now
        stirred |= {share.queue for share in request.shares if share.limit > 0 and not more}
        self._stir({queue for queue in stirred if self._calendar(queue).head()}, now)

    def _lease(self, job: Waiting, charge: int, queue: str, key: str, token: str) -> Claim:
        charged_us = charge if self._settings.mode == "time" else 0
        claim = Claim(job.job_id, token, queue, key, job.task_number, job.cost, self._now, charged_us)
        self._schedule.leases[token] = _Held(claim, charge, self._now + self._settings.lease_us)
        self._schedule.jobs[job.job_id] = token
        return claim

    def resume(self, request_id: str) -> tuple[Claim, ...]:
        with self._verb(None) as now:
            return self._taken_by(request_id) if self._remembers(request_id, now) else ()

    def _remembers(self, request_id: str, now: int) -> bool:
        return self._schedule.requests.get(request_id, (0, 0))[1] > now

    def _taken_by(self, request_id: str) -> tuple[Claim, ...]:
        return self._held_under(request_id, self._schedule.requests[request_id][0])

    def _held_under(self, request_id: str, limit: int) -> tuple[Claim, ...]:
        held = (self._schedule.leases.get(f"{request_id}.{index}") for index in range(limit))
        return tuple(lease.claim for lease in held if lease and not lease.postponed)

    def renew(self, tokens: Iterable[str]) -> frozenset[str]:
        with self._verb(None) as now:
            held = {token: lease for token, lease in self._leased(tokens).items() if not lease.postponed}
            for lease in held.values():
                lease.expires_us = now + self._settings.lease_us
            return frozenset(held)

    def held(self, tokens: Iterable[str]) -> frozenset[str]:
        with self._verb(None):
            return frozenset(self._leased(tokens))

    def ack(self, tokens: Iterable[str]) -> frozenset[str]:
        with self._verb(None) as now:
            leases = self._leased(tokens)
            for lease in leases.values():
                if not lease.postponed:
                    self._calendar(lease.claim.queue).learn(lease.claim.lane_key, now - lease.claim.claimed_us, now)
            self._end({token: self._owed(lease, now) for token, lease in leases.items()}, now)
            return frozenset(leases)

    def _owed(self, lease: _Held, until_us: int) -> int:
        """What the lane gets back (or, negative, still pays) when the slot is given back at `until_us`."""
        if self._settings.mode == "jobs" or lease.postponed:
            return 0
        return lease.charged - max(0, until_us - lease.claim.claimed_us) * lease.claim.cost // 1000

    def release(self, tokens: Iterable[str]) -> frozenset[str]:
        with self._verb(None) as now:
            leases = self._leased(tokens)
            self._end({token: lease.charged for token, lease in leases.items()}, now)
            return frozenset(leases)

    def postpone(self, tokens: Iterable[str], seconds: float) -> frozenset[str]:
        with self._verb(None) as now:
            leases = self._leased(tokens)
            fresh = [lease for lease in leases.values() if not lease.postponed]
            self._settle([(lease, lease.charged) for lease in fresh], now)
            for lease in fresh:
                lease.claim, lease.charged, lease.postponed = replace(lease.claim, charged_us=0), 0, True
                lease.expires_us = now + max(0, round(seconds * 1_000_000))
            return frozenset(leases)

    def reap(self, limit: int) -> tuple[Claim, ...]:
        with self._verb(None) as now:
            over = ((lease.expires_us, token) for token, lease in self._schedule.leases.items() if lease.expires_us <= now)
            leases = {token: self._schedule.leases[token] for _, token in heapq.nsmallest(limit, over)}
            self._end({token: self._owed(lease, lease.expires_us) for token, lease in leases.items()}, now)
            return tuple(lease.claim for lease in leases.values())

    # -- ending leases

    def _leased(self, tokens: Iterable[str]) -> dict[str, _Held]:
        return {token: self._schedule.leases[token] for token in dict.fromkeys(tokens) if token in self._schedule.leases}

    def _settle(self, refunds: Iterable[tuple[_Held, int]], now: int) -> list[tuple[RoundCalendar, Lane]]:
        """Book the refunds, then let lanes whose debt they cleared join again; the lanes in order of their first lease."""
        gained: dict[tuple[str, str], int] = {}
        for lease, amount in refunds:
            claim = lease.claim
            gained[claim.queue, claim.lane_key] = gained.get((claim.queue, claim.lane_key), 0) + amount
        lanes = []
        for (queue, key), amount in gained.items():
            calendar = self._calendar(queue)
            lane = calendar.lane(key)
            calendar.settle(lane, amount)
            if amount > 0:
                calendar.refit(lane, now)
            calendar.rest_outside(lane)
            lanes.append((calendar, lane))
        return lanes

    def _end(self, refunds: Mapping[str, int], now: int) -> None:
        ending = [(self._schedule.leases[token], amount) for token, amount in refunds.items()]
        lanes = self._settle(ending, now)
        for token, (lease, _) in zip(refunds, ending, strict=True):
            calendar = self._calendar(lease.claim.queue)
            calendar.running -= 1
            calendar.lane(lease.claim.lane_key).running -= 1
            del self._schedule.jobs[lease.claim.job_id], self._schedule.leases[token]
        stirred: set[str] = set()
        for key in dict.fromkeys(lease.claim.lane_key for lease, _ in ending):
            self._wake(key, now, stirred)
        for calendar, lane in lanes:
            calendar.forget(lane.key)
        self._stir(stirred, now)

    # -- limits

    def set_limits(self, limits: Mapping[str, LaneLimits]) -> None:
        with self._verb(None) as now:
            stirred: set[str] = set()
            for key, new in limits.items():
                self._set_limits(key, new, now)
                self._wake(key, now, stirred)
            self._stir(stirred, now)

    def _set_limits(self, key: str, new: LaneLimits, now: int) -> None:
        lanes = [(calendar, calendar.lanes[key]) for calendar in self._schedule.calendars.values() if key in calendar.lanes]
        reweighted = new.weight != self._limits_of(key).weight
        for calendar, lane in lanes:
            if reweighted and lane.last is not None:
                calendar.repay(lane, calendar.share(key))  # rounds that passed are paid at the old weight
        if new == NO_LIMITS:
            self._schedule.limits.pop(key, None)
        else:
            self._schedule.limits[key] = new
        for calendar, lane in lanes:
            if reweighted and lane.place is not None and lane.line:
                calendar.join(lane, lane.line[0].cost, now)
            elif reweighted:
                calendar.rest_outside(lane)

    def _limits_of(self, key: str) -> LaneLimits:
        return self._schedule.limits.get(key, NO_LIMITS)

    def _held_back(self, key: str) -> str | None:
        limits = self._limits_of(key)
        if limits.paused_until_us == -1 or limits.paused_until_us > self._now:
            return "paused"
        running = sum(calendar.lanes[key].running for calendar in self._schedule.calendars.values() if key in calendar.lanes)
        return "cap" if limits.max_running is not None and running >= limits.max_running else None

    def _wake(self, key: str, now: int, stirred: set[str]) -> None:
        """Let the parked lanes of a lane key join again if they may run now; note when their pause ends if not."""
        calendars = self._schedule.calendars.items()
        parked = [(queue, calendar) for queue, calendar in calendars if key in calendar.lanes and calendar.lanes[key].parked]
        reason = self._held_back(key)
        self._schedule.wakeups.pop(key, None)
        for queue, calendar in parked:
            if reason is None:
                lane = calendar.lanes[key]
                calendar.join(lane, lane.line[0].cost, now)
                stirred.add(queue)
        if parked and reason == "paused":
            self._note_wakeup(key)

    def _note_wakeup(self, key: str) -> None:
        until = self._limits_of(key).paused_until_us
        if until > self._now:
            self._schedule.wakeups[key] = until

    def _due_wakeups(self, now: int, limit: int) -> list[tuple[str, int]]:
        due = sorted((until, encode(key), key) for key, until in self._schedule.wakeups.items() if until <= now)
        return [(key, until) for until, _, key in due[:limit]]

    def _next_wakeup(self) -> int | None:
        return min(self._schedule.wakeups.values(), default=None)

    # -- epochs

    def read_epoch(self) -> Epoch | None:
        with self._lock:
            return self._epoch

    def begin_rebuild(self, epoch_id: str, *, replaces: str | None) -> bool:
        with self._lock:
            current = self._epoch.id if self._epoch else None
            if current == epoch_id:
                return True
            if current != replaces:
                return False
            self._epoch, self._schedule = Epoch(epoch_id, rebuilding=True, snapshot=None), _Schedule()
            return True

    def restore_leases(self, leases: Sequence[Lease], *, epoch: str) -> None:
        with self._verb(epoch) as now:
            for lease in leases:
                if lease.token in self._schedule.leases or lease.job_id in self._schedule.jobs:
                    continue
                claim = Claim(lease.job_id, lease.token, lease.queue, lease.lane_key, lease.task_number, lease.cost, now)
                self._schedule.leases[lease.token] = _Held(claim, 0, now + lease.expires_in_us)
                self._schedule.jobs[lease.job_id] = lease.token
                calendar = self._calendar(lease.queue)
                calendar.running += 1
                calendar.lane(lease.lane_key).running += 1

    def open_epoch(self, epoch_id: str) -> None:
        with self._verb(epoch_id):
            self._epoch = replace(self._current(), rebuilding=False)

    def store_snapshot(self, snapshot: str, *, epoch: str) -> None:
        with self._verb(epoch):
            self._epoch = replace(self._current(), snapshot=snapshot)

    def _current(self) -> Epoch:
        assert self._epoch is not None
        return self._epoch

    def discard_old_epochs(self) -> int:
        return 0  # begin_rebuild dropped the old one

    # -- around

    def _stir(self, queues: Iterable[str], now: int) -> None:
        """Wake one sleeper of each queue, the longest asleep; those that are gone for good would have come back by now."""
        for queue in queues:
            sleepers = self._schedule.sleepers.get(queue, {})
            for name in [name for name, since in sleepers.items() if since < now - SLEEPER_US]:
                del sleepers[name]
            if sleepers:
                name = min(sleepers, key=lambda name: (sleepers[name], name))
                del sleepers[name]
                if name in self._waiters:
                    self._waiters[name].interrupt()

    def open_waiter(self, name: str) -> Waiter:
        self._waiters[name] = waiter = _EventWaiter()
        return waiter

    def check(self) -> None:
        """Memory is always fit."""

    def state(self) -> ScheduleState:
        with self._verb():
            calendars = self._schedule.calendars
            return ScheduleState(
                rounds={queue: calendar.round for queue, calendar in calendars.items()},
                lanes={
                    (queue, key): _lane_state(lane)
                    for queue, calendar in calendars.items()
                    for key, lane in calendar.lanes.items()
                    if lane.is_known()
                },
                ring={queue: tuple(calendar.ring()) for queue, calendar in calendars.items()},
                leases={token: lease.claim.job_id for token, lease in self._schedule.leases.items()},
            )

    def depths(self) -> Mapping[str, Mapping[str, int]]:
        with self._verb():
            for queue in self._settings.queues:
                self._calendar(queue)
            return {queue: _depth(calendar) for queue, calendar in self._schedule.calendars.items()}

    def after_fork(self) -> None:
        self._lock = threading.RLock()

    def close(self) -> None:
        """Nothing is held open."""


class _EventWaiter(Waiter):
    """Sleeps on an event of this process."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wait(self, seconds: float) -> bool:
        woken = self._event.wait(seconds)
        self._event.clear()
        return woken

    def interrupt(self) -> None:
        self._event.set()

    def close(self) -> None:
        """Nothing is held open."""


def _lane_state(lane: Lane) -> LaneState:
    place = lane.place
    return LaneState(
        waiting=len(lane.line),
        running=lane.running,
        deficit=lane.deficit,
        last_round=lane.last or 0,
        due_round=place.due if place else None,
        newcomer=place is not None and place.group == NEWCOMER,
        parked=lane.parked,
    )


def _depth(calendar: RoundCalendar) -> dict[str, int]:
    lanes = calendar.lanes.values()
    return {
        "lanes": sum(lane.place is not None for lane in lanes),
        "parked": sum(lane.parked for lane in lanes),
        "waiting": calendar.waiting,
        "running": calendar.running,
    }
