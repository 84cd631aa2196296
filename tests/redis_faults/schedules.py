"""Brokers on a server of the tests, what a job looks like to them, and everything that they wrote."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from django_tenant_queue.brokers.base import ClaimRequest, Publication, QueueShare, SchedulerSettings
from django_tenant_queue.brokers.redis.broker import RedisBroker
from django_tenant_queue.brokers.redis.clients import Connect, Patience
from django_tenant_queue.brokers.redis.keys import Keys
from django_tenant_queue.brokers.redis.store import RedisStore
from tests.schedules import Clock

EPOCH = "e" * 24


def broker_over(connect: Connect, namespace: str, clock: Clock | None, patience: Patience) -> RedisBroker:
    keys = Keys(namespace)
    settings = SchedulerSettings(clock_us=clock, first_estimate_us=10_000)
    return RedisBroker(settings, RedisStore(connect, keys.meta, patience=patience), keys)


def open_epoch(broker: RedisBroker, epoch_id: str = EPOCH, *, replaces: str | None = None) -> RedisBroker:
    assert broker.begin_rebuild(epoch_id, replaces=replaces)
    broker.open_epoch(epoch_id)
    return broker


def job(number: int, lane_key: str = "acme", **options: Any) -> Publication:
    """The same id for the same number, in every broker."""
    return Publication(uuid.UUID(int=number), options.pop("queue", "default"), lane_key, task_number=7, **options)


def jobs(count: int, lanes: Sequence[str] = ("acme", "globex", "initech"), *, first: int = 1) -> list[Publication]:
    return [job(number, lanes[number % len(lanes)]) for number in range(first, first + count)]


def request(name: str, limit: int = 10, **options: Any) -> ClaimRequest:
    return ClaimRequest(f"{name:0<24}", (QueueShare("default", limit),), limit, **options)


def contents(client: Any, namespace: str) -> dict[bytes, Any]:
    """Every key of a schedule without its namespace -> its whole value."""
    prefix = Keys(namespace).prefix.encode()
    return {key.removeprefix(prefix): _value(client, key) for key in client.scan_iter(prefix + b"*", count=1000)}


def _value(client: Any, key: bytes) -> Any:
    kind = client.type(key)
    if kind == b"hash":
        return client.hgetall(key)
    if kind == b"zset":
        return client.zrange(key, 0, -1, withscores=True)
    return client.smembers(key) if kind == b"set" else client.get(key)
