"""Waiting with a name. The only place in the tests that sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")
EVERY_SECONDS = 0.01


def eventually(condition: Callable[[], T], *, within: float = 5.0, what: str = "") -> T:
    """Call `condition` until it gives something true, and return that. An AssertionError in it means: not yet.

    Fails the test after `within` seconds, with the last value and `what` was waited for."""
    end = time.monotonic() + within
    while True:
        try:
            last: object = (value := condition())
            if value:
                return value
        except AssertionError as error:
            last = error
        if time.monotonic() >= end:
            pytest.fail(f"{what or _name(condition)}: not within {within} s; the last value was {last!r}")
        time.sleep(EVERY_SECONDS)


def never(condition: Callable[[], object], *, during: float, what: str = "") -> None:
    """Fail the test as soon as `condition` gives something true, within `during` seconds."""
    end = time.monotonic() + during
    while time.monotonic() < end:
        if value := condition():
            pytest.fail(f"{what or _name(condition)}: happened, with {value!r}")
        time.sleep(EVERY_SECONDS)


def _name(condition: Callable[[], object]) -> str:
    code = getattr(condition, "__code__", None)
    return f"{getattr(condition, '__name__', condition)} (line {code.co_firstlineno})" if code else str(condition)
