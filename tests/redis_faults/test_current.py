"""The configured broker: one per process, and another when the configuration changes."""

from __future__ import annotations

import os
from typing import Any

import pytest

from django_tenant_queue.brokers.base import Published
from django_tenant_queue.brokers.current import get_broker
from django_tenant_queue.brokers.redis import clients
from django_tenant_queue.exceptions import BrokerMisconfigured
from embedded import Valkey
from tests.redis_faults.schedules import contents, job, open_epoch


@pytest.fixture
def configured(settings: Any, valkey: Valkey, admin: Any) -> Any:
    settings.CACHES = {**settings.CACHES, "schedule": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": valkey.url}}
    settings.TENANT_QUEUE = {"REDIS_ALIAS": "schedule", "NAMESPACE": "current"}
    return settings


def test_it_is_built_once(configured: Any) -> None:
    assert get_broker() is get_broker()
    assert get_broker(patient=True) is get_broker(patient=True)
    assert get_broker(patient=True)._store.patience == clients.WORKER  # type: ignore[attr-defined]
    assert get_broker()._store.patience == clients.REQUEST  # type: ignore[attr-defined]


def test_it_follows_the_settings(configured: Any, admin: Any) -> None:
    first = open_epoch(get_broker())  # type: ignore[arg-type]
    configured.TENANT_QUEUE = {"REDIS_ALIAS": "schedule", "NAMESPACE": "another", "LEASE_SECONDS": 60}
    assert get_broker() is not first
    assert get_broker().read_epoch() is None
    assert contents(admin, "another") == {}
    assert contents(admin, "current") != {}


def test_two_namespaces_on_one_server_do_not_meet(configured: Any, admin: Any) -> None:
    """C22"""
    open_epoch(get_broker()).publish([job(1)])  # type: ignore[arg-type]
    configured.TENANT_QUEUE = {"REDIS_ALIAS": "schedule", "NAMESPACE": "staging"}
    staging = open_epoch(get_broker())  # type: ignore[arg-type]
    assert staging.state().lanes == {}
    assert staging.publish([job(1)]) == [Published.PUBLISHED]


def test_a_child_uses_connections_of_its_own(configured: Any, admin: Any) -> None:
    broker = open_epoch(get_broker())  # type: ignore[arg-type]
    pid = os.fork()
    if pid == 0:
        os._exit(0 if get_broker().publish([job(1)]) == [Published.PUBLISHED] else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert broker.publish([job(1)]) == [Published.WAITING]


def test_an_alias_that_is_not_usable_is_said_at_the_first_verb(configured: Any) -> None:
    configured.TENANT_QUEUE = {"REDIS_ALIAS": "nowhere"}
    with pytest.raises(BrokerMisconfigured, match="no cache alias 'nowhere'"):
        get_broker().check()
