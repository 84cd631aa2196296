"""The broker's verbs on a server and a network that fail: done once however often they are sent, and never stuck."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_tenant_queue.brokers.base import LaneLimits, Lease, Published
from django_tenant_queue.brokers.redis import clients
from django_tenant_queue.brokers.redis.broker import RedisBroker
from django_tenant_queue.exceptions import ScheduleLost, ScheduleUnavailable
from embedded import Valkey
from tests.proxy import Proxy
from tests.redis_faults.conftest import HASTY, url_through
from tests.redis_faults.schedules import EPOCH, broker_over, contents, job, jobs, open_epoch, request
from tests.schedules import Clock

BrokerAt = Callable[..., RedisBroker]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def broker_at(connector: Callable[..., clients.Connect], clock: Clock) -> Iterator[BrokerAt]:
    brokers: list[RedisBroker] = []

    def make(url: str, namespace: str, *, patience: clients.Patience = clients.WORKER) -> RedisBroker:
        brokers.append(broker_over(connector(url, patience=patience), namespace, clock, patience))
        return brokers[-1]

    yield make
    for broker in brokers:
        broker.close()


@pytest.fixture
def broker(broker_at: BrokerAt, valkey: Valkey, admin: Any) -> RedisBroker:
    return open_epoch(broker_at(valkey.url, "calm"))


def tokens(broker: RedisBroker) -> list[str]:
    return sorted(broker.state().leases)


def expire(broker: RedisBroker, clock: Clock) -> None:
    clock.advance(9)


VERBS: dict[str, Callable[[RedisBroker], Any]] = {
    "publish": lambda broker: broker.publish([*jobs(9, first=101), job(120, at_head=True), job(121, "new", priority=5)]),
    "claim": lambda broker: broker.claim(request("again", 5, sleeper="w1")),
    "claim that finds less than asked": lambda broker: broker.claim(request("more", 50, sleeper="w1")),
    "renew": lambda broker: broker.renew(tokens(broker)[:3]),
    "ack": lambda broker: broker.ack(ACKED),
    "release": lambda broker: broker.release(ACKED),
    "postpone": lambda broker: broker.postpone(ACKED, 3),
    "set_limits": lambda broker: broker.set_limits(
        {"acme": LaneLimits(weight=2000, max_running=1), "globex": LaneLimits(paused_until_us=-1)}
    ),
    "restore_leases": lambda broker: broker.restore_leases(
        [Lease(f"lost.{n}", job(200 + n).job_id, "default", "acme", 7, 1000, 5_000_000) for n in range(3)], epoch=EPOCH
    ),
    "store_snapshot": lambda broker: broker.store_snapshot("10:20:11", epoch=EPOCH),
    "open_epoch": lambda broker: broker.open_epoch(EPOCH),
    "begin_rebuild": lambda broker: broker.begin_rebuild("f" * 24, replaces=EPOCH),
    "discard": lambda broker: broker.discard_old_epochs(),
}
ACKED = [f"{'first':0<24}.{n}" for n in range(4)]


def with_history(broker: RedisBroker, clock: Clock) -> RedisBroker:
    """Jobs that wait and jobs under leases, in several lanes, one of them parked."""
    clock.us = Clock().us
    open_epoch(broker)
    broker.set_limits({"initech": LaneLimits(max_running=1)})
    broker.publish(jobs(30))
    assert len(broker.claim(request("first", 8)).claims) == 8
    clock.advance(1.5)
    return broker


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_whose_replies_are_lost_has_the_effect_of_once(
    broker_at: BrokerAt, valkey: Valkey, proxy: Proxy, admin: Any, clock: Clock, verb: str
) -> None:
    """C16: requests arrive, replies are dropped; sent again and again, then once more when the network is back."""
    calm = with_history(broker_at(valkey.url, "calm"), clock)
    once = VERBS[verb](calm)
    stormy = with_history(broker_at(url_through(proxy, valkey), "stormy", patience=HASTY), clock)
    proxy.swallow_replies(to=b"EVALSHA")
    while proxy.fired["swallowed reply"] < 2:
        with pytest.raises(ScheduleUnavailable):
            VERBS[verb](stormy)
    proxy.heal()
    again = VERBS[verb](stormy)
    if verb not in ("publish", "ack", "release", "discard"):  # those say what they found: it is done already
        assert again == once
    assert contents(admin, "stormy") == contents(admin, "calm")


def test_reaping_whose_reply_is_lost_ends_each_lease_once(
    broker_at: BrokerAt, valkey: Valkey, proxy: Proxy, admin: Any, clock: Clock
) -> None:
    """C16: the jobs of a lost reply are absent; the reconciler finds them by their rows."""
    calm, stormy = with_history(broker_at(valkey.url, "calm"), clock), broker_at(url_through(proxy, valkey), "stormy", patience=HASTY)
    expire(calm, clock)
    assert len(calm.reap(100)) == 8
    with_history(stormy, clock)
    expire(stormy, clock)
    proxy.swallow_replies(to=b"EVALSHA")
    with pytest.raises(ScheduleUnavailable):
        stormy.reap(100)
    assert proxy.fired["swallowed reply"] >= 1
    proxy.heal()
    assert stormy.reap(100) == ()
    assert contents(admin, "stormy") == contents(admin, "calm")


def test_a_claim_whose_reply_is_lost_is_not_sent_again_and_is_found_by_resume(
    broker_at: BrokerAt, valkey: Valkey, proxy: Proxy, admin: Any, clock: Clock
) -> None:
    """C16"""
    stormy = with_history(broker_at(url_through(proxy, valkey), "stormy", patience=HASTY), clock)
    proxy.swallow_replies(to=b"EVALSHA")
    with pytest.raises(ScheduleUnavailable):
        stormy.claim(request("lost", 5))
    assert proxy.fired["swallowed reply"] == 1
    proxy.heal()
    taken = stormy.resume(request("lost").request_id)
    assert len(taken) == 5
    assert stormy.claim(request("lost", 5)).claims == taken
    assert stormy.resume(request("never").request_id) == ()


def test_flushed_scripts_lose_and_double_nothing(broker: RedisBroker, admin: Any) -> None:
    """C08: SCRIPT FLUSH every few milliseconds while jobs come and go."""
    stop, flushes, seen = threading.Event(), [], Counter[int]()

    def flush() -> None:
        while not stop.wait(0.005):
            flushes.append(admin.script_flush())

    flusher = threading.Thread(target=flush)
    flusher.start()
    try:
        for batch in range(30):
            assert set(broker.publish(jobs(10, first=1 + 10 * batch))) == {Published.PUBLISHED}
            claims = broker.claim(request(f"r{batch}.", 10)).claims
            seen.update(claim.job_id.int for claim in claims)
            assert len(broker.ack([claim.token for claim in claims])) == len(claims)
        while claims := broker.claim(request(f"rest{len(seen)}.", 50)).claims:
            seen.update(claim.job_id.int for claim in claims)
            broker.ack([claim.token for claim in claims])
    finally:
        stop.set()
        flusher.join()
    assert seen == Counter(range(1, 301))
    assert len(flushes) > 10


def test_a_restart_without_persistence_is_a_lost_schedule_that_can_be_rebuilt(
    broker_at: BrokerAt, valkey: Valkey, admin: Any, clock: Clock
) -> None:
    """C02: no epoch is found, scripts are sent again, and a new epoch takes the jobs."""
    broker = with_history(broker_at(valkey.url, "calm"), clock)
    valkey.kill()
    valkey.start()
    for verb in (lambda: broker.publish(jobs(3)), lambda: broker.claim(request("a")), lambda: broker.ack(ACKED), lambda: broker.reap(5)):
        with pytest.raises(ScheduleLost):
            verb()
    assert broker.read_epoch() is None
    open_epoch(broker, "f" * 24)
    assert broker.publish(jobs(3)) == [Published.PUBLISHED] * 3
    assert len(broker.claim(request("b")).claims) == 3


class TestFullServer:
    """C09: maxmemory reached under noeviction: nothing comes in, everything goes out."""

    @pytest.fixture
    def full(self, broker_at: BrokerAt, valkey: Valkey, admin: Any, clock: Clock) -> Iterator[RedisBroker]:
        broker = with_history(broker_at(valkey.url, "calm"), clock)
        admin.config_set("maxmemory", admin.info("memory")["used_memory"] // 2)
        yield broker
        admin.config_set("maxmemory", 0)

    def test_publish_is_refused_as_unavailable_and_works_when_there_is_room(self, full: RedisBroker, admin: Any) -> None:
        """C09"""
        with pytest.raises(ScheduleUnavailable) as caught:
            full.publish(jobs(3, first=500))
        assert caught.value.kind == "oom"
        admin.config_set("maxmemory", 0)
        assert full.publish(jobs(3, first=500)) == [Published.PUBLISHED] * 3

    def test_the_schedule_drains(self, full: RedisBroker, clock: Clock) -> None:
        """C09: claim, renew, postpone, release, ack and reap go on."""
        leased = {job_id.int for job_id in full.state().leases.values()}
        assert full.renew(ACKED[:1]) == {ACKED[0]}
        assert full.postpone(ACKED[1:2], 60) == {ACKED[1]}
        assert full.release(ACKED[2:3]) == {ACKED[2]}
        assert full.ack(ACKED[3:4]) == {ACKED[3]}
        expire(full, clock)
        ended = {claim.token for claim in full.reap(100)}
        assert len(ended) == 5  # eight leases, less the released, the acked and the postponed one
        clock.advance(60)
        assert [claim.token for claim in full.reap(100)] == [ACKED[1]]
        seen = []
        for n in range(40):
            claims = full.claim(request(f"drain{n}.", 5)).claims
            assert {claim.token for claim in claims} <= full.held(claim.token for claim in claims)
            full.ack([claim.token for claim in claims])
            seen += [claim.job_id.int for claim in claims]
        assert sorted(seen) == sorted({*range(1, 31)} - leased)
        assert full.state().leases == {}


def test_a_sleeper_whose_connection_was_reset_is_back_by_itself(
    broker_at: BrokerAt, valkey: Valkey, proxy: Proxy, admin: Any, clock: Clock
) -> None:
    """C17: consumption resumes without a restart, at the latest when the wait is over."""
    broker = open_epoch(broker_at(url_through(proxy, valkey), "calm"))
    waiter = broker.open_waiter("w1")
    assert broker.claim(request("none", sleeper="w1")).claims == ()
    proxy.reset_all()
    broker.publish(jobs(1))
    waiter.wait(1)
    assert proxy.fired["reset"] >= 1
    assert len(broker.claim(request("some", sleeper="w1")).claims) == 1
    waiter.close()


def test_a_black_hole_is_unavailable_within_the_budget_for_every_verb(
    broker_at: BrokerAt, valkey: Valkey, proxy: Proxy, admin: Any, clock: Clock
) -> None:
    """C15"""
    broker = with_history(broker_at(url_through(proxy, valkey), "stormy", patience=HASTY), clock)
    proxy.black_hole()
    for verb in (
        lambda: broker.publish(jobs(3, first=500)),
        lambda: broker.claim(request("a")),
        lambda: broker.ack(ACKED),
        broker.read_epoch,
    ):
        begun = time.monotonic()
        with pytest.raises(ScheduleUnavailable):
            verb()
        assert time.monotonic() - begun < HASTY.total_seconds + 0.3
    assert proxy.fired["black hole"] >= 4
