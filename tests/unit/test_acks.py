"""Acks gather while one call is under way, and none is lost by an error."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from django_tenant_queue.exceptions import ScheduleUnavailable
from django_tenant_queue.worker.acks import GatheredAcks


class SlowBroker:
    """Holds its first call until `go` is set; fails the calls whose number is in `failing`."""

    def __init__(self, failing: Iterable[int] = ()) -> None:
        self.calls: list[list[str]] = []
        self.go, self.called = threading.Event(), threading.Event()
        self._failing = set(failing)

    def ack(self, tokens: Iterable[str]) -> None:
        self.calls.append(list(tokens))
        self.called.set()
        assert self.go.wait(10)
        if len(self.calls) in self._failing:
            raise ScheduleUnavailable("no answer")


def test_acks_that_come_while_one_is_under_way_are_sent_together() -> None:
    broker = SlowBroker()
    acks = GatheredAcks(broker)
    acks.start()
    acks.ack(["a"])
    assert broker.called.wait(10)
    for token in "bcd":
        acks.ack([token])
    assert not acks.flush(0)
    broker.go.set()
    assert acks.flush(10)
    assert broker.calls == [["a"], ["b", "c", "d"]]


def test_a_schedule_that_does_not_answer_does_not_end_the_thread() -> None:
    broker = SlowBroker(failing=[1])
    broker.go.set()
    acks = GatheredAcks(broker)
    acks.start()
    acks.ack(["a"])
    assert acks.flush(10)
    acks.ack(["b"])
    assert acks.flush(10)
    assert broker.calls == [["a"], ["b"]]


def test_nothing_to_send_is_flushed() -> None:
    acks = GatheredAcks(SlowBroker())
    acks.start()
    assert acks.flush(10)
