"""The zygote: has Django loaded and no connection and no thread; forks every process of the tree, reaps them, starts them again.

Run as `python -m django_tenant_queue.worker.zygote OPTIONS CONTROL_FD` by the supervisor. It obeys the words "drain" and "stop" on the
control socket, whose end (the supervisor died) is an order to drain. It goes on alone while the supervisor is stopped.
Order of stopping: workers and quarantine first, then the lease keeper has settled every death, then the keepers.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import django
from django.db import connections

from .. import failpoints, logs
from .linux import name_process
from .options import CANNOT_START, DRAINED, HANDED_BACK, NOTHING_LEFT, WorkerOptions
from .orders import Orders, ignore_signals
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


class Zygote:
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

        def body(orders: Orders) -> int:
            from .process import run_worker
            from .quarantine import QuarantineDoor

            return run_worker(entry, orders, self._options, QuarantineDoor(self._asks))

        self._fork(seat, body, entry)

    def _start_lease_keeper(self) -> None:
        def body(orders: Orders) -> int:
            from .lease_keeper import LeaseKeeper
            from .surroundings import settle_in

            broker, conf = settle_in("lease keeper", orders)
            LeaseKeeper(self._page, orders, broker=broker, conf=conf, grace_seconds=self._options.grace_seconds).run()
            return DRAINED

        self._fork(self._lease_keeper, body)

    def _start_keepers(self) -> None:
        def body(orders: Orders) -> int:
            from .keeping import run_keepers

            return run_keepers(self._page, orders, self._options)

        self._fork(self._keepers, body)

    def _fork_quarantines(self) -> None:
        while self._waiting_apart:
            entry = self._page.reserve(Kind.QUARANTINE) if self._page.order is Order.RUN else None
            if entry is None and self._page.order is Order.RUN:
                return  # none is free yet
            data, tells = descriptors = self._waiting_apart.pop(0)
            if entry is not None:
                self._fork_apart(entry, data, tells)
            for descriptor in descriptors:  # without a fork this tells the asking thread to hand the job back
                os.close(descriptor)

    def _fork_apart(self, entry: Entry, data: int, tells: int) -> None:
        def body(orders: Orders) -> int:
            from .apart import run_quarantine

            return run_quarantine(entry, orders, self._options, data, tells)

        self._fork(Seat("quarantine"), body, entry)

    # -- the fork

    def _fork(self, seat: Seat, body: Callable[[Orders], int], entry: Entry | None = None) -> None:
        _refuse_threads()
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
            self._be_child(seat, body, entry)
        if entry is not None:
            entry.live(pid)
        seat.taken(pid)
        self._children[pid] = _Child(seat, time.monotonic(), entry, entry.generation if entry is not None else None)

    def _be_child(self, seat: Seat, body: Callable[[Orders], int], entry: Entry | None) -> None:
        """Never returns."""
        code = CANNOT_START
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if entry is not None:
                failpoints.hit("S1")
                entry.live(os.getpid())
            os.close(self._alive_held)
            for end in (self._wake, self._wake_end):
                os.close(end)
            self._control.close()
            self._door.close()
            code = body(Orders(self._page, self._alive))
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else CANNOT_START
        except BaseException as error:
            logs.process_broken(seat.name, error)
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(code)  # hard: threads may be running, and what the zygote would do at exit is not ours to do

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
        from .quarantine import receive

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


def _refuse_threads() -> None:
    """A fork copies only the thread that calls it; locks that the others hold stay locked for ever in the child."""
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if others:
        print(
            f"runworkers: loading the project has started threads ({', '.join(others)}), and forking a process with threads can hang it. "
            "Start them in a receiver of django_tenant_queue.signals.worker_started instead of at import.",
            file=sys.stderr,
        )
        os._exit(CANNOT_START)


def main(arguments: list[str]) -> int:
    options, control = WorkerOptions.from_json(arguments[0]), socket.socket(fileno=int(arguments[1]))
    name_process("zygote")
    ignore_signals()
    os.set_inheritable(control.fileno(), False)
    django.setup()
    logs.speak()
    _load_what_children_need()
    gc.collect()
    gc.freeze()  # what is loaded now stays shared with the children: no collection touches it
    return Zygote(options, control).run()


def _load_what_children_need() -> None:
    """Once here instead of once in each fork."""
    from importlib import import_module

    for module in ("apart", "keeping", "lease_keeper", "process"):
        import_module(f".{module}", __package__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
