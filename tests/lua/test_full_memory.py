"""C09: a server at its memory limit (noeviction) refuses new jobs, and everything a worker needs to drain goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from django_tenant_queue.exceptions import ScheduleUnavailable
from embedded import Valkey
from tests.schedules import Clock, Schedule, job_id, publication, redis_broker, settings


@pytest.fixture
def full() -> Iterator[Schedule]:
    """Jobs waiting, running, capped and postponed, and then not a byte left."""
    clock = Clock()
    with Valkey() as server:
        schedule = Schedule(redis_broker(server.url, settings(clock)), clock)
        schedule.limit("capped", max_running=1)
        schedule.put("A", 300)
        schedule.put("capped", 5)
        schedule.take(3)
        with redis.Redis.from_url(server.url) as client:
            client.config_set("maxmemory", 1)
            yield schedule
            assert client.info("stats")["evicted_keys"] == 0
        schedule.broker.close()


def test_a_full_server_takes_no_new_jobs(full: Schedule) -> None:
    with pytest.raises(ScheduleUnavailable):
        full.broker.publish([publication(job_id(), "B")])


def test_a_full_server_is_drained(full: Schedule) -> None:
    tokens = list(full.broker.state().leases)
    assert len(tokens) == 3
    assert full.broker.renew(tokens) == set(tokens)
    full.broker.postpone(tokens[:1], 1)
    full.broker.release(tokens[1:2])
    full.broker.ack(tokens[2:])
    full.clock.advance(1)
    assert len(full.broker.reap(10)) == 1
    done = 3
    while claims := full.take(50):
        done += len(claims)
        full.run(claims)
    assert done == 305
    assert full.broker.depths()["default"] == {"lanes": 0, "parked": 0, "waiting": 0, "running": 0}
