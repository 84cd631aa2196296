"""Sleepers: who found less than asked is woken by the next work, one at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_tenant_queue.brokers.base import ClaimRequest, QueueShare, Waiter
from tests.schedules import Schedule


@pytest.fixture
def schedule(by_jobs: Schedule) -> Schedule:
    return by_jobs


@pytest.fixture
def waiters(schedule: Schedule) -> Iterator[dict[str, Waiter]]:
    opened = {name: schedule.broker.open_waiter(name) for name in ("one", "two", "three")}
    yield opened
    for waiter in opened.values():
        waiter.close()


def woken(waiters: dict[str, Waiter]) -> set[str]:
    return {name for name, waiter in waiters.items() if waiter.wait(0.15)}


def test_a_publish_wakes_one_sleeper(schedule: Schedule, waiters: dict[str, Waiter]) -> None:
    for name in ("two", "one"):
        schedule.take(1, "interactive", "default", sleeper=name)
        schedule.clock.us += 1
    schedule.put("A", 5)
    assert woken(waiters) == {"two"}
    schedule.put("A")
    assert woken(waiters) == {"one"}
    schedule.put("A")
    assert woken(waiters) == set()


def test_a_filled_claim_does_not_sleep(schedule: Schedule, waiters: dict[str, Waiter]) -> None:
    schedule.take(1, sleeper="one")
    schedule.put("A", 2)
    woken(waiters)
    assert len(schedule.take(2, sleeper="one")) == 2
    schedule.put("A")
    assert woken(waiters) == set()


def test_a_filled_claim_does_not_sleep_in_a_queue_that_offered_more(schedule: Schedule, waiters: dict[str, Waiter]) -> None:
    schedule.put("A", 1)
    schedule.broker.claim(ClaimRequest("r", (QueueShare("default", 5),), 1, "one"))
    schedule.put("A")
    assert woken(waiters) == set()


def test_a_claim_sleeps_only_where_it_could_take_more(schedule: Schedule, waiters: dict[str, Waiter]) -> None:
    shares = (QueueShare("bulk", 1), QueueShare("default", 1))
    schedule.put("A", 1, queue="bulk")
    assert len(schedule.broker.claim(ClaimRequest("r", shares, 5, "one")).claims) == 1
    schedule.put("A", queue="bulk")
    assert woken(waiters) == set()
    schedule.put("A")
    assert woken(waiters) == {"one"}


def test_a_half_filled_claim_sleeps(schedule: Schedule, waiters: dict[str, Waiter]) -> None:
    schedule.put("A")
    assert len(schedule.take(2, sleeper="one")) == 1
    schedule.put("A")
    assert woken(waiters) == {"one"}


def test_a_filled_claim_passes_the_baton_while_lanes_have_work(schedule: Schedule, waiters: dict[str, Waiter]) -> None:
    for name in ("one", "two", "three"):
        schedule.take(1, sleeper=name)
        schedule.clock.us += 1
    schedule.put("A", 3)
    assert woken(waiters) == {"one"}
    schedule.take(1, sleeper="one")
    assert woken(waiters) == {"two"}
    schedule.take(2, sleeper="two")
    assert woken(waiters) == set()


def test_the_end_of_a_lease_wakes_a_sleeper_when_it_makes_a_lane_claimable(schedule: Schedule, waiters: dict[str, Waiter]) -> None:
    schedule.limit("A", max_running=1)
    schedule.put("A", 2)
    (claim,) = schedule.take(2, sleeper="one")
    assert woken(waiters) == set()
    schedule.broker.ack([claim.token])
    assert woken(waiters) == {"one"}


def test_lifting_a_limit_wakes_a_sleeper(schedule: Schedule, waiters: dict[str, Waiter]) -> None:
    schedule.limit("A", paused_until_us=-1)
    schedule.put("A")
    woken(waiters)
    schedule.take(sleeper="one")
    schedule.limit("A")
    assert woken(waiters) == {"one"}


def test_a_sleeper_is_not_woken_for_work_it_may_not_take(schedule: Schedule, waiters: dict[str, Waiter]) -> None:
    schedule.take(1, "interactive", sleeper="one")
    schedule.limit("A", paused_until_us=-1)
    schedule.put("A", queue="bulk")
    assert woken(waiters) == set()


def test_a_wake_up_by_time_wakes_another_when_it_is_not_for_us(schedule: Schedule, waiters: dict[str, Waiter]) -> None:
    schedule.limit("A", paused_until_us=schedule.clock.us + 1_000_000)
    schedule.put("A", queue="bulk")
    schedule.take(1, "bulk", sleeper="one")
    schedule.clock.advance(1)
    schedule.take(1, "interactive", sleeper="two")
    assert woken(waiters) == {"one"}


def test_a_sleeper_that_did_not_come_back_is_passed_over(schedule: Schedule, waiters: dict[str, Waiter]) -> None:
    schedule.take(sleeper="one")
    schedule.clock.us += 2_000_000
    schedule.take(sleeper="two")
    schedule.clock.us += 1
    schedule.put("A")
    assert woken(waiters) == {"two"}


def test_a_lane_that_is_paused_wakes_nobody(schedule: Schedule, waiters: dict[str, Waiter]) -> None:
    schedule.limit("A", paused_until_us=-1)
    schedule.put("A")
    schedule.take(sleeper="one")
    schedule.put("A")
    assert woken(waiters) == set()
