"""The waiter's promises: woken at once, never longer than asked, and a lost connection is only a late wake-up."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from django_tenant_queue.brokers.redis import clients
from django_tenant_queue.brokers.redis.waiter import LONGEST_STEP_SECONDS, RedisWaiter
from embedded import Valkey
from tests.proxy import Proxy
from tests.redis_faults.conftest import url_through
from tests.waiting import eventually

CHANNEL = b"{dtq:test:0}:wake:me"
PULSE_SECONDS = 0.2
WaiterAt = Callable[[str], RedisWaiter]


@pytest.fixture
def waiter_at(connector: Callable[..., clients.Connect]) -> Iterator[WaiterAt]:
    waiters: list[RedisWaiter] = []

    def make(url: str) -> RedisWaiter:
        waiters.append(RedisWaiter(connector(url), CHANNEL, pulse_seconds=PULSE_SECONDS))
        return waiters[-1]

    yield make
    for waiter in waiters:
        waiter.close()


@contextmanager
def takes(at_least: float, at_most: float) -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert at_least <= time.monotonic() - begun <= at_most


def test_nothing_happens_for_as_long_as_asked(waiter_at: WaiterAt, valkey: Valkey, admin: Any) -> None:
    waiter = waiter_at(valkey.url)
    with takes(0.3, 0.6):
        assert waiter.wait(0.3) is False


def test_a_publish_ends_the_wait_at_once(waiter_at: WaiterAt, valkey: Valkey, admin: Any) -> None:
    waiter = waiter_at(valkey.url)
    timer = threading.Timer(0.1, admin.publish, (CHANNEL, b"1"))
    timer.start()
    with takes(0.05, 1):
        assert waiter.wait(5) is True
    timer.join()


def test_a_wake_up_between_two_waits_is_kept(waiter_at: WaiterAt, valkey: Valkey, admin: Any) -> None:
    waiter = waiter_at(valkey.url)
    for _ in range(3):
        admin.publish(CHANNEL, b"1")
    with takes(0, 0.5):
        assert waiter.wait(5) is True
    assert waiter.wait(0.05) is False  # several wake-ups are one


def test_another_name_sleeps_on(waiter_at: WaiterAt, valkey: Valkey, admin: Any) -> None:
    waiter = waiter_at(valkey.url)
    admin.publish(b"{dtq:test:0}:wake:you", b"1")
    assert waiter.wait(0.1) is False


def test_interrupt_ends_a_wait_and_otherwise_the_next_one(waiter_at: WaiterAt, valkey: Valkey, admin: Any) -> None:
    waiter = waiter_at(valkey.url)
    timer = threading.Timer(0.1, waiter.interrupt)
    timer.start()
    with takes(0.05, 1):
        assert waiter.wait(5) is True
    timer.join()
    for _ in range(100_000):  # more than the pipe holds: never blocks
        waiter.interrupt()
    with takes(0, 0.5):
        assert waiter.wait(5) is True
    assert waiter.wait(0.02) in (True, False)


def test_a_signal_handler_may_interrupt(waiter_at: WaiterAt, valkey: Valkey, admin: Any) -> None:
    waiter = waiter_at(valkey.url)
    before = signal.signal(signal.SIGUSR1, lambda *_: waiter.interrupt())
    try:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        with takes(0.05, 1):
            assert waiter.wait(5) is True
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_silently_dropped_connection_is_found_and_made_anew(waiter_at: WaiterAt, valkey: Valkey, proxy: Proxy, admin: Any) -> None:
    """C17: an idle NAT entry is dropped: found within two pulses, and wake-ups arrive again, without a restart."""
    waiter = waiter_at(url_through(proxy, valkey))
    assert waiter.wait(0.05) is False
    proxy.drop_silently()
    with takes(PULSE_SECONDS, 2 * PULSE_SECONDS + 0.4):
        assert waiter.wait(5) is True  # a new subscription: a wake-up may have been missed
    assert (waiter.subscriptions, proxy.fired["silenced"]) == (2, 1)
    assert proxy.fired["swallowed in silence"] >= 1
    admin.publish(CHANNEL, b"1")
    with takes(0, 0.5):
        assert waiter.wait(5) is True


def test_short_waits_find_a_dead_connection_as_well(waiter_at: WaiterAt, valkey: Valkey, proxy: Proxy, admin: Any) -> None:
    """C17: a claimer that asks for a few milliseconds at a time."""
    waiter = waiter_at(url_through(proxy, valkey))
    proxy.drop_silently()
    with takes(PULSE_SECONDS, 2 * PULSE_SECONDS + 0.4):
        while waiter.is_subscribed:
            waiter.wait(0.01)
    assert proxy.fired["silenced"] == 1
    assert waiter.wait(1) is True
    assert waiter.is_subscribed


def test_an_answered_pulse_keeps_the_connection(waiter_at: WaiterAt, valkey: Valkey, admin: Any) -> None:
    waiter = waiter_at(valkey.url)
    assert waiter.wait(5 * PULSE_SECONDS) is False
    assert waiter.subscriptions == 1


@pytest.mark.parametrize("fault", ["refuse", "black_hole"])
def test_a_lost_server_costs_no_more_than_the_wait(waiter_at: WaiterAt, valkey: Valkey, proxy: Proxy, admin: Any, fault: str) -> None:
    """C15: it never raises, sleeps the time out and comes back when the server does."""
    waiter = waiter_at(url_through(proxy, valkey))
    getattr(proxy, fault)()
    proxy.reset_all()
    with takes(0.5, 0.9):
        assert waiter.wait(0.5) is False
    assert proxy.fired["refused"] + proxy.fired["black hole"] >= 1
    proxy.heal()
    eventually(lambda: waiter.wait(0.2), within=5)
    assert waiter.subscriptions == 2


def test_a_waiter_made_while_the_server_is_away_comes_up_later(waiter_at: WaiterAt, valkey: Valkey, proxy: Proxy, admin: Any) -> None:
    proxy.black_hole()
    with takes(0, LONGEST_STEP_SECONDS + 0.4):
        waiter = waiter_at(url_through(proxy, valkey))
    assert waiter.subscriptions == 0
    assert proxy.fired["black hole"]
    proxy.heal()
    assert eventually(lambda: waiter.wait(0.2)) is True


def test_a_forked_child_has_a_subscription_of_its_own(waiter_at: WaiterAt, valkey: Valkey, admin: Any) -> None:
    waiter = waiter_at(valkey.url)
    pid = os.fork()
    if pid == 0:
        waiter.interrupt()  # writes to the parent's pipe, as every copy of it does
        woken = waiter.wait(0.05) or waiter.wait(5)
        os._exit(0 if woken and waiter.subscriptions == 2 else 1)
    assert waiter.wait(1) is True
    eventually(lambda: admin.pubsub_numsub(CHANNEL)[0][1] == 2)
    admin.publish(CHANNEL, b"1")
    assert os.waitpid(pid, 0)[1] == 0
    assert waiter.wait(1) is True


def test_nothing_is_left_open_after_close(waiter_at: WaiterAt, valkey: Valkey, admin: Any) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    waiter = waiter_at(valkey.url)
    waiter.wait(0.01)
    waiter.close()
    waiter.interrupt()
    waiter.close()
    assert set(Path("/proc/self/fd").iterdir()) <= before
    eventually(lambda: admin.pubsub_numsub(CHANNEL)[0][1] == 0)
