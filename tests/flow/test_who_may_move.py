"""The table "Who may move a job", kept: by a script for every row and mover, and by random histories over both brokers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from django_tenant_queue.brokers.base import Broker
from django_tenant_queue.conf import Conf
from django_tenant_queue.keepers import Reconciler, Relay
from tests.conftest import Clock

from .table import TABLE, possible_states, row_of
from .world import KINDS, Holder, World, holder_in

pytestmark = pytest.mark.django_db(transaction=True)
LEASE = 60.0  # seconds beyond every lease


@pytest.fixture
def world(broker: Broker, conf: Conf, clock: Clock) -> Iterator[World]:
    world = World(broker, conf, clock)
    yield world
    world.until_quiet()
    world.close()


def test_every_possible_state_has_one_row() -> None:
    for state in possible_states():
        assert row_of(state)


# -- a script for every row and mover: steps before, then the mover

Step = Callable[[World, UUID], object]
SCRIPTS: dict[tuple[str, str], str] = {
    ("committed", "publish"): "unpublished, publish",
    ("committed", "relay"): "unpublished, relay",
    ("committed", "reconciler"): "unpublished, reconcile",
    ("committed", "start"): "enqueue, claim, expire, reap dies, start",
    ("committed", "cancel"): "unpublished, cancel",
    ("due", "relay"): "later, expire, relay",
    ("due", "cancel"): "later, expire, cancel",
    ("not due", "cancel"): "later, cancel",
    ("in lane", "claim"): "enqueue, claim",
    ("in lane", "start"): "enqueue, claim, expire, reap, start",
    ("in lane", "cancel"): "enqueue, cancel",
    ("claimed", "start"): "enqueue, claim, start",
    ("claimed", "cancel"): "enqueue, claim, cancel",
    ("claim expired", "reaper"): "enqueue, claim unheard, expire, reap",
    ("claim expired", "start"): "enqueue, claim, expire, start",
    ("claim expired", "cancel"): "enqueue, claim, expire, cancel",
    ("stray entry", "claim"): "enqueue, cancel, claim",
    ("stray entry", "relay"): "later, forge, expire, relay",
    ("stray entry", "cancel"): "later, forge, cancel",
    ("stray claim", "start"): "enqueue, cancel, claim, start",
    ("stray claim", "relay"): "later, forge, claim, make due, relay",
    ("stray claim", "cancel"): "later, forge, claim, cancel",
    ("stray claim expired", "reaper"): "later, forge, claim unheard, expire, reap",
    ("stray claim expired", "start"): "enqueue, cancel, claim, expire, start",
    ("stray claim expired", "relay"): "later, forge, claim, expire, relay",
    ("stray claim expired", "cancel"): "later, forge, claim, expire, cancel",
    ("settled", "settle"): "enqueue, claim, start, settle unacked, settle",
    ("settled", "lease keeper"): "enqueue, claim, start, settle unacked, die, lease keeper",
    ("settled", "relay"): "fails once, claim, start, settle unacked, make due, relay",
    ("settled", "start"): "fails once, claim, expire, reap, claim again, start again, settle unacked, make due, relay, start",
    ("settled", "cancel"): "fails once, claim, start, settle unacked, cancel",
    ("settled, expired", "settle"): "enqueue, claim, start, settle unacked, expire, settle",
    ("settled, expired", "lease keeper"): "enqueue, claim, start, settle unacked, die, expire, lease keeper",
    ("settled, expired", "reaper"): "enqueue, claim, start, settle unacked, expire, reap",
    ("settled, expired", "relay"): "fails once, claim, start, settle unacked, expire, relay",
    ("settled, expired", "start"): "fails once, claim, expire, reap, claim again, start again, settle unacked, expire, relay, start",
    ("settled, expired", "cancel"): "fails once, claim, start, settle unacked, expire, cancel",
    ("lost at confirm", "confirm"): "enqueue, claim, start loses lease",
    ("silent at confirm", "confirm"): "enqueue, claim, start silent",
    ("body alive", "settle"): "enqueue, claim, start, settle",
    ("boundary broken", "settle"): "breaks, claim, start, settle",
    ("process died", "lease keeper"): "enqueue, claim, start, die, lease keeper",
    ("process stopped", "lease keeper"): "enqueue, claim, start, stop, lease keeper",
    ("run expired", "reaper"): "enqueue, claim, start, lose host, expire, reap",
    ("run expired", "settle"): "enqueue, claim, start, expire, settle",
    ("run expired", "lease keeper"): "enqueue, claim, start, die, expire, lease keeper",
    ("unleased", "reconciler"): "enqueue, claim, start, lose host, expire, reap dies, reconcile, reconcile",
    ("unleased", "start"): "enqueue, claim, start, lose host, expire, reap dies, forge, claim, start",
    ("unleased", "claim"): "enqueue, claim, start, lose host, expire, reap dies, forge, claim",
    ("unleased", "reaper"): "enqueue, claim, start, lose host, expire, reap dies, forge, claim unheard, expire, reap",
    ("unleased", "settle"): "enqueue, claim, start, expire, reap dies, settle",
    ("unleased", "lease keeper"): "enqueue, claim, start, die, expire, reap dies, lease keeper",
    ("schedule lost", "relay"): "enqueue, flush, relay",
    ("schedule lost", "start"): "enqueue, claim, flush, start",
    ("schedule lost", "cancel"): "enqueue, flush, cancel",
    ("schedule lost, running", "relay"): "enqueue, claim, start, flush, relay",
    ("schedule lost, running", "confirm"): "enqueue, claim, start into flush",
    ("schedule lost, running", "settle"): "enqueue, claim, start, flush, settle",
    ("schedule lost, running", "lease keeper"): "enqueue, claim, start, flush, die, lease keeper",
}


def _between(world: World) -> None:
    """The lease is taken by a reaper that dies."""
    world.jump(LEASE)
    world.reap(dies=True)


STEPS: dict[str, Step] = {
    "publish": lambda world, job: world.publish(job),
    "cancel": lambda world, job: world.cancel(job),
    "forge": lambda world, job: world.forge(job),
    "claim": lambda world, job: world.claim(),
    "claim unheard": lambda world, job: world.claim(heard=False),
    "start": lambda world, job: world.start(),
    "claim again": lambda world, job: world.claim(),
    "start again": lambda world, job: world.start(newest=True),
    "start loses lease": lambda world, job: world.start(lambda: _between(world)),
    "start into flush": lambda world, job: world.start(world.flush, late=True),
    "start silent": lambda world, job: world.start(silent=True, late=True),
    "settle": lambda world, job: world.settle(holder_in(world, "begun", "broken")),
    "settle unacked": lambda world, job: world.settle(holder_in(world, "begun"), acked=False, keep=True),
    "die": lambda world, job: world.end_process(holder_in(world, "begun"), "died"),
    "stop": lambda world, job: world.end_process(holder_in(world, "begun"), "stopped"),
    "lose host": lambda world, job: world.lose_host(holder_in(world, "begun")),
    "lease keeper": lambda world, job: world.lease_keeper(),
    "relay": lambda world, job: world.relay(),
    "reap": lambda world, job: world.reap(),
    "reap dies": lambda world, job: world.reap(dies=True),
    "reconcile": lambda world, job: world.reconcile(),
    "expire": lambda world, job: world.jump(LEASE),
    "make due": lambda world, job: world.make_due(),
    "flush": lambda world, job: world.flush(),
}
FIRST: dict[str, Callable[[World], UUID]] = {
    "enqueue": lambda world: world.enqueue(),
    "unpublished": lambda world: world.enqueue(published=False),
    "later": lambda world: world.enqueue(delay=30),
    "fails once": lambda world: world.enqueue("fails once"),
    "breaks": lambda world: world.enqueue("breaks"),
}


def test_there_is_a_script_for_every_row_and_mover() -> None:
    assert set(SCRIPTS) == {(row.name, mover) for row in TABLE for mover in row.movers}


@pytest.mark.parametrize(("row", "mover"), SCRIPTS, ids=lambda text: text.replace(" ", "_"))
def test_a_job_in_this_row_is_moved_by_this_mover(world: World, row: str, mover: str) -> None:
    first, *steps = SCRIPTS[row, mover].split(", ")
    job = FIRST[first](world)
    for step in steps[:-1]:
        STEPS[step](world, job)
    before = world.moved[row, mover]
    STEPS[steps[-1]](world, job)
    assert world.moved[row, mover] == before + 1


# -- random histories


EVENTS = ("nothing", "nothing", "expire", "reap", "reap dies", "flush")  # between the start in the ledger and its confirm


def machine(make: Callable[[], World], exercised: Counter[str]) -> type[RuleBasedStateMachine]:
    """The world's actions as rules. `exercised`: how often a job was moved out of each row."""

    class Histories(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.world = make()

        # A rule without anything to act on does nothing. Preconditions would depend on what the servers did, and hypothesis
        # must be able to repeat its choices.
        @initialize(kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=2, max_size=4))
        def begin(self, kinds: list[str]) -> None:
            for kind in kinds:
                self.world.enqueue(kind)

        def a_job(self, number: int) -> UUID:
            return self.world.enqueued[number % len(self.world.enqueued)]

        def a_holder(self, *states: str) -> list[Holder]:
            return [holder for holder in self.world.holders if holder.state in states]

        @rule(
            kind=st.sampled_from(sorted(KINDS)),
            published=st.booleans(),
            delay=st.sampled_from([None, None, 600]),
            tenant=st.sampled_from("ab"),
        )
        def enqueue(self, kind: str, published: bool, delay: float | None, tenant: str) -> None:
            self.world.enqueue(kind, published=published, delay=delay, tenant=tenant)

        @rule(number=st.integers(0, 20), what=st.sampled_from(["publish", "cancel", "forge", "forge elsewhere"]))
        def touch(self, number: int, what: str) -> None:
            job = self.a_job(number)
            if what == "forge elsewhere":
                self.world.forge(job, lane="elsewhere")
            else:
                getattr(self.world, what)(job)

        @rule(heard=st.sampled_from([True, True, True, False]))
        def claim(self, heard: bool) -> None:
            self.world.claim(heard=heard)

        @rule()
        def claim_and_start(self) -> None:
            self.world.claim()
            self.world.start()

        @rule(
            between=st.sampled_from(["nothing", "nothing", "expire", "reap", "reap dies", "flush"]),
            silent=st.booleans(),
            late=st.booleans(),
        )
        def start(self, between: str, silent: bool, late: bool) -> None:
            world = self.world
            events = {
                "nothing": lambda: None,
                "expire": lambda: world.jump(LEASE),
                "reap": lambda: (world.jump(LEASE), world.reap()),
                "reap dies": lambda: _between(world),
                "flush": world.flush,
            }
            world.start(events[between], silent=silent, late=late)  # type: ignore[arg-type]

        @rule(acked=st.sampled_from([True, True, False]), number=st.integers(0, 5))
        def settle(self, acked: bool, number: int) -> None:
            if holders := self.a_holder("begun", "broken"):
                self.world.settle(holders[number % len(holders)], acked=acked)

        @rule(end=st.sampled_from(["died", "died", "stopped", "host lost"]), number=st.integers(0, 5))
        def end_process(self, end: str, number: int) -> None:
            holders = self.a_holder("begun", "broken")
            if holders and end == "host lost":
                self.world.lose_host(holders[number % len(holders)])
            elif holders:
                self.world.end_process(holders[number % len(holders)], end)

        @rule(keeper=st.sampled_from(["relay", "reap", "reconcile", "lease_keeper"]), restarted=st.sampled_from([False, False, True]))
        def keep(self, keeper: str, restarted: bool) -> None:
            if restarted:
                self.world.relay_keeper, self.world.reconciler_keeper = Relay(), Reconciler()
            getattr(self.world, keeper)()

        @rule()
        def sweep_and_die(self) -> None:
            self.world.reap(dies=True)

        @rule(what=st.sampled_from([2.0, LEASE, 600.0, "flush", "roll_back"]))
        def weather(self, what: float | str) -> None:
            if isinstance(what, float):
                self.world.jump(what)
            else:
                getattr(self.world, what)()

        def teardown(self) -> None:
            try:
                self.world.until_quiet()
                exercised.update(row for row, _ in self.world.moved.elements())
            finally:
                self.world.close()

    return Histories


HISTORIES = settings(
    max_examples=int(os.environ.get("HISTORIES", "8")),
    stateful_step_count=30,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),  # shrinking takes minutes on real servers; a history of 30 steps can be read
)


@pytest.mark.timeout(300)
def test_whatever_happens_only_movers_move_and_each_job_ends_once(broker: Broker, conf: Conf, clock: Clock) -> None:
    exercised: Counter[str] = Counter()
    run_state_machine_as_test(machine(lambda: World(broker, conf, clock), exercised), settings=HISTORIES)
    assert exercised, "nothing was ever moved"
    print("moves out of each row:", dict(exercised.most_common()))
