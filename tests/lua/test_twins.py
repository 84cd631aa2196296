"""Both brokers, driven by the same random operations under the same clock: every reply and the whole state are equal after every one."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from django_tenant_queue.brokers.base import (
    Broker,
    ClaimRequest,
    LaneLimits,
    Lease,
    Publication,
    QueueShare,
    SchedulerSettings,
    ScheduleState,
)
from django_tenant_queue.brokers.memory import MemoryBroker
from django_tenant_queue.brokers.redis.keys import Keys
from tests.schedules import Clock, new_namespace, unopened_redis_broker

EXAMPLES = int(os.environ.get("TWIN_EXAMPLES", "60"))
# Shrinking takes minutes: ask for it (TWIN_SHRINK=1, and the seed that was printed) when a difference was found.
PHASES = (Phase.explicit, Phase.generate) + ((Phase.shrink,) if os.environ.get("TWIN_SHRINK") else ())
LANES = ("A", "B", "C", "a:b", "é")
QUEUE_NAMES = ("one", "two")
MODES = {
    # Small numbers, so that a few operations reach caps, debts, ends of leases and the forgetting of estimates.
    "time": SchedulerSettings("time", 100, QUEUE_NAMES, lease_us=1000, first_estimate_us=230, estimate_keep_us=3000),
    "jobs": SchedulerSettings("jobs", 5000, QUEUE_NAMES, lease_us=1000, first_estimate_us=230, estimate_keep_us=3000),
}

lanes = st.sampled_from(LANES)
queues = st.sampled_from(QUEUE_NAMES)
costs = st.sampled_from([1, 333, 1000, 1000, 2500, 17_000, 1_000_000])
weights = st.sampled_from([10, 333, 1000, 1000, 2000, 1_000_000])
caps = st.sampled_from([None, None, 0, 1, 2, 3])
spans_us = st.sampled_from([1, 7, 99, 100, 101, 230, 700, 1000, 2500])
jobs = st.tuples(lanes, queues, costs, st.sampled_from([-100, 0, 0, 5, 100]), st.booleans())


class Twins(RuleBasedStateMachine):
    """Subclasses name the mode and the server."""

    mode: SchedulerSettings
    url: str

    @initialize()
    def open(self) -> None:
        self.clock = Clock()
        settings = replace(self.mode, clock_us=self.clock)
        self.namespace = new_namespace()
        self.brokers: tuple[Broker, ...] = (MemoryBroker(settings), unopened_redis_broker(self.url, settings, self.namespace))
        self.known: list[UUID] = []
        self.tokens: list[str] = ["lost.0"]
        self.requests: list[ClaimRequest] = []
        self.numbers = itertools.count(1)
        self.epoch = "epoch1"
        self.both(lambda broker: broker.begin_rebuild(self.epoch, replaces=None))
        self.both(lambda broker: broker.open_epoch(self.epoch))

    def both(self, verb: Callable[[Broker], object]) -> object:
        expected, got = (verb(broker) for broker in self.brokers)
        assert got == expected
        return got

    def job(self, number: int, spec: tuple[str, str, int, int, bool]) -> Publication:
        lane, queue, cost, priority, at_head = spec
        return Publication(UUID(int=number), queue, lane, number, cost, priority, at_head)

    def some_tokens(self, data: st.DataObject) -> list[str]:
        return data.draw(st.lists(st.sampled_from(self.tokens), max_size=4))

    # -- operations

    @rule(specs=st.lists(jobs, min_size=1, max_size=5))
    def publish(self, specs: list[tuple[str, str, int, int, bool]]) -> None:
        publications = [self.job(next(self.numbers), spec) for spec in specs]
        self.known += [publication.job_id for publication in publications]
        self.both(lambda broker: broker.publish(publications))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), spec=jobs)
    def publish_again(self, data: st.DataObject, spec: tuple[str, str, int, int, bool]) -> None:
        known = data.draw(st.sampled_from(self.known))
        publication = replace(self.job(1, spec), job_id=known)
        self.both(lambda broker: broker.publish([publication, publication]))

    @rule(limit=st.integers(0, 7), shares=st.lists(st.tuples(queues, st.integers(0, 7)), max_size=2, unique_by=lambda share: share[0]))
    def claim(self, limit: int, shares: list[tuple[str, int]]) -> None:
        request = ClaimRequest(f"r{next(self.numbers)}", tuple(QueueShare(*share) for share in shares), limit)
        self.requests.append(request)
        self.ask(request)

    @rule(limit=st.integers(1, 7))
    def claim_from_both(self, limit: int) -> None:
        self.claim(limit, [("one", limit), ("two", limit)])

    def ask(self, request: ClaimRequest) -> None:
        reply = self.both(lambda broker: broker.claim(request))
        self.tokens += [claim.token for claim in reply.claims if claim.token not in self.tokens]  # type: ignore[attr-defined]

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def repeat_claim(self, data: st.DataObject) -> None:
        self.ask(data.draw(st.sampled_from(self.requests)))

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.requests))
        self.both(lambda broker: broker.resume(request.request_id))

    @rule(data=st.data(), verb=st.sampled_from(["ack", "ack", "release", "renew", "held"]))
    def for_tokens(self, data: st.DataObject, verb: str) -> None:
        tokens = self.some_tokens(data)
        self.both(lambda broker: getattr(broker, verb)(tokens))

    @rule()
    def ack_all(self) -> None:
        self.both(lambda broker: broker.ack(self.tokens))

    @rule(data=st.data(), span=spans_us)
    def postpone(self, data: st.DataObject, span: int) -> None:
        tokens = self.some_tokens(data)
        self.both(lambda broker: broker.postpone(tokens, span / 1_000_000))

    @rule(limit=st.integers(1, 4))
    def reap(self, limit: int) -> None:
        self.both(lambda broker: broker.reap(limit))

    @rule(span=spans_us)
    def advance(self, span: int) -> None:
        self.clock.us += span

    @rule(lane=lanes, weight=weights, cap=caps, pause=st.sampled_from([None, None, -1, 0, 50, 500]))
    def set_limits(self, lane: str, weight: int, cap: int | None, pause: int | None) -> None:
        until = 0 if pause is None else pause if pause < 0 else self.clock.us + pause
        self.both(lambda broker: broker.set_limits({lane: LaneLimits(weight, cap, until)}))

    @rule(restored=st.lists(st.tuples(lanes, queues, costs, spans_us), max_size=2), opens=st.booleans())
    def rebuild(self, restored: list[tuple[str, str, int, int]], opens: bool) -> None:
        if next(self.numbers) % 4:
            return  # rarely: a new epoch is empty
        older, self.epoch = self.epoch, f"epoch{next(self.numbers)}"
        self.both(lambda broker: broker.begin_rebuild(self.epoch, replaces=older))
        leases = [
            Lease(f"old{number}.0", UUID(int=number), queue, lane, 7, cost, span)
            for number, (lane, queue, cost, span) in enumerate(restored, start=next(self.numbers))
        ]
        self.tokens += [lease.token for lease in leases]
        self.both(lambda broker: broker.restore_leases(leases, epoch=self.epoch))
        if opens:
            self.open_epoch()

    @rule()
    def open_epoch(self) -> None:
        self.both(lambda broker: broker.open_epoch(self.epoch))

    # -- what must hold

    @invariant()
    def the_whole_state_is_equal(self) -> None:
        twin, real = (known(broker.state()) for broker in self.brokers)
        assert real == twin
        check_invariants(real)
        depths = [{queue: depth for queue, depth in broker.depths().items() if any(depth.values())} for broker in self.brokers]
        assert depths[0] == depths[1]

    def teardown(self) -> None:
        with redis.Redis.from_url(self.url) as client:
            keys = list(client.scan_iter(match=Keys(self.namespace).prefix + "*", count=1000))
            client.unlink("-", *keys)
        self.brokers[1].close()


def known(state: ScheduleState) -> ScheduleState:
    """Without queues of which nothing is to be said."""
    return replace(
        state,
        rounds={queue: current for queue, current in state.rounds.items() if current != 1},
        ring={queue: lanes for queue, lanes in state.ring.items() if lanes},
    )


def check_invariants(state: ScheduleState) -> None:
    for name, lane in state.lanes.items():
        placed = lane.due_round is not None
        assert not (placed and lane.parked), name
        assert (lane.waiting > 0) == (placed or lane.parked), f"{name}: a lane has work if and only if it is in the ring or parked"
    assert sum(lane.running for lane in state.lanes.values()) == len(state.leases)
    assert len(set(state.leases.values())) == len(state.leases), "one lease for a job"
    assert state.corrupt == 0


@pytest.fixture(params=MODES)
def machine(request: pytest.FixtureRequest, redis_url: str) -> type[Twins]:
    return type("Twins", (Twins,), {"mode": MODES[request.param], "url": redis_url})


def test_both_brokers_do_the_same(machine: type[Twins]) -> None:
    """K03, K08, F01: whatever the order of operations, no difference in job, lane, deficit, round, parked set or order of the ring."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            phases=PHASES,
            print_blob=False,
        ),
    )
