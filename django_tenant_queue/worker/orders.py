"""What a process of the tree is told to do: the page's order, its own SIGTERM, and the end of the zygote as an order to drain."""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Callable
from types import FrameType

from .slots import Order, Page

QUIET_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def ignore_signals() -> None:
    """By a handler that does nothing, not by SIG_IGN: programs that a task starts would inherit that.

    A terminal or a service manager signals every process of the tree; the orders come from the supervisor."""
    for number in QUIET_SIGNALS:
        signal.signal(number, _nothing)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass


class Orders:
    """Asked between any two steps of a loop; a SIGTERM also calls `wake`, which may only do what a signal handler may.

    `alive`: the read end of a pipe whose write end only the zygote has.
    """

    def __init__(self, page: Page, alive: int) -> None:
        self._page, self._alive = page, alive
        self._orphaned_at: float | None = None
        self._told_at: float | None = None
        self.wake: Callable[[], None] = lambda: None

    def listen(self) -> None:
        """In the main thread. SIGTERM to one process alone drains that process; the zygote replaces it."""
        ignore_signals()
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def current(self) -> Order:
        order = self._page.order
        if order is Order.RUN and (self._told_at is not None or self.orphaned()):
            return Order.DRAIN
        return order

    @property
    def ordered_at(self) -> float:
        """Monotonic seconds of the order to drain: the grace counts from here."""
        times = [self._told_at, self._orphaned_at, self._page.ordered_at if self._page.order > Order.RUN else None]
        return min((moment for moment in times if moment is not None), default=time.monotonic())

    def orphaned(self) -> bool:
        """The zygote has died. Also asks when it is stopped: it is not, then."""
        if self._orphaned_at is None:
            poll = select.poll()
            poll.register(self._alive, select.POLLIN)
            if poll.poll(0):
                self._orphaned_at = time.monotonic()
        return self._orphaned_at is not None

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if self._page.order is Order.RUN and self._told_at is None:
            self._told_at = time.monotonic()
        self.wake()
