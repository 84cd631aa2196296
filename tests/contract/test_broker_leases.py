"""Leases: every verb has the effect of once, whoever repeats it; a lease that ended does not come back."""

from __future__ import annotations

import pytest

from django_tenant_queue.brokers.base import ClaimRequest, Published, QueueShare
from tests.schedules import Make, Schedule, publication


def ask(schedule: Schedule, request: str, limit: int = 3) -> tuple[str, ...]:
    reply = schedule.broker.claim(ClaimRequest(request, (QueueShare("default", limit),), limit))
    return tuple(claim.token for claim in reply.claims)


def test_a_repeated_request_takes_nothing_new(by_jobs: Schedule) -> None:
    """C16: the claim's script executed many times has the effect of once."""
    by_jobs.put("A", 10)
    assert len({ask(by_jobs, "r1") for _ in range(11)}) == 1
    assert by_jobs.broker.depths()["default"] == {"lanes": 1, "parked": 0, "waiting": 7, "running": 3}


def test_a_repeated_request_gives_back_what_it_still_holds(by_jobs: Schedule) -> None:
    by_jobs.put("A", 10)
    first, second, third = ask(by_jobs, "r1")
    by_jobs.broker.ack([second])
    assert ask(by_jobs, "r1") == (first, third)
    assert tuple(claim.token for claim in by_jobs.broker.resume("r1")) == (first, third)


def test_a_request_takes_nothing_new_for_two_lease_times(by_jobs: Schedule) -> None:
    by_jobs.put("A", 10)
    by_jobs.broker.ack(ask(by_jobs, "r1"))
    by_jobs.clock.us += 15_999_999
    assert ask(by_jobs, "r1") == ()
    by_jobs.clock.us += 1
    assert len(ask(by_jobs, "r1")) == 3


def test_a_token_is_not_given_out_again_while_it_is_in_use(by_jobs: Schedule) -> None:
    by_jobs.put("A", 10)
    first, *others = ask(by_jobs, "r1")
    by_jobs.broker.ack(others)
    by_jobs.clock.advance(100)
    assert ask(by_jobs, "r1") == (first,)
    by_jobs.broker.postpone([first], 100)
    assert ask(by_jobs, "r1") == ()
    by_jobs.broker.ack([first])
    assert len(ask(by_jobs, "r1")) == 3


def test_resume_finds_nothing_of_a_claim_that_never_arrived(by_jobs: Schedule) -> None:
    by_jobs.put("A")
    assert by_jobs.broker.resume("never") == ()
    assert ask(by_jobs, "empty", limit=5) != ()
    assert ask(by_jobs, "more", limit=5) == ()
    assert by_jobs.broker.resume("more") == ()


def test_resume_is_answered_for_two_lease_times(by_jobs: Schedule) -> None:
    by_jobs.put("A", 3)
    ask(by_jobs, "r1")
    by_jobs.clock.us += 15_999_999
    assert len(by_jobs.broker.resume("r1")) == 3
    by_jobs.clock.us += 1
    assert by_jobs.broker.resume("r1") == ()


def test_resume_tells_what_the_claim_told(by_time: Schedule) -> None:
    by_time.put("A", 3, cost=2500)
    claims = by_time.broker.claim(ClaimRequest("r1", (QueueShare("default", 2),), 2)).claims
    assert by_time.broker.resume("r1") == claims


@pytest.mark.parametrize("verb", ["ack", "release"])
def test_ending_a_lease_twice_settles_once(by_time: Schedule, verb: str) -> None:
    by_time.put("A", 2)
    (claim,) = by_time.take()
    by_time.clock.advance(3)
    end = getattr(by_time.broker, verb)
    assert end([claim.token, claim.token]) == {claim.token}
    state = by_time.broker.state()
    assert end([claim.token]) == frozenset()
    assert by_time.broker.state() == state


def test_a_lost_token_is_not_among_the_held(by_jobs: Schedule) -> None:
    by_jobs.put("A", 2)
    claims = by_jobs.take(2)
    tokens = [claim.token for claim in claims]
    assert by_jobs.broker.held([*tokens, "lost.0"]) == set(tokens)
    assert by_jobs.broker.renew([*tokens, "lost.0", ""]) == set(tokens)
    assert by_jobs.broker.ack(["lost.0"]) == by_jobs.broker.release([]) == by_jobs.broker.held([]) == frozenset()


def test_a_renewed_lease_is_not_reaped(by_jobs: Schedule) -> None:
    by_jobs.put("A", 2)
    kept, lost = by_jobs.take(2)
    by_jobs.clock.advance(5)
    by_jobs.broker.renew([kept.token])
    by_jobs.clock.advance(5)
    assert by_jobs.broker.reap(10) == (lost,)
    assert by_jobs.broker.reap(10) == ()
    assert by_jobs.broker.renew([kept.token, lost.token]) == {kept.token}


def test_a_lease_lasts_exactly_the_lease_time(by_jobs: Schedule) -> None:
    by_jobs.put("A")
    claims = by_jobs.take()
    by_jobs.clock.us += 7_999_999
    assert by_jobs.broker.reap(10) == ()
    by_jobs.clock.us += 1
    assert by_jobs.broker.reap(10) == claims


