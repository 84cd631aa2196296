"""Fixtures of every world: brokers with a namespace of their own over the real servers, a clock to turn, private servers to break."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from django.db import connection, connections, transaction
from django.test import TransactionTestCase

from django_tenant_queue import conf as configuration
from django_tenant_queue.brokers.base import Broker, SchedulerSettings
from django_tenant_queue.brokers.memory import MemoryBroker
from django_tenant_queue.conf import Conf
from embedded import Valkey
from tests.redis_servers import broker_of, delete_namespace, foreign_keys

os.environ.setdefault("DTQ_FAILPOINTS", "")  # failpoints may be switched on in this process


_FILLED_TABLES = """
    SELECT c.relname, c.relrowsecurity FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
    AND pg_relation_size(c.oid) > 0 AND c.relname NOT IN ('django_migrations', 'django_content_type', 'auth_permission')"""


def _empty_tables(self: TransactionTestCase) -> None:
    """After a transactional test: what Django's flush does, without making every permission anew, and only where something is.

    Foreign keys are deferred, so any order will do. DELETE sees no rows of tables under row-level security: those are truncated.
    """
    for alias in self._databases_names(include_mirrors=False):
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            cursor.execute(_FILLED_TABLES)
            for table, secured in cursor.fetchall():
                cursor.execute(f'TRUNCATE "{table}" CASCADE' if secured else f'DELETE FROM "{table}"')


TransactionTestCase._fixture_teardown = _empty_tables  # type: ignore[method-assign]


class Clock:
    """The schedule's time, in microseconds; stands still until it is turned."""

    def __init__(self) -> None:
        self.us = time.time_ns() // 1000

    def __call__(self) -> int:
        return self.us

    def advance(self, seconds: float) -> None:
        self.us += round(seconds * 1_000_000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def conf(settings: Any) -> Conf:
    """The sample project's configuration in a namespace of this test's own."""
    settings.TENANT_QUEUE = {**settings.TENANT_QUEUE, "NAMESPACE": f"test-{secrets.token_hex(6)}"}
    return configuration.get_conf()


@pytest.fixture
def memory_broker(conf: Conf, clock: Clock) -> MemoryBroker:
    return MemoryBroker(scheduler_settings(conf, clock))


@pytest.fixture
def redis_broker(conf: Conf, clock: Clock) -> Iterator[Broker]:
    """On REDIS_URL. Afterwards every key it wrote must carry its hash tag; they are removed."""
    before = foreign_keys()
    broker = broker_of(conf, scheduler_settings(conf, clock))
    yield broker
    broker.close()
    delete_namespace(conf.namespace)
    assert not foreign_keys() - before, "a key outside the schedule's hash tag was written"


@pytest.fixture(params=["memory", "redis"])
def broker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Each implementation in turn; enqueue publishes to it."""
    made: Broker = request.getfixturevalue(f"{request.param}_broker")
    monkeypatch.setattr("django_tenant_queue.enqueueing.get_broker", lambda: made)
    return made


@pytest.fixture
def another_backend(transactional_db: None) -> Iterator[Callable[[], psycopg.Connection]]:
    """Makes backends of their own, in autocommit, to hold locks and keep transactions open."""
    parameters = connection.get_connection_params()
    names = ("dbname", "user", "password", "host", "port")
    with ExitStack() as stack:
        yield lambda: stack.enter_context(
            psycopg.connect(**{name: parameters[name] for name in names if name in parameters}, autocommit=True)
        )


@pytest.fixture
def private_valkey() -> Iterator[Valkey]:
    """A server of this test's own, to flush, stop and fill."""
    with Valkey() as server:
        yield server


def scheduler_settings(conf: Conf, clock: Clock) -> SchedulerSettings:
    lease_us = round(conf.lease_seconds * 1_000_000)
    return SchedulerSettings(mode=conf.fairness, quantum=conf.quantum_units, queues=conf.queue_names, lease_us=lease_us, clock_us=clock)
