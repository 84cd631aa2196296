"""The shared page: records are read whole or not at all, by any process that has the mapping."""

from __future__ import annotations

import os
import signal
import time
from uuid import uuid4

import pytest

from django_tenant_queue.worker.slots import Kind, Order, Page, Phase

JOB = uuid4()
TOKEN = "0123456789abcdef01234567.12"


def page() -> Page:
    return Page(workers=2, threads=3, quarantines=2)


def test_slot_holds_what_was_written() -> None:
    slot = page().entries[1].slots[2]
    assert slot.read() is None
    slot.occupy(JOB, TOKEN, 7)
    reading = slot.read()
    assert reading is not None
    assert (reading.job_id, reading.token, reading.fence, reading.begun) == (JOB, TOKEN, 7, False)
    slot.begin(1234.5)
    reading = slot.read()
    assert reading is not None
    assert (reading.job_id, reading.token, reading.fence, reading.begun, reading.deadline) == (JOB, TOKEN, 7, True, 1234.5)
    slot.clear()
    assert slot.read() is None


def test_neighbouring_slots_are_apart() -> None:
    pages = page()
    slots = [slot for entry in pages.entries for slot in entry.slots]
    for fence, slot in enumerate(slots):
        slot.occupy(JOB, "t" * 40, fence)
    assert [reading.fence for entry in pages.entries for reading in entry.held()] == list(range(len(slots)))


def test_token_that_does_not_fit_is_refused() -> None:
    slot = page().entries[0].slots[0]
    with pytest.raises(ValueError, match="at most 40 bytes"):
        slot.occupy(JOB, "t" * 41, 1)
    assert slot.read() is None


def test_mark_of_a_time_out_does_not_outlive_its_job() -> None:
    slot = page().entries[0].slots[0]
    slot.occupy(JOB, TOKEN, 1)
    slot.begin(1.0)
    reading = slot.read()
    assert reading is not None
    slot.time_out(reading)
    again = slot.read()
    assert again is not None
    assert again.timed_out
    slot.occupy(uuid4(), TOKEN, 2)
    slot.time_out(reading)  # too late: the slot has another job
    other = slot.read()
    assert other is not None
    assert not other.timed_out


def test_what_a_dead_process_wrote_is_there() -> None:
    pages = page()
    entry = pages.reserve(Kind.WORKER)
    assert entry is not None
    if (pid := os.fork()) == 0:
        entry.live(os.getpid())
        entry.slots[1].occupy(JOB, TOKEN, 3)
        os._exit(9)
    entry.live(pid)
    _, status = os.waitpid(pid, 0)
    entry.reaped(status)
    assert [entry.pid for entry in pages.live()] == [pid]
    assert entry.status == status
    assert [reading.fence for reading in entry.held()] == [3]


def test_reader_never_sees_half_a_record() -> None:
    """A writer at full speed in another process: every record read is one that was written."""
    slot = page().entries[0].slots[0]
    if (pid := os.fork()) == 0:
        fence = 0
        while True:
            fence += 1
            slot.occupy(JOB, str(fence), fence)
            slot.begin(float(fence))
    seen: set[int] = set()
    end = time.monotonic() + 10
    while len(seen) < 200 and time.monotonic() < end:
        if reading := slot.read():
            assert reading.token == str(reading.fence)
            assert not reading.begun or reading.deadline == reading.fence
            seen.add(reading.fence)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert len(seen) == 200


def test_entry_is_reserved_once_and_again_when_free() -> None:
    pages = page()
    first, second = pages.reserve(Kind.WORKER), pages.reserve(Kind.WORKER)
    assert first is not None
    assert second is not None
    assert pages.reserve(Kind.WORKER) is None
    first.live(4711)
    first.doom()
    first.slots[0].occupy(JOB, TOKEN, 1)
    generation = first.generation
    first.free()
    again = pages.reserve(Kind.WORKER)
    assert again is first
    assert (again.phase, again.generation, again.doomed, again.status, again.held()) == (Phase.STARTING, generation + 1, False, None, [])
    assert pages.reserve(Kind.QUARANTINE) is not None


def test_orders_only_grow() -> None:
    pages = page()
    pages.tell(Order.STOP)
    when = pages.ordered_at
    pages.tell(Order.DRAIN)
    assert (pages.order, pages.ordered_at) == (Order.STOP, when)
    pages.tell(Order.CLOSE)
    assert (pages.order, pages.ordered_at) == (Order.CLOSE, when)
