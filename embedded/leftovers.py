"""Processes that a command left behind: adopted while it runs, ended after it.

On Linux the runner is a subreaper: whatever loses its parent below it becomes its child, also when it made a session of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time

from embedded.server import children_of

PR_SET_CHILD_SUBREAPER = 36
GRACE_SECONDS = 5


def adopt_orphans() -> frozenset[int]:
    """Returns the children there are already: the servers."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return frozenset(children_of(os.getpid()))


def end_leftovers(servers: frozenset[int], group: int | None) -> None:
    """SIGTERM, then after five seconds SIGKILL, to every adopted process (elsewhere than on Linux: to the command's process group)."""
    if sys.platform != "linux":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(group, signal.SIGTERM)
        return
    deadline = time.monotonic() + GRACE_SECONDS
    told: set[int] = set()
    while leftovers := _leftovers(servers):
        number = signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL
        for pid in leftovers:
            if number == signal.SIGKILL or pid not in told:
                told.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        time.sleep(0.05)
    if told:
        print(f"The command left {len(told)} process(es) behind; they have been ended.", file=sys.stderr)


def _leftovers(servers: frozenset[int]) -> list[int]:
    """Adopted processes that still run; those that have ended are reaped here."""
    alive = []
    for pid in set(children_of(os.getpid())) - servers:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                alive.append(pid)
    return alive
