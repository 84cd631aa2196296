"""Entries that somebody wrote by hand: what cannot be read is dropped and counted, what can be read gains nothing, the loop goes on."""

from __future__ import annotations

import logging
import struct
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from django_tenant_queue.brokers.redis.broker import RedisBroker
from django_tenant_queue.brokers.redis.keys import Keys
from embedded import Valkey
from tests.redis_faults.conftest import HASTY
from tests.redis_faults.schedules import EPOCH, broker_over, contents, job, jobs, open_epoch, request
from tests.schedules import Clock

ROOT = Keys("forged").prefix.encode() + EPOCH.encode() + b":"
GARBAGE = {
    "empty": b"",
    "short": b"x",
    "not text": b"\xff\xfe\x00\x80",
    "a megabyte": b"\x01" * 1_000_000,
    "longer than a job": b"\x00" * 33,
    "zeros of a job's length": b"\x00" * 32,
    "ones of a lease's length": b"\xff" * 43,
    "a number": b"-9223372036854775809",
    "not a number": b"nan",
    "newlines": b"\r\n\r\n$5",
}


@pytest.fixture
def broker(connector: Callable[..., Any], valkey: Valkey, admin: Any) -> RedisBroker:
    broker = open_epoch(broker_over(connector(valkey.url), "forged", Clock(), HASTY))
    broker.publish(jobs(12))
    assert len(broker.claim(request("held", 3)).claims) == 3
    return broker


def _add(client: Any, name: bytes, entry: bytes, score: float) -> None:
    client.zadd(ROOT + name, {entry: score})


