"""A private Valkey per module, a proxy in front of it, and stores over either."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_tenant_queue.brokers.redis import clients
from django_tenant_queue.brokers.redis.store import RedisStore
from embedded import Valkey
from tests.proxy import Proxy

KEY = b"{dtq:test:0}:meta"
HASTY = clients.Patience(total_seconds=0.6, attempt_seconds=0.25)
Connector = Callable[..., clients.Connect]


@pytest.fixture(scope="module")
def valkey_of_module() -> Iterator[Valkey]:
    with Valkey() as server:
        yield server


@pytest.fixture
def valkey(valkey_of_module: Valkey) -> Valkey:
    """Up, empty, without scripts, as it was configured."""
    valkey_of_module.start()
    return valkey_of_module


@pytest.fixture
def proxy(valkey: Valkey) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", valkey.port)) as proxy:
        yield proxy


@pytest.fixture
def connector(settings: Any) -> Connector:
    """Make `connect` of a cache alias whose URL is given; `options` are the alias's OPTIONS."""

    def make(url: str, *, patience: clients.Patience = HASTY, **options: Any) -> clients.Connect:
        settings.CACHES = {
            **settings.CACHES,
            "under_test": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url, "OPTIONS": options},
        }
        return lambda: clients.connect("under_test", None, patience)

    return make


@pytest.fixture
def store_at(connector: Connector) -> Iterator[Callable[..., RedisStore]]:
    stores: list[RedisStore] = []

    def make(url: str, *, patience: clients.Patience = HASTY, **options: Any) -> RedisStore:
        stores.append(RedisStore(connector(url, patience=patience, **options), KEY, patience=patience))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def admin(valkey: Valkey, connector: Connector) -> Iterator[Any]:
    """A client of the tests, past the proxy. Empties the server first."""
    client = connector(valkey.url, patience=clients.WORKER)()
    client.flushall()
    client.script_flush()
    yield client
    client.close()


def url_through(proxy: Proxy, valkey: Valkey) -> str:
    return f"redis://:{valkey.password}@127.0.0.1:{proxy.port}/0"
