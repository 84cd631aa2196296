"""C21: entries written by hand are dropped, counted and logged by their first bytes; the claim goes on."""

from __future__ import annotations

import logging
import struct
from typing import Any

import pytest

from django_tenant_queue.brokers.redis.broker import RedisBroker
from tests.schedules import Schedule, job_id

ARRIVAL = struct.pack(">Q", 1)
JOB = struct.pack(">16sII", job_id().bytes, 1, 1000)
UNREADABLE = {
    "empty": b"",
    "a megabyte of garbage": b"\xff\xfe" * 500_000,
    "too short": ARRIVAL + JOB[:-1],
    "too long": ARRIVAL + JOB + b"x",
    "cost of nothing": ARRIVAL + JOB[:-4] + struct.pack(">I", 0),
    "cost beyond all": ARRIVAL + JOB[:-4] + struct.pack(">I", 1_000_001),
    "json": b'{"job_id": 1, "tenant_id": "acme"}',
}


class Hand:
    """Writes past the broker."""

    def __init__(self, schedule: Schedule) -> None:
        broker = schedule.broker
        assert isinstance(broker, RedisBroker)
        self.client: Any = broker._store.client
        self.root = broker._keys.prefix + "epoch1:"

    def add(self, kind: str, member: bytes, score: float = -1000) -> None:
        self.client.zadd(self.root + kind, {member: score})


@pytest.fixture
def hand(by_jobs: Schedule) -> Hand:
    return Hand(by_jobs)


@pytest.mark.parametrize("entry", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_unreadable_job_is_dropped_and_counted(by_jobs: Schedule, hand: Hand, entry: bytes, caplog: pytest.LogCaptureFixture) -> None:
    ids = by_jobs.put("A", 2)
    hand.add("line:default:A", entry)
    with caplog.at_level(logging.ERROR):
        assert [claim.job_id for claim in by_jobs.take(3)] == ids
    assert by_jobs.broker.state().corrupt == 1
    (record,) = caplog.records
    assert record.getMessage().endswith(f"it begins with {entry[:48]!r}.")


def test_a_line_of_nothing_but_garbage_is_cleared_in_bounded_steps(by_jobs: Schedule, hand: Hand, caplog: pytest.LogCaptureFixture) -> None:
    (job,) = by_jobs.put("A", priority=-100)
    for number in range(2000):
        hand.add("line:default:A", b"garbage %d" % number)
    replies = [by_jobs.ask(1) for _ in range(2)]
    assert len(caplog.records) == 8, "a few samples, not a flood"
    assert [claim.job_id for reply in replies for claim in reply.claims] == [job]
    assert by_jobs.broker.state().corrupt == 2000


@pytest.mark.parametrize("member", [b"", b"1", b"\xff" * 9 + b"A", b"1" + ARRIVAL + b"nobody", b"x" * 1_000_000, b"0" + ARRIVAL + b"A"])
def test_an_unreadable_lane_of_the_ring_is_dropped_and_counted(by_jobs: Schedule, hand: Hand, member: bytes) -> None:
    by_jobs.put("A", 2)
    by_jobs.put("B", 2)
    hand.client.hset(hand.root + "clock:default", "arrivals", 100)  # so that no member written by hand is a lane's own
    hand.add("ring:default", member)
    assert sorted(by_jobs.lanes_taken(9)) == list("AABB")
    assert by_jobs.broker.state().corrupt == 1


@pytest.mark.parametrize("score", [float("inf"), float("-inf"), 1e300, 2.0**52 + 1, 1.5, 0, -1])
def test_a_round_written_by_hand_does_not_become_the_round(by_jobs: Schedule, hand: Hand, score: float) -> None:
    by_jobs.put("A", 2)
    ((member, _),) = hand.client.zrange(hand.root + "ring:default", 0, -1, withscores=True)
    hand.add("ring:default", member, score)
    assert by_jobs.lanes_taken(9) == "AA"
    state = by_jobs.broker.state()
    assert (state.corrupt, state.rounds["default"]) == (1, 1)


def test_the_largest_round_is_still_one(by_jobs: Schedule, hand: Hand) -> None:
    by_jobs.put("A", 2)
    ((member, _),) = hand.client.zrange(hand.root + "ring:default", 0, -1, withscores=True)
    hand.add("ring:default", member, 2.0**52)
    assert by_jobs.lanes_taken(9) == "AA"
    assert by_jobs.broker.state().corrupt == 0


def test_a_lane_that_lost_its_place_is_let_in_again(by_jobs: Schedule, hand: Hand) -> None:
    by_jobs.put("A", 2)
    hand.client.unlink(hand.root + "place:default")
    assert by_jobs.lanes_taken(9) == "AA"


@pytest.mark.parametrize("key", ["credit:default", "limits"])
def test_unreadable_credit_and_limits_count_as_none(by_jobs: Schedule, hand: Hand, key: str) -> None:
    by_jobs.put("A", 2)
    hand.client.hset(hand.root + key, "A", b"garbage")
    hand.client.set(hand.root + "estimate:default:A", b"garbage")
    assert by_jobs.lanes_taken(9) == "AA"


LEASE = b"%16c" % b"j" + struct.pack(">I", 1)


def lease_record(cost: int, length: int = 7) -> bytes:
    return LEASE + struct.pack(">IQQBH", cost, 1, 0, 0, length) + b"defaultA"


@pytest.mark.parametrize(
    "record", [b"", b"x" * 42, b"\xff" * 60, lease_record(0), lease_record(1_000_001), lease_record(1000, 9), lease_record(1000, 7)[:43]]
)
def test_an_unreadable_lease_is_dropped_by_the_reaper(
    by_jobs: Schedule, hand: Hand, record: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    by_jobs.put("A", 2)
    bad, good = by_jobs.take(2)
    hand.client.hset(hand.root + "lease", bad.token, record)
    assert by_jobs.broker.ack([bad.token]) == frozenset()
    by_jobs.clock.advance(9)
    assert by_jobs.broker.reap(10) == (good,)
    assert by_jobs.broker.reap(10) == ()
    assert "cannot be read" in caplog.text
    assert by_jobs.broker.state().corrupt == 1
    by_jobs.drains = False  # whose lease it was is not known: its lane counts it until the next epoch


def test_an_entry_pushed_fifty_times_runs_once(by_jobs: Schedule, hand: Hand) -> None:
    """F01: the same entry in a line fifty times gives one claim; 49 drops are counted."""
    (job,) = by_jobs.put("A")
    for number in range(49):
        hand.add("line:default:A", struct.pack(">Q16sII", 1000 + number, job.bytes, 1, 1000), score=0)
    claims = by_jobs.take(50)
    assert [claim.job_id for claim in claims] == [job]
    by_jobs.run(claims)
    assert by_jobs.broker.state().corrupt == 49
    assert by_jobs.broker.depths()["default"] == {"lanes": 0, "parked": 0, "waiting": 0, "running": 0}


def test_a_forged_job_is_claimed_like_any_other(by_jobs: Schedule, hand: Hand) -> None:
    """J01 (the part of the schedule): who can write to Redis can offer ids; the start refuses them against the row."""
    by_jobs.put("A")
    hand.add("line:default:A", ARRIVAL + JOB, score=-50)
    assert [claim.job_id.bytes for claim in by_jobs.take(1)] == [JOB[:16]]
