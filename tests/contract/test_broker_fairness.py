"""Who is served when: the rules of the round calendar as short scenarios."""

from __future__ import annotations

import random
from collections import Counter

from tests.schedules import Make, Schedule, job_id, publication


def deficits(schedule: Schedule) -> dict[str, int]:
    return {lane: state.deficit for (_, lane), state in schedule.broker.state().lanes.items()}


def test_the_textbook_round(by_jobs: Schedule) -> None:
    """A has 3 jobs, B 50,000 (here 200), C 1: the first round dispatches A3, B5, C1 and leaves deficits 2, 0, 4."""
    by_jobs.put("A", 3)
    by_jobs.put("B", 200)
    by_jobs.put("C", 1)
    assert by_jobs.lanes_taken(9) == "AAABBBBBC"
    assert deficits(by_jobs) == {"A": 2000, "B": 0, "C": 4000}
    assert by_jobs.broker.state().rounds == {"default": 1}


def test_what_is_left_of_a_round_is_worth_nothing_after_it(by_jobs: Schedule) -> None:
    by_jobs.put("A", 3)
    by_jobs.put("B", 200)
    by_jobs.put("C", 1)
    by_jobs.take(9)
    by_jobs.lanes_taken(5)  # B's second round
    by_jobs.put("C", 20)
    by_jobs.put("A", 20)
    assert by_jobs.lanes_taken(10) == "CCCCCAAAAA"


def test_a_lane_that_leaves_and_returns_within_a_round_gets_no_second_quantum(by_jobs: Schedule) -> None:
    by_jobs.put("A", 3)
    by_jobs.put("B", 50)
    assert by_jobs.lanes_taken(3) == "AAA"
    assert by_jobs.broker.state().lanes["default", "A"].due_round is None
    by_jobs.put("A", 9)
    assert by_jobs.lanes_taken(17) == "BBBBBAABBBBBAAAAA"


def test_a_quiet_tenant_returning_within_a_round_does_not_wait(by_jobs: Schedule) -> None:
    for lane in "BCDE":
        by_jobs.put(lane, 50)
    by_jobs.put("A")
    order = by_jobs.lanes_taken(33)
    for _ in range(4):  # five jobs in this round: one quantum
        by_jobs.put("A")
        order = by_jobs.lanes_taken(2)
        assert order[0] == "A", order


def test_a_used_up_quantum_waits_for_the_next_round(by_jobs: Schedule) -> None:
    for lane in "BCDE":
        by_jobs.put(lane, 50)
    by_jobs.take(20)
    by_jobs.take(2)
    by_jobs.put("A", 6)
    assert by_jobs.lanes_taken(5) == "AAAAA"
    by_jobs.put("A", 9)
    assert by_jobs.lanes_taken(18) == "BBBCCCCCDDDDDEEEEE"
    assert by_jobs.lanes_taken(5) == "AAAAA"


def test_leaving_forgives_no_debt(by_time: Schedule) -> None:
    """A resubmits one 60 s job at a time and leaves in between; B has a backlog of 1 s jobs: on one slot each gets half the time."""
    served = Counter[str]()
    by_time.put("B", 700)
    by_time.put("A")
    for _ in range(360):
        (claim,) = by_time.take(1)
        seconds = 60 if claim.lane_key == "A" else 1
        served[claim.lane_key] += seconds
        by_time.run([claim], seconds)
        if claim.lane_key == "A":
            by_time.put("A")
    assert 0.45 <= served["A"] / served.total() <= 0.65  # a part of the last 60 s run is paid after the end
    assert served["A"] > 60


def test_credit_does_not_grow_with_the_night(by_time: Schedule) -> None:
    by_time.put("A")
    by_time.run(by_time.take(1), 1)
    by_time.put("B", 300)
    for _ in range(100):
        by_time.run(by_time.take(1), 1)
    by_time.put("A", 50)
    taken = ""
    for _ in range(20):
        claims = by_time.take(1)
        taken += claims[0].lane_key
        by_time.run(claims, 1)
    assert 9 <= taken.count("A") <= 11, taken


def test_a_refund_that_clears_the_debt_moves_the_lane_to_this_round(by_time: Schedule) -> None:
    """A phantom cost nothing: its lane stands where it stood."""
    for lane in "AB":
        by_time.put(lane, 9)
    phantom, _ = by_time.take(2)
    assert phantom.lane_key == "A"
    by_time.put("C")
    by_time.take(1)
    assert by_time.broker.state().lanes["default", "A"].due_round == 11
    by_time.broker.release([phantom.token])
    lane = by_time.broker.state().lanes["default", "A"]
    assert (lane.due_round, lane.newcomer, lane.deficit) == (1, True, 100_000)
    assert by_time.lanes_taken(1) == "A"


def test_the_smallest_refund_counts(make: Make) -> None:
    schedule = make(mode="jobs", quantum=1)
    schedule.put("A", 2, cost=1)
    schedule.put("B", 2, cost=1)
    phantom, _ = schedule.take(2)
    assert schedule.broker.state().lanes["default", "A"].due_round == 2
    schedule.broker.release([phantom.token])
    assert schedule.broker.state().lanes["default", "A"].due_round == 1


def test_a_run_shorter_than_its_estimate_is_refunded(by_time: Schedule) -> None:
    for lane in "AB":
        by_time.put(lane, 9)
    (claim, *_) = by_time.take(2)
    by_time.clock.us += 30_000
    by_time.broker.ack([claim.token])
    assert by_time.broker.state().lanes["default", "A"].deficit == 70_000
    assert by_time.broker.state().lanes["default", "A"].due_round == 1


