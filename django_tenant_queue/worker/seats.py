"""A seat: a place in the tree that one process holds, and when it may be filled again after a death."""

from __future__ import annotations

import os
import signal

FIRST_PAUSE_SECONDS = 0.1
SHORT_LIFE_SECONDS = 5.0
_LARGEST_EXPONENT = 20


class Seat:
    """The first death is followed by a new process at once, early deaths after it by growing pauses: no storm of forks."""

    def __init__(self, name: str, *, longest_pause_seconds: float = 30.0) -> None:
        self.name, self._longest = name, longest_pause_seconds
        self.pid: int | None = None
        self._early_deaths = 0
        self._due_at = 0.0

    def is_due(self, now: float) -> bool:
        return self.pid is None and now >= self._due_at

    def due_in(self, now: float) -> float | None:
        """Seconds until it may be filled, None while it is taken."""
        return None if self.pid is not None else max(0.0, self._due_at - now)

    def taken(self, pid: int) -> None:
        self.pid = pid

    def died(self, now: float, lived_seconds: float) -> None:
        self.pid = None
        self._early_deaths = self._early_deaths + 1 if lived_seconds < SHORT_LIFE_SECONDS else 0
        self._due_at = now + self._pause_seconds()

    def put_off(self, now: float) -> None:
        self._due_at = now + FIRST_PAUSE_SECONDS

    def _pause_seconds(self) -> float:
        if self._early_deaths < 2:
            return 0.0
        return min(self._longest, FIRST_PAUSE_SECONDS * 2.0 ** min(self._early_deaths, _LARGEST_EXPONENT))


def describe_status(status: int | None) -> str:
    """ "signal 11 (SIGSEGV)", "exit status 1": what a dead letter says of a crash."""
    if status is None:
        return "an unknown cause"
    if not os.WIFSIGNALED(status):
        return f"exit status {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