def test_the_reaper_takes_the_oldest_first_and_no_more_than_asked(by_jobs: Schedule) -> None:
    by_jobs.put("A", 3)
    taken = []
    for _ in range(3):
        taken += by_jobs.take()
        by_jobs.clock.advance(1)
    by_jobs.clock.advance(20)
    assert by_jobs.broker.reap(2) == tuple(taken[:2])
    assert by_jobs.broker.reap(2) == tuple(taken[2:])


def test_a_reaped_job_may_be_published_again(by_jobs: Schedule) -> None:
    (job,) = by_jobs.put("A")
    (claim,) = by_jobs.take()
    by_jobs.clock.advance(10)
    assert [reaped.job_id for reaped in by_jobs.broker.reap(1)] == [job]
    assert by_jobs.broker.publish([publication(job, "A")]) == [Published.PUBLISHED]
    assert by_jobs.take()[0].token != claim.token


def test_a_run_that_is_reaped_pays_until_its_expiry(by_time: Schedule) -> None:
    by_time.put("A", 2)
    by_time.take()
    by_time.clock.advance(1000)
    by_time.broker.reap(1)
    assert by_time.broker.state().lanes["default", "A"].deficit == 100_000 - 8_000_000


def test_a_phantom_pays_nothing(by_time: Schedule) -> None:
    by_time.put("A", 2)
    (claim,) = by_time.take()
    assert by_time.broker.state().lanes["default", "A"].deficit == 100_000 - 1_000_000
    by_time.clock.advance(5)
    by_time.broker.release([claim.token])
    assert by_time.broker.state().lanes["default", "A"].deficit == 100_000


def test_a_postponed_job_counts_against_the_cap_until_the_reaper_takes_it(by_jobs: Schedule) -> None:
    by_jobs.limit("A", max_running=1)
    (job, _) = by_jobs.put("A", 2)
    (claim,) = by_jobs.take()
    assert by_jobs.broker.postpone([claim.token], 30) == {claim.token}
    assert by_jobs.take() == ()
    by_jobs.clock.advance(29)
    assert by_jobs.broker.reap(10) == ()
    by_jobs.clock.advance(1)
    assert [reaped.job_id for reaped in by_jobs.broker.reap(10)] == [job]
    assert len(by_jobs.take()) == 1


def test_postponing_again_changes_nothing(by_time: Schedule) -> None:
    by_time.put("A", 2)
    (claim,) = by_time.take()
    by_time.broker.postpone([claim.token], 5)
    state = by_time.broker.state()
    assert state.lanes["default", "A"].deficit == 100_000
    by_time.clock.advance(4)
    assert by_time.broker.postpone([claim.token], 60) == {claim.token}
    assert by_time.broker.state() == state
    by_time.clock.advance(1)
    assert len(by_time.broker.reap(10)) == 1
    assert by_time.broker.state().lanes["default", "A"].deficit == 100_000


def test_a_postponed_claim_is_given_back(by_jobs: Schedule) -> None:
    by_jobs.put("A", 2)
    tokens = ask(by_jobs, "r1", limit=2)
    by_jobs.broker.postpone(tokens[:1], 60)
    assert by_jobs.broker.renew(tokens) == set(tokens[1:])
    assert by_jobs.broker.held(tokens) == set(tokens)
    assert [claim.token for claim in by_jobs.broker.resume("r1")] == list(tokens[1:])
    assert by_jobs.broker.release(tokens) == set(tokens)


def test_verbs_take_any_number_of_tokens(by_jobs: Schedule) -> None:
    by_jobs.put("A", 1200)
    tokens = {claim.token for _ in range(3) for claim in by_jobs.take(400)}
    assert by_jobs.broker.renew(tokens) == by_jobs.broker.held(tokens) == by_jobs.broker.ack(tokens) == tokens


def test_an_estimate_is_learned_from_runs_and_forgotten(make: Make) -> None:
    schedule = make(estimate_keep_us=60_000_000)
    schedule.put("A", 9)
    charged = []
    for held in (10, 5, 0):
        (claim,) = schedule.take()
        charged.append(claim.charged_us)
        schedule.run([claim], held)
    schedule.clock.us += 59_999_999
    charged += [claim.charged_us for claim in schedule.take(1)]
    schedule.clock.us += 1
    charged += [claim.charged_us for claim in schedule.take(1)]
    assert charged == [1_000_000, 10_000_000, 9_000_000, 7_200_000, 1_000_000]


def test_a_run_of_no_time_is_estimated_at_a_microsecond(by_time: Schedule) -> None:
    by_time.put("A", 2)
    by_time.run(by_time.take())
    assert by_time.take()[0].charged_us == 1


def test_the_shortest_names_make_a_lease_too(by_jobs: Schedule) -> None:
    by_jobs.put("", queue="q")
    (claim,) = by_jobs.take(1, "q")
    assert (claim.queue, claim.lane_key) == ("q", "")
    assert by_jobs.broker.ack([claim.token]) == {claim.token}


def test_one_claim_may_take_thousands_from_one_lane(make: Make) -> None:
    schedule = make(mode="jobs", quantum=1_000_000_000)
    schedule.put("A", 2600)
    claims = schedule.ask(2500, request="many").claims
    assert len({claim.job_id for claim in claims}) == 2500
    assert schedule.broker.resume("many") == claims
