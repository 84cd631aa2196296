"""Pure rules of the process tree: shares of slots, pauses between forks, who is to blame for a death, what travels between processes."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from django_tenant_queue.brokers.base import QueueShare
from django_tenant_queue.envelope import Envelope
from django_tenant_queue.models.moves import StartedJob
from django_tenant_queue.worker.deaths import Death
from django_tenant_queue.worker.options import WorkerOptions
from django_tenant_queue.worker.quarantine import from_json, to_json
from django_tenant_queue.worker.seats import Seat, describe_status
from django_tenant_queue.worker.shares import free_shares, slots_of_share
from django_tenant_queue.worker.slots import SlotReading

SHARES = {"interactive": 1.0, "default": 1.0, "bulk": 0.5}


@pytest.mark.parametrize(("share", "threads", "slots"), [(0.5, 8, 4), (0.5, 3, 1), (0.1, 4, 1), (1.0, 4, 4), (0.3, 10, 3)])
def test_share_is_rounded_down_and_at_least_one(share: float, threads: int, slots: int) -> None:
    assert slots_of_share(share, threads) == slots


def test_shares_are_in_strict_order_and_bounded_by_free_slots() -> None:
    assert free_shares(SHARES, {"bulk": 1}, free=3, threads=8) == (
        QueueShare("interactive", 3),
        QueueShare("default", 3),
        QueueShare("bulk", 3),
    )
    assert free_shares(SHARES, {"bulk": 3}, free=5, threads=8)[-1] == QueueShare("bulk", 1)


def test_queue_at_its_share_is_left_out() -> None:
    assert free_shares(SHARES, {"bulk": 4}, free=4, threads=8) == (QueueShare("interactive", 4), QueueShare("default", 4))
    assert free_shares(SHARES, {"default": 8}, free=0, threads=8) == ()


def test_seat_is_filled_at_once_after_one_death_and_ever_later_after_early_ones() -> None:
    """B08: no storm of forks: after five early deaths less than one fork a second."""
    seat, now, pauses = Seat("worker"), 0.0, []
    for _ in range(12):
        seat.taken(1)
        seat.died(now, 0.1)
        pauses.append(seat.due_in(now))
    assert pauses[0] == 0
    assert pauses == sorted(pauses)
    assert min(pauses[4:]) > 1
    assert pauses[-1] == 30
    seat.taken(2)
    seat.died(now, 3600)
    assert seat.is_due(now)


def reading(**facts: object) -> SlotReading:
    return SlotReading(**{"job_id": uuid4(), "token": "t", "fence": 1, "deadline": 0.0, "begun": True, "timed_out": False, **facts})  # type: ignore[arg-type]


def test_a_death_of_nobodys_making_makes_begun_jobs_suspects() -> None:
    begun, waiting = reading(), reading(begun=False)
    death = Death(1, 9, doomed=False, held=(begun, waiting))
    assert (death.suspects, death.innocent, death.timed_out) == ([begun], [waiting], [])


def test_our_own_kill_makes_no_suspects() -> None:
    late, neighbour = reading(timed_out=True), reading()
    death = Death(1, 9, doomed=True, held=(late, neighbour))
    assert (death.suspects, death.innocent, death.timed_out) == ([], [neighbour], [late])


def test_statuses_are_named() -> None:
    assert [describe_status(status) for status in (11, 9, 256, 0, None)] == [
        "signal 11 (SIGSEGV)", "signal 9 (SIGKILL)", "exit status 1", "exit status 0", "an unknown cause",
    ]  # fmt: skip
    assert os.waitstatus_to_exitcode(256) == 1


def test_options_survive_the_way_to_another_process() -> None:
    options = WorkerOptions(2, 8, ("interactive", "bulk"), 30.0, burst=True)
    assert WorkerOptions.from_json(options.to_json()) == options


def test_started_job_survives_the_way_to_its_own_process() -> None:
    envelope = Envelope(
        uuid4(), "tenant \U0001f42b", None, "system", "a.task", '{"x": "\\u20ac€"}', "default", 0, 1000, datetime.now(UTC), "c", ""
    )
    job = StartedJob(envelope, "lane", 3, "token", "seal", "key", 0, 1, 0, 0)
    assert from_json(to_json(job)) == job
