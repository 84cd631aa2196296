"""Brokers on a server of the tests, and a client that looks at what they wrote."""

from __future__ import annotations

from typing import Any

import redis
from django.conf import settings

from django_tenant_queue.brokers.base import SchedulerSettings
from django_tenant_queue.brokers.redis import clients
from django_tenant_queue.brokers.redis.broker import RedisBroker
from django_tenant_queue.brokers.redis.keys import Keys
from django_tenant_queue.brokers.redis.store import RedisStore
from django_tenant_queue.conf import Conf


def broker_of(conf: Conf, scheduler: SchedulerSettings, patience: clients.Patience = clients.WORKER) -> RedisBroker:
    """As configured, with settings of the scheduler that a test may choose (its clock)."""
    keys = Keys(conf.namespace)
    store = RedisStore(lambda: clients.connect(conf.redis_alias, conf.client_factory, patience), keys.meta, patience=patience)
    return RedisBroker(scheduler, store, keys)


def admin(url: str | None = None) -> Any:
    """A plain client, past everything of ours."""
    return redis.Redis.from_url(url or settings.REDIS_URL)


def keys_of(namespace: str) -> set[bytes]:
    with admin() as client:
        return set(client.scan_iter(match=f"{{dtq:{namespace}:*", count=1000))


def delete_namespace(namespace: str) -> None:
    """What FLUSHALL does to this schedule, without touching those of tests that run beside this one."""
    if keys := keys_of(namespace):
        admin().unlink(*keys)


def foreign_keys() -> set[bytes]:
    """Keys that carry no schedule's hash tag."""
    return {key for key in admin().scan_iter(count=1000) if not key.startswith(b"{dtq:")}
