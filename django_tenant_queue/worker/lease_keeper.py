"""The lease keeper: renews the leases of what the tree's slots hold, kills what is past its hard deadline, settles deaths.

A process of its own, so that a task which holds the interpreter lock cannot starve its renewal. It keeps nothing in its head: all it
knows is in the shared page, so that a new one goes on where a killed one stopped. Three duties, which may not wait for each other:
watching (the main thread; no store), renewing (Redis), settling deaths (Postgres, then Redis).
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from .. import failpoints, logs
from ..brokers.backoff import backoff_seconds
from ..brokers.base import Broker
from ..conf import Conf
from ..exceptions import ScheduleError
from .deaths import Death, settle_death
from .options import DRAINED, WorkerOptions
from .orders import Orders
from .slots import Entry, Order, Page, Phase, SlotReading
from .surroundings import settle_in

TICK_SECONDS = 0.25
KILL_MARGIN_SECONDS = 1.0  # after a job's deadline, and after the grace, before the process is killed
STATUS_WITHIN_SECONDS = 0.5  # how long a death waits for the zygote to say its exit status


@dataclass(slots=True)
class _Watched:
    """A live entry, and a descriptor that becomes readable when its process dies. -1: it was dead before we looked."""

    entry: Entry
    pid: int
    generation: int
    descriptor: int
    died_at: float | None = None

    @property
    def is_current(self) -> bool:
        entry = self.entry
        return entry.phase is Phase.LIVE and entry.generation == self.generation and entry.pid == self.pid


def run_lease_keeper(page: Page, orders: Orders, options: WorkerOptions) -> int:
    """The main function of the lease keeper, from the fork to its exit code."""
    broker, conf = settle_in("lease keeper", orders)
    LeaseKeeper(page, orders, broker=broker, conf=conf, grace_seconds=options.grace_seconds).run()
    return DRAINED


class LeaseKeeper:
    """`run()` returns when it is told to close and nothing is left to watch; the zygote's death with no process left is the same."""

    def __init__(self, page: Page, orders: Orders, *, broker: Broker, conf: Conf, grace_seconds: float) -> None:
        self._page, self._orders, self._broker, self._conf = page, orders, broker, conf
        self._grace_seconds = grace_seconds
        self._watched: dict[tuple[int, int], _Watched] = {}
        self._dead: list[_Watched] = []
        self._dead_wait = threading.Condition()
        self._stop_seen_at: float | None = None

    def run(self) -> None:
        self._look()
        renewals = threading.Thread(target=self._guard, args=(self._renew_forever,), name="renewals", daemon=True)
        settling = threading.Thread(target=self._guard, args=(self._settle_forever,), name="deaths", daemon=True)
        renewals.start()
        settling.start()
        while not self._may_close():
            self._look()
            self._kill_what_is_late()
            self._wait()

    def _guard(self, loop: Callable[[], None]) -> None:
        """A duty that ended by an error ends the process: the zygote starts a whole one."""
        try:
            loop()
        except BaseException as error:
            logs.process_broken("lease keeper", error)
            os._exit(1)

    def _may_close(self) -> bool:
        told = self._page.order is Order.CLOSE or self._orders.orphaned()
        return told and not self._watched and not any(self._page.live())

    # -- watching

    def _look(self) -> None:
        """Take up new processes, notice deaths, drop what is settled."""
        for key, watched in list(self._watched.items()):
            if not watched.is_current:
                self._drop(key)
        for entry in self._page.live():
            key = (id(entry), entry.generation)
            if key not in self._watched and entry.pid:
                self._watched[key] = _Watched(entry, entry.pid, entry.generation, _open_process(entry.pid))
        for watched in self._watched.values():
            if watched.died_at is None and (watched.entry.status is not None or _has_died(watched.descriptor)):
                watched.died_at = time.monotonic()
                failpoints.hit("S2")
                with self._dead_wait:
                    self._dead.append(watched)
                    self._dead_wait.notify()

    def _drop(self, key: tuple[int, int]) -> None:
        watched = self._watched.pop(key)
        if watched.descriptor >= 0:
            os.close(watched.descriptor)

    def _wait(self) -> None:
        poll = select.poll()
        for watched in self._watched.values():
            if watched.died_at is None and watched.descriptor >= 0:
                poll.register(watched.descriptor, select.POLLIN)
        poll.poll((TICK_SECONDS if self._page.order is Order.RUN else TICK_SECONDS / 10) * 1000)

    def _kill_what_is_late(self) -> None:
        now = time.monotonic()
        stopping = now > self._end_of_grace() + 2 * KILL_MARGIN_SECONDS
        for watched in self._watched.values():
            if watched.died_at is not None:
                continue
            late = self._mark_late(watched.entry, now)
            if late or stopping:
                if not watched.entry.doomed:
                    logs.killing(watched.pid, "a job is past its deadline" if late else "it should have stopped by now")
                watched.entry.doom()  # before the kill: whoever settles this death, we or a successor, must know that it was ours
                _kill(watched)

    def _end_of_grace(self) -> float:
        """Monotonic seconds at which every worker hands back and exits by itself; we kill those that cannot."""
        order = self._orders.current()
        if order is Order.RUN:
            return float("inf")
        if order >= Order.STOP:
            self._stop_seen_at = self._stop_seen_at or time.monotonic()
            return self._stop_seen_at
        return self._orders.ordered_at + self._grace_seconds

    @staticmethod
    def _mark_late(entry: Entry, now: float) -> bool:
        late = False
        for slot in entry.slots:
            reading = slot.read()
            if reading is not None and reading.begun and now > reading.deadline + KILL_MARGIN_SECONDS:
                slot.time_out(reading)
                late = True
        return late

    # -- renewing

    def _renew_forever(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                self._renew()
                failures, pause = 0, self._conf.renew_seconds
            except ScheduleError as error:
                logs.schedule_trouble("lease keeper", error)
                pause = min(self._conf.renew_seconds, backoff_seconds(failures))
                failures += 1
            time.sleep(max(0.0, began + pause - time.monotonic()))

    def _renew(self) -> None:
        tokens = [reading.token for reading in self._renewable()]
        if tokens:
            self._broker.renew(tokens)  # what is lost is not our affair: the fence decides at settle

    def _renewable(self) -> list[SlotReading]:
        now = time.monotonic()
        alive = [watched.entry for watched in list(self._watched.values()) if watched.died_at is None and watched.is_current]
        return [reading for entry in alive for reading in entry.held() if now <= reading.deadline + KILL_MARGIN_SECONDS]

    # -- deaths

    def _settle_forever(self) -> None:
        failures = 0
        while True:
            with self._dead_wait:
                self._dead_wait.wait_for(lambda: self._dead)
                watched = self._dead[0]
            try:
                self._settle(watched)
                failures = 0
            except Exception as error:
                logs.ledger_trouble("lease keeper", error)
                time.sleep(backoff_seconds(failures))
                failures += 1
                continue
            with self._dead_wait:
                self._dead.pop(0)

    def _settle(self, watched: _Watched) -> None:
        entry = watched.entry
        if not watched.is_current:
            return
        while entry.status is None and time.monotonic() < (watched.died_at or 0) + STATUS_WITHIN_SECONDS:
            time.sleep(0.01)  # the zygote is about to reap it
        death = Death(watched.pid, entry.status, entry.doomed, tuple(entry.held()))
        if death.held:
            settle_death(death, broker=self._broker, conf=self._conf)
        entry.free()


def _open_process(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return -1


def _has_died(descriptor: int) -> bool:
    if descriptor < 0:
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _kill(watched: _Watched) -> None:
    if watched.descriptor >= 0:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(watched.descriptor, signal.SIGKILL)
