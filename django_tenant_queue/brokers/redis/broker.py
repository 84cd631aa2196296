"""The schedule on Redis: turns the contract's verbs into script calls and the scripts' replies into values."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from ...exceptions import EpochMoved, ScheduleLost, ScheduleUnavailable
from ..base import (
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
from .keys import Keys, decode, encode
from .store import RedisStore
from .waiter import RedisWaiter

T = TypeVar("T")

logger = logging.getLogger("django_tenant_queue.brokers.redis")

CHUNK = 500  # of one script call; Lua unpacks no more than a few times this
SCAN_KEYS = 500
AT_HEAD = -101  # before every priority
_BODY = struct.Struct(">16sII")  # of a publication: job id, task number, cost
_LEASE = struct.Struct(">16sIIQQBH")  # job id, task number, cost, claimed_us, charged, postponed, length of the queue's name
_WORDS = {ord("P"): Published.PUBLISHED, ord("W"): Published.WAITING, ord("L"): Published.LEASED}


class RedisBroker(Broker):
    """Thread-safe. `store` runs the scripts with KEYS[1] = `keys.meta`."""

    def __init__(self, settings: SchedulerSettings, store: RedisStore, keys: Keys) -> None:
        self._settings, self._store, self._keys = settings, store, keys
        self._header = (settings.mode, settings.quantum, settings.first_estimate_us, settings.estimate_keep_us, settings.lease_us)
        self._epoch_id: str | None = None

    # -- jobs into lanes

    def publish(self, publications: Sequence[Publication], *, epoch: str | None = None) -> list[Published]:
        while True:
            believed = epoch or self._believed_epoch()
            try:
                return [word for chunk in _chunks(publications) for word in self._publish(chunk, believed)]
            except EpochMoved:
                # From the first chunk on: what went into the older epoch is gone, what went into this one is refused.
                if epoch is not None or not self._follow(believed):
                    raise

    def _publish(self, publications: Sequence[Publication], epoch: str) -> list[Published]:
        args: list[Any] = []
        for job in publications:
            body = _BODY.pack(job.job_id.bytes, job.task_number, job.cost)
            args += (encode(job.queue), encode(job.lane_key), AT_HEAD if job.at_head else -job.priority, body)
        return [_WORDS[letter] for letter in self._run("publish", *args, epoch=epoch)]

    # -- jobs out of lanes

    def claim(self, request: ClaimRequest) -> ClaimReply:
        shares = [value for share in request.shares for value in (encode(share.queue), share.limit)]
        reply = self._run("claim", request.request_id, request.limit, request.sleeper or "", *shares, retry=False)
        if reply == b"rebuilding":
            return ClaimReply(rebuilding=True)
        wakeup_us, more, samples, taken = reply
        _log_dropped(samples)
        return ClaimReply(self._claims(taken), wakeup_us if wakeup_us >= 0 else None, more == 1)

    def resume(self, request_id: str) -> tuple[Claim, ...]:
        return self._claims(self._run("resume", request_id))

    def _claims(self, taken: Sequence[bytes]) -> tuple[Claim, ...]:
        return tuple(self._claim_of(token, record) for token, record in zip(taken[::2], taken[1::2], strict=True))

    def _claim_of(self, token: bytes, record: bytes) -> Claim:
        job_id, task_number, cost, claimed_us, charged, _, length = _LEASE.unpack_from(record)
        queue, lane_key = record[_LEASE.size : _LEASE.size + length], record[_LEASE.size + length :]
        charged_us = charged if self._settings.mode == "time" else 0
        return Claim(UUID(bytes=job_id), token.decode(), decode(queue), decode(lane_key), task_number, cost, claimed_us, charged_us)

    def renew(self, tokens: Iterable[str]) -> frozenset[str]:
        return self._for_tokens("renew", tokens)

    def held(self, tokens: Iterable[str]) -> frozenset[str]:
        return self._for_tokens("held", tokens)

    def ack(self, tokens: Iterable[str]) -> frozenset[str]:
        return self._for_tokens("ack", tokens)

    def release(self, tokens: Iterable[str]) -> frozenset[str]:
        return self._for_tokens("release", tokens)

    def postpone(self, tokens: Iterable[str], seconds: float) -> frozenset[str]:
        return self._for_tokens("postpone", tokens, max(0, round(seconds * 1_000_000)))

    def _for_tokens(self, verb: str, tokens: Iterable[str], *args: Any) -> frozenset[str]:
        known = list(dict.fromkeys(tokens))
        return frozenset(token.decode() for chunk in _chunks(known) for token in self._run(verb, *args, *chunk))

    def reap(self, limit: int) -> tuple[Claim, ...]:
        claims: list[Claim] = []
        while limit > len(claims):
            asked = min(CHUNK, limit - len(claims))
            samples, taken = self._run("reap", asked)
            _log_dropped(samples)
            claims += self._claims(taken)
            if len(taken) < 2 * asked:
                break
        return tuple(claims)

    # -- limits

    def set_limits(self, limits: Mapping[str, LaneLimits]) -> None:
        for chunk in _chunks(list(limits.items())):
            args: list[Any] = []
            for lane_key, limit in chunk:
                cap = -1 if limit.max_running is None else limit.max_running
                args += (encode(lane_key), limit.weight, cap, limit.paused_until_us)
            self._run("set_limits", *args)

    # -- epochs

    def read_epoch(self) -> Epoch | None:
        epoch_id, state, snapshot = self._store.run("read_epoch")
        self._epoch_id = epoch_id.decode() if epoch_id else None
        if self._epoch_id is None:
            return None
        return Epoch(self._epoch_id, state == b"rebuilding", snapshot.decode() if snapshot is not None else None)

    def begin_rebuild(self, epoch_id: str, *, replaces: str | None) -> bool:
        began = self._store.run("begin_rebuild", epoch_id, replaces or "") == b"ok"
        self._epoch_id = epoch_id if began else None
        return began

    def restore_leases(self, leases: Sequence[Lease], *, epoch: str) -> None:
        for chunk in _chunks(leases):
            args: list[Any] = []
            for lease in chunk:
                body = _BODY.pack(lease.job_id.bytes, lease.task_number, lease.cost)
                args += (lease.token, encode(lease.queue), encode(lease.lane_key), max(0, lease.expires_in_us), body)
            self._run("restore_leases", *args, epoch=epoch)

    def open_epoch(self, epoch_id: str) -> None:
        self._run("open_epoch", epoch=epoch_id)

    def store_snapshot(self, snapshot: str, *, epoch: str) -> None:
        self._run("store_snapshot", snapshot, epoch=epoch)

    def discard_old_epochs(self) -> int:
        cursor, unlinked = b"0", 0
        while True:
            cursor, count = self._run("discard", cursor, SCAN_KEYS)
            unlinked += count
            if cursor == b"0":
                return unlinked

    # -- one script call

    def _run(self, verb: str, *args: Any, epoch: str | None = None, retry: bool = True) -> Any:
        """The verb's reply under `epoch`, else under the epoch we believe in, following once when that moved."""
        believed = epoch or self._believed_epoch()
        reply = self._run_under(believed, verb, args, retry)
        if reply == b"moved" and epoch is None and self._follow(believed):
            believed = self._believed_epoch()
            reply = self._run_under(believed, verb, args, retry)
        if reply == b"lost":
            self._epoch_id = None
            raise ScheduleLost("The schedule has no epoch: it was lost or never opened. The reconciler opens a new one.")
        if reply == b"moved":
            if epoch is None:
                raise ScheduleUnavailable(f"The schedule's epoch moved twice during {verb!r}; it is tried again later.")
            raise EpochMoved(f"The schedule's epoch is no longer {believed!r}: read it again.")
        return reply

    def _run_under(self, epoch: str, verb: str, args: Sequence[Any], retry: bool) -> Any:
        now = self._settings.clock_us() if self._settings.clock_us else ""
        return self._store.run(verb, epoch, now, *self._header, *args, retry=retry)

    def _believed_epoch(self) -> str:
        believed = self._epoch_id
        if believed is None:
            self.read_epoch()
            believed = self._epoch_id
        if believed is None:
            raise ScheduleLost("The schedule has no epoch: it was lost or never opened. The reconciler opens a new one.")
        return believed

    def _follow(self, believed: str) -> bool:
        """Read the epoch again; whether it is another one than we believed."""
        current = self.read_epoch()
        return current is not None and current.id != believed

    # -- around

    def open_waiter(self, name: str) -> Waiter:
        return RedisWaiter(self._store.connect, self._keys.wake_channel(name))

    def check(self) -> None:
        self._store.check()

    def state(self) -> ScheduleState:
        corrupt, leases, queues = self._run("state")
        readable = [value for row in _rows(leases, 2) if len(row[1]) >= _LEASE.size for value in row]  # the reaper drops the others
        held = {claim.token: claim for claim in self._claims(readable)}
        running: dict[tuple[str, str], int] = {}
        for claim in held.values():
            running[claim.queue, claim.lane_key] = running.get((claim.queue, claim.lane_key), 0) + 1
        rounds, lanes, ring = {}, {}, {}
        for name, current, members, rows in _rows(queues, 4):
            queue = decode(name)
            rounds[queue] = int(current)
            places = {decode(member[9:]): (int(due), member[:1] == b"0") for member, due in _rows(members, 2)}
            ring[queue] = tuple(places)
            for lane, waiting, deficit, last, parked in _rows(rows, 5):
                key = decode(lane)
                due, newcomer = places.get(key, (None, False))
                count = running.pop((queue, key), 0)
                lanes[queue, key] = LaneState(int(waiting), count, int(deficit), int(last), due, newcomer, bool(parked))
        for name_and_key, count in running.items():
            lanes[name_and_key] = LaneState(0, count, 0, 0, None, False, False)
        return ScheduleState(rounds, lanes, ring, {token: claim.job_id for token, claim in held.items()}, int(corrupt))

    def depths(self) -> Mapping[str, Mapping[str, int]]:
        empty = {"lanes": 0, "parked": 0, "waiting": 0, "running": 0}
        found = {decode(row[0]): dict(zip(empty, map(int, row[1:]), strict=True)) for row in _rows(self._run("depths"), 5)}
        return {queue: dict(empty) for queue in self._settings.queues} | found

    def after_fork(self) -> None:
        self._store.after_fork()

    def close(self) -> None:
        self._store.close()


def _chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(values), CHUNK):
        yield values[first : first + CHUNK]


def _rows(flat: Sequence[Any], width: int) -> Iterator[Sequence[Any]]:
    for first in range(0, len(flat), width):
        yield flat[first : first + width]


def _log_dropped(samples: Sequence[bytes]) -> None:
    for sample in samples:
        place, _, entry = sample.partition(b" ")
        logger.error("Dropped an entry of the schedule that cannot be read (%s): it begins with %r.", place.decode(), entry)
