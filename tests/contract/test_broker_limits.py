"""Limits of a lane key: exact caps, pauses with and without an end, weights; parked lanes are woken whatever comes first."""

from __future__ import annotations

import itertools

import pytest

from tests.schedules import Make, Schedule


def test_a_cap_holds_over_all_queues(by_jobs: Schedule) -> None:
    by_jobs.limit("A", max_running=3)
    for queue in ("interactive", "default", "bulk"):
        by_jobs.put("A", 3, queue=queue)
    claims = by_jobs.take(9, "interactive", "default", "bulk")
    assert len(claims) == 3
    by_jobs.run(claims[:1])
    assert len(by_jobs.take(9, "bulk", "default")) == 1


@pytest.mark.parametrize("mode", ["time", "jobs"])
@pytest.mark.parametrize("cap", [0, 1, 2])
def test_a_capped_lane_never_runs_more(make: Make, mode: str, cap: int) -> None:
    schedule = make(mode=mode)
    schedule.limit("A", max_running=cap)
    schedule.put("A", 12)
    schedule.put("B", 12)
    running: list = []
    for _ in range(40):
        running += schedule.take(4)
        assert sum(claim.lane_key == "A" for claim in running) <= cap
        schedule.run([running.pop(0)] if running else [], 0.5)
    assert schedule.broker.depths()["default"]["waiting"] == (0 if cap else 12)


def test_a_capped_tenant_is_parked_without_credit(by_jobs: Schedule) -> None:
    by_jobs.limit("A", max_running=2)
    by_jobs.put("A", 9)
    by_jobs.take(2)
    lane = by_jobs.broker.state().lanes["default", "A"]
    assert (lane.parked, lane.due_round, lane.deficit, lane.waiting, lane.running) == (True, None, 3000, 7, 2)


