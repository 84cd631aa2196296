"""Ctrl-C and SIGTERM: end what runs, once, and let the stopping that follows finish.

The handler raises, so that whatever blocks ends at once. Python may swallow what a handler raises (in a destructor, in a weakref's
callback), so the request is remembered too, and loops look at it.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

_asked: list[int] = []


def listen() -> None:
    """From now on the first of these signals raises SystemExit(128 + its number) in the main thread; further ones do nothing."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def check() -> None:
    """Raises SystemExit when a signal came."""
    if _asked:
        sys.exit(128 + _asked[0])


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not _asked:
        _asked.append(number)
        check()
