"""The keys: what an epoch leaves behind goes, what belongs to others stays, and the server's own clock is used."""

from __future__ import annotations

import time

import pytest
import redis

from django_tenant_queue.brokers.redis.keys import Keys, decode, encode
from tests.contract.test_broker_publish import HOSTILE
from tests.schedules import Schedule, new_namespace, redis_broker, settings


def keys(client: redis.Redis, prefix: str) -> set[bytes]:
    return set(client.scan_iter(match=prefix + "*", count=1000))


@pytest.mark.parametrize("name", [*HOSTILE, "\ud800"])
def test_an_encoded_name_is_plain_and_comes_back(name: str) -> None:
    assert decode(encode(name).encode()) == name
    assert set(encode(name)).isdisjoint(":{}*?[]\\^ ")


def test_older_epochs_are_unlinked_in_pages_and_counted(by_jobs: Schedule, redis_url: str) -> None:
    """Only this shard's: a namespace whose name begins like ours keeps all it has (C22)."""
    client, prefix = redis.Redis.from_url(redis_url), by_jobs.broker._keys.prefix  # type: ignore[attr-defined]
    neighbour = redis_broker(redis_url, settings(by_jobs.clock), new_namespace())
    neighbour.publish([])
    for number in range(600):
        by_jobs.put(f"lane{number}")
    by_jobs.take(5)
    old = keys(client, prefix + "epoch1:")
    assert len(old) > 600
    by_jobs.broker.begin_rebuild("epoch10", replaces="epoch1")
    by_jobs.put("A", 3)
    kept = keys(client, prefix) - old
    theirs = keys(client, neighbour._keys.prefix)
    assert by_jobs.broker.discard_old_epochs() == len(old)
    assert keys(client, prefix) == kept
    assert keys(client, neighbour._keys.prefix) == theirs
    client.unlink(*theirs)
    neighbour.close()


def test_default_limits_take_no_memory(by_jobs: Schedule, redis_url: str) -> None:
    client, prefix = redis.Redis.from_url(redis_url), by_jobs.broker._keys.prefix  # type: ignore[attr-defined]
    by_jobs.limit("A", max_running=3)
    assert keys(client, prefix + "epoch1:limits")
    by_jobs.limit("A")
    assert not keys(client, prefix + "epoch1:limits")


def test_two_namespaces_do_not_meet(redis_url: str, by_jobs: Schedule) -> None:
    """C22: an environment beside this one on the same server sees none of its jobs."""
    by_jobs.put("A")
    other = Schedule(redis_broker(redis_url, settings(by_jobs.clock), new_namespace()), by_jobs.clock)
    assert other.take(9) == ()
    client = redis.Redis.from_url(redis_url)
    client.unlink(*keys(client, other.broker._keys.prefix))  # type: ignore[attr-defined]
    other.broker.close()


def test_time_comes_from_the_server(redis_url: str) -> None:
    namespace = new_namespace()
    broker = redis_broker(redis_url, settings(None), namespace)
    schedule = Schedule(broker, None)  # type: ignore[arg-type]
    schedule.put("A")
    before = time.time()
    (claim,) = schedule.take()
    assert before - 1 <= claim.claimed_us / 1e6 <= time.time() + 1
    assert abs(claim.claimed_us % 1_000_000 - 500_000) <= 500_000
    broker.ack([claim.token])
    client = redis.Redis.from_url(redis_url)
    client.unlink(*keys(client, Keys(namespace).prefix))
    broker.close()
