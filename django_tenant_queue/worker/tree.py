"""The tree as its zygote sees it: which processes there should be, forking them, reaping them, and taking the tree down in order.

It obeys the words "drain" and "stop" on the control socket, whose end (the supervisor died) is an order to drain. It goes on alone while
the supervisor is stopped. Order of stopping: workers and quarantine first, then the lease keeper has settled every death, then the keepers.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from django.db import connections

from .. import logs
from .apart import run_quarantine
from .forks import be_child, refuse_threads
from .keeping import run_keepers
from .lease_keeper import run_lease_keeper
from .options import DRAINED, HANDED_BACK, NOTHING_LEFT, WorkerOptions
from .orders import Orders, ignore_signals
from .process import run_worker
from .quarantine import QuarantineDoor, receive
from .seats import Seat, describe_status
from .slots import Entry, Kind, Order, Page

LONGEST_WAIT_SECONDS = 1.0
CLOSE_SECONDS = 5.0  # how long the keepers may take to settle what is left, then to close


@dataclass(slots=True)
class _Child:
    """A process of the tree. `generation`: of its entry, None for keepers."""

    seat: Seat
    started_at: float
    entry: Entry | None = None
    generation: int | None = None


class Tree:
    """`run()` returns the exit code of the tree: DRAINED, or HANDED_BACK when jobs had to be."""

    def __init__(self, options: WorkerOptions, control: socket.socket) -> None:
        self._options, self._control = options, control
        # Twice as many worker entries as workers: an entry is free again when the jobs of its dead process are handed back.
        apart = options.processes * options.threads
        self._page = Page(workers=2 * options.processes + 2, threads=options.threads, quarantines=apart + options.processes)
        self._alive, self._alive_held = os.pipe()  # only we keep the write end: its end tells children that we are dead
        self._door, self._asks = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._wake, self._wake_end = os.pipe()
        for end in (self._wake, self._wake_end):
            os.set_blocking(end, False)
        self._workers = [Seat(f"worker {index}") for index in range(options.processes)]
        self._lease_keeper = Seat("lease keeper", longest_pause_seconds=0.5)
        self._keepers = Seat("keepers", longest_pause_seconds=5)
        self._children: dict[int, _Child] = {}
        self._waiting_apart: list[list[int]] = []
        self._handed_back = False
        self._empty_since: float | None = None
        self._closed_at: float | None = None

    def run(self) -> int:
        ignore_signals()
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        self._wait(0)  # an order may have come while the project was loaded
        self._fill_seats()
        self._say("ready")
        logs.tree_ready(self._options.processes, self._options.threads, ", ".join(self._options.queues))
        while not self._finished():
            self._fill_seats()
            self._fork_quarantines()
            self._wait(self._pause_seconds())
            self._reap()
            self._step_down()
        return HANDED_BACK if self._handed_back else DRAINED

    # -- starting

    def _fill_seats(self) -> None:
        order, now = self._page.order, time.monotonic()
        if order is not Order.CLOSE:
            for seat, start in ((self._lease_keeper, self._start_lease_keeper), (self._keepers, self._start_keepers)):
                if seat.is_due(now):
                    start()
        if order is Order.RUN:
            for seat in self._workers:
                if seat.is_due(now):
                    self._start_worker(seat)

    def _start_worker(self, seat: Seat) -> None:
        entry = self._page.reserve(Kind.WORKER)
        if entry is None:
            seat.put_off(time.monotonic())  # the dead ones' jobs are not handed back yet: the ledger is down, a new one could do nothing
            return

        door = QuarantineDoor(self._asks)
        self._fork(seat, lambda orders: run_worker(entry, orders, self._options, door), entry)

    def _start_lease_keeper(self) -> None:
        self._fork(self._lease_keeper, lambda orders: run_lease_keeper(self._page, orders, self._options))

    def _start_keepers(self) -> None:
        self._fork(self._keepers, lambda orders: run_keepers(self._page, orders, self._options))

    def _fork_quarantines(self) -> None:
        while self._waiting_apart:
            entry = self._page.reserve(Kind.QUARANTINE) if self._page.order is Order.RUN else None
            if entry is None and self._page.order is Order.RUN:
                return  # none is free yet
            data, tells = descriptors = self._waiting_apart.pop(0)
            if entry is not None:
                self._fork(Seat("quarantine"), partial(_run_apart, entry, self._options, data, tells), entry)
            for descriptor in descriptors:  # without a fork this tells the asking thread to hand the job back
                os.close(descriptor)

    # -- the fork

    def _fork(self, seat: Seat, body: Callable[[Orders], int], entry: Entry | None = None) -> None:
        refuse_threads()
        connections.close_all()
        try:
            pid = os.fork()
        except OSError as error:
            logs.fork_failed(seat.name, error)
            seat.died(time.monotonic(), 0)
            if entry is not None:
                entry.free()
            return
        if pid == 0:
            ends = [self._alive_held, self._wake, self._wake_end, self._door.fileno()]
            be_child(seat.name, lambda: body(Orders(self._page, self._alive)), entry, [*ends, self._control.fileno()])
        if entry is not None:
            entry.live(pid)
        seat.taken(pid)
        self._children[pid] = _Child(seat, time.monotonic(), entry, entry.generation if entry is not None else None)

    # -- waiting and reaping

    def _wait(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if self._control.fileno() >= 0:
            poll.register(self._control, select.POLLIN)
        poll.register(self._door, select.POLLIN)
        for descriptor, _ in poll.poll(seconds * 1000):
            if descriptor == self._wake:
                with suppress(BlockingIOError):
                    os.read(self._wake, 4096)
            elif descriptor == self._control.fileno():
                self._obey()
            else:
                self._take_request()

    def _pause_seconds(self) -> float:
        if self._page.order is not Order.RUN or self._waiting_apart:
            return 0.02
        now = time.monotonic()
        due = [seat.due_in(now) for seat in (*self._workers, self._lease_keeper, self._keepers)]
        return max(0.01, min([LONGEST_WAIT_SECONDS, *(seconds for seconds in due if seconds is not None)]))

    def _obey(self) -> None:
        try:
            word = self._control.recv(64).decode("ascii", "replace")
        except OSError:
            word = ""
        if not word:
            self._control.close()
            logs.supervisor_gone()
        self._tell(Order.STOP if word == "stop" else Order.DRAIN)

    def _take_request(self) -> None:
        if descriptors := receive(self._door):
            self._waiting_apart.append(descriptors)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._children.pop(pid, None)
            if child is not None:
                self._bury(pid, child, status)

    def _bury(self, pid: int, child: _Child, status: int) -> None:
        now = time.monotonic()
        code = os.waitstatus_to_exitcode(status)
        if child.entry is not None and child.entry.pid == pid and child.entry.generation == child.generation:
            child.entry.reaped(status)
        child.seat.died(now, now - child.started_at)
        if child.seat is self._keepers and code == NOTHING_LEFT:
            self._tell(Order.DRAIN)
        elif code == HANDED_BACK or (child.entry is not None and self._page.order is not Order.RUN and code != DRAINED):
            self._handed_back = True
        if code not in (DRAINED, HANDED_BACK, NOTHING_LEFT):
            logs.process_ended(child.seat.name, pid, describe_status(status))
            self._say(f"ended {child.seat.name} {pid} {status}")

    # -- stopping

    def _tell(self, order: Order) -> None:
        if order <= self._page.order:
            return
        self._page.tell(order)
        for pid in list(self._children):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)  # only to wake it; the order is in the page

    def _step_down(self) -> None:
        now = time.monotonic()
        if self._page.order is Order.RUN or any(child.entry is not None for child in self._children.values()):
            return
        self._empty_since = self._empty_since or now
        settled = not any(self._page.live()) or now > self._empty_since + CLOSE_SECONDS
        if self._closed_at is None and settled:
            self._closed_at = now
            self._tell(Order.CLOSE)
        elif self._closed_at is not None and now > self._closed_at + CLOSE_SECONDS:
            for pid in list(self._children):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _finished(self) -> bool:
        return self._page.order is Order.CLOSE and not self._children

    # -- words

    def _say(self, word: str) -> None:
        """Never waits for a supervisor that is stopped."""
        with suppress(OSError):
            self._control.send(word.encode(), socket.MSG_DONTWAIT)


def _run_apart(entry: Entry, options: WorkerOptions, data: int, tells: int, orders: Orders) -> int:
    return run_quarantine(entry, orders, options, data, tells)
