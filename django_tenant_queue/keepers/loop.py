"""The loop that runs keepers: a thread each, with a database connection of its own, at its interval, patient with silent stores."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from django.db import connections
from django.db.utils import Error as DatabaseError

from .. import logs
from ..brokers.backoff import backoff_seconds
from ..brokers.base import Broker
from ..conf import Conf
from ..exceptions import ScheduleError
from ..signals import keeper_failing, keeper_recovered

BACKOFF_CAP_SECONDS = 2.0
JOIN_SECONDS = 0.8


class Keeper(Protocol):
    """A periodic repairer: one small file of this shape."""

    name: str

    def interval(self, conf: Conf) -> float: ...

    def step(self, broker: Broker, conf: Conf) -> float | None:
        """Do what is to be done now. -> seconds until the next step, None: the interval. May raise what the stores raise."""


class Round:
    """Steps of one keeper: one line and one signal when it begins to fail, one when it works again."""

    def __init__(self, keeper: Keeper, broker: Broker, conf: Conf, *, draw: Callable[[], float] = random.random) -> None:
        self.keeper, self._broker, self._conf, self._draw = keeper, broker, conf, draw
        self.failures = 0
        self._failing_since = 0.0

    def step(self) -> float:
        """One step. -> seconds until the next; jittered, so that the keepers of many hosts do not step together."""
        try:
            asked = self.keeper.step(self._broker, self._conf)
        except Exception as error:
            return self._failed(error)
        if self.failures:
            self._recovered()
        seconds = self.keeper.interval(self._conf) if asked is None else asked
        return seconds * (0.9 + 0.2 * self._draw())

    def _failed(self, error: Exception) -> float:
        if not isinstance(error, ScheduleError):
            connections[self._conf.database].close()  # it may be broken; the next step opens another
        if self.failures == 0:
            self._failing_since = time.monotonic()
            logs.keeper_failing(self.keeper.name, error, unexpected=not isinstance(error, ScheduleError | DatabaseError))
            keeper_failing.send_robust(sender=type(self.keeper), name=self.keeper.name, error=error)
        self.failures += 1
        wait = backoff_seconds(self.failures, cap_seconds=BACKOFF_CAP_SECONDS, draw=self._draw)
        return max(wait, min(self.keeper.interval(self._conf), BACKOFF_CAP_SECONDS))

    def _recovered(self) -> None:
        seconds = time.monotonic() - self._failing_since
        logs.keeper_recovered(self.keeper.name, self.failures, seconds)
        keeper_recovered.send_robust(sender=type(self.keeper), name=self.keeper.name, seconds=seconds)
        self.failures = 0


def run(keepers: Sequence[Keeper], broker: Broker, conf: Conf, stop: threading.Event) -> None:
    """Run keepers until `stop` is set; returns within a second of that. A step that hangs in a store is left to its time budget."""
    threads = [threading.Thread(target=_run_one, args=(keeper, broker, conf, stop), name=keeper.name, daemon=True) for keeper in keepers]
    for thread in threads:
        thread.start()
    stop.wait()
    end = time.monotonic() + JOIN_SECONDS
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


def _run_one(keeper: Keeper, broker: Broker, conf: Conf, stop: threading.Event) -> None:
    turns = Round(keeper, broker, conf)
    try:
        while not stop.is_set():
            stop.wait(turns.step())
    finally:
        connections.close_all()
