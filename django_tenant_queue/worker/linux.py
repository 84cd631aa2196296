"""The two things asked of Linux that Python has no name for. Elsewhere, or when refused, nothing happens."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36


def name_process(role: str) -> None:
    """What `ps` and `top` show, at most 15 characters: dtq:worker, dtq:zygote, ..."""
    _prctl(_PR_SET_NAME, ctypes.create_string_buffer(f"dtq:{role}".encode()[:15]))


def adopt_orphans() -> None:
    """Grandchildren whose parent dies become our children, so that we can wait for them."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: object) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