WRITES: dict[str, Callable[[Any, bytes], Any]] = {
    "ring": lambda client, entry: _add(client, b"ring:default", entry, 0),
    "ring, member of a lane": lambda client, entry: _add(client, b"ring:default", b"1" + b"\x00" * 8 + entry, -1),
    "ring, endless round": lambda client, entry: _add(client, b"ring:default", b"1" + b"\x00" * 8 + b"acme" + entry, float("-inf")),
    "place": lambda client, entry: client.hset(ROOT + b"place:default", b"acme", entry),
    "line": lambda client, entry: _add(client, b"line:default:acme", entry, -101),
    "credit": lambda client, entry: client.hset(ROOT + b"credit:default", b"acme", entry),
    "parked": lambda client, entry: client.hset(ROOT + b"parked:default", entry, b"cap"),
    "idle": lambda client, entry: _add(client, b"idle:default", entry, 0),
    "leases": lambda client, entry: _add(client, b"leases:default:acme", entry, 0),
    "estimate": lambda client, entry: client.set(ROOT + b"estimate:default:acme", entry),
    "limits": lambda client, entry: client.hset(ROOT + b"limits", b"acme", entry),
    "wakeups": lambda client, entry: _add(client, b"wakeups", entry, 0),
    "sleepers": lambda client, entry: _add(client, b"sleepers:default", entry, Clock().us),
    "expiry": lambda client, entry: _add(client, b"expiry", entry, 0),
    "lease": lambda client, entry: client.hset(ROOT + b"lease", f"{'held':0<24}.0", entry),
    "lease, with its expiry": lambda client, entry: [client.hset(ROOT + b"lease", b"t", entry), _add(client, b"expiry", b"t", 0)],
    "request": lambda client, entry: client.set(ROOT + b"request:" + request("mine").request_id.encode(), entry),
    "queues": lambda client, entry: client.sadd(ROOT + b"queues", entry),
    "snapshot": lambda client, entry: client.hset(Keys("forged").meta, "snapshot", entry.decode("ascii", "replace")),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_an_entry_that_cannot_be_read_does_not_stop_the_others(
    broker: RedisBroker, admin: Any, caplog: pytest.LogCaptureFixture, write: Callable[[Any, bytes], Any]
) -> None:
    """C21: nothing raises, every healthy job of the other lanes is claimed and ended, no megabyte is logged."""
    for number, (name, entry) in enumerate(GARBAGE.items(), start=1):
        write(admin, entry)
        broker.publish([*jobs(6, first=1000 * number), job(1000 * number + 99, "late")])
        _work(broker, f"{number}.")
        waiting = {lane: state.waiting for (_, lane), state in broker.state().lanes.items() if lane in ("globex", "initech", "late")}
        assert set(waiting.values()) <= {0}, (name, waiting)
    assert all(len(record.getMessage()) < 500 for record in caplog.records)


def _work(broker: RedisBroker, name: str) -> None:
    broker.claim(request("mine", 5, sleeper="me"))
    for n in range(4):
        claims = broker.claim(request(f"{name}{n}.", 8, sleeper="me")).claims
        broker.renew([claim.token for claim in claims])
        broker.ack([claim.token for claim in claims])
        broker.reap(50)
    broker.depths()


@pytest.mark.parametrize(
    "entry", [b"", b"x", b"\xff\xfe", b"\x01" * 1_000_000, b"\x00" * 32], ids=["empty", "short", "bytes", "1 MB", "cost 0"]
)
def test_garbage_in_a_line_is_dropped_counted_and_shown_in_its_first_bytes(
    broker: RedisBroker, admin: Any, caplog: pytest.LogCaptureFixture, entry: bytes
) -> None:
    """C21"""
    _add(admin, b"line:default:acme", entry, -101)
    with caplog.at_level(logging.ERROR):
        claims = broker.claim(request("mine", 20)).claims
    assert len(claims) == 9
    assert broker.state().corrupt == 1
    [record] = caplog.records
    assert "line" in record.getMessage()


class TestForgedJobs:
    """J01: the schedule holds ids and lanes only; what a forged entry says is judged against the ledger's row, by start."""

    def _forge(self, admin: Any, lane: bytes, job_id: uuid.UUID, *, task: int = 7, cost: int = 1000) -> None:
        _add(admin, b"line:default:" + lane, struct.pack(">Q16sII", 0, job_id.bytes, task, cost), -101)

    def test_an_unknown_id_is_claimed_under_its_lane_and_gone_after_release(self, broker: RedisBroker, admin: Any) -> None:
        """J01: start finds no row, the phantom is released, and nothing of it is left."""
        self._forge(admin, b"acme", uuid.UUID(int=666))
        claims = {claim.job_id.int: claim for claim in broker.claim(request("mine", 20)).claims}
        assert claims[666].lane_key == "acme"
        broker.release([claim.token for claim in claims.values()])
        assert uuid.UUID(int=666) not in broker.state().leases.values()
        assert not any(uuid.UUID(int=666).bytes in repr(value).encode() for value in contents(admin, "forged").values())

    def test_a_job_in_another_tenants_lane_says_that_lane(self, broker: RedisBroker, admin: Any) -> None:
        """J01: start compares the row's lane key with the claim's, and refuses."""
        self._forge(admin, b"initech", job(1).job_id)
        claims = [claim for claim in broker.claim(request("mine", 30)).claims if claim.job_id == job(1).job_id]
        assert {claim.lane_key for claim in claims} <= {"globex", "initech"}
        assert len(claims) <= 1  # an id is under one lease at most

    def test_an_id_forged_many_times_is_leased_once(self, broker: RedisBroker, admin: Any) -> None:
        """F01, J01"""
        for n in range(50):
            _add(admin, b"line:default:acme", struct.pack(">Q16sII", n, job(3).job_id.bytes, 7, 1000), -50)
        claims = broker.claim(request("mine", 100)).claims
        assert len([claim for claim in claims if claim.job_id == job(3).job_id]) <= 1
        assert sum(depth["running"] for depth in broker.depths().values()) == 3 + len(claims)

    def test_a_forged_cost_costs_its_own_lane_only(self, broker: RedisBroker, admin: Any) -> None:
        """J01: within the range it is charged to the lane it lies in; beyond it is dropped."""
        self._forge(admin, b"acme", uuid.UUID(int=666), cost=1_000_000)
        self._forge(admin, b"acme", uuid.UUID(int=667), cost=4_000_000_000)
        claims = broker.claim(request("mine", 30)).claims
        assert {claim.job_id.int for claim in claims if claim.lane_key != "acme"} >= {
            number for number in range(1, 13) if number % 3 and uuid.UUID(int=number) not in broker.state().leases.values()
        }
        assert 667 not in {claim.job_id.int for claim in claims}
        assert broker.state().corrupt == 1
