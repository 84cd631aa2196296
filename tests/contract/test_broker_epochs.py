"""Epochs: a schedule that was lost, moved or is being rebuilt says so, and leases survive a rebuild under their tokens."""

from __future__ import annotations

import pytest

from django_tenant_queue.brokers.base import ClaimRequest, Epoch, LaneLimits, Lease, Published, QueueShare
from django_tenant_queue.brokers.memory import MemoryBroker
from django_tenant_queue.exceptions import EpochMoved, ScheduleLost
from tests.schedules import Schedule, job_id, publication


def lose(schedule: Schedule) -> None:
    """What FLUSHALL does to this schedule."""
    broker = schedule.broker
    if isinstance(broker, MemoryBroker):
        broker.lose()
    else:
        client, prefix = broker._store.client, broker._keys.prefix
        client.unlink(*client.scan_iter(match=prefix + "*", count=1000))
    schedule.drains = False


def lease(job, token: str = "t.0", *, expires_in_us: int = 5_000_000) -> Lease:
    return Lease(token, job, "bulk", "A", 7, 1500, expires_in_us)


VERBS = {
    "publish": lambda b: b.publish([publication(job_id(), "A")]),
    "claim": lambda b: b.claim(ClaimRequest("r", (QueueShare("default", 1),), 1)),
    "resume": lambda b: b.resume("r"),
    "renew": lambda b: b.renew(["t"]),
    "held": lambda b: b.held(["t"]),
    "ack": lambda b: b.ack(["t"]),
    "release": lambda b: b.release(["t"]),
    "postpone": lambda b: b.postpone(["t"], 1),
    "reap": lambda b: b.reap(1),
    "set_limits": lambda b: b.set_limits({"A": LaneLimits()}),
    "state": lambda b: b.state(),
    "depths": lambda b: b.depths(),
    "open_epoch": lambda b: b.open_epoch("epoch1"),
    "store_snapshot": lambda b: b.store_snapshot("1:1:", epoch="epoch1"),
    "restore_leases": lambda b: b.restore_leases([lease(job_id())], epoch="epoch1"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_says_that_the_schedule_was_lost(by_jobs: Schedule, verb: str) -> None:
    """C01, C02 (the part of the schedule)."""
    lose(by_jobs)
    with pytest.raises(ScheduleLost):
        VERBS[verb](by_jobs.broker)
    assert by_jobs.broker.read_epoch() is None


@pytest.mark.parametrize("verb", [name for name in VERBS if name not in {"open_epoch", "store_snapshot", "restore_leases"}])
def test_a_verb_without_an_epoch_follows_to_the_new_one(by_jobs: Schedule, verb: str) -> None:
    other_process(by_jobs).begin_rebuild("epoch2", replaces="epoch1")
    VERBS[verb](by_jobs.broker)


def other_process(schedule: Schedule):
    """A broker on the same schedule that does not share the cached epoch."""
    broker = schedule.broker
    return broker if isinstance(broker, MemoryBroker) else type(broker)(broker._settings, broker._store, broker._keys)


def test_a_caller_that_names_an_older_epoch_is_told(by_jobs: Schedule) -> None:
    broker = by_jobs.broker
    assert other_process(by_jobs).begin_rebuild("epoch2", replaces="epoch1")
    for verb in (
        lambda: broker.publish([publication(job_id(), "A")], epoch="epoch1"),
        lambda: broker.open_epoch("epoch1"),
        lambda: broker.store_snapshot("1:1:", epoch="epoch1"),
        lambda: broker.restore_leases([lease(job_id())], epoch="epoch1"),
    ):
        with pytest.raises(EpochMoved):
            verb()
    by_jobs.broker.open_epoch("epoch2")


def test_of_two_rebuilders_one_wins(by_jobs: Schedule) -> None:
    broker = by_jobs.broker
    assert broker.begin_rebuild("mine", replaces="epoch1")
    assert not other_process(by_jobs).begin_rebuild("theirs", replaces="epoch1")
    assert not other_process(by_jobs).begin_rebuild("theirs", replaces=None)
    assert broker.begin_rebuild("mine", replaces="epoch1")
    assert broker.read_epoch() == Epoch("mine", rebuilding=True, snapshot=None)
    broker.open_epoch("mine")


def test_a_snapshot_is_kept_with_its_epoch(by_jobs: Schedule) -> None:
    by_jobs.broker.store_snapshot("10:20:12,15", epoch="epoch1")
    assert by_jobs.broker.read_epoch() == Epoch("epoch1", rebuilding=False, snapshot="10:20:12,15")
    by_jobs.broker.begin_rebuild("epoch2", replaces="epoch1")
    assert by_jobs.broker.read_epoch() == Epoch("epoch2", rebuilding=True, snapshot=None)
    by_jobs.broker.open_epoch("epoch2")


def test_a_new_epoch_is_empty_and_answers_rebuilding(by_jobs: Schedule) -> None:
    ids = by_jobs.put("A", 3)
    by_jobs.limit("A", max_running=1)
    by_jobs.take()
    by_jobs.broker.begin_rebuild("epoch2", replaces="epoch1")
    assert by_jobs.broker.publish([publication(i, "A") for i in ids]) == [Published.PUBLISHED] * 3
    reply = by_jobs.ask(3)
    assert (reply.rebuilding, reply.claims) == (True, ())
    by_jobs.broker.open_epoch("epoch2")
    assert len(by_jobs.take(3)) == 3


def test_leases_of_running_rows_survive_a_rebuild(by_jobs: Schedule) -> None:
    job = job_id()
    by_jobs.broker.begin_rebuild("epoch2", replaces="epoch1")
    for _ in range(2):
        by_jobs.broker.restore_leases([lease(job)], epoch="epoch2")
    assert by_jobs.broker.publish([publication(job, "A")]) == [Published.LEASED]
    by_jobs.broker.open_epoch("epoch2")
    assert by_jobs.broker.depths()["bulk"]["running"] == 1
    assert by_jobs.broker.renew(["t.0"]) == {"t.0"}
    assert by_jobs.broker.ack(["t.0"]) == {"t.0"}
    assert by_jobs.broker.publish([publication(job, "A")]) == [Published.PUBLISHED]


def test_a_restored_run_pays_for_the_time_since(by_time: Schedule, by_jobs: Schedule) -> None:
    for schedule in (by_time, by_jobs):
        schedule.broker.begin_rebuild("epoch2", replaces="epoch1")
        schedule.broker.restore_leases([lease(job_id())], epoch="epoch2")
        schedule.broker.open_epoch("epoch2")
        schedule.clock.advance(2)
        schedule.broker.ack(["t.0"])
    lane = by_time.broker.state().lanes["bulk", "A"]
    assert (lane.deficit, lane.last_round) == (-3_000_000, 0)
    assert by_jobs.broker.state().lanes == {}


def test_restored_leases_count_against_the_cap_and_expire(by_jobs: Schedule) -> None:
    job = job_id()
    by_jobs.broker.begin_rebuild("epoch2", replaces="epoch1")
    by_jobs.broker.restore_leases([lease(job)], epoch="epoch2")
    by_jobs.limit("A", max_running=1)
    by_jobs.put("A")
    by_jobs.broker.open_epoch("epoch2")
    assert by_jobs.take() == ()
    by_jobs.clock.advance(5)
    (claim,) = by_jobs.broker.reap(10)
    assert (claim.job_id, claim.token, claim.queue, claim.lane_key, claim.task_number, claim.cost) == (job, "t.0", "bulk", "A", 7, 1500)
    assert len(by_jobs.take()) == 1


def test_a_job_that_was_published_meanwhile_gets_no_lease_back(by_jobs: Schedule) -> None:
    job = job_id()
    by_jobs.broker.begin_rebuild("epoch2", replaces="epoch1")
    by_jobs.broker.publish([publication(job, "A")])
    by_jobs.broker.restore_leases([lease(job)], epoch="epoch2")
    assert by_jobs.broker.held(["t.0"]) == frozenset()
    by_jobs.broker.open_epoch("epoch2")
    assert len(by_jobs.take()) == 1


def test_what_older_epochs_left_is_discarded(by_jobs: Schedule) -> None:
    by_jobs.put("A", 20)
    by_jobs.put("B", 20, queue="bulk")
    by_jobs.take(3)
    by_jobs.broker.begin_rebuild("epoch2", replaces="epoch1")
    (kept,) = by_jobs.put("C")
    by_jobs.broker.open_epoch("epoch2")
    by_jobs.broker.discard_old_epochs()
    assert by_jobs.broker.discard_old_epochs() == 0
    assert [claim.job_id for claim in by_jobs.take(9, "default", "bulk")] == [kept]
