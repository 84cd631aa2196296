"""What a server must be to hold a schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_tenant_queue.brokers.redis.requirements import check_server
from django_tenant_queue.brokers.redis.store import RedisStore
from django_tenant_queue.exceptions import BrokerMisconfigured, ImproperlyConfiguredQueue
from embedded import Valkey

StoreAt = Callable[..., RedisStore]


def test_a_server_that_throws_nothing_away_is_taken(store_at: StoreAt, valkey: Valkey, admin: Any) -> None:
    store_at(valkey.url).check()


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random", "volatile-lru", "volatile-ttl"])
def test_any_policy_but_noeviction_is_refused(store_at: StoreAt, valkey: Valkey, admin: Any, policy: str) -> None:
    """C10"""
    admin.config_set("maxmemory-policy", policy)
    try:
        with pytest.raises(BrokerMisconfigured, match=rf"maxmemory-policy '{policy}'.*noeviction") as caught:
            store_at(valkey.url).check()
    finally:
        admin.config_set("maxmemory-policy", "noeviction")
    assert isinstance(caught.value, ImproperlyConfiguredQueue)


def test_the_policy_is_read_where_config_is_blocked(store_at: StoreAt, valkey: Valkey, admin: Any) -> None:
    """C10: hosted servers block CONFIG; INFO tells it too."""
    admin.execute_command("ACL", "SETUSER", "hosted", "on", ">secret", "~*", "&*", "+@all", "-config")
    admin.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(BrokerMisconfigured, match="allkeys-lru"):
            store_at(f"redis://hosted:secret@127.0.0.1:{valkey.port}/0").check()
    finally:
        admin.config_set("maxmemory-policy", "noeviction")


def test_a_user_who_may_not_ask_is_told_so(store_at: StoreAt, valkey: Valkey, admin: Any) -> None:
    """C19"""
    admin.execute_command("ACL", "SETUSER", "small", "on", ">secret", "~*", "+ping", "+select")
    with pytest.raises(BrokerMisconfigured, match="permissions"):
        store_at(f"redis://small:secret@127.0.0.1:{valkey.port}/0").check()


@pytest.mark.parametrize(
    ("version", "taken"),
    [
        ({"redis_version": "6.2.0"}, True),
        ({"redis_version": "7.0.15"}, True),
        ({"redis_version": "10.1"}, True),
        ({"redis_version": "6.0.16"}, False),
        ({"redis_version": "5.0"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "8.0.1"}, True),
        ({"redis_version": "7.2.4", "valkey_version": "7.2.5"}, False),
        ({"redis_version": "unknown"}, False),
        ({}, False),
    ],
)
def test_the_version_must_be_new_enough(version: dict[str, str], taken: bool) -> None:
    info = {"maxmemory_policy": "noeviction", **version}
    if taken:
        check_server(info, "here")
    else:
        with pytest.raises(BrokerMisconfigured, match="at least"):
            check_server(info, "here")
