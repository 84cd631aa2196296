"""A schedule under test: a broker, a clock to turn, and verbs short enough to read a scenario."""

from __future__ import annotations

import itertools
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar
from uuid import UUID

import pytest
import redis

from django_tenant_queue.brokers.base import (
    Broker,
    Claim,
    ClaimReply,
    ClaimRequest,
    LaneLimits,
    Publication,
    QueueShare,
    SchedulerSettings,
)
from django_tenant_queue.brokers.memory import MemoryBroker
from django_tenant_queue.brokers.redis.broker import RedisBroker
from django_tenant_queue.brokers.redis.clients import Patience
from django_tenant_queue.brokers.redis.keys import Keys
from django_tenant_queue.brokers.redis.store import RedisStore
from embedded import Valkey

B = TypeVar("B", bound=Broker)
QUEUES = ("interactive", "default", "bulk")
# Generous: two cores are shared by everything, and no test of this kind is about time budgets.
PATIENCE = Patience(total_seconds=20, attempt_seconds=10)
START_US = 1_764_000_000_000_000
# What a schedule without work may still hold: debt and limits outlive a lane.
KEPT = {"meta", "queues", "clock", "estimate", "request", "sleepers", "credit", "idle", "limits"}


class Clock:
    """Microseconds that pass when a test says so."""

    def __init__(self) -> None:
        self.us = START_US

    def __call__(self) -> int:
        return self.us

    def advance(self, seconds: float) -> None:
        self.us += round(seconds * 1_000_000)


@dataclass
class Schedule:
    """`drains`: whether the fixture empties it after the test and looks for what is left."""

    broker: Broker
    clock: Clock
    drains: bool = True
    _names: Iterable[int] = field(default_factory=itertools.count)

    def put(self, lane: str, count: int = 1, **options: object) -> list[UUID]:
        """Publish `count` jobs to a lane of queue "default"; their ids."""
        ids = [job_id() for _ in range(count)]
        self.broker.publish([publication(i, lane, **options) for i in ids])
        return ids

    def take(self, limit: int = 1, *queues: str, sleeper: str | None = None) -> tuple[Claim, ...]:
        return self.ask(limit, *queues, sleeper=sleeper).claims

    def ask(self, limit: int = 1, *queues: str, request: str | None = None, sleeper: str | None = None) -> ClaimReply:
        shares = tuple(QueueShare(queue, limit) for queue in queues or ("default",))
        return self.broker.claim(ClaimRequest(request or self.request_id(), shares, limit, sleeper))

    def request_id(self) -> str:
        return f"{next(iter(self._names)):024x}"

    def lanes_taken(self, limit: int, *queues: str) -> str:
        """One letter (the lane key) per job claimed."""
        return "".join(claim.lane_key for claim in self.take(limit, *queues))

    def run(self, claims: Iterable[Claim], seconds: float = 0) -> None:
        """Let jobs hold their slots and end."""
        self.clock.advance(seconds)
        self.broker.ack([claim.token for claim in claims])

    def limit(self, lane: str, **limits: int | None) -> None:
        self.broker.set_limits({lane: LaneLimits(**limits)})  # type: ignore[arg-type]

    def drain(self) -> None:
        """End every lease, lift every limit, take and end every job, and let the rounds pass in which nothing is owed."""
        broker = self.broker
        if (epoch := broker.read_epoch()) and epoch.rebuilding:
            broker.open_epoch(epoch.id)
        broker.discard_old_epochs()
        broker.set_limits({lane: LaneLimits() for _, lane in broker.state().lanes})
        self.clock.advance(100_000)
        while broker.reap(1000):
            pass
        queues = tuple(broker.state().rounds) or QUEUES
        for _ in range(1000):
            reply = self.ask(500, *queues)
            self.run(reply.claims)
            if not (reply.claims or reply.more):
                break
        for _ in range(100):
            if not broker.state().lanes:
                break
            self.ask(500, *queues)


def job_id() -> UUID:
    return UUID(bytes=secrets.token_bytes(16))


def publication(job: UUID, lane: str, **options: object) -> Publication:
    return replace(Publication(job, "default", lane, task_number=1), **options)  # type: ignore[arg-type]


def settings(clock: Clock | None = None, **options: object) -> SchedulerSettings:
    return replace(SchedulerSettings(queues=QUEUES, clock_us=clock), **options)  # type: ignore[arg-type]


def by_jobs(clock: Clock, **options: object) -> SchedulerSettings:
    return settings(clock, **{"mode": "jobs", "quantum": 5000, **options})


def memory_broker(settings: SchedulerSettings) -> MemoryBroker:
    return opened(MemoryBroker(settings))


def redis_broker(url: str, settings: SchedulerSettings, namespace: str = "test") -> RedisBroker:
    return opened(unopened_redis_broker(url, settings, namespace))


def unopened_redis_broker(url: str, settings: SchedulerSettings, namespace: str = "test") -> RedisBroker:
    keys = Keys(namespace)
    store = RedisStore(lambda: redis.Redis.from_url(url, protocol=2), keys.meta, patience=PATIENCE)
    return RedisBroker(settings, store, keys)


def opened(broker: B) -> B:
    broker.begin_rebuild("epoch1", replaces=None)
    broker.open_epoch("epoch1")
    return broker


def new_namespace() -> str:
    return f"test-{os.getpid()}-{secrets.token_hex(4)}"


def check_empty(broker: Broker) -> None:
    """A drained schedule holds no lane with work, no lease and nothing in the ring; on Redis no key that speaks of them."""
    state = broker.state()
    assert not any(state.ring.values())
    assert not state.leases
    assert not [lane for lane in state.lanes.values() if lane.waiting or lane.running or lane.parked or lane.due_round]
    assert all(depth == {"lanes": 0, "parked": 0, "waiting": 0, "running": 0} for depth in broker.depths().values())


def kinds_of_keys(client: redis.Redis, prefix: str) -> Counter[str]:
    """How many keys of each kind a schedule has; "foreign" are those of some schedule that carry no hash tag."""
    kinds: Counter[str] = Counter()
    for key in client.scan_iter(count=1000):
        text = key.decode("latin-1")
        if text.startswith(prefix):
            parts = text[len(prefix) :].split(":")
            kinds[parts[1] if len(parts) > 1 else parts[0]] += 1
        elif not text.startswith("{dtq:") and ("dtq" in text or "epoch1" in text):
            kinds["foreign"] += 1
    return kinds


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """REDIS_URL, or a private Valkey."""
    if url := os.environ.get("REDIS_URL"):
        yield url
        return
    with Valkey() as server:
        yield server.url


Make = Callable[..., Schedule]
