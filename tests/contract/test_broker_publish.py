"""Publishing: an id is in at most one place, lanes keep their order."""

from __future__ import annotations

from uuid import UUID

import pytest

from django_tenant_queue.brokers.base import Published
from tests.schedules import Make, Schedule, job_id, publication


def words(schedule: Schedule, *ids: UUID, **options: object) -> list[Published]:
    return schedule.broker.publish([publication(i, "A", **options) for i in ids])


def test_a_job_that_waits_is_refused(by_jobs: Schedule) -> None:
    first, second = job_id(), job_id()
    assert words(by_jobs, first) == [Published.PUBLISHED]
    assert words(by_jobs, second, first) == [Published.PUBLISHED, Published.WAITING]
    assert words(by_jobs, first, queue="bulk") == [Published.WAITING]
    assert len(by_jobs.take(10, "default", "bulk")) == 2


def test_a_leased_job_is_refused_until_its_lease_ends(by_jobs: Schedule) -> None:
    (job,) = by_jobs.put("A")
    claims = by_jobs.take()
    assert words(by_jobs, job) == [Published.LEASED]
    by_jobs.run(claims)
    assert words(by_jobs, job) == [Published.PUBLISHED]


def test_an_id_given_twice_in_one_call_is_published_once(by_jobs: Schedule) -> None:
    job = job_id()
    assert words(by_jobs, job, job) == [Published.PUBLISHED, Published.WAITING]
    assert by_jobs.broker.depths()["default"]["waiting"] == 1


def test_any_number_of_jobs_fits_one_call(by_jobs: Schedule) -> None:
    """A15 (the part of the schedule): no more than a few thousand values are unpacked by one script call."""
    ids = by_jobs.put("A", 5001)
    assert by_jobs.broker.depths()["default"]["waiting"] == 5001
    assert set(words(by_jobs, *ids)) == {Published.WAITING}
    assert by_jobs.broker.publish([]) == []


def test_a_lane_serves_by_priority_then_in_order_of_arrival(by_jobs: Schedule) -> None:
    low, high, plain, later = (
        by_jobs.put("A", priority=-100)[0],
        by_jobs.put("A", priority=100)[0],
        by_jobs.put("A")[0],
        by_jobs.put("A")[0],
    )
    assert [claim.job_id for claim in by_jobs.take(4)] == [high, plain, later, low]


def test_suspects_go_before_every_priority(by_jobs: Schedule) -> None:
    (high,) = by_jobs.put("A", priority=100)
    (suspect,) = by_jobs.put("A", at_head=True)
    assert [claim.job_id for claim in by_jobs.take(2)] == [suspect, high]


def test_priority_does_not_move_a_lane_ahead_of_another(by_jobs: Schedule) -> None:
    """K10 (the part across tenants)."""
    by_jobs.put("A", 3)
    by_jobs.put("B", 3, priority=100)
    assert by_jobs.lanes_taken(6) == "AAABBB"


def test_queues_are_served_in_the_order_given(by_jobs: Schedule) -> None:
    by_jobs.put("A", 2, queue="bulk")
    by_jobs.put("B", 2, queue="default")
    by_jobs.put("C", 2, queue="interactive")
    assert by_jobs.lanes_taken(6, "interactive", "default", "bulk") == "CCBBAA"


def test_a_share_bounds_what_one_queue_gives(by_jobs: Schedule) -> None:
    from django_tenant_queue.brokers.base import ClaimRequest, QueueShare

    for queue in ("interactive", "bulk"):
        by_jobs.put("A", 9, queue=queue)
    shares = (QueueShare("interactive", 1), QueueShare("default", 4), QueueShare("bulk", 3))
    claims = by_jobs.broker.claim(ClaimRequest("r", shares, 8)).claims
    assert [claim.queue for claim in claims] == ["interactive", "bulk", "bulk", "bulk"]


HOSTILE = [
    *("", "a:b", "{x}", "}", "*", "?", "[", " ", "\n", "\t", "None", "..", "%00", "%"),
    *("' OR 1=1--", "😀", "\u202e", "x" * 128, "é", "e\u0301"),
]


@pytest.mark.parametrize("mode", ["time", "jobs"])
def test_lane_keys_never_share_a_key(make: Make, mode: str) -> None:
    """I01, C13: ids full of characters that mean something to Redis stay apart, and come back as they were."""
    schedule = make(mode=mode)
    jobs = {lane: schedule.put(lane)[0] for lane in HOSTILE}
    claims = schedule.take(100)
    assert {claim.lane_key: claim.job_id for claim in claims} == jobs
    assert {lane for _, lane in schedule.broker.state().lanes} == set(HOSTILE)


def test_a_claim_carries_what_was_published(by_time: Schedule) -> None:
    job = job_id()
    by_time.broker.publish([publication(job, "A", queue="bulk", task_number=4_000_000_000, cost=1_000_000)])
    (claim,) = by_time.take(1, "bulk")
    assert (claim.job_id, claim.queue, claim.lane_key, claim.task_number, claim.cost) == (job, "bulk", "A", 4_000_000_000, 1_000_000)
    assert (claim.claimed_us, claim.charged_us) == (by_time.clock.us, 1_000_000_000)