def test_one_tenants_backlog_does_not_delay_another(by_jobs: Schedule) -> None:
    """K01 with 100,000: B starts within one quantum of A."""
    by_jobs.drains = False
    for _ in range(20):
        by_jobs.put("A", 5000)
    by_jobs.take(7)
    by_jobs.put("B")
    assert "B" in by_jobs.lanes_taken(6)


def test_weights_divide_what_is_served(by_jobs: Schedule) -> None:
    """K02: 100 backlogged tenants, weights 1 to 10."""
    weights = {f"lane{i}": 1 + i % 10 for i in range(100)}
    for lane, weight in weights.items():
        by_jobs.limit(lane, weight=weight * 1000)
        by_jobs.put(lane, 5 * weight * 3 + 1)
    served = Counter[str]()
    for _ in range(2 * 5 * sum(weights.values()) // 100):
        served.update(claim.lane_key for claim in by_jobs.take(100))
    assert all(abs(served[lane] - 2 * 5 * weight) <= 5 * weight for lane, weight in weights.items())
    per_weight = [served[lane] / weight for lane, weight in weights.items()]
    assert sum(per_weight) / len(per_weight) == 10


def test_jobs_that_cost_more_than_a_quantum_are_served_in_their_turn(by_jobs: Schedule) -> None:
    """K03: costs 1 to 100 with quantum 5: the deficit accumulates, nobody is stuck, and nobody drifts into debt."""
    draw = random.Random(3)
    total = Counter[str]()
    for lane in "ABCD":
        for _ in range(60):
            by_jobs.put(lane, cost=draw.randint(1, 100) * 1000)
    while min(state.waiting for state in by_jobs.broker.state().lanes.values()) > 20:
        for claim in by_jobs.take(5):
            total[claim.lane_key] += claim.cost
        assert all(deficit >= 0 for deficit in deficits(by_jobs).values())
    assert max(total.values()) - min(total.values()) <= 2 * 105_000


def test_a_flood_split_over_a_thousand_tasks_is_one_lane(by_jobs: Schedule) -> None:
    """K05: no share is bought by more task types."""
    for number in range(1000):
        by_jobs.put("A", task_number=number)
    by_jobs.put("B", 100)
    assert Counter(by_jobs.lanes_taken(100)) == {"A": 50, "B": 50}


def test_ten_thousand_tenants_are_served_in_order_of_arrival(make: Make) -> None:
    """K07: each stands in the ring once; no bias by name."""
    schedule = make(mode="jobs", quantum=5000)
    names = [f"{number:04x}" for number in random.Random(7).sample(range(0x10000), 10_000)]
    schedule.broker.publish([publication(job_id(), name) for name in names])
    assert schedule.broker.depths()["default"]["lanes"] == 10_000
    served = [claim.lane_key for _ in range(20) for claim in schedule.take(500)]
    assert served == names


def test_the_same_job_published_fifty_times_runs_once(by_jobs: Schedule) -> None:
    """F01: 49 are refused, and what runs is counted once."""
    job = job_id()
    words = Counter(by_jobs.broker.publish([publication(job, "A")])[0] for _ in range(25))
    words.update(by_jobs.broker.publish([publication(job, "A")] * 25))
    assert words == {"published": 1, "waiting": 49}
    claims = by_jobs.take(50)
    assert len(claims) == 1
    for _ in range(3):
        by_jobs.run(claims)
    assert by_jobs.broker.depths()["default"]["running"] == 0


def test_short_and_long_jobs_share_the_time(by_time: Schedule) -> None:
    """K04: A's jobs hold a slot 60 s, B's 1 s, on four slots: each gets half, and B waits for one of A's runs at most."""
    by_time.put("A", 60)
    by_time.put("B", 1500)
    held, running = Counter[str](), list[tuple[int, str, str]]()
    start = by_time.clock.us
    while by_time.clock.us < start + 600_000_000:
        for claim in by_time.take(4 - len(running)):
            seconds = 60 if claim.lane_key == "A" else 1
            running.append((by_time.clock.us + seconds * 1_000_000, claim.token, claim.lane_key))
        running.sort()
        by_time.clock.us, token, lane = running.pop(0)
        by_time.broker.renew(row[1] for row in running)
        by_time.broker.ack([token])
        held[lane] += 60 if lane == "A" else 1
    assert 0.42 <= held["A"] / held.total() <= 0.58


def test_what_lanes_left_behind_is_forgotten_in_bounded_steps(by_jobs: Schedule) -> None:
    """Lanes that owe nothing disappear when their round has passed, at most limit + 16 a claim; at rest every claim passes a round."""
    for number in range(40):
        by_jobs.put(f"lane{number:02d}")
    by_jobs.run(by_jobs.take(40))
    remembered = []
    for limit in (1, 2, 9):
        by_jobs.take(limit)
        remembered.append(len(by_jobs.broker.state().lanes))
    assert remembered == [40 - 17, 40 - 17 - 18, 0]
    assert by_jobs.broker.state().rounds["default"] == 4


def test_a_round_passes_only_when_nothing_runs(by_jobs: Schedule) -> None:
    by_jobs.put("A")
    claims = by_jobs.take(2)
    for _ in range(3):
        by_jobs.take(2)
    assert by_jobs.broker.state().rounds["default"] == 1
    by_jobs.run(claims)
    by_jobs.take(2)
    assert by_jobs.broker.state().rounds["default"] == 2


def test_debt_is_remembered_until_rounds_have_repaid_it(by_time: Schedule) -> None:
    by_time.put("A")
    by_time.run(by_time.take(1), 0.35)  # owes 0.25 s: three rounds of 0.1
    for _ in range(3):
        by_time.take(1)
        assert ("default", "A") in by_time.broker.state().lanes
    by_time.take(1)
    assert ("default", "A") not in by_time.broker.state().lanes