def test_a_raised_cap_after_many_capped_rounds_gives_no_burst(by_jobs: Schedule) -> None:
    by_jobs.limit("A", max_running=1)
    by_jobs.put("A", 50)
    by_jobs.put("B", 2 * 2000 + 100)
    (held,) = by_jobs.take(1)
    for _ in range(2000 * 2 // 500):
        by_jobs.run(by_jobs.take(500))
    by_jobs.run([held])  # A joins, is at its cap again after one job
    assert by_jobs.broker.state().rounds["default"] > 700
    by_jobs.limit("A", max_running=None)
    assert largest_lead(by_jobs.lanes_taken(100)) <= 2 * 5  # a quantum of this round and one of the next


def largest_lead(lanes: str) -> int:
    """Most jobs by which lane A was ahead of B after any of these claims."""
    return max(lanes[:end].count("A") - lanes[:end].count("B") for end in range(len(lanes) + 1))


def test_two_thousand_rounds_outside_bank_nothing(make: Make) -> None:
    """2,000 rounds pass while a lane is parked at its cap; raised, it gets one quantum a round."""
    schedule = make(mode="jobs", quantum=1000)
    schedule.limit("A", max_running=1)
    schedule.put("A", 30)
    schedule.put("B", 2100)
    schedule.put("C", 2100)
    schedule.take(1)
    for _ in range(8):
        schedule.run(schedule.take(500))
    assert schedule.broker.state().rounds["default"] >= 2000
    schedule.limit("A", max_running=30)
    taken = schedule.lanes_taken(30)
    assert "AA" not in taken
    assert 10 <= taken.count("A") <= 11


def test_a_paused_lane_gives_nothing_and_resumes_where_it_was(by_jobs: Schedule) -> None:
    by_jobs.put("A", 3)
    by_jobs.limit("A", paused_until_us=-1)
    assert by_jobs.take(5) == ()
    by_jobs.clock.advance(1_000_000)
    reply = by_jobs.ask(5)
    assert (reply.claims, reply.next_wakeup_us, reply.more) == ((), None, False)
    by_jobs.limit("A")
    assert by_jobs.lanes_taken(5) == "AAA"


def test_a_pause_with_an_end_wakes_by_time(by_jobs: Schedule) -> None:
    """K08: skipped without a busy loop, woken exactly when the pause ends."""
    until = by_jobs.clock.us + 10_000_000
    by_jobs.put("A", 3)
    by_jobs.limit("A", paused_until_us=until)
    reply = by_jobs.ask(5)
    assert (reply.claims, reply.next_wakeup_us) == ((), until)
    by_jobs.clock.us = until - 1
    assert by_jobs.ask(5).next_wakeup_us == until
    by_jobs.clock.us = until
    reply = by_jobs.ask(5)
    assert ("".join(claim.lane_key for claim in reply.claims), reply.next_wakeup_us) == ("AAA", None)


def test_a_pause_that_is_moved_moves_the_wake_up(by_jobs: Schedule) -> None:
    now = by_jobs.clock.us
    by_jobs.put("A")
    by_jobs.limit("A", paused_until_us=now + 10)
    by_jobs.ask()
    by_jobs.limit("A", paused_until_us=now + 1000)
    assert by_jobs.ask().next_wakeup_us == now + 1000
    by_jobs.limit("A", paused_until_us=-1)
    assert by_jobs.ask().next_wakeup_us is None
    by_jobs.limit("A", paused_until_us=now + 5)
    assert by_jobs.ask().next_wakeup_us == now + 5


def test_a_claim_moves_no_more_wake_ups_than_its_limit(by_jobs: Schedule) -> None:
    until = by_jobs.clock.us + 10
    for i in range(10):
        by_jobs.put(f"lane{i}")
        by_jobs.limit(f"lane{i}", paused_until_us=until)
    by_jobs.ask(20)
    assert by_jobs.broker.depths()["default"]["parked"] == 10
    by_jobs.clock.us = until
    replies = [by_jobs.ask(3, "bulk") for _ in range(4)]
    assert by_jobs.broker.depths()["default"] == {"lanes": 10, "parked": 0, "waiting": 10, "running": 0}
    assert [reply.more for reply in replies] == [True, True, True, False]
    assert [reply.next_wakeup_us for reply in replies] == [until, until, until, None]


def test_many_paused_lanes_cost_a_claim_a_bounded_number_of_visits(by_jobs: Schedule) -> None:
    """K08: parked lanes are met once, and no claim visits more than its limit and 64."""
    for i in range(2 * 66):
        by_jobs.put(f"lane{i}")
        by_jobs.limit(f"lane{i}", paused_until_us=-1)
    by_jobs.put("Z")
    replies = [by_jobs.ask(2) for _ in range(3)]
    assert [reply.more for reply in replies] == [True, True, False]
    assert [len(reply.claims) for reply in replies] == [0, 0, 1]
    assert by_jobs.broker.depths()["default"]["parked"] == 132


def test_visits_that_are_left_serve_the_next_queue(by_jobs: Schedule) -> None:
    for i in range(65):
        by_jobs.put(f"lane{i}", queue="interactive")
        by_jobs.limit(f"lane{i}", paused_until_us=-1)
    by_jobs.put("Z")
    reply = by_jobs.ask(2, "interactive", "default")
    assert (len(reply.claims), reply.more) == (1, True)


def test_a_pause_that_ends_now_leaves_no_wake_up(by_jobs: Schedule) -> None:
    by_jobs.put("A")
    by_jobs.limit("A", max_running=0, paused_until_us=by_jobs.clock.us)
    assert by_jobs.ask(1).next_wakeup_us is None
    assert by_jobs.broker.depths()["default"]["parked"] == 1


def test_the_first_of_several_wake_ups_is_told(by_jobs: Schedule) -> None:
    now = by_jobs.clock.us
    for lane, pause in (("A", 300), ("B", 100), ("C", 200)):
        by_jobs.put(lane)
        by_jobs.limit(lane, paused_until_us=now + pause)
    assert by_jobs.ask(9).next_wakeup_us == now + 100
    assert by_jobs.ask(9).next_wakeup_us == now + 100
    by_jobs.clock.us = now + 200
    reply = by_jobs.ask(1)
    assert (reply.next_wakeup_us, reply.more, len(reply.claims)) == (now + 200, False, 1)
    reply = by_jobs.ask(9)
    assert (reply.next_wakeup_us, reply.more, len(reply.claims)) == (now + 300, False, 1)


def test_a_repeated_request_tells_the_next_wake_up_too(by_jobs: Schedule) -> None:
    until = by_jobs.clock.us + 100
    by_jobs.put("B")
    by_jobs.put("A")
    by_jobs.limit("A", paused_until_us=until)
    for _ in range(2):
        reply = by_jobs.ask(2, request="again")
        assert (len(reply.claims), reply.next_wakeup_us, reply.more) == (1, until, False)


STEPS = ("ack", "release", "reap", "unpause", "claim")


def free(schedule: Schedule, lane: str, step: str, held: dict[str, str]) -> None:
    """One of the things that may let a parked lane run."""
    if step in ("ack", "release"):
        getattr(schedule.broker, step)([held[step]])
    elif step == "reap":
        schedule.clock.advance(9)
        schedule.broker.renew(held[name] for name in ("ack", "release"))
        assert len(schedule.broker.reap(1)) == 1
    elif step == "unpause":
        schedule.limit(lane, max_running=3)
    else:
        schedule.take(2, "bulk", "default")


def test_wake_ups_in_every_order_are_never_lost(by_jobs: Schedule) -> None:
    """Parked by cap in one queue and by pause in another, freed in every order: whenever a lane may run, a claim finds its work."""
    for order in itertools.permutations(STEPS):
        lane = "-".join(order)
        by_jobs.limit(lane, max_running=3)
        by_jobs.put(lane, 8)
        held = dict(zip(("ack", "release", "reap"), (claim.token for claim in by_jobs.take(3)), strict=True))
        by_jobs.put(lane, 2, queue="bulk")
        by_jobs.limit(lane, max_running=3, paused_until_us=-1)
        assert by_jobs.take(5, "bulk", "default") == ()
        for step in order:
            free(by_jobs, lane, step, held)
        by_jobs.limit(lane, max_running=3)
        by_jobs.take(9, "bulk", "default")
        leases = by_jobs.broker.state().leases
        assert len(leases) == 3, order
        by_jobs.limit(lane)
        by_jobs.take(20, "bulk", "default")
        assert {depth["waiting"] for depth in by_jobs.broker.depths().values()} == {0}, order
        by_jobs.broker.ack(by_jobs.broker.state().leases)


@pytest.mark.parametrize("mode", ["time", "jobs"])
def test_caps_and_pauses_park_the_same_lane_in_turn(make: Make, mode: str) -> None:
    schedule = make(mode=mode)
    until = schedule.clock.us + 5_000_000
    schedule.put("A", 3)
    schedule.limit("A", max_running=1, paused_until_us=until)
    assert schedule.ask(3).next_wakeup_us == until
    schedule.clock.us = until
    (claim,) = schedule.take(3)
    schedule.limit("A", max_running=1, paused_until_us=until + 5_000_000)
    schedule.run([claim])
    assert schedule.take(3) == ()
    schedule.clock.us = until + 5_000_000
    assert len(schedule.take(3)) == 1


def test_a_new_weight_acts_on_the_backlog_at_once(by_jobs: Schedule) -> None:
    by_jobs.put("A", 60)
    by_jobs.put("B", 60)
    by_jobs.limit("A", weight=3000)
    assert by_jobs.lanes_taken(20).count("A") == 15
    by_jobs.limit("A", weight=200)
    by_jobs.limit("B", weight=2000)
    taken = by_jobs.lanes_taken(55)
    assert 5 <= taken.count("A") <= 8


def test_a_new_weight_moves_an_indebted_lane(by_time: Schedule) -> None:
    by_time.put("A", 2)
    by_time.put("B", 2)
    by_time.take(2)
    assert by_time.broker.state().lanes["default", "A"].due_round == 11
    by_time.limit("A", weight=10_000)
    assert by_time.broker.state().lanes["default", "A"].due_round == 2
    by_time.limit("A", weight=100)
    assert by_time.broker.state().lanes["default", "A"].due_round == 92


@pytest.mark.parametrize("weight", [10, 1_000_000])
def test_extreme_weights_are_served(by_time: Schedule, weight: int) -> None:
    by_time.limit("A", weight=weight)
    by_time.put("A", 3, cost=1_000_000)
    by_time.put("B", 3, cost=1)
    assert sorted(by_time.lanes_taken(6)) == list("AAABBB")


def test_default_limits_are_not_stored(by_jobs: Schedule) -> None:
    before = by_jobs.broker.state()
    by_jobs.limit("A", weight=5000, max_running=1, paused_until_us=-1)
    by_jobs.limit("A")
    assert by_jobs.broker.state() == before
