"""Every implementation of the broker, each test in a namespace of its own; afterwards the schedule is drained and looked through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis

from django_tenant_queue.brokers.redis.keys import Keys
from tests import schedules
from tests.schedules import Clock, Schedule, redis_url

__all__ = ["redis_url"]


@pytest.fixture(params=["memory", "redis"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(kind: str, request: pytest.FixtureRequest) -> Iterator[schedules.Make]:
    """Make a schedule: `make(mode="jobs", quantum=5000)`. The clock stands still until the test turns it."""
    with ExitStack() as ends:

        def make_one(**options: object) -> Schedule:
            clock = Clock()
            settings = schedules.settings(clock, **options)
            if kind == "memory":
                schedule = Schedule(schedules.memory_broker(settings), clock)
                ends.callback(check_memory, schedule)
                return schedule
            namespace, url = schedules.new_namespace(), request.getfixturevalue("redis_url")
            schedule = Schedule(schedules.redis_broker(url, settings, namespace), clock)
            ends.callback(check_redis, schedule, url, Keys(namespace).prefix)
            return schedule

        yield make_one


@pytest.fixture
def by_time(make: schedules.Make) -> Schedule:
    return make()


@pytest.fixture
def by_jobs(make: schedules.Make) -> Schedule:
    return make(mode="jobs", quantum=5000)


def check_memory(schedule: Schedule) -> None:
    if schedule.drains:
        schedule.drain()
        schedules.check_empty(schedule.broker)


def check_redis(schedule: Schedule, url: str, prefix: str) -> None:
    with redis.Redis.from_url(url) as client:
        try:
            check_memory(schedule)
            kinds = schedules.kinds_of_keys(client, prefix)
            assert not kinds["foreign"], "a key without the schedule's hash tag was written"
            if schedule.drains:
                kept = schedules.KEPT | ({"counters"} if schedule.broker.state().corrupt else set())
                assert not set(kinds) - kept - {"foreign"}, f"left behind: {kinds}"
        finally:
            for key in client.scan_iter(match=prefix + "*", count=1000):
                client.unlink(key)
            schedule.broker.close()
